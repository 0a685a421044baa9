//! This node's cache of providers: their metadata and signing keys (`discovery` fetches them), whether they answer, how many
//! requests wait for each of them, and how many sign-ons each of them refused.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use kernel::base::{BudgetLimits, BudgetPermit, FairBudget, HOUR_MS, SECOND_MS, Timestamp, WallClock, lock_unpoisoned};
use kernel::http::ClientAddress;
use kernel::outbound::Target;

use super::ProviderId;
use super::refusal::{RefusalCounts, RefusedSignOn, SignOnRefusal};
use super::token::{ProviderKey, RereadReason};

/// The backoff after a failed fetch: until then requests get the last failure.
const FAILURE_BACKOFF_MS: i64 = 5 * SECOND_MS;
/// Providers without contact for this long, such as disabled ones, do not count for the health.
const HEALTH_WINDOW_MS: i64 = HOUR_MS;
/// Beyond this, another provider is evicted from the cache; it is fetched again when needed.
const PROVIDERS_MAX: usize = 1_000;
/// Permits for requests that wait for one provider. A client address may hold half of what the others leave, and so may all
/// requests together that wait for the discovery document.
const PROVIDER_PERMITS: BudgetLimits =
    BudgetLimits { shared: 64, reserve: 64, floor: 1, divisor: 2, ..BudgetLimits::UNLIMITED };
/// How long a request waits for a permit: a provider that answers frees many permits within a second.
const PERMIT_WAIT_MAX: Duration = Duration::from_secs(1);

/// The endpoints and capabilities of a provider.
#[derive(Clone, Debug)]
pub struct ProviderMetadata {
    pub authorization_endpoint: Target,
    pub token_endpoint: Target,
    pub jwks_uri: Target,
    pub userinfo_endpoint: Option<Target>,
    /// The endpoint for signing out at the provider.
    pub end_session_endpoint: Option<Target>,
    /// The supported scopes, as far as the document lists them.
    pub scopes: Vec<String>,
    /// Whether every authorization response names the issuer (RFC 9207).
    pub names_issuer: bool,
    /// Whether the client secret is sent in the form, because the provider does not accept it in a header.
    pub posts_secret: bool,
}

/// This node's cache of providers. Clones share it.
#[derive(Clone, Default)]
pub struct ProviderCache(Arc<ProviderCacheInner>);

#[derive(Default)]
struct ProviderCacheInner {
    entries: Mutex<HashMap<ProviderId, Arc<CachedProvider>>>,
    /// The clock of the first request to a provider.
    clock: OnceLock<WallClock>,
}

pub struct CachedProvider {
    pub state: Mutex<ProviderState>,
    permits: FairBudget<ProviderWaiter>,
    /// Held while the document or the keys are fetched.
    pub fetch_lock: tokio::sync::Mutex<()>,
    refusals: Mutex<RefusalCounts>,
}

impl Default for CachedProvider {
    fn default() -> Self {
        CachedProvider {
            state: Mutex::default(),
            permits: FairBudget::new(PROVIDER_PERMITS),
            fetch_lock: tokio::sync::Mutex::default(),
            refusals: Mutex::default(),
        }
    }
}

#[derive(Default)]
pub struct ProviderState {
    pub metadata: Option<Fetched<ProviderMetadata>>,
    pub keys: Option<Fetched<Vec<ProviderKey>>>,
    /// When the keys were last reread because a token named an unknown key, and because of a bad signature.
    reread_for_unknown_key_at: Option<Timestamp>,
    reread_for_bad_signature_at: Option<Timestamp>,
    /// When the document was last fetched, and the failure of that fetch.
    pub last_fetch: Option<(Timestamp, Option<RefusedSignOn>)>,
    /// When the provider was last contacted, and whether it did not answer.
    last_contact: Option<(Timestamp, bool)>,
}

impl ProviderState {
    /// The failure of the last fetch, within the backoff.
    fn recent_failure(&self, now: Timestamp) -> Option<RefusedSignOn> {
        let (at, refused) = self.last_fetch.as_ref()?;
        refused.clone().filter(|_| is_within(*at, now, FAILURE_BACKOFF_MS))
    }

