//! One sign-on: somebody is sent to their provider, and comes back with a code.
//!
//! The browser's cookie holds a secret that everything else is made of: the proof that a code is ours (PKCE) and the word
//! that the provider's token must repeat (nonce). The database has hashes alone, so nobody finishes a sign-on with what is
//! in it, and nobody but the browser that began it.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderMap;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use kernel::auth::{Token, cookie_names, cookies};
use kernel::base::{Actor, ActorKind, ActorRef, Chain, Error, Label, Result, Timestamp, equal, hmac_sha256, sha256};
use kernel::http::{BaseUrl, Shared};
use kernel::store::Db;
use serde_json::{Map, Value};
use tokio::time::timeout;

use super::asking::{ask_userinfo, plain_word, redeem};
use super::discovery::{self, Metadata, Place, Providers};
use super::refusal::{Refusal, Stop, Told, Trouble};
use super::rules::{decode_query, email_domain, encode, find_claim, parse_redirect, role_of, scope};
use super::store::{self, Connection, Finished, Flow, Found, NewFlow, Vouched};
use super::token::{Expected, Fault, LEEWAY_MS, verify};
use super::{CALLBACK_PATH, FLOW_MS, ProviderId, SSO_NOT_AVAILABLE};
use crate::cookie;
use crate::features::users::{SignOn, fold_email};

/// All that is asked of a provider when somebody comes back: shorter than a request may take.
const ASKING_MAX: Duration = Duration::from_secs(25);

/// Where somebody is sent, and what their browser keeps until they come back.
pub struct Begun {
    pub url: String,
    /// The values of `Set-Cookie`: its own, and those of sign-ons that were left, where there are too many.
    pub cookies: Vec<String>,
    pub provider_name: String,
    pub protocol: String,
    pub expires_at: Timestamp,
}

/// Somebody who wants to sign on.
pub struct Asked<'a> {
    pub domain: &'a str,
    pub redirect_to: &'a str,
    /// Who they are, if they have said so: the provider need not ask again.
    pub login_hint: Option<&'a str>,
    pub headers: &'a HeaderMap,
}

/// Begins a sign-on for the people of a domain. What is not available is the same for all that it can be, and is found out by
/// the same read.
pub async fn begin(app: &Shared, asked: Asked<'_>) -> Result<Begun> {
    let redirect_to =
        parse_redirect(asked.redirect_to).map_err(|detail| Error::invalid("/redirect_to", "invalid_path", detail))?;
    let all = app.signing_on();
    let providers: Providers = app.settings.of_feature();
    let found = store::find_by_domain(&all, &asked.domain.to_ascii_lowercase()).await?;
    let provider = found.ok_or_else(|| Error::new(SSO_NOT_AVAILABLE, SSO_NOT_AVAILABLE.example()))?;
    let metadata = discovery::metadata(app, &provider, None).await.map_err(|trouble| away(&provider, &trouble))?;
    let secret = Secret(BASE64.encode(app.world.chance.bytes::<32>()));
    let state = BASE64.encode(app.world.chance.bytes::<32>());
    let expires_at = app.world.now().plus(FLOW_MS);
    let (state_hash, cookie_hash) = (sha256(state.as_bytes()), secret.hash());
    let base_url = &app.settings.base_url;
    let mut url = authorization_url(base_url, &provider, &metadata, &state, &secret);
    if let Some(hint) = asked.login_hint {
        url = with_query(&url, &[("login_hint", hint)]);
    }
    let turn = providers.turn().await;
    store::open_flow(&all, &provider, NewFlow { state_hash, cookie_hash, redirect_to, expires_at }).await?;
    drop(turn);
    if providers.is_time_to_trim(provider.id) {
        tokio::spawn(trim(app.signing_on_to(provider.tenant, Actor::system()), provider.id));
    }
    let left = left_cookies(base_url, asked.headers);
    Ok(Begun {
        url,
        cookies: [secret.cookie(base_url, &state_hash)].into_iter().chain(left).collect(),
        provider_name: provider.name,
        protocol: provider.protocol,
        expires_at,
    })
}

/// Gives up the oldest of a provider that has too many. If it fails, a later one does it.
async fn trim(db: Db, provider: ProviderId) {
    if let Err(error) = store::trim_flows(&db, provider).await {
        tracing::warn!(%error, %provider, "old sign-ons are not given up");
    }
}

