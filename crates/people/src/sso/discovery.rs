//! The metadata of providers (the discovery document) and their signing keys, cached on this node.
//!
//! Each provider is fetched from by one task at a time; other requests wait for it. A stale document is used while it is
//! refreshed; stale keys are not, because one of them may have been withdrawn. The operator's configuration of a provider is
//! not cached: it is read from the store each time.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use kernel::base::{
    BudgetLimits, BudgetPermit, DAY_MS, FairBudget, HOUR_MS, SECOND_MS, Timestamp, WallClock, lock_unpoisoned,
};
use kernel::http::{ClientAddress, SharedApp};
use kernel::outbound::Target;
use serde_json::{Map, Value};
use tokio::time::timeout;

use super::ProviderId;
use super::provider_client::{self, EXCHANGE_TIMEOUT};
use super::refusal::{RefusalCounts, RefusedSignOn, SignOnRefusal};
use super::rules::is_allowed_target;
use super::store::ProviderConfig;
use super::token::{ProviderKey, RereadReason, parse_keys};

/// How long a document or keys are fresh.
const FRESH_MS: i64 = HOUR_MS;
/// How long a stale document is used while it cannot be refreshed.
const STALE_MS_MAX: i64 = DAY_MS;
/// The backoff after a failed fetch: until then requests get the last failure.
const FAILURE_BACKOFF_MS: i64 = 5 * SECOND_MS;
/// Providers without contact for this long, such as disabled ones, do not count for the health.
const HEALTH_WINDOW_MS: i64 = HOUR_MS;
/// The shortest interval between two rereads of the keys for one reason: a token with an unknown key, or with a bad
/// signature. It bounds the cost of forged tokens. Each reason has its own interval, so that one cannot block the other.
const REREAD_INTERVAL_MS: i64 = 30 * SECOND_MS;
/// Beyond this, another provider is evicted from the cache; it is fetched again when needed.
const PROVIDERS_MAX: usize = 1_000;
/// More than any useful provider has.
const SCOPES_MAX: usize = 200;
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
    jwks_uri: Target,
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

struct CachedProvider {
    state: Mutex<ProviderState>,
    permits: FairBudget<ProviderWaiter>,
    /// Held while the document or the keys are fetched.
    fetch_lock: tokio::sync::Mutex<()>,
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
struct ProviderState {
    metadata: Option<Fetched<ProviderMetadata>>,
    keys: Option<Fetched<Vec<ProviderKey>>>,
    /// When the keys were last reread because a token named an unknown key, and because of a bad signature.
    reread_for_unknown_key_at: Option<Timestamp>,
    reread_for_bad_signature_at: Option<Timestamp>,
    /// When the document was last fetched, and the failure of that fetch.
    last_fetch: Option<(Timestamp, Option<RefusedSignOn>)>,
    /// When the provider was last contacted, and whether it did not answer.
    last_contact: Option<(Timestamp, bool)>,
}

impl ProviderState {
    /// The failure of the last fetch, within the backoff.
    fn recent_failure(&self, now: Timestamp) -> Option<RefusedSignOn> {
        let (at, refused) = self.last_fetch.as_ref()?;
        refused.clone().filter(|_| is_within(*at, now, FAILURE_BACKOFF_MS))
    }

