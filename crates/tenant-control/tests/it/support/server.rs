//! The whole service in this process, on a port of its own, with a clock that stands still.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use kernel::base::{Env, FaultPoints, Secrets, TestCounter, Timestamp, WallClock};
use kernel::http::{Api, BaseUrl, HttpSettings, Listener};
use kernel::jobs::ServerNode;
use kernel::outbound::NameSource;
use kernel::store::Store;
use tenant_control::features::pages::{HealthMonitor, Library};
use tenant_control::features::search::service::SearchService;
use tenant_control::features::sso::ProviderCache;
use tenant_control::features::webhooks::events::reader::FeedReaders;
use tenant_control::features::webhooks::sender::{self, WebhookSender};
use tenant_control::features::workflows;
use tenant_control::router;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::contract::Contract;
use super::stores::Place;

/// Where the clock of every test stands at first: 2026-01-15T10:00:00Z, the start of a minute.
pub const START: Timestamp = Timestamp::from_millis(1_768_471_200_000);

/// What a server is made of, to be changed before it starts.
pub struct Setup {
    place: Arc<Place>,
    world: Env,
    listener: Listener,
    pub settings: HttpSettings,
    /// The text of its secrets file.
    pub secrets: String,
    pub sending: sender::SenderSettings,
    pub workflows: workflows::WorkflowSettings,
    /// Adds routes of the test's own to those of the product.
    pub mount: fn(Api) -> Api,
}

impl Setup {
    pub async fn sqlite() -> Setup {
        Setup::at(Place::migrated_folder().await).await
    }

    pub async fn postgres() -> Setup {
        Setup::at(Place::migrated_database().await).await
    }

    async fn at(place: Place) -> Setup {
        let world =
            Env { clock: WallClock::new_manual(START), statements: TestCounter::new_counting(), ..Env::default() };
        let (listener, base_url) = listen().await;
        let mut settings = HttpSettings::new(base_url);
        // No test asks a name server: a name means nothing until the test says what.
        settings.outbound.names = NameSource::Table(Arc::new(|_| Vec::new()));
        let secrets = Secrets::generate_text(&world.random).unwrap();
        Setup {
            place: Arc::new(place),
            world,
            listener,
            settings,
            secrets,
            sending: sender::SenderSettings::default(),
            workflows: workflows::WorkflowSettings::default(),
            mount: |api| api,
        }
    }

    /// With the clock of the machine, for tests in which the service works on its own.
    #[must_use]
    pub fn in_real_time(mut self) -> Setup {
        self.world = Env::default();
        self
    }

    /// With the clock of the machine, wrong by so much.
    #[must_use]
    pub fn in_wrong_time(mut self, by_ms: i64) -> Setup {
        self.world = Env { clock: WallClock::Skewed(by_ms), ..Env::default() };
        self
    }

    /// A server to which things happen at places that the test names.
    #[must_use]
    pub fn with_faults(mut self, faults: FaultPoints) -> Setup {
        self.world.faults = faults;
        self
    }

    pub async fn start(self) -> Server {
        let Setup { place, world, listener, mut settings, secrets, sending, workflows, mount } = self;
        settings.set_feature_settings(workflows.clone());
        settings.set_feature_settings(SearchService::default());
        settings.set_feature_settings(ProviderCache::default());
        settings.set_feature_settings(HealthMonitor::default());
        settings.set_feature_settings(Library::default());
        settings.set_feature_settings(FeedReaders::default());
        let store = Store::open(place.options(), world.clone()).await.expect("the store opens");
        let secrets = Secrets::parse(&secrets).expect("a secrets file");
        let app = ServerNode::new(store, secrets, settings).expect("the service");
        Server::serve(place, listener, app, Work { sending, workflows }, mount)
    }
}

async fn listen() -> (Listener, BaseUrl) {
    let listener = Listener::bind(SocketAddr::from(([127, 0, 0, 1], 0)), None).await.expect("a free port");
    let base_url = BaseUrl::parse(&format!("http://{}", listener.local_address().unwrap())).unwrap();
    (listener, base_url)
}

/// A running node. It ends with this value.
pub struct Server {
    pub app: ServerNode,
    pub address: SocketAddr,
    pub contract: Arc<Contract>,
    pub(super) client: reqwest::Client,
    stop: Mutex<Option<oneshot::Sender<()>>>,
    running: JoinHandle<()>,
    /// Sends webhooks, when a test tells it to.
    pub sender: WebhookSender,
    sending: sender::SenderSettings,
    pub workflows: workflows::WorkflowSettings,
    mount: fn(Api) -> Api,
    place: Arc<Place>,
}

