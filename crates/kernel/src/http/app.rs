//! The state that every request can reach.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::{Mutex, broadcast, watch};

use super::address::ClientAddress;
use super::budgets::Admission;
use super::limiter::RateLimiter;
use super::payer::Payer;
use super::request_metrics::RequestMetrics;
use super::running_keys::RunningKeys;
use super::settings::HttpSettings;
use super::usage_meter::UsageMeter;
use crate::auth::{Credentials, SignInToken, redeem_signin_link};
use crate::base::{BudgetLimits, Env, FairBudget, Result, Secrets, TenantId};
use crate::outbound::Outbound;
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
    /// Requests that wait for news, by payer and by actor (user, key or custom credential).
    pub(super) payer_waits: FairBudget<Payer>,
    pub(super) actor_waits: FairBudget<Arc<str>>,
    /// Lists that are being streamed.
    pub(super) streams: FairBudget<TenantId>,
    pub(super) request_metrics: RequestMetrics,
    /// What happens too often to be written one by one.
    pub usage: UsageMeter,
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
            usage: UsageMeter::default(),
        }))
    }

    /// See `Store::subscribe_commits`.
    pub fn subscribe_commits(&self) -> broadcast::Receiver<TenantId> {
        self.store.subscribe_commits()
    }

    /// Redeems a sign-in link and starts its session. `None` when the link is unknown, used or expired.
    pub async fn redeem_signin_link(
        &self,
        token: &str,
        address: ClientAddress,
        request_id: &str,
    ) -> Result<Option<SignInToken>> {
        let lifetime_ms = self.settings.session_absolute_ms;
        redeem_signin_link((&self.store, &self.credentials), token, lifetime_ms, (address.0, request_id)).await
    }

    /// See [`Store::ping`].
    pub async fn ping_store(&self) -> Result<()> {
        self.store.ping().await
    }
}
