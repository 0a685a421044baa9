//! The metadata of providers (the discovery document) and their signing keys, cached on this node.
//!
//! Each provider is fetched from by one task at a time; other requests wait for it. A stale document is used while it is
//! refreshed; stale keys are not, because one of them may have been withdrawn. The operator's configuration of a provider is
//! not cached: it is read from the store each time.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use kernel::base::{BudgetLimits, BudgetPermit, Clock, DAY_MS, FairBudget, HOUR_MS, SECOND_MS, Timestamp};
use kernel::http::{ClientAddress, Shared};
use kernel::outbound::Target;
use serde_json::{Map, Value};
use tokio::time::timeout;

use super::ProviderId;
use super::asking::{self, EXCHANGE_MAX};
use super::refusal::{Refusal, Refusals, Trouble};
use super::rules::may_be_asked;
use super::store::Found;
use super::token::{Key, RereadReason, read_keys};

/// How long a document or keys are fresh.
const FRESH_MS: i64 = HOUR_MS;
/// How long a stale document is used while it cannot be refreshed.
const USED_MS: i64 = DAY_MS;
/// The backoff after a failed fetch: until then requests get the last failure.
const LEFT_ALONE_MS: i64 = 5 * SECOND_MS;
/// Providers without contact for this long, such as disabled ones, do not count for the health.
const HEALTH_MS: i64 = HOUR_MS;
/// The shortest interval between two rereads of the keys for one reason: a token with an unknown key, or with a bad
/// signature. It bounds the cost of forged tokens. Each reason has its own interval, so that one cannot block the other.
const REREAD_MS: i64 = 30 * SECOND_MS;
/// Beyond this, another provider is evicted from the cache; it is fetched again when needed.
const PROVIDERS_MAX: usize = 1_000;
/// More than any useful provider has.
const SCOPES_MAX: usize = 200;
/// Permits for requests that wait for one provider. A client address may hold half of what the others leave, and so may all
/// requests together that wait for the discovery document.
const PROVIDER_PERMITS: BudgetLimits = BudgetLimits { shared: 64, reserve: 64, floor: 1, divisor: 2 };
/// How long a request waits for a permit: a provider that answers frees many permits within a second.
const PERMIT_WAIT_MAX: Duration = Duration::from_secs(1);

/// The endpoints and capabilities of a provider.
#[derive(Clone, Debug)]
pub struct Metadata {
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
pub struct Providers(Arc<Inner>);

#[derive(Default)]
struct Inner {
    entries: Mutex<HashMap<ProviderId, Arc<Entry>>>,
    /// The clock of the first request to a provider.
    clock: OnceLock<Clock>,
}

struct Entry {
    known: Mutex<Known>,
    permits: FairBudget<ProviderWaiter>,
    /// Held while the document or the keys are fetched.
    reading: tokio::sync::Mutex<()>,
    refusals: Mutex<Refusals>,
}

impl Default for Entry {
    fn default() -> Self {
        Entry {
            known: Mutex::default(),
            permits: FairBudget::new(PROVIDER_PERMITS),
            reading: tokio::sync::Mutex::default(),
            refusals: Mutex::default(),
        }
    }
}

#[derive(Default)]
struct Known {
    metadata: Option<Read<Metadata>>,
    keys: Option<Read<Vec<Key>>>,
    /// When the keys were last reread because a token named an unknown key, and because of a bad signature.
    reread_for_unknown_key_at: Option<Timestamp>,
    reread_for_bad_signature_at: Option<Timestamp>,
    /// When the document was last fetched, and the failure of that fetch.
    asked: Option<(Timestamp, Option<Trouble>)>,
    /// When the provider was last contacted, and whether it did not answer.
    heard: Option<(Timestamp, bool)>,
}

impl Known {
    /// The failure of the last fetch, within the backoff.
    fn trouble(&self, now: Timestamp) -> Option<Trouble> {
        let (at, trouble) = self.asked.as_ref()?;
        trouble.clone().filter(|_| is_within(*at, now, LEFT_ALONE_MS))
    }

