//! One sign-on: the browser is sent to the provider, and comes back with a code.
//!
//! The state of a sign-on is sealed in the browser's cookie (`sealed_flow`): beginning one reads one row and writes nothing.
//! The callback marks the `state` as used before it contacts the provider, so that each sign-on is finished once.

use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderMap;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use kernel::auth::SignInToken;
use kernel::base::{Actor, ActorKind, ActorRef, Error, Label, Result, Timestamp, WorkflowChain, sha256};
use kernel::http::{BaseUrl, ClientAddress, SharedApp};
use kernel::store::Db;
use serde_json::{Map, Value};
use tokio::time::timeout;

use super::discovery;
use super::provider_cache::{ProviderCache, ProviderMetadata, ProviderPermit};
use super::provider_client::{fetch_userinfo, loggable_word, redeem_code};
use super::refusal::{RefusalMessage, RefusedSignOn, SignOnError, SignOnRefusal, VouchedPerson};
use super::rules::{decode_query, encode_component, find_claim, parse_redirect, requested_scope, role_from_claims};
use super::sealed_flow::{SignOnFlow, cookie_name};
use super::store::{self, ProviderConfig, ProviderConnection, VouchedSignOn};
use super::token::{ExpectedClaims, LEEWAY_MS, TokenFault, verify_token};
use super::{CALLBACK_PATH, FLOW_MS, SSO_NOT_AVAILABLE, email_domain};
use crate::users::{SignOn, fold_email};

/// The timeout of all exchanges of a callback: shorter than that of a request.
const PROVIDER_TIMEOUT: Duration = Duration::from_secs(25);

/// The provider's URL, and the cookies for the browser.
pub struct SignOnRedirect {
    pub url: String,
    /// The values of `Set-Cookie`: the cookie of this sign-on, and the removal of the oldest ones if there are too many.
    pub cookies: Vec<String>,
    pub provider_name: String,
    pub protocol: String,
    pub expires_at: Timestamp,
}

/// A request to begin a sign-on.
pub struct SignOnRequest<'a> {
    pub domain: &'a str,
    pub redirect_to: &'a str,
    /// The person's e-mail address if known, so that the provider need not ask for it.
    pub login_hint: Option<&'a str>,
    pub headers: &'a HeaderMap,
}

/// Begins a sign-on for a domain. Every reason why it is not available gives the same answer, after the same read.
pub async fn begin_sign_on(app: &SharedApp, request: SignOnRequest<'_>) -> Result<SignOnRedirect> {
    let redirect_to =
        parse_redirect(request.redirect_to).map_err(|detail| Error::invalid("/redirect_to", "invalid_path", detail))?;
    let found = store::find_by_domain(&app.signing_on(), &request.domain.to_ascii_lowercase()).await?;
    let provider = found.ok_or_else(|| Error::new(SSO_NOT_AVAILABLE, SSO_NOT_AVAILABLE.example()))?;
    let metadata = discovery::get_metadata(app, &provider, None)
        .await
        .map_err(|refused| provider_unavailable(&provider, &refused))?;
    let state = BASE64.encode(app.env.random.secret_bytes::<32>());
    let flow = SignOnFlow::for_provider(app, &provider, redirect_to);
    let mut url = authorization_url(&app.settings.base_url, &provider, &metadata, &state, &flow);
    if let Some(hint) = request.login_hint {
        url = with_query(&url, &[("login_hint", hint)]);
    }
    Ok(SignOnRedirect {
        url,
        cookies: flow.set_cookies(app, &state, request.headers)?,
        provider_name: provider.name,
        protocol: provider.protocol,
        expires_at: flow.expires_at,
    })
}

/// Longer than the backoff after a failed fetch.
const AWAY_RETRY_AFTER_SECONDS: u64 = 60;

fn provider_unavailable(provider: &ProviderConfig, refused: &RefusedSignOn) -> Error {
    Error::unavailable(format!("the provider {} cannot be used: {}", provider.id, refused.detail)).with_retry_detail(
        "The provider of this domain cannot be used right now. Try again in a minute, or use a sign-in link.",
        AWAY_RETRY_AFTER_SECONDS,
    )
}

fn authorization_url(
    base_url: &BaseUrl,
    provider: &ProviderConfig,
    metadata: &ProviderMetadata,
    state: &str,
    flow: &SignOnFlow,
) -> String {
    let callback = format!("{}{CALLBACK_PATH}", base_url.as_str());
    let scope = requested_scope(provider.scope.as_deref(), &provider.role_map, &metadata.scopes);
    let (nonce, challenge) = (flow.nonce(), BASE64.encode(sha256(flow.code_verifier().as_bytes())));
    let parameters = [
        ("response_type", "code"),
        ("client_id", provider.client_id.as_str()),
        ("redirect_uri", callback.as_str()),
        ("scope", scope.as_str()),
        ("state", state),
        ("nonce", nonce.as_str()),
        ("code_challenge", challenge.as_str()),
        ("code_challenge_method", "S256"),
    ];
    with_query(metadata.authorization_endpoint.as_str(), &parameters)
}

