//! `http.request`: a request to another server, through the guard for all outgoing traffic.
//!
//! Every attempt of a step sends the same bytes with the same `Idempotency-Key`, so that a receiver can recognize a repeat.
//! Header values that a receiver echoes are masked before anything is saved.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use bytes::Bytes;
use feature_kit::request_headers::MASK;
use kernel::base::{Result, Timestamp};
use kernel::http::read_object;
use kernel::outbound::{FailureKind, OutboundRequest, OutboundResponse, cap_retry_after, find_retry_after};
use serde_json::{Map, Value, json};

use super::super::actions::HttpRequest;
use super::super::json_depth::is_shallow;
use super::super::{StepAttempt, StepError};
use super::context::EngineContext;
use super::step_results::store::{FailureRetry, StepEnd, StepFailure, StepJob, StepResult, ended_attempt};

/// The part of a response body that is read; the rest is dropped.
const RESPONSE_BYTES_MAX: usize = 64 << 10;
const USER_AGENT: &str = concat!("tenant-control/", env!("CARGO_PKG_VERSION"));
static IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// Shorter values occur by chance in unrelated texts.
const SECRET_CHARS_MIN: usize = 6;
/// Headers that negotiate the response, and words that name the kind of a secret: responses repeat both.
const PLAIN_HEADERS: [&str; 7] =
    ["accept", "accept-charset", "accept-encoding", "accept-language", "cache-control", "content-type", "prefer"];
const PLAIN_WORDS: [&str; 6] = ["bearer", "basic", "digest", "negotiate", "token", "apikey"];
/// A prefix of a secret this long, at the end of a truncated response, is masked.
const SECRET_PREFIX_CHARS_MIN: usize = 3;

/// Sends the request and returns the result. None if nothing was sent: the step is started again a little later.
pub async fn send_request(
    engine: &EngineContext,
    job: &StepJob,
    with: Map<String, Value>,
    shown: Value,
) -> Result<Option<StepResult>> {
    let (http_request, _) = read_object::<HttpRequest>(with).into_result()?;
    let began_at = engine.node.env.now();
    let secrets = collect_secrets(&http_request.headers);
    let Some(request) = build_request(engine, job, &http_request) else {
        let error = StepError::new("invalid_header", "A header cannot be sent as it is.");
        let end = StepEnd::failed(error, FailureRetry::Never);
        return Ok(Some(StepResult { input: Some(shown), attempt: None, end }));
    };
    engine.node.env.faults.check_outside_tx("outside.before_send").await?;
    let response = engine.node.outbound.send_request(request).await;
    engine.node.env.faults.check_outside_tx("outside.answered").await?;
    let ended_at = engine.node.env.now();
    let (status, end) = match response {
        Err(failure) if failure.kind == FailureKind::HeldBack => return Ok(None),
        Err(failure) => {
            let error = StepError {
                status: failure.status,
                ..StepError::new(failure.kind.as_str(), redact_text(&failure.detail, &secrets))
            };
            let is_permanent = failure.kind == FailureKind::NotAllowed;
            let retry = if is_permanent { FailureRetry::Never } else { ask_retry(&failure.headers, ended_at) };
            (failure.status, StepEnd::failed(error, retry))
        }
        Ok(response) if is_expected(&http_request, response.status) => {
            (Some(response.status), StepEnd::Succeeded(build_output(&response, &secrets)))
        }
        Ok(response) => {
            let status = response.status;
            let detail = format!("The server answered {status}.");
            let error = StepError { status: Some(status), ..StepError::new("http_status", detail) };
            let is_retried = is_transient(status) || job.step_definition().retry.on_status.contains(&status);
            let retry = if is_retried { ask_retry(&response.headers, ended_at) } else { FailureRetry::Never };
            let output = Some(build_output(&response, &secrets));
            (Some(status), StepEnd::Failed(Box::new(StepFailure { error, output, retry })))
        }
    };
    let attempt = Some(http_attempt(job, began_at, ended_at, status, &end));
    let is_late = job.step.deadline_at.is_some_and(|deadline| deadline <= ended_at);
    let end = if is_late && !matches!(end, StepEnd::Succeeded(_)) { StepEnd::TimedOut } else { end };
    Ok(Some(StepResult { input: Some(shown), attempt, end }))
}

/// Whether the same request may have another answer later. What the server finds wrong with it, it will find again.
fn is_transient(status: u16) -> bool {
    !(400..500).contains(&status) || [408, 409, 425, 429].contains(&status)
}

fn ask_retry(headers: &HeaderMap, now: Timestamp) -> FailureRetry {
    find_retry_after(headers, now)
        .map_or(FailureRetry::Backoff, |asked| FailureRetry::NotBefore(cap_retry_after(asked, now)))
}

/// Whether a status is in `expect_status`, or is 2xx if that is empty.
fn is_expected(http_request: &HttpRequest, status: u16) -> bool {
    if http_request.expect_status.is_empty() {
        (200..300).contains(&status)
    } else {
        http_request.expect_status.contains(&status)
    }
}