    fn reread_at(&mut self, reason: RereadReason) -> &mut Option<Timestamp> {
        match reason {
            RereadReason::UnknownKey => &mut self.reread_for_unknown_key_at,
            RereadReason::BadSignature => &mut self.reread_for_bad_signature_at,
        }
    }
}

struct Fetched<T> {
    at: Timestamp,
    value: Arc<T>,
}

/// By hand, because `T` need not be `Clone`.
impl<T> Clone for Fetched<T> {
    fn clone(&self) -> Self {
        Fetched { at: self.at, value: self.value.clone() }
    }
}

impl<T> Fetched<T> {
    fn is_younger(&self, now: Timestamp, than_ms: i64) -> bool {
        is_within(self.at, now, than_ms)
    }
}

impl ProviderCache {
    fn cached_provider(&self, id: ProviderId) -> Arc<CachedProvider> {
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
fn is_within(at: Timestamp, now: Timestamp, ms: i64) -> bool {
    at <= now && now < at.plus_ms(ms)
}

/// The metadata of a provider. Only a missing document, or one older than a day, is waited for, and that takes a permit.
pub async fn get_metadata(
    app: &SharedApp,
    provider: &ProviderConfig,
    permit: Option<&ProviderPermit>,
) -> Result<Arc<ProviderMetadata>, RefusedSignOn> {
    let entry = app.settings.feature_settings::<ProviderCache>().cached_provider(provider.id);
    let (now, read) = (app.env.now(), lock_unpoisoned(&entry.state).metadata.clone());
    match read {
        Some(read) if read.is_younger(now, FRESH_MS) => Ok(read.value),
        Some(read) if read.is_younger(now, STALE_MS_MAX) => {
            tokio::spawn(refresh_document(app.clone(), provider.clone(), entry));
            Ok(read.value)
        }
        _ => {
            entry.check_recent_failure(now)?;
            let permit = match permit {
                Some(permit) => permit.clone(),
                None => entry.acquire_permit(ProviderWaiter::Document).await?,
            };
            // In a task of its own: the request that waits may be dropped, and the outcome is cached for the next ones.
            let reading = tokio::spawn(fetch_document_once(app.clone(), provider.clone(), entry, permit));
            let ended =
                |_| RefusedSignOn::new(SignOnRefusal::ProviderUnreachable, "reading its document ended half-way");
            reading.await.map_err(ended)?
        }
    }
}

/// Fetches the document once for all requests that wait for it.
async fn fetch_document_once(
    app: SharedApp,
    provider: ProviderConfig,
    entry: Arc<CachedProvider>,
    _permit: ProviderPermit,
) -> Result<Arc<ProviderMetadata>, RefusedSignOn> {
    let _fetch_guard = entry.lock_fetches().await?;
    let now = app.env.now();
    let read = lock_unpoisoned(&entry.state).metadata.clone();
    if let Some(read) = read.filter(|read| read.is_younger(now, FRESH_MS)) {
        return Ok(read.value);
    }
    entry.check_recent_failure(now)?;
    entry.fetch_and_record_metadata(&app, &provider).await
}

/// Refreshes the document, unless a fetch is under way.
async fn refresh_document(app: SharedApp, provider: ProviderConfig, entry: Arc<CachedProvider>) {
    let Ok(_fetch_guard) = entry.fetch_lock.try_lock() else { return };
    if entry.check_recent_failure(app.env.now()).is_err() {
        return;
    }
    if let Err(refused) = entry.fetch_and_record_metadata(&app, &provider).await {
        tracing::warn!(provider = %provider.id, cause = refused.detail, "failed to refresh the discovery document");
    }
}

/// The signing keys of a provider.
pub async fn get_keys(
    app: &SharedApp,
    provider: &ProviderConfig,
    metadata: &ProviderMetadata,
) -> Result<Arc<Vec<ProviderKey>>, RefusedSignOn> {
    let entry = app.settings.feature_settings::<ProviderCache>().cached_provider(provider.id);
    let fresh_keys =
        || lock_unpoisoned(&entry.state).keys.clone().filter(|read| read.is_younger(app.env.now(), FRESH_MS));
    if let Some(read) = fresh_keys() {
        return Ok(read.value);
    }
    let _fetch_guard = entry.lock_fetches().await?;
    match fresh_keys() {
        Some(read) => Ok(read.value),
        None => entry.fetch_keys(app, provider, metadata).await,
    }
}

/// The keys, reread for a token that the cached ones do not verify. Within the reread interval of this reason, the cached
/// ones.
pub async fn reread_keys(
    app: &SharedApp,
    provider: &ProviderConfig,
    metadata: &ProviderMetadata,
    reason: RereadReason,
) -> Result<Arc<Vec<ProviderKey>>, RefusedSignOn> {
    let entry = app.settings.feature_settings::<ProviderCache>().cached_provider(provider.id);
    let _fetch_guard = entry.lock_fetches().await?;
    let (now, read, reread_at) = {
        let mut state = lock_unpoisoned(&entry.state);
        (app.env.now(), state.keys.clone(), *state.reread_at(reason))
    };
    if let Some(read) = read.filter(|_| reread_at.is_some_and(|at| is_within(at, now, REREAD_INTERVAL_MS))) {
        return Ok(read.value);
    }
    *lock_unpoisoned(&entry.state).reread_at(reason) = Some(now);
    entry.fetch_keys(app, provider, metadata).await
}

impl CachedProvider {
    async fn acquire_permit(&self, holder: ProviderWaiter) -> Result<ProviderPermit, RefusedSignOn> {
        let permit = self.permits.acquire(holder.into(), 1, PERMIT_WAIT_MAX).await;
        permit
            .map(Arc::new)
            .ok_or_else(|| RefusedSignOn::new(SignOnRefusal::ProviderUnreachable, "too many wait for it"))
    }

    /// Fails within the backoff after a failed fetch.
    fn check_recent_failure(&self, now: Timestamp) -> Result<(), RefusedSignOn> {
        lock_unpoisoned(&self.state).recent_failure(now).map_or(Ok(()), Err)
    }

    async fn lock_fetches(&self) -> Result<tokio::sync::MutexGuard<'_, ()>, RefusedSignOn> {
        let late = |_| RefusedSignOn::new(SignOnRefusal::ProviderUnreachable, "others wait for it, too");
        timeout(EXCHANGE_TIMEOUT, self.fetch_lock.lock()).await.map_err(late)
    }

    async fn fetch_and_record_metadata(
        &self,
        app: &SharedApp,
        provider: &ProviderConfig,
    ) -> Result<Arc<ProviderMetadata>, RefusedSignOn> {
        let read = self.fetch_metadata(app, provider).await;
        let refused = read.as_ref().err().cloned();
        // An unusable document counts as no answer. Other outcomes were recorded with the exchange.
        if refused.as_ref().is_some_and(|refused| refused.refusal == SignOnRefusal::ProviderBroken) {
            app.settings.feature_settings::<ProviderCache>().record_contact(provider.id, &app.env.clock, true);
        }
        lock_unpoisoned(&self.state).last_fetch = Some((app.env.now(), refused));
        read
    }

    async fn fetch_metadata(
        &self,
        app: &SharedApp,
        provider: &ProviderConfig,
    ) -> Result<Arc<ProviderMetadata>, RefusedSignOn> {
        let broken = |detail: String| RefusedSignOn::new(SignOnRefusal::ProviderBroken, detail);
        let issuer = Target::parse(&provider.issuer).map_err(|bad| broken(bad.to_string()))?;
        let url = format!("{}/.well-known/openid-configuration", provider.issuer.trim_end_matches('/'));
        let target = Target::parse(&url).map_err(|bad| broken(bad.to_string()))?;
        if !is_allowed_target(&target, app.outbound.allowed_networks()) {
            let detail = "its issuer is neither https nor at an address that the operator has allowed";
            return Err(broken(detail.to_owned()));
        }
        let document = provider_client::get_json(app, provider, &target).await?;
        let reader = MetadataParser { document: &document, issuer: &issuer, app };
        let metadata = Arc::new(reader.parse_metadata(provider).map_err(broken)?);
        lock_unpoisoned(&self.state).metadata = Some(Fetched { at: app.env.now(), value: metadata.clone() });
        Ok(metadata)
    }

    async fn fetch_keys(
        &self,
        app: &SharedApp,
        provider: &ProviderConfig,
        from: &ProviderMetadata,
    ) -> Result<Arc<Vec<ProviderKey>>, RefusedSignOn> {
        let set = provider_client::get_json(app, provider, &from.jwks_uri).await?;
        let keys = Arc::new(parse_keys(&Value::Object(set)));
        lock_unpoisoned(&self.state).keys = Some(Fetched { at: app.env.now(), value: keys.clone() });
        Ok(keys)
    }
}

/// Parses the discovery document of a provider.
struct MetadataParser<'a> {
    document: &'a Map<String, Value>,
    issuer: &'a Target,
    app: &'a SharedApp,
}

impl MetadataParser<'_> {
    fn parse_metadata(&self, provider: &ProviderConfig) -> Result<ProviderMetadata, String> {
        // Compared exactly: otherwise one provider could speak for another.
        if self.find_text("issuer") != Some(provider.issuer.as_str()) {
            return Err("its document is of another issuer".to_owned());
        }
        let is_true = |name: &str| self.document.get(name) == Some(&Value::Bool(true));
        Ok(ProviderMetadata {
            authorization_endpoint: self.get_endpoint("authorization_endpoint")?,
            token_endpoint: self.get_endpoint("token_endpoint")?,
            jwks_uri: self.get_endpoint("jwks_uri")?,
            userinfo_endpoint: self.optional_endpoint("userinfo_endpoint")?,
            // An unusable endpoint for signing out must not keep people from signing on.
            end_session_endpoint: self.optional_endpoint("end_session_endpoint").ok().flatten(),
            scopes: self.text_list("scopes_supported").take(SCOPES_MAX).map(str::to_owned).collect(),
            names_issuer: is_true("authorization_response_iss_parameter_supported"),
            posts_secret: self.posts_secret(),
        })
    }

    fn find_text(&self, name: &str) -> Option<&str> {
        self.document.get(name).and_then(Value::as_str)
    }

    fn text_list(&self, name: &str) -> impl Iterator<Item = &str> {
        let list = self.document.get(name).and_then(Value::as_array);
        list.into_iter().flatten().filter_map(Value::as_str)
    }

    fn get_endpoint(&self, name: &str) -> Result<Target, String> {
        self.optional_endpoint(name)?.ok_or_else(|| format!("its document has no {name}"))
    }

    fn optional_endpoint(&self, name: &str) -> Result<Option<Target>, String> {
        let Some(url) = self.find_text(name) else { return Ok(None) };
        let target = Target::parse(url).map_err(|bad| format!("its {name} cannot be used: {bad}"))?;
        let is_plain = !target.is_https();
        if is_plain && (self.issuer.is_https() || !is_allowed_target(&target, self.app.outbound.allowed_networks())) {
            return Err(format!("its {name} is not https"));
        }
        Ok(Some(target))
    }

    fn posts_secret(&self) -> bool {
        let has = |name: &str| self.text_list("token_endpoint_auth_methods_supported").any(|method| method == name);
        has("client_secret_post") && !has("client_secret_basic")
    }
}
