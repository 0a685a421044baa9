//! One sign-on: the browser is sent to the provider, and comes back with a code.
//!
//! The state of a sign-on is sealed in the browser's cookie (`sealed_flow`): beginning one reads one row and writes nothing.
//! The callback marks the `state` as used before it contacts the provider, so that each sign-on is finished once.

use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderMap;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use kernel::auth::Token;
use kernel::base::{Actor, ActorKind, ActorRef, Chain, Error, Label, Result, Timestamp, sha256};
use kernel::http::{BaseUrl, ClientAddress, Shared};
use kernel::store::Db;
use serde_json::{Map, Value};
use tokio::time::timeout;

use super::asking::{ask_userinfo, plain_word, redeem};
use super::discovery::{self, Metadata, ProviderPermit, Providers};
use super::refusal::{Refusal, Stop, Told, Trouble, VouchedPerson};
use super::rules::{decode_query, email_domain, encode, find_claim, parse_redirect, role_of, scope};
use super::sealed_flow::{Flow, cookie_name};
use super::store::{self, Connection, Finished, Found, Vouched};
use super::token::{Expected, Fault, LEEWAY_MS, verify};
use super::{CALLBACK_PATH, FLOW_MS, SSO_NOT_AVAILABLE};
use crate::users::{SignOn, fold_email};

/// The timeout of all exchanges of a callback: shorter than that of a request.
const ASKING_MAX: Duration = Duration::from_secs(25);

/// The provider's URL, and the cookies for the browser.
pub struct Begun {
    pub url: String,
    /// The values of `Set-Cookie`: the cookie of this sign-on, and the removal of the oldest ones if there are too many.
    pub cookies: Vec<String>,
    pub provider_name: String,
    pub protocol: String,
    pub expires_at: Timestamp,
}

/// A request to begin a sign-on.
pub struct Asked<'a> {
    pub domain: &'a str,
    pub redirect_to: &'a str,
    /// The person's e-mail address if known, so that the provider need not ask for it.
    pub login_hint: Option<&'a str>,
    pub headers: &'a HeaderMap,
}

/// Begins a sign-on for a domain. Every reason why it is not available gives the same answer, after the same read.
pub async fn begin(app: &Shared, asked: Asked<'_>) -> Result<Begun> {
    let redirect_to =
        parse_redirect(asked.redirect_to).map_err(|detail| Error::invalid("/redirect_to", "invalid_path", detail))?;
    let found = store::find_by_domain(&app.signing_on(), &asked.domain.to_ascii_lowercase()).await?;
    let provider = found.ok_or_else(|| Error::new(SSO_NOT_AVAILABLE, SSO_NOT_AVAILABLE.example()))?;
    let metadata = discovery::metadata(app, &provider, None).await.map_err(|trouble| away(&provider, &trouble))?;
    let state = BASE64.encode(app.world.chance.bytes::<32>());
    let flow = Flow::begin(app, &provider, redirect_to);
    let mut url = authorization_url(&app.settings.base_url, &provider, &metadata, &state, &flow);
    if let Some(hint) = asked.login_hint {
        url = with_query(&url, &[("login_hint", hint)]);
    }
    Ok(Begun {
        url,
        cookies: flow.set_cookies(app, &state, asked.headers)?,
        provider_name: provider.name,
        protocol: provider.protocol,
        expires_at: flow.expires_at,
    })
}

/// Longer than the backoff after a failed fetch.
const AWAY_RETRY_AFTER_SECONDS: u64 = 60;

fn away(provider: &Found, trouble: &Trouble) -> Error {
    Error::unavailable(format!("the provider {} cannot be used: {}", provider.id, trouble.detail)).telling(
        "The provider of this domain cannot be used right now. Try again in a minute, or use a sign-in link.",
        AWAY_RETRY_AFTER_SECONDS,
    )
}

