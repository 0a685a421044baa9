//! Requests to a provider: its discovery document and keys, tokens for a code, and userinfo. All of them pass through
//! `kernel::outbound`. Each exchange is bounded in time and size, and redirects are not followed.

use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue, Method, header};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use kernel::http::Shared;
use kernel::outbound::{FailureKind, Request, Response, Target};
use serde_json::{Map, Value};

use super::CALLBACK_PATH;
use super::discovery::{Metadata, Providers};
use super::refusal::{Refusal, Stop, Trouble};
use super::rules::encode;
use super::store::{Connection, Found};

/// The timeout of one exchange: a person waits for it.
pub const EXCHANGE_MAX: Duration = Duration::from_secs(10);
/// More than any provider sends, also with a hundred keys.
const ANSWER_BYTES_MAX: usize = 256 * 1024;
/// The longest OAuth error code that is logged; the defined ones are shorter.
const ERROR_BYTES_MAX: usize = 64;
const USER_AGENT: &str = concat!("tenant-control/", env!("CARGO_PKG_VERSION"));

/// Fetches a JSON object that needs no credentials.
pub async fn get(app: &Shared, provider: &Found, target: &Target) -> Result<Map<String, Value>, Trouble> {
    read(&send(app, provider, Method::GET, target, headers(), Bytes::new()).await?)
}

/// The tokens that a provider gives for a code.
pub struct Tokens {
    pub id_token: String,
    /// For userinfo, if the ID token lacks claims.
    pub access_token: Option<String>,
}

/// Redeems an authorization code with its PKCE verifier.
pub async fn redeem(
    app: &Shared,
    provider: &Connection,
    metadata: &Metadata,
    (code, verifier): (&str, &str),
) -> Result<Tokens, Stop> {
    let secret = provider.open_secret(&app.secrets)?;
    let client_id = &provider.found.client_id;
    let redirect_uri = format!("{}{CALLBACK_PATH}", app.settings.base_url.as_str());
    let mut form = vec![
        ("grant_type", "authorization_code"),
        ("code", code),
        ("redirect_uri", redirect_uri.as_str()),
        ("code_verifier", verifier),
    ];
    let mut headers = headers();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
    if metadata.posts_secret {
        form.extend([("client_id", client_id.as_str()), ("client_secret", secret.as_str())]);
    } else {
        // Both are encoded first, as RFC 6749 requires: an id may contain a colon.
        let pair = format!("{}:{}", encode(client_id), encode(&secret));
        if let Ok(basic) = HeaderValue::try_from(format!("Basic {}", BASE64.encode(pair))) {
            headers.insert(header::AUTHORIZATION, basic);
        }
    }
    let form: Vec<String> = form.into_iter().map(|(name, value)| format!("{name}={}", encode(value))).collect();
    let body = Bytes::from(form.join("&"));
    let answer = send(app, &provider.found, Method::POST, &metadata.token_endpoint, headers, body).await?;
    Ok(read_tokens(&answer)?)
}

fn read_tokens(answer: &Response) -> Result<Tokens, Trouble> {
    if answer.status != 200 {
        let detail = format!("the token endpoint answers {} {}", answer.status, error_word(answer).unwrap_or_default());
        return Err(Trouble::new(Refusal::ProviderRefused, detail));
    }
    let answer = read(answer)?;
    let text = |name: &str| answer.get(name).and_then(Value::as_str).map(str::to_owned);
    let missing = || Trouble::new(Refusal::ProviderBroken, "the token endpoint gives no id_token");
    Ok(Tokens { id_token: text("id_token").ok_or_else(missing)?, access_token: text("access_token") })
}

/// The OAuth error code of an answer, such as `invalid_grant`. The rest of the answer may be anything, and is not logged.
fn error_word(answer: &Response) -> Option<String> {
    let answer: Value = serde_json::from_slice(&answer.body).ok()?;
    plain_word(answer.get("error")?.as_str()?)
}

/// The text, if it is a short word that can be logged.
pub fn plain_word(text: &str) -> Option<String> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    (is_plain && text.len() <= ERROR_BYTES_MAX).then(|| text.to_owned())
}

/// Fetches the userinfo claims of the access token's subject.
pub async fn ask_userinfo(
    app: &Shared,
    provider: &Found,
    target: &Target,
    access_token: &str,
) -> Result<Map<String, Value>, Trouble> {
    let mut headers = headers();
    let bearer = HeaderValue::try_from(format!("Bearer {access_token}"));
    let bearer = bearer.map_err(|_| Trouble::new(Refusal::ProviderBroken, "its access token is no text"))?;
    headers.insert(header::AUTHORIZATION, bearer);
    read(&send(app, provider, Method::GET, target, headers, Bytes::new()).await?)
}

fn headers() -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
    headers.insert(header::USER_AGENT, HeaderValue::from_static(USER_AGENT));
    headers
}

async fn send(
    app: &Shared,
    provider: &Found,
    method: Method,
    target: &Target,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Trouble> {
    let target = target.clone();
    // One byte more than allowed, to detect an answer that is too long.
    let (timeout, body_max, for_whom) = (EXCHANGE_MAX, ANSWER_BYTES_MAX + 1, Some(provider.tenant));
    let answer = app.outbound.send(Request { method, target, headers, body, timeout, body_max, for_whom }).await;
    let is_away = match &answer {
        Ok(answer) => Some(answer.status >= 500),
        // The request was not sent, so it says nothing about the provider.
        Err(failure) if failure.kind == FailureKind::HeldBack => None,
        Err(_) => Some(true),
    };
    if let Some(is_away) = is_away {
        app.settings.of_feature::<Providers>().hear(provider.id, &app.world.clock, is_away);
    }
    answer.map_err(|failure| {
        let detail = format!("{}: {}", failure.kind.as_str(), failure.detail);
        Trouble::new(Refusal::ProviderUnreachable, detail)
    })
}

fn read(answer: &Response) -> Result<Map<String, Value>, Trouble> {
    let broken = |detail: String| Trouble::new(Refusal::ProviderBroken, detail);
    if answer.status != 200 {
        return Err(broken(format!("it answers {}", answer.status)));
    }
    if answer.body.len() > ANSWER_BYTES_MAX {
        return Err(broken(format!("its answer has more than {ANSWER_BYTES_MAX} bytes")));
    }
    // A body that is not JSON may be anything, and is not logged.
    serde_json::from_slice(&answer.body).map_err(|_| broken("its answer is no JSON object".to_owned()))
}