    fn reread_at(&mut self, reason: RereadReason) -> &mut Option<Timestamp> {
        match reason {
            RereadReason::UnknownKey => &mut self.reread_for_unknown_key_at,
            RereadReason::BadSignature => &mut self.reread_for_bad_signature_at,
        }
    }
}

struct Read<T> {
    at: Timestamp,
    what: Arc<T>,
}

/// By hand, because `T` need not be `Clone`.
impl<T> Clone for Read<T> {
    fn clone(&self) -> Self {
        Read { at: self.at, what: self.what.clone() }
    }
}

impl<T> Read<T> {
    fn is_younger(&self, now: Timestamp, than_ms: i64) -> bool {
        is_within(self.at, now, than_ms)
    }
}

impl Providers {
    fn entry(&self, id: ProviderId) -> Arc<Entry> {
        let mut entries = lock(&self.0.entries);
        if entries.len() >= PROVIDERS_MAX && !entries.contains_key(&id) {
            // Any entry will do: it is fetched again when needed.
            let any = entries.keys().next().copied();
            any.map(|id| entries.remove(&id));
        }
        entries.entry(id).or_default().clone()
    }

    /// Waits for a permit to finish a sign-on at a provider, for a second at most: a provider that does not answer must not
    /// hold requests of this service, and one client address must not hold all permits of the provider.
    pub async fn acquire_permit(&self, id: ProviderId, address: ClientAddress) -> Result<ProviderPermit, Trouble> {
        self.entry(id).acquire_permit(ProviderWaiter::Browser(address.bucket())).await
    }

    /// How many providers this node contacted within the last hour, and how many of them did not answer the last time.
    pub fn health(&self) -> (usize, usize) {
        let Some(now) = self.0.clock.get().map(Clock::now) else { return (0, 0) };
        let is_away = |entry: &Arc<Entry>| {
            let known = lock(&entry.known);
            let (at, is_away) = known.heard?;
            is_within(at, now, HEALTH_MS).then_some(is_away)
        };
        let asked: Vec<bool> = lock(&self.0.entries).values().filter_map(is_away).collect();
        (asked.len(), asked.iter().filter(|is_away| **is_away).count())
    }

    /// Records whether a provider has answered.
    pub fn hear(&self, id: ProviderId, clock: &Clock, is_away: bool) {
        self.0.clock.get_or_init(|| clock.clone());
        lock(&self.entry(id).known).heard = Some((clock.now(), is_away));
    }