/// Appends parameters to a URL that may have a query already.
pub fn with_query(url: &str, parameters: &[(&str, &str)]) -> String {
    let query: Vec<String> =
        parameters.iter().map(|(name, value)| format!("{name}={}", encode_component(value))).collect();
    format!("{url}{}{}", if url.contains('?') { '&' } else { '?' }, query.join("&"))
}

/// A browser that comes back from the provider.
pub struct CallbackRequest<'a> {
    pub query: &'a str,
    pub headers: &'a HeaderMap,
    pub address: ClientAddress,
    pub request_id: Arc<str>,
}

/// The outcome of a callback.
pub enum CallbackOutcome {
    SignedIn {
        session: SignInToken,
        redirect_to: String,
        /// The name of the sign-on's cookie, to be removed.
        cookie: String,
    },
    Refused {
        message: RefusalMessage,
        /// The name of the sign-on's cookie, to be removed.
        cookie: String,
    },
    /// This browser has not begun this sign-on. Its cookies stay as they are, because any site can send it here.
    Unknown,
}

/// Completes a sign-on. Its state is used up before the provider is contacted, whatever the outcome. A sign-on that this
/// browser has not begun costs no write and no request.
pub async fn complete_sign_on(app: &SharedApp, request: CallbackRequest<'_>) -> Result<CallbackOutcome> {
    let Some(answer) = CallbackQuery::parse_query(request.query) else { return Ok(CallbackOutcome::Unknown) };
    let Some(flow) = SignOnFlow::find_in_cookies(app, &answer.state, request.headers) else {
        return Ok(CallbackOutcome::Unknown);
    };
    let cookie = cookie_name(&app.settings.base_url, &answer.state);
    let db = app.signing_on_to(flow.tenant, sign_on_actor(&flow, &request));
    let refused = match run_sign_on(app, &db, request.address, (&flow, &answer)).await {
        Ok(session) => {
            app.credentials.remember_credential(session.hash());
            // The role may have changed, also for the user's older sessions.
            app.credentials.invalidate_tenant(flow.tenant);
            return Ok(CallbackOutcome::SignedIn { session, redirect_to: flow.redirect_to, cookie });
        }
        Err(SignOnError::Failed(error)) => return Err(error),
        Err(SignOnError::Refused(refused)) => refused,
    };
    tracing::warn!(
        request_id = &*request.request_id,
        provider = %flow.provider,
        reason = refused.refusal.as_str(),
        cause = refused.detail,
        "sign-on refused"
    );
    let providers: ProviderCache = app.settings.feature_settings();
    if let Some(left_out) = providers.count_refusal(flow.provider, refused.refusal, app.env.now())
        && let Err(error) = store::record_refusal(&db, flow.provider, &refused, left_out).await
    {
        tracing::warn!(%error, provider = %flow.provider, "failed to audit a refused sign-on");
    }
    if refused.refusal == SignOnRefusal::NoRole {
        // The user's sessions of this provider have ended.
        app.credentials.invalidate_tenant(flow.tenant);
    }
    Ok(CallbackOutcome::Refused { message: refused.refusal.user_message(), cookie })
}

/// The actor is the service, because the user is not known yet.
fn sign_on_actor(flow: &SignOnFlow, request: &CallbackRequest<'_>) -> Actor {
    let name = "Single sign-on".to_owned();
    Actor {
        who: ActorRef { kind: ActorKind::System, id: Some(flow.provider.to_string()), name },
        credential: None,
        address: Some(request.address.0),
        request_id: Some(request.request_id.clone()),
        chain: WorkflowChain::default(),
    }
}