fn build_request(engine: &EngineContext, job: &StepJob, http_request: &HttpRequest) -> Option<OutboundRequest> {
    // The step's deadline also limits its requests.
    let left_ms = job.step.deadline_at.map(|deadline| deadline.as_millis() - engine.node.env.now().as_millis());
    let left = left_ms.map_or(Duration::MAX, |ms| Duration::from_millis(ms.max(1).unsigned_abs()));
    let mut headers = HeaderMap::new();
    for (name, value) in &http_request.headers {
        headers.insert(HeaderName::try_from(name).ok()?, HeaderValue::try_from(value).ok()?);
    }
    let body = match &http_request.body {
        None => Bytes::new(),
        Some(Value::String(text)) => {
            set_content_type(&mut headers, "text/plain; charset=utf-8");
            Bytes::from(text.clone())
        }
        Some(json) => {
            set_content_type(&mut headers, "application/json");
            Bytes::from(serde_json::to_vec(json).ok()?)
        }
    };
    headers.insert(header::USER_AGENT, HeaderValue::from_static(USER_AGENT));
    let key = format!("{}.{}", job.run.run.id, job.step.name);
    headers.insert(&IDEMPOTENCY_KEY, HeaderValue::try_from(key).ok()?);
    Some(OutboundRequest {
        method: Method::from_bytes(http_request.method.as_bytes()).ok()?,
        target: http_request.url.clone(),
        headers,
        body,
        timeout: left.min(engine.settings.http_timeout),
        body_max: RESPONSE_BYTES_MAX,
        tenant: Some(job.tenant),
    })
}

/// Sets the content type, unless the step has set it.
fn set_content_type(headers: &mut HeaderMap, kind: &'static str) {
    headers.entry(header::CONTENT_TYPE).or_insert(HeaderValue::from_static(kind));
}

fn http_attempt(job: &StepJob, at: Timestamp, ended_at: Timestamp, status: Option<u16>, end: &StepEnd) -> StepAttempt {
    let attempt = ended_attempt(job, at, ended_at, end.error().cloned());
    StepAttempt { status_code: status.map(i64::from), ..attempt }
}

/// `{status, headers, body}`, with the body as JSON if it is declared as JSON and valid.
fn build_output(response: &OutboundResponse, secrets: &[String]) -> Value {
    let mut headers: BTreeMap<String, String> = BTreeMap::new();
    for (name, value) in &response.headers {
        let value = if name == header::SET_COOKIE { MASK.into() } else { String::from_utf8_lossy(value.as_bytes()) };
        let value = redact_text(&value, secrets);
        headers
            .entry(name.to_string())
            .and_modify(|existing| *existing = format!("{existing}, {value}"))
            .or_insert(value);
    }
    let truncated = response.body.len() >= RESPONSE_BYTES_MAX;
    let mut text = String::from_utf8_lossy(&response.body).into_owned();
    if truncated {
        mask_truncated_secret(&mut text, secrets);
    }
    let is_json = response.headers.get(header::CONTENT_TYPE).is_some_and(|kind| {
        let kind = kind.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        kind == "application/json" || kind.ends_with("+json")
    });
    // Escaped secrets can be found only after parsing.
    let parsed: Option<Value> = if is_json { serde_json::from_str(&text).ok().filter(is_shallow) } else { None };
    let body = redact_json(parsed.unwrap_or(Value::String(text)), secrets);
    let mut output = json!({ "status": response.status, "headers": headers, "body": body });
    if truncated {
        output["truncated"] = true.into();
    }
    output
}

/// Header values, and the single words of values such as `Bearer <token>`.
fn collect_secrets(headers: &BTreeMap<String, String>) -> Vec<String> {
    let mut secrets: Vec<String> = Vec::new();
    let is_plain = |words: &[&str], word: &str| words.iter().any(|plain| plain.eq_ignore_ascii_case(word));
    for (_, value) in headers.iter().filter(|(name, _)| !is_plain(&PLAIN_HEADERS, name)) {
        secrets.push(value.clone());
        secrets.extend(value.split_whitespace().filter(|word| !is_plain(&PLAIN_WORDS, word)).map(str::to_owned));
    }
    secrets.retain(|secret| secret.chars().count() >= SECRET_CHARS_MIN);
    // The longest first: masking a part must not hide the whole.
    secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    secrets.dedup();
    secrets
}

/// Masks the prefix of a secret at the end of a truncated response.
fn mask_truncated_secret(text: &mut String, secrets: &[String]) {
    let begins = |secret: &String| {
        let lengths = secret.char_indices().map(|(at, _)| at).skip(SECRET_PREFIX_CHARS_MIN).collect::<Vec<_>>();
        lengths.into_iter().rev().find(|length| text.ends_with(&secret[..*length]))
    };
    if let Some(length) = secrets.iter().filter_map(begins).max() {
        text.truncate(text.len() - length);
        text.push_str(MASK);
    }
}

/// Masks secrets in every text of a value, names of fields included.
fn redact_json(value: Value, secrets: &[String]) -> Value {
    match value {
        Value::String(text) => Value::String(redact_text(&text, secrets)),
        Value::Array(items) => items.into_iter().map(|item| redact_json(item, secrets)).collect(),
        Value::Object(fields) => {
            fields.into_iter().map(|(name, value)| (redact_text(&name, secrets), redact_json(value, secrets))).collect()
        }
        other => other,
    }
}

fn redact_text(text: &str, secrets: &[String]) -> String {
    secrets.iter().fold(text.to_owned(), |text, secret| text.replace(secret.as_str(), MASK))
}
