//! What every request can reach, and the operator's settings that it depends on.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

use axum::http::{Extensions, HeaderValue, Uri};
use ipnet::IpNet;
use tokio::sync::{Mutex, Semaphore, broadcast, watch};

use super::answer::{Unsent, UnsentMax};
use super::context::Context;
use super::idempotency::RunningKeys;
use super::limiter::{Limiter, RateTable};
use super::meters::Meters;
use super::patience::Patience;
use super::payer::Payer;
use super::places::Places;
use super::server::ConnectionLimits;
use crate::auth::{Credentials, Token, redeem_signin_link};
use crate::base::{DAY_MS, Error, HOUR_MS, MINUTE_MS, Result, Secrets, TenantId, World};
use crate::outbound::{self, Outbound};
use crate::store::{Store, TenantTurns};

pub type Shared = Arc<App>;

/// Long enough that no two nodes ever have the same name.
const NODE_NAME_LEN: usize = 16;

/// What a request can reach of the running service. Not its database: the way there is the caller's.
///
/// ```compile_fail
/// fn reach(app: &kernel::http::App) -> kernel::store::Db {
///     app.store.system(kernel::store::Purpose::Jobs)
/// }
/// ```
pub struct App {
    pub(crate) store: Store,
    pub world: World,
    pub secrets: Secrets,
    pub settings: Settings,
    pub limiter: Limiter,
    pub credentials: Credentials,
    /// A name for this process among the nodes, new at every start.
    pub node: String,
    /// Whether the process is about to end: what waits for news gives up then.
    pub stopping: watch::Sender<bool>,
    /// The one HTTP client.
    pub outbound: Outbound,
    pub(super) running_keys: RunningKeys,
    /// What the last readiness probe found, and when: a flood of probes costs one question to the database a second.
    pub last_probe: Mutex<Option<(Instant, bool)>>,
    pub(super) in_flight: AtomicUsize,
    pub(super) in_flight_of: Places<TenantId>,
    /// Requests of a tenant that are being answered.
    pub(super) serving: TenantTurns,
    /// What takes a thread and memory for a while: of all tenants, and of each.
    pub(super) working: Arc<Semaphore>,
    pub(super) working_of: TenantTurns,
    /// What was read so and is to be written.
    pub(super) writing_of: TenantTurns,
    /// Bodies that are awaited, by who pays for the request.
    pub(super) bodies: Places<Payer>,
    /// What bodies of more than one MiB take up of memory, in MiB.
    pub(super) large_bodies: Arc<Semaphore>,
    /// Requests that wait for news, by tenant and by credential.
    pub(super) waits: Places<Payer>,
    pub(super) waits_of: Places<Arc<str>>,
    /// Answers that clients have yet to take.
    pub(super) unsent: Unsent,
    /// Streams that go out.
    pub(super) streams: Places<TenantId>,
    pub(super) meters: Meters,
}

impl App {
    pub(crate) fn new(store: Store, secrets: Secrets, settings: Settings) -> Result<Shared> {
        let world = store.world().clone();
        let limiter = Limiter::new(settings.rate_table.clone(), world.clone());
        let node = world.chance.base62(NODE_NAME_LEN);
        let outbound = Outbound::new(settings.outbound.clone())?;
        Ok(Arc::new(App {
            store,
            world,
            secrets,
            settings,
            limiter,
            credentials: Credentials::default(),
            node,
            outbound,
            stopping: watch::Sender::new(false),
            running_keys: RunningKeys::default(),
            last_probe: Mutex::default(),
            in_flight: AtomicUsize::new(0),
            in_flight_of: Places::default(),
            serving: TenantTurns::new(serving_max()),
            working: Arc::new(Semaphore::new(WORKING_MAX)),
            working_of: TenantTurns::new(1),
            writing_of: TenantTurns::new(WRITING_MAX),
            bodies: Places::default(),
            large_bodies: Arc::new(Semaphore::new(LARGE_BODIES_MIB)),
            waits: Places::default(),
            waits_of: Places::default(),
            unsent: Unsent::default(),
            streams: Places::default(),
            meters: Meters::default(),
        }))
    }

    /// See [`Store::news`].
    pub fn news(&self) -> broadcast::Receiver<TenantId> {
        self.store.news()
    }

    /// Uses a sign-in link up and starts the session it stands for. `None` when it is unknown, used or too old.
    pub async fn redeem_signin_link(&self, token: &str, context: &Context) -> Result<Option<Token>> {
        let (from, lifetime_ms) = ((context.address.0, &*context.request_id), self.settings.session_absolute_ms);
        redeem_signin_link((&self.store, &self.credentials), token, lifetime_ms, from).await
    }

    /// See [`Store::ping`].
    pub async fn ping(&self) -> Result<()> {
        self.store.ping().await
    }
}

/// Bodies that are read off the threads that serve requests, each of another tenant: the largest takes some 150 MiB.
const WORKING_MAX: usize = 3;
/// Of one tenant, read and about to be written: as many as are worth one commit.
const WRITING_MAX: usize = 16;

/// Large bodies of all tenants, in MiB: 16 of the largest at once, half of them of one tenant.
pub(super) const LARGE_BODIES_MIB: usize = 256;