/// Sign-ons of one browser: more than anybody has windows for. All its cookies go with every request, and proxies take only so
/// much in a header.
const COOKIES_MAX: usize = 16;

/// Makes a browser forget the oldest of what it has begun, beyond so many.
fn left_cookies(base_url: &BaseUrl, headers: &HeaderMap) -> Vec<String> {
    let mut names = cookie_names(headers, cookie_prefix(base_url));
    // The oldest come first.
    names.truncate((names.len() + 1).saturating_sub(COOKIES_MAX));
    names.iter().map(|name| cookie::clearing(name, base_url.is_https())).collect()
}

/// By then a provider that has failed is asked again.
const AWAY_RETRY_AFTER_SECONDS: u64 = 60;

fn away(provider: &Found, trouble: &Trouble) -> Error {
    Error::unavailable(format!("the provider {} cannot be used: {}", provider.id, trouble.detail)).telling(
        "The provider of this domain cannot be used right now. Try again in a minute, or use a sign-in link.",
        AWAY_RETRY_AFTER_SECONDS,
    )
}

fn authorization_url(
    base_url: &BaseUrl,
    provider: &Found,
    metadata: &Metadata,
    state: &str,
    secret: &Secret,
) -> String {
    let callback = format!("{}{CALLBACK_PATH}", base_url.as_str());
    let scope = scope(provider.scope.as_deref(), &provider.role_map, &metadata.scopes);
    let (nonce, challenge) = (secret.nonce(), BASE64.encode(sha256(secret.verifier().as_bytes())));
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

/// An address may have a query of its own.
pub fn with_query(url: &str, parameters: &[(&str, &str)]) -> String {
    let query: Vec<String> = parameters.iter().map(|(name, value)| format!("{name}={}", encode(value))).collect();
    format!("{url}{}{}", if url.contains('?') { '&' } else { '?' }, query.join("&"))
}

/// 256 random bits that the browser keeps while somebody signs in elsewhere. It does not print.
struct Secret(String);

impl Secret {
    fn hash(&self) -> [u8; 32] {
        sha256(self.0.as_bytes())
    }

    /// For PKCE (RFC 7636): 43 characters, as it asks for.
    fn verifier(&self) -> String {
        BASE64.encode(hmac_sha256(self.0.as_bytes(), b"sso code verifier"))
    }

    fn nonce(&self) -> String {
        BASE64.encode(hmac_sha256(self.0.as_bytes(), b"sso nonce"))
    }

    /// Sent when somebody comes back from another site, which is why it is not `Strict`.
    fn cookie(&self, base_url: &BaseUrl, state_hash: &[u8; 32]) -> String {
        let secure = if base_url.is_https() { "; Secure" } else { "" };
        let (name, seconds) = (cookie_name(base_url, state_hash), FLOW_MS / 1_000);
        format!("{name}={}; Path=/; HttpOnly; SameSite=Lax; Max-Age={seconds}{secure}", self.0)
    }
}

/// One for each sign-on: people have several windows, and begin in each of them.
fn cookie_name(base_url: &BaseUrl, state_hash: &[u8; 32]) -> String {
    format!("{}{}", cookie_prefix(base_url), BASE64.encode(&state_hash[..6]))
}

fn cookie_prefix(base_url: &BaseUrl) -> &'static str {
    if base_url.is_https() { "__Host-sso_flow_" } else { "sso_flow_" }
}

/// A browser that comes back.
pub struct Arrived<'a> {
    pub query: &'a str,
    pub headers: &'a HeaderMap,
    pub address: IpAddr,
    pub request_id: Arc<str>,
}

/// What a sign-on has come to.
pub enum Ended {
    Welcome {
        session: Token,
        redirect_to: String,
        /// The name of its cookie, which is good for nothing any more.
        cookie: String,
    },
    Refused {
        told: Told,
        /// The same, if it was this browser's own sign-on.
        cookie: Option<String>,
    },
    /// There is no such sign-on, or not any more. Nothing of this browser's is touched: anybody can lead it here.
    Unknown,
}