/// How a server works on its own.
struct Work {
    sending: sender::SenderSettings,
    workflows: workflows::WorkflowSettings,
}

impl Server {
    pub async fn sqlite() -> Server {
        Setup::sqlite().await.start().await
    }

    pub async fn postgres() -> Server {
        Setup::postgres().await.start().await
    }

    fn serve(place: Arc<Place>, listener: Listener, app: ServerNode, work: Work, mount: fn(Api) -> Api) -> Server {
        let Work { sending, workflows } = work;
        let address = listener.local_address().unwrap();
        let (router, document) =
            router::build_router(mount(router::route_table(app.app()))).expect("the router is built");
        let (stop, stopped) = oneshot::channel();
        let until = async move { drop(stopped.await) };
        let limits = app.settings.connection_limits();
        let running = tokio::spawn(kernel::http::Server::run(listener, router, limits, until));
        let client = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .timeout(std::time::Duration::from_mins(1))
            .build()
            .unwrap();
        let contract = Arc::new(Contract::new(&document.json));
        let sender = WebhookSender::new(app.clone(), sending.clone());
        Server {
            app,
            address,
            contract,
            client,
            stop: Mutex::new(Some(stop)),
            running,
            sender,
            sending,
            workflows,
            mount,
            place,
        }
    }

    /// Another node on the same database, with the same secrets, settings and clock.
    pub async fn second_node(&self) -> Server {
        self.second_node_with(self.app.env.clone()).await
    }

    /// The same with a clock of its own.
    pub async fn second_node_with(&self, world: Env) -> Server {
        self.start_node(world, self.app.secrets.clone(), self.app.settings.clone()).await
    }

    /// Another node whose secrets file is a copy of its own, and may be older or newer than this one's.
    pub async fn node_with_secrets(&self, text: &str) -> Server {
        let secrets = Secrets::parse(text).expect("a secrets file");
        self.start_node(self.app.env.clone(), secrets, self.app.settings.clone()).await
    }

    /// Another node that sends what this one holds, as after a start without `--hold-outgoing`.
    pub async fn sending_node(&self) -> Server {
        let mut settings = self.app.settings.clone();
        settings.outbound.hold = false;
        self.start_node(self.app.env.clone(), self.app.secrets.clone(), settings).await
    }

    async fn start_node(&self, world: Env, secrets: Secrets, mut settings: HttpSettings) -> Server {
        let store = Store::open(self.place.options(), world).await.expect("the store opens again");
        let (listener, _) = listen().await;
        // What a node remembers of providers is its own, and so are those who wait.
        settings.set_feature_settings(ProviderCache::default());
        settings.set_feature_settings(FeedReaders::default());
        let app = ServerNode::new(store, secrets, settings).expect("the service");
        let work = Work { sending: self.sending.clone(), workflows: self.workflows.clone() };
        Server::serve(self.place.clone(), listener, app, work, self.mount)
    }

    pub fn base_url(&self) -> &str {
        self.app.settings.base_url.as_str()
    }

    /// Lets time pass.
    pub fn advance(&self, ms: i64) {
        self.app.env.clock.advance(ms);
    }

    pub fn now(&self) -> Timestamp {
        self.app.env.now()
    }

    /// What the database was asked so far.
    pub fn statements(&self) -> u64 {
        self.app.env.statements.count()
    }

    /// What the process does at SIGTERM.
    pub fn begin_stop(&self) {
        drop(self.stop.lock().unwrap().take());
    }

    /// Stops, and returns when the last request is answered.
    pub async fn stop(mut self) {
        self.begin_stop();
        (&mut self.running).await.expect("the server ends in order");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.running.abort();
    }
}

/// Makes two tests of each function, `name::sqlite` and `name::postgres`. The argument is a [`Server`], or a
/// [`Setup`] where the test wants other settings.
macro_rules! over_http {
    ($($(#[$meta:meta])* async fn $name:ident($argument:ident: $kind:ident) $body:block)*) => {$(
        $(#[$meta])*
        mod $name {
            #[allow(unused_imports, reason = "some bodies need nothing but their server")]
            use super::*;

            async fn test($argument: $crate::support::$kind) $body

            #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
            async fn sqlite() {
                test($crate::support::$kind::sqlite().await).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
            async fn postgres() {
                test($crate::support::$kind::postgres().await).await;
            }
        }
    )*};
}

pub(crate) use over_http;