async fn run_sign_on(
    app: &SharedApp,
    db: &Db,
    address: ClientAddress,
    (flow, answer): (&SignOnFlow, &CallbackQuery),
) -> Result<SignInToken, SignOnError> {
    let now = app.env.now();
    // A later expiry than that of a sign-on begun now comes from a clock that was ahead. The leeway allows for other nodes.
    if now.plus_ms(FLOW_MS + LEEWAY_MS) < flow.expires_at {
        return Err(RefusedSignOn::new(
            SignOnRefusal::FlowExpired,
            "it was begun by a clock that is ahead of this one",
        )
        .into());
    }
    if flow.expires_at <= now {
        return Err(SignOnRefusal::FlowExpired.into());
    }
    // A replayed callback costs one read and no permit.
    let state_hash = sha256(answer.state.as_bytes());
    if store::is_state_used(db, state_hash).await? {
        return Err(SignOnRefusal::FlowUsed.into());
    }
    // Without a permit the state stays unused, so the browser can load the page again.
    let permit = app.settings.feature_settings::<ProviderCache>().acquire_permit(flow.provider, address).await;
    let permit = permit.map_err(|refused| SignOnError::Failed(Error::unavailable(refused.detail)))?;
    if !store::claim_state(db, state_hash, flow.expires_at).await? {
        return Err(SignOnRefusal::FlowUsed.into());
    }
    let provider = store::find_connection(db, flow.provider).await?.ok_or(SignOnRefusal::ProviderDisabled)?;
    // The code was issued for the old settings; mixing them with the new ones is not allowed.
    if flow.version != provider.config.version {
        return Err(SignOnRefusal::ProviderChanged.into());
    }
    let fetching = fetch_vouched_claims(app, &provider, ReturningBrowser { answer, flow, permit: &permit });
    let late = |_| RefusedSignOn::new(SignOnRefusal::ProviderUnreachable, "all that was asked of it took too long");
    let (claims, id_token) = timeout(PROVIDER_TIMEOUT, fetching).await.map_err(late)??;
    // The rest is work of this service, which is bounded by tenant.
    drop(permit);
    let person = VouchedPerson::from_claims(&claims);
    let (who, domain) = read_claims(&provider, &claims).map_err(|refused| refused.with_person(&person))?;
    let id_token = Some(id_token).filter(|token| provider.sign_out_at_provider && token.len() <= ID_TOKEN_BYTES_MAX);
    let vouched = VouchedSignOn { who, domain, version: provider.config.version, id_token };
    let finished = store::finish_sign_on(db, vouched, app.settings.session_absolute_ms, &app.secrets).await?;
    finished.map_err(|refusal| RefusedSignOn::from(refusal).with_person(&person).into())
}

/// The longest ID token that is stored for signing out, where it is part of a URL. Keycloak accepts URLs of 4 KiB, and nginx
/// in front of this service response headers of 4 KiB in all. A longer token is left out.
const ID_TOKEN_BYTES_MAX: usize = 3 * 1024;

/// A callback in the browser that began the sign-on.
struct ReturningBrowser<'a> {
    answer: &'a CallbackQuery,
    flow: &'a SignOnFlow,
    permit: &'a ProviderPermit,
}

/// Redeems the code and returns the verified claims with the ID token.
async fn fetch_vouched_claims(
    app: &SharedApp,
    provider: &ProviderConnection,
    callback: ReturningBrowser<'_>,
) -> Result<(Map<String, Value>, String), SignOnError> {
    let (found, ReturningBrowser { answer, flow, permit }) = (&provider.config, callback);
    // First of all, so that the answer of another provider is not mistaken for this one's (RFC 9207).
    if answer.issuer.as_ref().is_some_and(|issuer| *issuer != found.issuer) {
        return Err(SignOnRefusal::OtherIssuer.into());
    }
    let metadata = discovery::get_metadata(app, found, Some(permit)).await?;
    if metadata.names_issuer && answer.issuer.is_none() {
        return Err(SignOnRefusal::OtherIssuer.into());
    }
    let Some(code) = &answer.code else {
        let word = answer.error.as_deref().and_then(loggable_word);
        return Err(RefusedSignOn::new(SignOnRefusal::ProviderRefused, word.unwrap_or_default()).into());
    };
    let (verifier, nonce) = (flow.code_verifier(), flow.nonce());
    let tokens = redeem_code(app, provider, &metadata, (code.as_str(), verifier.as_str())).await?;
    let (issuer, client_id, now) = (found.issuer.as_str(), found.client_id.as_str(), app.env.now());
    let expected = ExpectedClaims { issuer, client_id, nonce: nonce.as_str(), now };
    let keys = discovery::get_keys(app, found, &metadata).await?;
    let mut verified = verify_token(&tokens.id_token, &keys, &expected);
    if let Some(reason) = verified.as_ref().err().and_then(TokenFault::reread_reason) {
        let keys = discovery::reread_keys(app, found, &metadata, reason).await?;
        verified = verify_token(&tokens.id_token, &keys, &expected);
    }
    let mut claims = verified.map_err(|fault| RefusedSignOn::new(SignOnRefusal::TokenInvalid, fault.detail()))?;
    let userinfo_request = metadata.userinfo_endpoint.as_ref().zip(tokens.access_token.as_deref());
    if let Some((target, token)) = userinfo_request.filter(|_| lacks_claims(provider, &claims)) {
        match fetch_userinfo(app, found, target, token).await {
            Ok(more) => add_claims(&mut claims, more)?,
            // The name is optional; the other claims decide who the user is and which role they get.
            Err(refused) if lacks_required_claims(provider, &claims) => return Err(refused.into()),
            Err(refused) => tracing::warn!(provider = %found.id, cause = refused.detail, "failed to fetch userinfo"),
        }
    }
    Ok((claims, tokens.id_token))
}