/// Ends a sign-on. It is used up before anything is asked of the provider, whatever becomes of it.
pub async fn complete(app: &Shared, arrived: Arrived<'_>) -> Result<Ended> {
    let Some(answer) = Answer::read(arrived.query) else { return Ok(Ended::Unknown) };
    let state_hash = sha256(answer.state.as_bytes());
    let found = store::find_flow(&app.signing_on(), state_hash).await?;
    let Some(flow) = found else { return Ok(Ended::Unknown) };
    let cookie = cookie_name(&app.settings.base_url, &state_hash);
    let db = app.signing_on_to(flow.tenant, actor(&flow, &arrived));
    let trouble = match sign_on(app, &db, &flow, &answer, cookies(arrived.headers, &cookie)).await {
        Ok(session) => {
            app.credentials.remember(session.hash());
            // The role may be another, in older sessions too.
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
        "a sign-on was refused"
    );
    let providers: Providers = app.settings.of_feature();
    if let Some(left_out) = providers.count(flow.provider, trouble.refusal, app.world.now())
        && let Err(error) = store::note_refusal(&db, flow.provider, trouble.refusal, left_out).await
    {
        tracing::warn!(%error, provider = %flow.provider, "a refused sign-on is not in the trail");
    }
    let is_own = !matches!(trouble.refusal, Refusal::FlowUsed | Refusal::OtherBrowser);
    Ok(Ended::Refused { told: trouble.refusal.told(), cookie: is_own.then_some(cookie) })
}

/// Nobody is known yet, so it is the service that acts, on the provider's word.
fn actor(flow: &Flow, arrived: &Arrived<'_>) -> Actor {
    let name = "Single sign-on".to_owned();
    Actor {
        who: ActorRef { kind: ActorKind::System, id: Some(flow.provider.to_string()), name },
        credential: None,
        address: Some(arrived.address),
        request_id: Some(arrived.request_id.clone()),
        chain: Chain::default(),
    }
}

async fn sign_on(app: &Shared, db: &Db, flow: &Flow, answer: &Answer, cookies: Vec<String>) -> Result<Token, Stop> {
    let secret = cookies.into_iter().map(Secret).find(|secret| equal(&secret.hash(), &flow.cookie_hash));
    // A stranger does not even use it up.
    let secret = secret.ok_or(Refusal::OtherBrowser)?;
    // Whoever finds no place has used nothing up either, and can come again.
    let place = app.settings.of_feature::<Providers>().place(flow.provider).await;
    let place = place.map_err(|trouble| Stop::Failed(Error::unavailable(trouble.detail)))?;
    if !store::use_flow(&app.signing_on(), sha256(answer.state.as_bytes())).await? {
        return Err(Refusal::FlowUsed.into());
    }
    // One that ends later than any that begins now was begun by a clock that was ahead; other nodes' are a little.
    let now = app.world.now();
    if now.plus(FLOW_MS + LEEWAY_MS) < flow.expires_at {
        return Err(Trouble::new(Refusal::FlowExpired, "it was begun by a clock that is ahead of this one").into());
    }
    if flow.expires_at <= now {
        return Err(Refusal::FlowExpired.into());
    }
    let provider = store::find_connection(db, flow.provider).await?.ok_or(Refusal::ProviderDisabled)?;
    // The code is for who we were then, and tells what was asked for then: nobody is let in by half of that and half of this.
    if flow.version.is_some_and(|version| version != provider.found.version) {
        return Err(Refusal::ProviderChanged.into());
    }
    let asking = vouch(app, &provider, Back { answer, secret: &secret, place: &place });
    let late = |_| Trouble::new(Refusal::ProviderUnreachable, "all that was asked of it took too long");
    let claims = timeout(ASKING_MAX, asking).await.map_err(late)??;
    // What is left is ours, and is bounded by tenant.
    drop(place);
    let (who, domain) = read_claims(&provider, &claims)?;
    let vouched = Vouched { who, domain, version: provider.found.version };
    match store::finish(db, vouched, app.settings.session_absolute_ms).await? {
        Finished::Welcome(token) => Ok(token),
        Finished::Refused(refusal) => Err(refusal.into()),
    }
}

/// Somebody who is back, in the browser that began.
struct Back<'a> {
    answer: &'a Answer,
    secret: &'a Secret,
    place: &'a Place,
}

