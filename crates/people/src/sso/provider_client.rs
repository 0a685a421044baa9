//! Requests to a provider: its discovery document and keys, tokens for a code, and userinfo. All of them pass through
//! `kernel::outbound`. Each exchange is bounded in time and size, and redirects are not followed.

use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue, Method, header};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use kernel::http::SharedApp;
use kernel::outbound::{FailureKind, OutboundRequest, OutboundResponse, Target};
use serde_json::{Map, Value};

use super::CALLBACK_PATH;
use super::provider_cache::{ProviderCache, ProviderMetadata};
use super::refusal::{RefusedSignOn, SignOnError, SignOnRefusal};
use super::rules::encode_component;
use super::store::{ProviderConfig, ProviderConnection};

/// The timeout of one exchange: a person waits for it.
pub const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(10);
/// More than any provider sends, also with a hundred keys.
const ANSWER_BYTES_MAX: usize = 256 * 1024;
/// The longest OAuth error code that is logged; the defined ones are shorter.
const ERROR_BYTES_MAX: usize = 64;
const USER_AGENT: &str = concat!("tenant-control/", env!("CARGO_PKG_VERSION"));

/// Fetches a JSON object that needs no credentials.
pub async fn get_json(
    app: &SharedApp,
    provider: &ProviderConfig,
    target: &Target,
) -> Result<Map<String, Value>, RefusedSignOn> {
    parse_object(&send_request(app, provider, Method::GET, target, json_headers(), Bytes::new()).await?)
}

/// The tokens that a provider gives for a code.
pub struct ProviderTokens {
    pub id_token: String,
    /// For userinfo, if the ID token lacks claims.
    pub access_token: Option<String>,
}

/// Redeems an authorization code with its PKCE verifier.
pub async fn redeem_code(
    app: &SharedApp,
    provider: &ProviderConnection,
    metadata: &ProviderMetadata,
    (code, verifier): (&str, &str),
) -> Result<ProviderTokens, SignOnError> {
    let secret = provider.open_secret(&app.secrets)?;
    let client_id = &provider.config.client_id;
    let redirect_uri = format!("{}{CALLBACK_PATH}", app.settings.base_url.as_str());
    let mut form = vec![
        ("grant_type", "authorization_code"),
        ("code", code),
        ("redirect_uri", redirect_uri.as_str()),
        ("code_verifier", verifier),
    ];
    let mut headers = json_headers();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
    if metadata.posts_secret {
        form.extend([("client_id", client_id.as_str()), ("client_secret", secret.as_str())]);
    } else {
        // Both are encoded first, as RFC 6749 requires: an id may contain a colon.
        let pair = format!("{}:{}", encode_component(client_id), encode_component(&secret));
        if let Ok(basic) = HeaderValue::try_from(format!("Basic {}", BASE64.encode(pair))) {
            headers.insert(header::AUTHORIZATION, basic);
        }
    }
    let form: Vec<String> =
        form.into_iter().map(|(name, value)| format!("{name}={}", encode_component(value))).collect();
    let body = Bytes::from(form.join("&"));
    let answer = send_request(app, &provider.config, Method::POST, &metadata.token_endpoint, headers, body).await?;
    Ok(parse_tokens(&answer)?)
}

fn parse_tokens(answer: &OutboundResponse) -> Result<ProviderTokens, RefusedSignOn> {
    if answer.status != 200 {
        let detail =
            format!("the token endpoint answers {} {}", answer.status, find_error_code(answer).unwrap_or_default());
        return Err(RefusedSignOn::new(SignOnRefusal::ProviderRefused, detail));
    }
    let answer = parse_object(answer)?;
    let text = |name: &str| answer.get(name).and_then(Value::as_str).map(str::to_owned);
    let missing = || RefusedSignOn::new(SignOnRefusal::ProviderBroken, "the token endpoint gives no id_token");
    Ok(ProviderTokens { id_token: text("id_token").ok_or_else(missing)?, access_token: text("access_token") })
}

/// The OAuth error code of an answer, such as `invalid_grant`. The rest of the answer may be anything, and is not logged.
fn find_error_code(answer: &OutboundResponse) -> Option<String> {
    let answer: Value = serde_json::from_slice(&answer.body).ok()?;
    loggable_word(answer.get("error")?.as_str()?)
}

/// The text, if it is a short word that can be logged.
pub fn loggable_word(text: &str) -> Option<String> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    (is_plain && text.len() <= ERROR_BYTES_MAX).then(|| text.to_owned())
}

/// Fetches the userinfo claims of the access token's subject.
pub async fn fetch_userinfo(
    app: &SharedApp,
    provider: &ProviderConfig,
    target: &Target,
    access_token: &str,
) -> Result<Map<String, Value>, RefusedSignOn> {
    let mut headers = json_headers();
    let bearer = HeaderValue::try_from(format!("Bearer {access_token}"));
    let bearer =
        bearer.map_err(|_| RefusedSignOn::new(SignOnRefusal::ProviderBroken, "its access token is no text"))?;
    headers.insert(header::AUTHORIZATION, bearer);
    parse_object(&send_request(app, provider, Method::GET, target, headers, Bytes::new()).await?)
}

fn json_headers() -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
    headers.insert(header::USER_AGENT, HeaderValue::from_static(USER_AGENT));
    headers
}

async fn send_request(
    app: &SharedApp,
    provider: &ProviderConfig,
    method: Method,
    target: &Target,
    headers: HeaderMap,
    body: Bytes,
) -> Result<OutboundResponse, RefusedSignOn> {
    let target = target.clone();
    // One byte more than allowed, to detect an answer that is too long.
    let (timeout, body_max, for_whom) = (EXCHANGE_TIMEOUT, ANSWER_BYTES_MAX + 1, Some(provider.tenant));
    let answer = app
        .outbound
        .send_request(OutboundRequest { method, target, headers, body, timeout, body_max, tenant: for_whom })
        .await;
    let is_away = match &answer {
        Ok(answer) => Some(answer.status >= 500),
        // The request was not sent, so it says nothing about the provider.
        Err(failure) if failure.kind == FailureKind::HeldBack => None,
        Err(_) => Some(true),
    };
    if let Some(is_away) = is_away {
        app.settings.feature_settings::<ProviderCache>().record_contact(provider.id, &app.env.clock, is_away);
    }
    answer.map_err(|failure| {
        let detail = format!("{}: {}", failure.kind.as_str(), failure.detail);
        RefusedSignOn::new(SignOnRefusal::ProviderUnreachable, detail)
    })
}

fn parse_object(answer: &OutboundResponse) -> Result<Map<String, Value>, RefusedSignOn> {
    let broken = |detail: String| RefusedSignOn::new(SignOnRefusal::ProviderBroken, detail);
    if answer.status != 200 {
        return Err(broken(format!("it answers {}", answer.status)));
    }
    if answer.body.len() > ANSWER_BYTES_MAX {
        return Err(broken(format!("its answer has more than {ANSWER_BYTES_MAX} bytes")));
    }
    // A body that is not JSON may be anything, and is not logged.
    serde_json::from_slice(&answer.body).map_err(|_| broken("its answer is no JSON object".to_owned()))
}