fn authorization_url(base_url: &BaseUrl, provider: &Found, metadata: &Metadata, state: &str, flow: &Flow) -> String {
    let callback = format!("{}{CALLBACK_PATH}", base_url.as_str());
    let scope = scope(provider.scope.as_deref(), &provider.role_map, &metadata.scopes);
    let (nonce, challenge) = (flow.nonce(), BASE64.encode(sha256(flow.verifier().as_bytes())));
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
    let query: Vec<String> = parameters.iter().map(|(name, value)| format!("{name}={}", encode(value))).collect();
    format!("{url}{}{}", if url.contains('?') { '&' } else { '?' }, query.join("&"))
}

/// A browser that comes back from the provider.
pub struct Arrived<'a> {
    pub query: &'a str,
    pub headers: &'a HeaderMap,
    pub address: ClientAddress,
    pub request_id: Arc<str>,
}

/// The outcome of a callback.
pub enum Ended {
    Welcome {
        session: Token,
        redirect_to: String,
        /// The name of the sign-on's cookie, to be removed.
        cookie: String,
    },
    Refused {
        told: Told,
        /// The name of the sign-on's cookie, to be removed.
        cookie: String,
    },
    /// This browser has not begun this sign-on. Its cookies stay as they are, because any site can send it here.
    Unknown,
}

/// Completes a sign-on. Its state is used up before the provider is contacted, whatever the outcome. A sign-on that this
/// browser has not begun costs no write and no request.
pub async fn complete(app: &Shared, arrived: Arrived<'_>) -> Result<Ended> {
    let Some(answer) = Answer::read(arrived.query) else { return Ok(Ended::Unknown) };
    let Some(flow) = Flow::find(app, &answer.state, arrived.headers) else { return Ok(Ended::Unknown) };
    let cookie = cookie_name(&app.settings.base_url, &answer.state);
    let db = app.signing_on_to(flow.tenant, actor(&flow, &arrived));
    let trouble = match sign_on(app, &db, arrived.address, (&flow, &answer)).await {
        Ok(session) => {
            app.credentials.remember(session.hash());
            // The role may have changed, also for the user's older sessions.
            app.credentials.forget(flow.tenant);
            return Ok(Ended::Welcome { session, redirect_to: flow.redirect_to, cookie });
        }
        Err(Stop::Failed(error)) => return Err(error),
        Err(Stop::Refused(trouble)) => trouble,
    };
    tracing::warn!(
        request_id = &*arrived.request_id,
        provider = %flow.provider,
        reason = trouble.refusal.as_str(),
        cause = trouble.detail,
        "sign-on refused"
    );
    let providers: Providers = app.settings.of_feature();
    if let Some(left_out) = providers.count(flow.provider, trouble.refusal, app.world.now())
        && let Err(error) = store::note_refusal(&db, flow.provider, &trouble, left_out).await
    {
        tracing::warn!(%error, provider = %flow.provider, "failed to audit a refused sign-on");
    }
    if trouble.refusal == Refusal::NoRole {
        // The user's sessions of this provider have ended.
        app.credentials.forget(flow.tenant);
    }
    Ok(Ended::Refused { told: trouble.refusal.told(), cookie })
}

/// The actor is the service, because the user is not known yet.
fn actor(flow: &Flow, arrived: &Arrived<'_>) -> Actor {
    let name = "Single sign-on".to_owned();
    Actor {
        who: ActorRef { kind: ActorKind::System, id: Some(flow.provider.to_string()), name },
        credential: None,
        address: Some(arrived.address.0),
        request_id: Some(arrived.request_id.clone()),
        chain: Chain::default(),
    }
}

