//! One attempt: builds the request, and reads the verdict from its response.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use bytes::Bytes;
use kernel::base::{Result, TenantId, Timestamp};
use kernel::http::App;
use kernel::outbound::{Failure, FailureKind, Request, Response};
use kernel::store::Db;

use super::super::deliveries::{Attempt, RESPONSE_BYTES_KEPT, Timings};
use super::outcome::{Due, Fate, GONE, Outcome};
use super::schedule::{HOLDING, bounded, next_attempt, retry_after};
use super::{Endpoint, Settings, sign, store};

/// How much of a response body is read; the rest is dropped.
const ANSWER_BYTES_MAX: usize = 64 << 10;
const USER_AGENT: &str = concat!("tenant-control/", env!("CARGO_PKG_VERSION"));
static WEBHOOK_ID: HeaderName = HeaderName::from_static("webhook-id");
static WEBHOOK_TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
static WEBHOOK_SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");
/// The three above, `content-type`, `content-length` and `user-agent`.
const OUR_HEADERS: usize = 6;

/// Sends one delivery once.
pub async fn send(app: Arc<App>, db: Db, settings: Arc<Settings>, endpoint: Arc<Endpoint>, mut due: Due) -> Outcome {
    let (at, asked) = (app.world.now(), endpoint.version);
    let again = Fate::Retry(at.plus(settings.first_wait_ms()));
    let body = match body(&db, &mut due).await {
        Ok(Some(body)) => body,
        Ok(None) => return Outcome::unsent(due, asked, Fate::Expired),
        // The database is unreachable: nothing was sent, and no attempt is counted.
        Err(error) => {
            tracing::warn!(%error, delivery = %due.id, "failed to read the payload of a delivery");
            return Outcome::unsent(due, asked, again);
        }
    };
    let Some(request) = request(&settings, &endpoint, db.tenant_id(), &due, body, at) else {
        return Outcome::unsent(due, asked, Fate::GivenUp);
    };
    let (attempt, not_before) = match app.outbound.send(request).await {
        Ok(response) => read_answer(at, app.world.now(), &response),
        // Our own limit held the request back, which is no failure of the endpoint and costs no attempt.
        Err(failure) if failure.kind == FailureKind::HeldBack => return Outcome::unsent(due, asked, again),
        Err(failure) => read_failure(at, app.world.now(), &failure),
    };
    let now = app.world.now();
    let retry = || {
        let tries = usize::try_from(due.tries + 1).unwrap_or(usize::MAX);
        next_attempt(&settings.schedule_ms, tries, now, not_before, &app.world.chance)
    };
    let fate = match attempt.status_code {
        _ if attempt.error.is_none() => Fate::Succeeded,
        Some(GONE) => Fate::Gone(retry()),
        _ => retry().map_or(Fate::GivenUp, Fate::Retry),
    };
    let holds = attempt.status_code.is_some_and(|status| HOLDING.contains(&status));
    let hold_until = not_before.filter(|_| holds).map(|until| bounded(until, now));
    let hold = hold_until.and_then(|until| Some((until, endpoint.target.clone()?)));
    Outcome { due, attempt: Some(attempt), fate, asked, hold }
}

/// The payload; `None` when it is no longer kept.
async fn body(db: &Db, due: &mut Due) -> Result<Option<Bytes>> {
    match due.body.take() {
        Some(body) => Ok(Some(body)),
        None => Ok(store::body(db, due.event_sequence).await?.map(Bytes::from)),
    }
}

pub type Headers = HeaderMap;

/// The headers that every request to an endpoint has: the tenant's own, and our constant ones. `None` if one cannot be sent.
pub fn headers(of_owner: &BTreeMap<String, String>) -> Option<Headers> {
    let mut headers = HeaderMap::with_capacity(of_owner.len() + OUR_HEADERS);
    for (name, value) in of_owner {
        headers.insert(HeaderName::try_from(name).ok()?, HeaderValue::try_from(value).ok()?);
    }
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::USER_AGENT, HeaderValue::from_static(USER_AGENT));
    Some(headers)
}

fn request(
    settings: &Settings,
    endpoint: &Endpoint,
    tenant: Option<TenantId>,
    due: &Due,
    body: Bytes,
    at: Timestamp,
) -> Option<Request> {
    let mut headers = endpoint.headers.clone()?;
    let (id, timestamp) = (due.event_id.to_string(), at.as_millis() / 1_000);
    let secrets = endpoint.secrets.iter().filter(|secret| secret.valid_until.is_none_or(|until| until > at));
    let signature = sign::signature(&id, timestamp, &body, secrets.map(|secret| &secret.key));
    headers.insert(&WEBHOOK_ID, HeaderValue::try_from(id).ok()?);
    headers.insert(&WEBHOOK_TIMESTAMP, HeaderValue::from(timestamp));
    headers.insert(&WEBHOOK_SIGNATURE, HeaderValue::try_from(signature).ok()?);
    Some(Request {
        method: Method::POST,
        target: endpoint.target.clone()?,
        headers,
        body,
        timeout: settings.timeout,
        body_max: ANSWER_BYTES_MAX,
        for_whom: tenant,
    })
}

fn read_answer(at: Timestamp, now: Timestamp, response: &Response) -> (Attempt, Option<Timestamp>) {
    let attempt = Attempt {
        at,
        status_code: Some(i64::from(response.status)),
        error: fault_of(response.status),
        response_body: Some(kept(&response.body)),
        address: Some(response.address.to_string()),
        duration_ms: response.timings.total_ms,
        timings: timings(&response.timings),
    };
    (attempt, asked_for(&response.headers, now))
}

/// A status counts even if the body then breaks off, because the body is only for the log. Only a success needs a whole
/// body.
fn read_failure(at: Timestamp, now: Timestamp, failure: &Failure) -> (Attempt, Option<Timestamp>) {
    let broken = format!("{}: {}", failure.kind.as_str(), failure.detail);
    let error = match failure.status.and_then(fault_of) {
        Some(fault) => format!("{fault}, and then {broken}"),
        None => broken,
    };
    let attempt = Attempt {
        at,
        status_code: failure.status.map(i64::from),
        error: Some(error),
        response_body: failure.status.map(|_| kept(&failure.body)),
        address: failure.address.map(|address| address.to_string()),
        duration_ms: failure.timings.total_ms,
        timings: timings(&failure.timings),
    };
    (attempt, asked_for(&failure.headers, now))
}

/// Why a response with this status is no success.
fn fault_of(status: u16) -> Option<String> {
    match status {
        200..=299 => None,
        300..=399 => Some("redirect: redirects are not followed".to_owned()),
        status => Some(format!("http_status: answered {status}")),
    }
}

/// The time in the response's `Retry-After`, if it has one.
fn asked_for(headers: &HeaderMap, now: Timestamp) -> Option<Timestamp> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?;
    retry_after(text, now)
}

/// The start of a response body, as text that both databases can store.
fn kept(body: &[u8]) -> String {
    let start = &body[..body.len().min(RESPONSE_BYTES_KEPT)];
    String::from_utf8_lossy(start).replace('\0', "\u{fffd}")
}

fn timings(timings: &kernel::outbound::Timings) -> Timings {
    Timings {
        resolve_ms: timings.resolve_ms,
        connect_ms: timings.connect_ms,
        tls_ms: timings.tls_ms,
        first_byte_ms: timings.first_byte_ms,
    }
}