/// Whether an ID token lacks a claim that is used.
fn lacks_claims(provider: &ProviderConnection, claims: &Map<String, Value>) -> bool {
    !claims.contains_key("name") || lacks_required_claims(provider, claims)
}

/// Whether an ID token lacks a claim that the sign-on or the role depends on.
fn lacks_required_claims(provider: &ProviderConnection, claims: &Map<String, Value>) -> bool {
    let mut names = ["email"].into_iter().chain(provider.config.role_map.iter().map(|rule| rule.claim.as_str()));
    let is_verified_missing = !provider.trust_email && !claims.contains_key("email_verified");
    is_verified_missing || names.any(|name| find_claim(claims, name).is_none())
}

/// Adds userinfo claims that the ID token lacks. Claims of the ID token stay, and `email_verified` counts only for the
/// address that it came with.
fn add_claims(claims: &mut Map<String, Value>, mut more: Map<String, Value>) -> Result<(), RefusedSignOn> {
    if more.get("sub") != claims.get("sub") {
        return Err(RefusedSignOn::new(SignOnRefusal::TokenInvalid, "what it tells is about somebody else"));
    }
    let has_email = claims.contains_key("email");
    let is_same_email = claims.get("email") == more.get("email");
    if !has_email {
        claims.remove("email_verified");
    }
    if has_email && !is_same_email {
        more.remove("email_verified");
    }
    fill_missing(claims, more);
    Ok(())
}

/// Adds missing claims, also within objects.
fn fill_missing(claims: &mut Map<String, Value>, more: Map<String, Value>) {
    for (name, value) in more {
        match (claims.get_mut(&name), value) {
            (Some(Value::Object(existing)), Value::Object(more)) => fill_missing(existing, more),
            (Some(_), _) => {}
            (None, value) => {
                claims.insert(name, value);
            }
        }
    }
}

/// The sign-on by its claims, and the domain of its e-mail address.
fn read_claims(provider: &ProviderConnection, claims: &Map<String, Value>) -> Result<(SignOn, String), RefusedSignOn> {
    // PostgreSQL cannot store U+0000.
    let text = |name: &str| claims.get(name).and_then(Value::as_str).filter(|text| !text.contains('\0'));
    let subject = text("sub").ok_or(SignOnRefusal::TokenInvalid)?.to_owned();
    // Folded like stored addresses; an address that looks like another is refused.
    let email = text("email").and_then(|email| fold_email(email).ok()).ok_or(SignOnRefusal::NoEmail)?;
    // Some providers send it as a string.
    let is_verified = claims.get("email_verified").is_some_and(|verified| *verified == true || *verified == "true");
    if !is_verified && !provider.trust_email {
        return Err(SignOnRefusal::EmailNotVerified.into());
    }
    let domain = email_domain(&email).ok_or(SignOnRefusal::NoEmail)?;
    let name = text("name").and_then(|name| Label::parse(name).ok()).map(Label::into_string);
    let role = role_from_claims(&provider.config.role_map, provider.default_role, claims);
    Ok((SignOn { provider: provider.config.id, subject, email, name, role }, domain))
}

/// The query of a callback.
struct CallbackQuery {
    state: String,
    code: Option<String>,
    issuer: Option<String>,
    error: Option<String>,
}

impl CallbackQuery {
    /// `None` if `state` is missing or a parameter is repeated. Unknown parameters are ignored.
    fn parse_query(query: &str) -> Option<Self> {
        let pairs = decode_query(query)?;
        let mut params = Map::new();
        for (name, value) in pairs {
            let is_used = ["state", "code", "iss", "error"].contains(&name.as_str());
            if is_used && params.insert(name, Value::String(value)).is_some() {
                return None;
            }
        }
        let mut take = |name: &str| match params.remove(name) {
            Some(Value::String(text)) if !text.is_empty() => Some(text),
            _ => None,
        };
        Some(CallbackQuery { state: take("state")?, code: take("code"), issuer: take("iss"), error: take("error") })
    }
}