async fn sign_on(
    app: &Shared,
    db: &Db,
    address: ClientAddress,
    (flow, answer): (&Flow, &Answer),
) -> Result<Token, Stop> {
    let now = app.world.now();
    // A later expiry than that of a sign-on begun now comes from a clock that was ahead. The leeway allows for other nodes.
    if now.plus(FLOW_MS + LEEWAY_MS) < flow.expires_at {
        return Err(Trouble::new(Refusal::FlowExpired, "it was begun by a clock that is ahead of this one").into());
    }
    if flow.expires_at <= now {
        return Err(Refusal::FlowExpired.into());
    }
    // A replayed callback costs one read and no permit.
    let state_hash = sha256(answer.state.as_bytes());
    if store::is_state_used(db, state_hash).await? {
        return Err(Refusal::FlowUsed.into());
    }
    // Without a permit the state stays unused, so the browser can load the page again.
    let permit = app.settings.of_feature::<Providers>().acquire_permit(flow.provider, address).await;
    let permit = permit.map_err(|trouble| Stop::Failed(Error::unavailable(trouble.detail)))?;
    if !store::claim_state(db, state_hash, flow.expires_at).await? {
        return Err(Refusal::FlowUsed.into());
    }
    let provider = store::find_connection(db, flow.provider).await?.ok_or(Refusal::ProviderDisabled)?;
    // The code was issued for the old settings; mixing them with the new ones is not allowed.
    if flow.version != provider.found.version {
        return Err(Refusal::ProviderChanged.into());
    }
    let asking = vouch(app, &provider, Back { answer, flow, permit: &permit });
    let late = |_| Trouble::new(Refusal::ProviderUnreachable, "all that was asked of it took too long");
    let (claims, id_token) = timeout(ASKING_MAX, asking).await.map_err(late)??;
    // The rest is work of this service, which is bounded by tenant.
    drop(permit);
    let person = VouchedPerson::of(&claims);
    let (who, domain) = read_claims(&provider, &claims).map_err(|trouble| trouble.about(&person))?;
    let id_token = Some(id_token).filter(|token| provider.sign_out_at_provider && token.len() <= ID_TOKEN_BYTES_MAX);
    let vouched = Vouched { who, domain, version: provider.found.version, id_token };
    match store::finish(db, vouched, app.settings.session_absolute_ms, &app.secrets).await? {
        Finished::Welcome(token) => Ok(token),
        Finished::Refused(refusal) => Err(Trouble::from(refusal).about(&person).into()),
    }
}

/// The longest ID token that is stored for signing out, where it is part of a URL. Keycloak accepts URLs of 4 KiB, and nginx
/// in front of this service response headers of 4 KiB in all. A longer token is left out.
const ID_TOKEN_BYTES_MAX: usize = 3 * 1024;

/// A callback in the browser that began the sign-on.
struct Back<'a> {
    answer: &'a Answer,
    flow: &'a Flow,
    permit: &'a ProviderPermit,
}

/// Redeems the code and returns the verified claims with the ID token.
async fn vouch(app: &Shared, provider: &Connection, back: Back<'_>) -> Result<(Map<String, Value>, String), Stop> {
    let (found, Back { answer, flow, permit }) = (&provider.found, back);
    // First of all, so that the answer of another provider is not mistaken for this one's (RFC 9207).
    if answer.issuer.as_ref().is_some_and(|issuer| *issuer != found.issuer) {
        return Err(Refusal::OtherIssuer.into());
    }
    let metadata = discovery::metadata(app, found, Some(permit)).await?;
    if metadata.names_issuer && answer.issuer.is_none() {
        return Err(Refusal::OtherIssuer.into());
    }
    let Some(code) = &answer.code else {
        let word = answer.error.as_deref().and_then(plain_word);
        return Err(Trouble::new(Refusal::ProviderRefused, word.unwrap_or_default()).into());
    };
    let (verifier, nonce) = (flow.verifier(), flow.nonce());
    let tokens = redeem(app, provider, &metadata, (code.as_str(), verifier.as_str())).await?;
    let (issuer, client_id, now) = (found.issuer.as_str(), found.client_id.as_str(), app.world.now());
    let expected = Expected { issuer, client_id, nonce: nonce.as_str(), now };
    let keys = discovery::keys(app, found, &metadata).await?;
    let mut verified = verify(&tokens.id_token, &keys, &expected);
    if let Some(reason) = verified.as_ref().err().and_then(Fault::reread_reason) {
        let keys = discovery::newer_keys(app, found, &metadata, reason).await?;
        verified = verify(&tokens.id_token, &keys, &expected);
    }
    let mut claims = verified.map_err(|fault| Trouble::new(Refusal::TokenInvalid, fault.detail()))?;
    let way = metadata.userinfo_endpoint.as_ref().zip(tokens.access_token.as_deref());
    if let Some((target, token)) = way.filter(|_| lacks(provider, &claims)) {
        match ask_userinfo(app, found, target, token).await {
            Ok(more) => add_claims(&mut claims, more)?,
            // The name is optional; the other claims decide who the user is and which role they get.
            Err(trouble) if needs(provider, &claims) => return Err(trouble.into()),
            Err(trouble) => tracing::warn!(provider = %found.id, cause = trouble.detail, "failed to fetch userinfo"),
        }
    }
    Ok((claims, tokens.id_token))
}