    /// `Some` if the refusal enters the tenant's audit trail, with the number of its kind that were left out before it.
    pub fn count(&self, id: ProviderId, refusal: Refusal, now: Timestamp) -> Option<u64> {
        lock(&self.entry(id).refusals).count(refusal, now)
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
    at <= now && now < at.plus(ms)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The metadata of a provider. Only a missing document, or one older than a day, is waited for, and that takes a permit.
pub async fn metadata(
    app: &Shared,
    provider: &Found,
    permit: Option<&ProviderPermit>,
) -> Result<Arc<Metadata>, Trouble> {
    let entry = app.settings.of_feature::<Providers>().entry(provider.id);
    let (now, read) = (app.world.now(), lock(&entry.known).metadata.clone());
    match read {
        Some(read) if read.is_younger(now, FRESH_MS) => Ok(read.what),
        Some(read) if read.is_younger(now, USED_MS) => {
            tokio::spawn(renew(app.clone(), provider.clone(), entry));
            Ok(read.what)
        }
        _ => {
            entry.check(now)?;
            let permit = match permit {
                Some(permit) => permit.clone(),
                None => entry.acquire_permit(ProviderWaiter::Document).await?,
            };
            // In a task of its own: the request that waits may be dropped, and the outcome is cached for the next ones.
            let reading = tokio::spawn(wait_for_document(app.clone(), provider.clone(), entry, permit));
            let ended = |_| Trouble::new(Refusal::ProviderUnreachable, "reading its document ended half-way");
            reading.await.map_err(ended)?
        }
    }
}

/// Fetches the document once for all requests that wait for it.
async fn wait_for_document(
    app: Shared,
    provider: Found,
    entry: Arc<Entry>,
    _permit: ProviderPermit,
) -> Result<Arc<Metadata>, Trouble> {
    let _turn = entry.turn().await?;
    let now = app.world.now();
    let read = lock(&entry.known).metadata.clone();
    if let Some(read) = read.filter(|read| read.is_younger(now, FRESH_MS)) {
        return Ok(read.what);
    }
    entry.check(now)?;
    entry.read_metadata(&app, &provider).await
}

/// Refreshes the document, unless a fetch is under way.
async fn renew(app: Shared, provider: Found, entry: Arc<Entry>) {
    let Ok(_turn) = entry.reading.try_lock() else { return };
    if entry.check(app.world.now()).is_err() {
        return;
    }
    if let Err(trouble) = entry.read_metadata(&app, &provider).await {
        tracing::warn!(provider = %provider.id, cause = trouble.detail, "failed to refresh the discovery document");
    }
}

/// The signing keys of a provider.
pub async fn keys(app: &Shared, provider: &Found, metadata: &Metadata) -> Result<Arc<Vec<Key>>, Trouble> {
    let entry = app.settings.of_feature::<Providers>().entry(provider.id);
    let known = || lock(&entry.known).keys.clone().filter(|read| read.is_younger(app.world.now(), FRESH_MS));
    if let Some(read) = known() {
        return Ok(read.what);
    }
    let _turn = entry.turn().await?;
    match known() {
        Some(read) => Ok(read.what),
        None => entry.read_keys(app, provider, metadata).await,
    }
}

/// The keys, reread for a token that the cached ones do not verify. Within the reread interval of this reason, the cached
/// ones.
pub async fn newer_keys(
    app: &Shared,
    provider: &Found,
    metadata: &Metadata,
    reason: RereadReason,
) -> Result<Arc<Vec<Key>>, Trouble> {
    let entry = app.settings.of_feature::<Providers>().entry(provider.id);
    let _turn = entry.turn().await?;
    let (now, read, reread_at) = {
        let mut known = lock(&entry.known);
        (app.world.now(), known.keys.clone(), *known.reread_at(reason))
    };
    if let Some(read) = read.filter(|_| reread_at.is_some_and(|at| is_within(at, now, REREAD_MS))) {
        return Ok(read.what);
    }
    *lock(&entry.known).reread_at(reason) = Some(now);
    entry.read_keys(app, provider, metadata).await
}

impl Entry {
    async fn acquire_permit(&self, holder: ProviderWaiter) -> Result<ProviderPermit, Trouble> {
        let permit = self.permits.acquire(holder.into(), 1, PERMIT_WAIT_MAX).await;
        permit.map(Arc::new).ok_or_else(|| Trouble::new(Refusal::ProviderUnreachable, "too many wait for it"))
    }

    /// Fails within the backoff after a failed fetch.
    fn check(&self, now: Timestamp) -> Result<(), Trouble> {
        lock(&self.known).trouble(now).map_or(Ok(()), Err)
    }

    async fn turn(&self) -> Result<tokio::sync::MutexGuard<'_, ()>, Trouble> {
        let late = |_| Trouble::new(Refusal::ProviderUnreachable, "others wait for it, too");
        timeout(EXCHANGE_MAX, self.reading.lock()).await.map_err(late)
    }

    async fn read_metadata(&self, app: &Shared, provider: &Found) -> Result<Arc<Metadata>, Trouble> {
        let read = self.ask_metadata(app, provider).await;
        let trouble = read.as_ref().err().cloned();
        // An unusable document counts as no answer. Other outcomes were recorded with the exchange.
        if trouble.as_ref().is_some_and(|trouble| trouble.refusal == Refusal::ProviderBroken) {
            app.settings.of_feature::<Providers>().hear(provider.id, &app.world.clock, true);
        }
        lock(&self.known).asked = Some((app.world.now(), trouble));
        read
    }

    async fn ask_metadata(&self, app: &Shared, provider: &Found) -> Result<Arc<Metadata>, Trouble> {
        let broken = |detail: String| Trouble::new(Refusal::ProviderBroken, detail);
        let issuer = Target::parse(&provider.issuer).map_err(|bad| broken(bad.to_string()))?;
        let url = format!("{}/.well-known/openid-configuration", provider.issuer.trim_end_matches('/'));
        let target = Target::parse(&url).map_err(|bad| broken(bad.to_string()))?;
        if !may_be_asked(&target, app.outbound.allowed()) {
            let detail = "its issuer is neither https nor at an address that the operator has allowed";
            return Err(broken(detail.to_owned()));
        }
        let document = asking::get(app, provider, &target).await?;
        let reader = Reader { document: &document, issuer: &issuer, app };
        let metadata = Arc::new(reader.read(provider).map_err(broken)?);
        lock(&self.known).metadata = Some(Read { at: app.world.now(), what: metadata.clone() });
        Ok(metadata)
    }

    async fn read_keys(&self, app: &Shared, provider: &Found, from: &Metadata) -> Result<Arc<Vec<Key>>, Trouble> {
        let set = asking::get(app, provider, &from.jwks_uri).await?;
        let keys = Arc::new(read_keys(&Value::Object(set)));
        lock(&self.known).keys = Some(Read { at: app.world.now(), what: keys.clone() });
        Ok(keys)
    }
}

/// Parses the discovery document of a provider.
struct Reader<'a> {
    document: &'a Map<String, Value>,
    issuer: &'a Target,
    app: &'a Shared,
}

impl Reader<'_> {
    fn read(&self, provider: &Found) -> Result<Metadata, String> {
        // Compared exactly: otherwise one provider could speak for another.
        if self.text("issuer") != Some(provider.issuer.as_str()) {
            return Err("its document is of another issuer".to_owned());
        }
        let is_true = |name: &str| self.document.get(name) == Some(&Value::Bool(true));
        Ok(Metadata {
            authorization_endpoint: self.endpoint("authorization_endpoint")?,
            token_endpoint: self.endpoint("token_endpoint")?,
            jwks_uri: self.endpoint("jwks_uri")?,
            userinfo_endpoint: self.optional("userinfo_endpoint")?,
            // An unusable endpoint for signing out must not keep people from signing on.
            end_session_endpoint: self.optional("end_session_endpoint").ok().flatten(),
            scopes: self.texts("scopes_supported").take(SCOPES_MAX).map(str::to_owned).collect(),
            names_issuer: is_true("authorization_response_iss_parameter_supported"),
            posts_secret: self.posts_secret(),
        })
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.document.get(name).and_then(Value::as_str)
    }

    fn texts(&self, name: &str) -> impl Iterator<Item = &str> {
        let list = self.document.get(name).and_then(Value::as_array);
        list.into_iter().flatten().filter_map(Value::as_str)
    }

    fn endpoint(&self, name: &str) -> Result<Target, String> {
        self.optional(name)?.ok_or_else(|| format!("its document has no {name}"))
    }

    fn optional(&self, name: &str) -> Result<Option<Target>, String> {
        let Some(url) = self.text(name) else { return Ok(None) };
        let target = Target::parse(url).map_err(|bad| format!("its {name} cannot be used: {bad}"))?;
        let is_plain = !target.is_https();
        if is_plain && (self.issuer.is_https() || !may_be_asked(&target, self.app.outbound.allowed())) {
            return Err(format!("its {name} is not https"));
        }
        Ok(Some(target))
    }

    fn posts_secret(&self) -> bool {
        let has = |name: &str| self.texts("token_endpoint_auth_methods_supported").any(|method| method == name);
        has("client_secret_post") && !has("client_secret_basic")
    }
}
