//! Fetches the metadata of providers (the discovery document) and their signing keys into this node's cache.
//!
//! Each provider is fetched from by one task at a time; other requests wait for it. A stale document is used while it is
//! refreshed; stale keys are not, because one of them may have been withdrawn. The operator's configuration of a provider is
//! not cached: it is read from the store each time.

use std::sync::Arc;

use kernel::base::{DAY_MS, HOUR_MS, SECOND_MS, lock_unpoisoned};
use kernel::http::SharedApp;
use kernel::outbound::Target;
use serde_json::{Map, Value};
use tokio::time::timeout;

use super::provider_cache::{
    CachedProvider, Fetched, ProviderCache, ProviderMetadata, ProviderPermit, ProviderWaiter, is_within,
};
use super::provider_client::{self, EXCHANGE_TIMEOUT};
use super::refusal::{RefusedSignOn, SignOnRefusal};
use super::rules::is_allowed_target;
use super::store::ProviderConfig;
use super::token::{ProviderKey, RereadReason, parse_keys};

/// How long a document or keys are fresh.
const FRESH_MS: i64 = HOUR_MS;
/// How long a stale document is used while it cannot be refreshed.
const STALE_MS_MAX: i64 = DAY_MS;
/// The shortest interval between two rereads of the keys for one reason: a token with an unknown key, or with a bad
/// signature. It bounds the cost of forged tokens. Each reason has its own interval, so that one cannot block the other.
const REREAD_INTERVAL_MS: i64 = 30 * SECOND_MS;
/// More than any useful provider has.
const SCOPES_MAX: usize = 200;

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