/// What the provider says of whoever comes back with its code.
async fn vouch(app: &Shared, provider: &Connection, back: Back<'_>) -> Result<Map<String, Value>, Stop> {
    let (found, Back { answer, secret, place }) = (&provider.found, back);
    // Before anything else, so that no other provider's answer is taken for this one's (RFC 9207).
    if answer.issuer.as_ref().is_some_and(|issuer| *issuer != found.issuer) {
        return Err(Refusal::OtherIssuer.into());
    }
    let metadata = discovery::metadata(app, found, Some(place)).await?;
    if metadata.names_issuer && answer.issuer.is_none() {
        return Err(Refusal::OtherIssuer.into());
    }
    let Some(code) = &answer.code else {
        let word = answer.error.as_deref().and_then(plain_word);
        return Err(Trouble::new(Refusal::ProviderRefused, word.unwrap_or_default()).into());
    };
    let (verifier, nonce) = (secret.verifier(), secret.nonce());
    let tokens = redeem(app, provider, &metadata, (code.as_str(), verifier.as_str())).await?;
    let (issuer, client_id, now) = (found.issuer.as_str(), found.client_id.as_str(), app.world.now());
    let expected = Expected { issuer, client_id, nonce: nonce.as_str(), now };
    let keys = discovery::keys(app, found, &metadata).await?;
    let mut verified = verify(&tokens.id_token, &keys, &expected);
    if verified == Err(Fault::UnknownKey) {
        let keys = discovery::newer_keys(app, found, &metadata).await?;
        verified = verify(&tokens.id_token, &keys, &expected);
    }
    let mut claims = verified.map_err(|fault| match fault {
        Fault::UnknownKey => Trouble::new(Refusal::TokenInvalid, "its signature is of none of the provider's keys"),
        Fault::Bad(detail) => Trouble::new(Refusal::TokenInvalid, detail),
    })?;
    let way = metadata.userinfo_endpoint.as_ref().zip(tokens.access_token.as_deref());
    if let Some((target, token)) = way.filter(|_| lacks(provider, &claims)) {
        match ask_userinfo(app, found, target, token).await {
            Ok(more) => add_claims(&mut claims, more)?,
            // A name is nice to have; all else decides who somebody is and what they may.
            Err(trouble) if needs(provider, &claims) => return Err(trouble.into()),
            Err(trouble) => tracing::warn!(provider = %found.id, cause = trouble.detail, "a name is not known"),
        }
    }
    Ok(claims)
}

/// Whether an ID token leaves something out that is wanted.
fn lacks(provider: &Connection, claims: &Map<String, Value>) -> bool {
    !claims.contains_key("name") || needs(provider, claims)
}

/// Whether it leaves something out that nobody is let in without, or that their role depends on.
fn needs(provider: &Connection, claims: &Map<String, Value>) -> bool {
    let mut names = ["email"].into_iter().chain(provider.found.role_map.iter().map(|rule| rule.claim.as_str()));
    let is_verified_missing = !provider.trust_email && !claims.contains_key("email_verified");
    is_verified_missing || names.any(|name| find_claim(claims, name).is_none())
}

/// Adds what an ID token left out. What it said stays; and that an address is verified counts for that address alone.
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

/// Adds what is not there, within objects too.
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

/// Who it is, by what the provider says; and the domain of their address.
fn read_claims(provider: &Connection, claims: &Map<String, Value>) -> Result<(SignOn, String), Trouble> {
    // U+0000 is no part of a text: PostgreSQL stores none.
    let text = |name: &str| claims.get(name).and_then(Value::as_str).filter(|text| !text.contains('\0'));
    let subject = text("sub").ok_or(Refusal::TokenInvalid)?.to_owned();
    // As addresses of users are kept: one that only looks like another is nobody's.
    let email = text("email").and_then(|email| fold_email(email).ok()).ok_or(Refusal::NoEmail)?;
    // Some write it as a text.
    let is_verified = claims.get("email_verified").is_some_and(|said| *said == true || *said == "true");
    if !is_verified && !provider.trust_email {
        return Err(Refusal::EmailNotVerified.into());
    }
    let domain = email_domain(&email).ok_or(Refusal::NoEmail)?;
    let name = text("name").and_then(|name| Label::parse(name).ok()).map(Label::into_string);
    let role = role_of(&provider.found.role_map, provider.default_role, claims);
    Ok((SignOn { provider: provider.found.id, subject, email, name, role }, domain))
}

/// What a provider sends a browser back with.
struct Answer {
    state: String,
    code: Option<String>,
    issuer: Option<String>,
    error: Option<String>,
}

impl Answer {
    /// None if it names no sign-on, or says something twice. What else providers add is theirs.
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