    pub fn reread_at(&mut self, reason: RereadReason) -> &mut Option<Timestamp> {
        match reason {
            RereadReason::UnknownKey => &mut self.reread_for_unknown_key_at,
            RereadReason::BadSignature => &mut self.reread_for_bad_signature_at,
        }
    }
}

pub struct Fetched<T> {
    pub at: Timestamp,
    pub value: Arc<T>,
}

/// By hand, because `T` need not be `Clone`.
impl<T> Clone for Fetched<T> {
    fn clone(&self) -> Self {
        Fetched { at: self.at, value: self.value.clone() }
    }
}

impl<T> Fetched<T> {
    pub fn is_younger(&self, now: Timestamp, than_ms: i64) -> bool {
        is_within(self.at, now, than_ms)
    }
}

impl ProviderCache {
    pub fn cached_provider(&self, id: ProviderId) -> Arc<CachedProvider> {
        let mut entries = lock_unpoisoned(&self.0.entries);
        if entries.len() >= PROVIDERS_MAX && !entries.contains_key(&id) {
            // Any entry will do: it is fetched again when needed.
            let any = entries.keys().next().copied();
            any.map(|id| entries.remove(&id));
        }
        entries.entry(id).or_default().clone()
    }

    /// Waits for a permit to finish a sign-on at a provider, for a second at most: a provider that does not answer must not
    /// hold requests of this service, and one client address must not hold all permits of the provider.
    pub async fn acquire_permit(
        &self,
        id: ProviderId,
        address: ClientAddress,
    ) -> Result<ProviderPermit, RefusedSignOn> {
        self.cached_provider(id).acquire_permit(ProviderWaiter::Browser(address.bucket_address())).await
    }

    /// How many providers this node contacted within the last hour, and how many of them did not answer the last time.
    pub fn health_counts(&self) -> (usize, usize) {
        let Some(now) = self.0.clock.get().map(WallClock::now) else { return (0, 0) };
        let is_away = |entry: &Arc<CachedProvider>| {
            let state = lock_unpoisoned(&entry.state);
            let (at, is_away) = state.last_contact?;
            is_within(at, now, HEALTH_WINDOW_MS).then_some(is_away)
        };
        let contacted: Vec<bool> = lock_unpoisoned(&self.0.entries).values().filter_map(is_away).collect();
        (contacted.len(), contacted.iter().filter(|is_away| **is_away).count())
    }

    /// Records whether a provider has answered.
    pub fn record_contact(&self, id: ProviderId, clock: &WallClock, is_away: bool) {
        self.0.clock.get_or_init(|| clock.clone());
        lock_unpoisoned(&self.cached_provider(id).state).last_contact = Some((clock.now(), is_away));
    }

    /// `Some` if the refusal enters the tenant's audit trail, with the number of its kind that were left out before it.
    pub fn count_refusal(&self, id: ProviderId, refusal: SignOnRefusal, now: Timestamp) -> Option<u64> {
        lock_unpoisoned(&self.cached_provider(id).refusals).count_refusal(refusal, now)
    }
}

/// Who holds permits of a provider.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProviderWaiter {
    /// Sign-ons that are being finished, by client address.
    Browser(IpAddr),
    /// Requests that need the discovery document.
    Document,
}

/// Held while a provider works for the request that acquired it.
pub type ProviderPermit = Arc<BudgetPermit<ProviderWaiter>>;

/// Whether `at` is less than `ms` ago. A future moment is not: the clock was set back since, so its age is unknown.
pub fn is_within(at: Timestamp, now: Timestamp, ms: i64) -> bool {
    at <= now && now < at.plus_ms(ms)
}

impl CachedProvider {
    pub async fn acquire_permit(&self, holder: ProviderWaiter) -> Result<ProviderPermit, RefusedSignOn> {
        let permit = self.permits.acquire(holder.into(), 1, PERMIT_WAIT_MAX).await;
        permit
            .map(Arc::new)
            .ok_or_else(|| RefusedSignOn::new(SignOnRefusal::ProviderUnreachable, "too many wait for it"))
    }

    /// Fails within the backoff after a failed fetch.
    pub fn check_recent_failure(&self, now: Timestamp) -> Result<(), RefusedSignOn> {
        lock_unpoisoned(&self.state).recent_failure(now).map_or(Ok(()), Err)
    }
}