/// Whether an ID token lacks a claim that is used.
fn lacks(provider: &Connection, claims: &Map<String, Value>) -> bool {
    !claims.contains_key("name") || needs(provider, claims)
}

/// Whether an ID token lacks a claim that the sign-on or the role depends on.
fn needs(provider: &Connection, claims: &Map<String, Value>) -> bool {
    let mut names = ["email"].into_iter().chain(provider.found.role_map.iter().map(|rule| rule.claim.as_str()));
    let is_verified_missing = !provider.trust_email && !claims.contains_key("email_verified");
    is_verified_missing || names.any(|name| find_claim(claims, name).is_none())
}

/// Adds userinfo claims that the ID token lacks. Claims of the ID token stay, and `email_verified` counts only for the
/// address that it came with.
fn add_claims(claims: &mut Map<String, Value>, mut more: Map<String, Value>) -> Result<(), Trouble> {
    if more.get("sub") != claims.get("sub") {
        return Err(Trouble::new(Refusal::TokenInvalid, "what it tells is about somebody else"));
    }
    let has_email = claims.contains_key("email");
    let is_same_email = claims.get("email") == more.get("email");
    if !has_email {
        claims.remove("email_verified");
    }
    if has_email && !is_same_email {
        more.remove("email_verified");
    }
    fill(claims, more);
    Ok(())
}

/// Adds missing claims, also within objects.
fn fill(claims: &mut Map<String, Value>, more: Map<String, Value>) {
    for (name, value) in more {
        match (claims.get_mut(&name), value) {
            (Some(Value::Object(known)), Value::Object(more)) => fill(known, more),
            (Some(_), _) => {}
            (None, value) => {
                claims.insert(name, value);
            }
        }
    }
}

/// The sign-on by its claims, and the domain of its e-mail address.
fn read_claims(provider: &Connection, claims: &Map<String, Value>) -> Result<(SignOn, String), Trouble> {
    // PostgreSQL cannot store U+0000.
    let text = |name: &str| claims.get(name).and_then(Value::as_str).filter(|text| !text.contains('\0'));
    let subject = text("sub").ok_or(Refusal::TokenInvalid)?.to_owned();
    // Folded like stored addresses; look-alikes of other addresses are refused.
    let email = text("email").and_then(|email| fold_email(email).ok()).ok_or(Refusal::NoEmail)?;
    // Some providers send it as a string.
    let is_verified = claims.get("email_verified").is_some_and(|said| *said == true || *said == "true");
    if !is_verified && !provider.trust_email {
        return Err(Refusal::EmailNotVerified.into());
    }
    let domain = email_domain(&email).ok_or(Refusal::NoEmail)?;
    let name = text("name").and_then(|name| Label::parse(name).ok()).map(Label::into_string);
    let role = role_of(&provider.found.role_map, provider.default_role, claims);
    Ok((SignOn { provider: provider.found.id, subject, email, name, role }, domain))
}

/// The query of a callback.
struct Answer {
    state: String,
    code: Option<String>,
    issuer: Option<String>,
    error: Option<String>,
}

impl Answer {
    /// `None` if `state` is missing or a parameter is repeated. Unknown parameters are ignored.
    fn read(query: &str) -> Option<Self> {
        let pairs = decode_query(query)?;
        let mut said = Map::new();
        for (name, value) in pairs {
            let is_ours = ["state", "code", "iss", "error"].contains(&name.as_str());
            if is_ours && said.insert(name, Value::String(value)).is_some() {
                return None;
            }
        }
        let mut take = |name: &str| match said.remove(name) {
            Some(Value::String(text)) if !text.is_empty() => Some(text),
            _ => None,
        };
        Some(Answer { state: take("state")?, code: take("code"), issuer: take("iss"), error: take("error") })
    }
}
