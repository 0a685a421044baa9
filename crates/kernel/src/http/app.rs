//! The state that every request can reach, and the operator's settings.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::{Extensions, HeaderValue, Uri};
use ipnet::IpNet;
use tokio::sync::{Mutex, broadcast, watch};

use super::admission::{Admission, AdmissionLimits};
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
use crate::store::Store;

pub type Shared = Arc<App>;

/// Long enough that no two nodes ever have the same name.
const NODE_NAME_LEN: usize = 16;

/// The shared state of the running service. It does not expose the database, which only a caller's handle reaches.
///
/// ```compile_fail
/// fn reach_store(app: &kernel::http::App) -> kernel::store::Db {
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
    /// Set when the process is about to stop, so that requests that wait for news return.
    pub stopping: watch::Sender<bool>,
    /// The one HTTP client.
    pub outbound: Outbound,
    pub(super) running_keys: RunningKeys,
    /// When the last readiness probe ran and its result, so that a flood of probes costs one query a second.
    pub last_probe: Mutex<Option<(Instant, bool)>>,
    pub(super) admission: Admission,
    /// Requests that wait for news, by payer and by actor (user, key or pass).
    pub(super) waits: Places<Payer>,
    pub(super) waits_of: Places<Arc<str>>,
    /// Lists that are being streamed.
    pub(super) streams: Places<TenantId>,
    pub(super) meters: Meters,
}

impl App {
    pub(crate) fn new(store: Store, secrets: Secrets, settings: Settings) -> Result<Shared> {
        let world = store.world().clone();
        let limiter = Limiter::new(settings.rate_table.clone(), world.clone());
        let node = world.chance.base62(NODE_NAME_LEN);
        let outbound = Outbound::new(settings.outbound.clone())?;
        let admission = Admission::new(settings.admission);
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
            admission,
            waits: Places::default(),
            waits_of: Places::default(),
            streams: Places::default(),
            meters: Meters::default(),
        }))
    }

    /// See `Store::subscribe_commits`.
    pub fn news(&self) -> broadcast::Receiver<TenantId> {
        self.store.news()
    }

    /// Redeems a sign-in link and starts its session. `None` when the link is unknown, used or expired.
    pub async fn redeem_signin_link(&self, token: &str, context: &Context) -> Result<Option<Token>> {
        let (from, lifetime_ms) = ((context.address.0, &*context.request_id), self.settings.session_absolute_ms);
        redeem_signin_link((&self.store, &self.credentials), token, lifetime_ms, from).await
    }

    /// See [`Store::ping`].
    pub async fn ping(&self) -> Result<()> {
        self.store.ping().await
    }
}

/// The operator's settings of HTTP, sessions and retention.
#[derive(Clone, Debug)]
pub struct Settings {
    pub base_url: BaseUrl,
    /// Peers whose `X-Forwarded-For` is trusted.
    pub trusted_proxies: Vec<IpNet>,
    /// Origins that browsers may call from; empty means no CORS at all.
    pub cors_origins: Vec<HeaderValue>,
    pub rate_table: RateTable,
    pub session_idle_ms: i64,
    pub session_absolute_ms: i64,
    pub audit_retention_ms: i64,
    /// How long events, and with them their deliveries, are kept.
    pub event_retention_ms: i64,
    /// Which addresses the service may connect to.
    pub outbound: outbound::Settings,
    /// Requests and memory of one node; a request beyond them is answered 503.
    pub admission: AdmissionLimits,
    /// Longer than any legitimate request takes, shorter than the timeouts of clients and proxies.
    pub request_timeout: Duration,
    /// How long a body of any size may take to arrive.
    pub body_timeout: Duration,
    /// Concurrent requests that wait for news, of one tenant and of one of its users or keys. A few readers are enough,
    /// and each occupies a connection.
    pub waits_per_tenant_max: usize,
    pub waits_per_credential_max: usize,
    /// How long a request waits for news.
    pub news_wait_max: Duration,
    /// See [`ConnectionTimeouts`].
    pub header_timeout: Duration,
    pub keep_alive_timeout: Duration,
    pub stall_timeout: Duration,
    /// See [`ConnectionLimits`].
    pub connections_per_address_max: usize,
    /// The settings of features, by their type.
    features: Extensions,
}

impl Settings {
    /// The settings of a feature, or their default if none were set.
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
            admission: AdmissionLimits::default(),
            request_timeout: Duration::from_secs(30),
            body_timeout: Duration::from_secs(20),
            waits_per_tenant_max: 64,
            waits_per_credential_max: 16,
            news_wait_max: Duration::from_secs(25),
            header_timeout: connections.patience.head,
            keep_alive_timeout: connections.patience.idle,
            stall_timeout: connections.patience.stall,
            connections_per_address_max: connections.per_address_max,
            features: Extensions::new(),
        }
    }

    /// The limits for the listening server.
    pub fn connection_limits(&self) -> ConnectionLimits {
        ConnectionLimits {
            patience: Patience { head: self.header_timeout, idle: self.keep_alive_timeout, stall: self.stall_timeout },
            per_address_max: self.connections_per_address_max,
            exempt: self.trusted_proxies.clone(),
        }
    }
}

/// The address at which clients reach the service: scheme, host and port, without a trailing slash.
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
        // Browsers omit the default port in `Origin`.
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
