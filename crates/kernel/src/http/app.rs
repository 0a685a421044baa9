//! The state that every request can reach, and the operator's settings.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::{Extensions, HeaderValue, Uri};
use ipnet::IpNet;
use tokio::sync::{Mutex, broadcast, watch};

use super::admission::{Admission, AdmissionLimits};
use super::connection_timeouts::ConnectionTimeouts;
use super::context::RequestContext;
use super::idempotency::RunningKeys;
use super::limiter::{RateLimiter, RateTable};
use super::payer::Payer;
use super::request_metrics::RequestMetrics;
use super::server::ConnectionLimits;
use crate::auth::{Credentials, SignInToken, redeem_signin_link};
use crate::base::{BudgetLimits, DAY_MS, Env, Error, FairBudget, HOUR_MS, MINUTE_MS, Result, Secrets, TenantId};
use crate::outbound::{self, Outbound};
use crate::store::Store;

pub type SharedApp = Arc<App>;

/// Long enough that no two nodes ever have the same name.
const NODE_NAME_LEN: usize = 16;

/// Concurrent streams of one tenant. They take a quarter of its memory for answers, so that long downloads leave room for
/// its other answers.
const STREAMS_MAX: usize = 4;

/// The shared state of the running service. It does not expose the database, which only a caller's handle reaches.
///
/// ```compile_fail
/// fn reach_store(app: &kernel::http::App) -> kernel::store::Db {
///     app.store.system(kernel::store::Purpose::Jobs)
/// }
/// ```
pub struct App {
    pub(crate) store: Store,
    pub env: Env,
    pub secrets: Secrets,
    pub settings: HttpSettings,
    pub limiter: RateLimiter,
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
    pub(super) payer_waits: FairBudget<Payer>,
    pub(super) actor_waits: FairBudget<Arc<str>>,
    /// Lists that are being streamed.
    pub(super) streams: FairBudget<TenantId>,
    pub(super) request_metrics: RequestMetrics,
}

impl App {
    pub(crate) fn new(store: Store, secrets: Secrets, settings: HttpSettings) -> Result<SharedApp> {
        let env = store.env().clone();
        let limiter = RateLimiter::new(settings.rate_table.clone(), env.clone());
        let node = env.random.base62_text(NODE_NAME_LEN);
        let outbound = Outbound::new(settings.outbound.clone())?;
        let admission = Admission::new(settings.admission);
        let per_payer = |each: usize| BudgetLimits { each, ..BudgetLimits::UNLIMITED };
        let payer_waits = FairBudget::new(per_payer(settings.waits_per_tenant_max));
        let actor_waits = FairBudget::new(per_payer(settings.waits_per_credential_max));
        Ok(Arc::new(App {
            store,
            env,
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
            payer_waits,
            actor_waits,
            streams: FairBudget::new(per_payer(STREAMS_MAX)),
            request_metrics: RequestMetrics::default(),
        }))
    }

    /// See `Store::subscribe_commits`.
    pub fn subscribe_commits(&self) -> broadcast::Receiver<TenantId> {
        self.store.subscribe_commits()
    }

    /// Redeems a sign-in link and starts its session. `None` when the link is unknown, used or expired.
    pub async fn redeem_signin_link(&self, token: &str, context: &RequestContext) -> Result<Option<SignInToken>> {
        let (from, lifetime_ms) = ((context.address.0, &*context.request_id), self.settings.session_absolute_ms);
        redeem_signin_link((&self.store, &self.credentials), token, lifetime_ms, from).await
    }

    /// See [`Store::ping`].
    pub async fn ping_store(&self) -> Result<()> {
        self.store.ping().await
    }
}

/// The operator's settings of HTTP, sessions and retention.
#[derive(Clone, Debug)]
pub struct HttpSettings {
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
    pub outbound: outbound::OutboundSettings,
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

impl HttpSettings {
    /// The settings of a feature, or their default if none were set.
    pub fn feature_settings<T: Clone + Default + Send + Sync + 'static>(&self) -> T {
        self.features.get::<T>().cloned().unwrap_or_default()
    }

    pub fn set_feature_settings<T: Clone + Send + Sync + 'static>(&mut self, settings: T) {
        self.features.insert(settings);
    }

    pub fn new(base_url: BaseUrl) -> Self {
        let connections = ConnectionLimits::default();
        HttpSettings {
            base_url,
            trusted_proxies: Vec::new(),
            cors_origins: Vec::new(),
            rate_table: RateTable::default(),
            session_idle_ms: 90 * MINUTE_MS,
            session_absolute_ms: 12 * HOUR_MS,
            audit_retention_ms: 400 * DAY_MS,
            event_retention_ms: 30 * DAY_MS,
            outbound: outbound::OutboundSettings::default(),
            admission: AdmissionLimits::default(),
            request_timeout: Duration::from_secs(30),
            body_timeout: Duration::from_secs(20),
            waits_per_tenant_max: 64,
            waits_per_credential_max: 16,
            news_wait_max: Duration::from_secs(25),
            header_timeout: connections.timeouts.head,
            keep_alive_timeout: connections.timeouts.idle,
            stall_timeout: connections.timeouts.stall,
            connections_per_address_max: connections.per_address_max,
            features: Extensions::new(),
        }
    }

    /// The limits for the listening server.
    pub fn connection_limits(&self) -> ConnectionLimits {
        ConnectionLimits {
            timeouts: ConnectionTimeouts {
                head: self.header_timeout,
                idle: self.keep_alive_timeout,
                stall: self.stall_timeout,
            },
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