/// Reads of one tenant that are worked on at once; the others wait for their turn. A read takes a thread for as long as it
/// lasts: so a neighbour's request finds a few before it, and not all that one tenant has asked for.
fn serving_max() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).max(4) * 2
}

/// What the operator decides about HTTP and sessions.
#[derive(Clone, Debug)]
pub struct Settings {
    pub base_url: BaseUrl,
    /// Peers whose `X-Forwarded-For` is believed.
    pub trusted_proxies: Vec<IpNet>,
    /// Origins that browsers may call from; empty means no CORS at all.
    pub cors_origins: Vec<HeaderValue>,
    pub rate_table: RateTable,
    pub session_idle_ms: i64,
    pub session_absolute_ms: i64,
    pub audit_retention_ms: i64,
    /// How long events, which are what is delivered, are kept.
    pub event_retention_ms: i64,
    /// What the service may connect to by itself.
    pub outbound: outbound::Settings,
    /// Requests under way at once, until the last byte of their answers is out; one more is answered 503 at once instead
    /// of waiting with all the others. One tenant may have half of them.
    pub in_flight_max: usize,
    /// Longer than any honest request takes, shorter than clients and proxies give up.
    pub request_timeout: Duration,
    /// How long a body may take to arrive, be it as large as it may.
    pub body_timeout: Duration,
    /// Bodies of one tenant that are awaited at once. They hold no place among the requests under way, but memory.
    pub bodies_per_tenant_max: usize,
    /// Requests of one tenant that wait for news at once, and of one of its credentials: a few readers are enough for
    /// every purpose, and each keeps a connection.
    pub waits_per_tenant_max: usize,
    pub waits_per_credential_max: usize,
    /// How long a request waits for news when there are none.
    pub news_wait_max: Duration,
    /// What clients may leave unread.
    pub unsent_max: UnsentMax,
    /// See [`Patience`].
    pub header_timeout: Duration,
    pub keep_alive_timeout: Duration,
    pub stall_timeout: Duration,
    /// See [`ConnectionLimits`].
    pub connections_per_address_max: usize,
    /// What is decided about features, each by the type of its own.
    features: Extensions,
}

impl Settings {
    /// What is decided about a feature; what it says itself, unless it was told otherwise.
    pub fn of_feature<T: Clone + Default + Send + Sync + 'static>(&self) -> T {
        self.features.get::<T>().cloned().unwrap_or_default()
    }

    pub fn set_of_feature<T: Clone + Send + Sync + 'static>(&mut self, settings: T) {
        self.features.insert(settings);
    }

    pub fn new(base_url: BaseUrl) -> Self {
        let connections = ConnectionLimits::default();
        Settings {
            base_url,
            trusted_proxies: Vec::new(),
            cors_origins: Vec::new(),
            rate_table: RateTable::default(),
            session_idle_ms: 90 * MINUTE_MS,
            session_absolute_ms: 12 * HOUR_MS,
            audit_retention_ms: 400 * DAY_MS,
            event_retention_ms: 30 * DAY_MS,
            outbound: outbound::Settings::default(),
            in_flight_max: 1024,
            request_timeout: Duration::from_secs(30),
            body_timeout: Duration::from_secs(20),
            bodies_per_tenant_max: 256,
            waits_per_tenant_max: 64,
            waits_per_credential_max: 16,
            news_wait_max: Duration::from_secs(25),
            unsent_max: UnsentMax::default(),
            header_timeout: connections.patience.head,
            keep_alive_timeout: connections.patience.idle,
            stall_timeout: connections.patience.stall,
            connections_per_address_max: connections.per_address_max,
            features: Extensions::new(),
        }
    }

    /// So that one tenant's requests cannot take every place.
    pub(super) fn in_flight_per_tenant_max(&self) -> usize {
        self.in_flight_max.div_ceil(2)
    }

    /// What the server that listens needs to know.
    pub fn connection_limits(&self) -> ConnectionLimits {
        ConnectionLimits {
            patience: Patience { head: self.header_timeout, idle: self.keep_alive_timeout, stall: self.stall_timeout },
            per_address_max: self.connections_per_address_max,
            exempt: self.trusted_proxies.clone(),
        }
    }
}

/// Where clients reach the service: scheme, host and port, with no slash at the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseUrl(String);

impl BaseUrl {
    pub fn parse(text: &str) -> Result<Self> {
        let wrong = || {
            Error::internal(format!(
                "base URL {text:?}: must be http://HOST[:PORT] or https://HOST[:PORT], without a path"
            ))
        };
        let uri: Uri = text.parse().map_err(|_| wrong())?;
        let authority = uri.authority().ok_or_else(wrong)?.as_str().to_ascii_lowercase();
        let scheme = uri.scheme_str().filter(|scheme| ["http", "https"].contains(scheme)).ok_or_else(wrong)?;
        if !["", "/"].contains(&uri.path()) || uri.query().is_some() || authority.contains('@') {
            return Err(wrong());
        }
        // A browser leaves the default port out of Origin.
        let default_port = if scheme == "https" { ":443" } else { ":80" };
        Ok(BaseUrl(format!("{scheme}://{}", authority.strip_suffix(default_port).unwrap_or(&authority))))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn is_https(&self) -> bool {
        self.0.starts_with("https:")
    }

    pub fn cookie_name(&self) -> &'static str {
        if self.is_https() { "__Host-session" } else { "session" }
    }
}
