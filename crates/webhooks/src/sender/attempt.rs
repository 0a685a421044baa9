//! One attempt: builds the request, and reads the verdict from its response.

use std::sync::Arc;

use axum::http::{HeaderName, HeaderValue, Method};
use bytes::Bytes;
use kernel::base::{Result, TenantId, Timestamp};
use kernel::http::App;
use kernel::outbound::{Failure, FailureKind, OutboundRequest, OutboundResponse, cap_retry_after, find_retry_after};
use kernel::store::Db;

use super::super::deliveries::{DeliveryAttempt, DeliveryTimings, RESPONSE_BYTES_KEPT};
use super::endpoint::Endpoint;
use super::outcome::{DeliveryOutcome, DeliveryVerdict, DueDelivery, GONE};
use super::schedule::{HOLDING_STATUSES, next_attempt};
use super::settings::SenderSettings;
use super::{sign, store};

/// How much of a response body is read; the rest is dropped.
const RESPONSE_BYTES_MAX: usize = 64 << 10;
static WEBHOOK_ID: HeaderName = HeaderName::from_static("webhook-id");
static WEBHOOK_TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
static WEBHOOK_SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");

/// Sends one delivery once.
pub async fn send_delivery(
    app: Arc<App>,
    db: Db,
    settings: Arc<SenderSettings>,
    endpoint: Arc<Endpoint>,
    mut due: DueDelivery,
) -> DeliveryOutcome {
    let (at, endpoint_version) = (app.env.now(), endpoint.version);
    let retry_later = DeliveryVerdict::Retry(at.plus_ms(settings.first_wait_ms()));
    let body = match load_body(&db, &mut due).await {
        Ok(Some(body)) => body,
        Ok(None) => return DeliveryOutcome::for_unsent(due, endpoint_version, DeliveryVerdict::Expired),
        // The database is unreachable: nothing was sent, and no attempt is counted.
        Err(error) => {
            tracing::warn!(%error, delivery = %due.id, "failed to read the payload of a delivery");
            return DeliveryOutcome::for_unsent(due, endpoint_version, retry_later);
        }
    };
    let Some(request) = build_request(&settings, &endpoint, db.tenant_id(), &due, body, at) else {
        return DeliveryOutcome::for_unsent(due, endpoint_version, DeliveryVerdict::GivenUp);
    };
    let (attempt, not_before) = match app.outbound.send_request(request).await {
        Ok(response) => read_response(at, app.env.now(), &response),
        // Our own limit held the request back, which is no failure of the endpoint and costs no attempt.
        Err(failure) if failure.kind == FailureKind::HeldBack => {
            return DeliveryOutcome::for_unsent(due, endpoint_version, retry_later);
        }
        Err(failure) => read_failure(at, app.env.now(), &failure),
    };
    let now = app.env.now();
    let retry = || {
        let tries = usize::try_from(due.tries + 1).unwrap_or(usize::MAX);
        next_attempt(&settings.schedule_ms, tries, now, not_before, &app.env.random)
    };
    let verdict = match attempt.status_code {
        _ if attempt.error.is_none() => DeliveryVerdict::Succeeded,
        Some(GONE) => DeliveryVerdict::Gone(retry()),
        _ => retry().map_or(DeliveryVerdict::GivenUp, DeliveryVerdict::Retry),
    };
    let holds = attempt.status_code.is_some_and(|status| HOLDING_STATUSES.contains(&status));
    let hold_until = not_before.filter(|_| holds).map(|until| cap_retry_after(until, now));
    let hold = hold_until.and_then(|until| Some((until, endpoint.target.clone()?)));
    DeliveryOutcome { due, attempt: Some(attempt), verdict, endpoint_version, retry_after: hold }
}

/// The payload; `None` when it is no longer kept.
async fn load_body(db: &Db, due: &mut DueDelivery) -> Result<Option<Bytes>> {
    match due.body.take() {
        Some(body) => Ok(Some(body)),
        None => Ok(store::find_body(db, due.event_sequence).await?.map(Bytes::from)),
    }
}

fn build_request(
    settings: &SenderSettings,
    endpoint: &Endpoint,
    tenant: Option<TenantId>,
    due: &DueDelivery,
    body: Bytes,
    at: Timestamp,
) -> Option<OutboundRequest> {
    let mut headers = endpoint.headers.clone()?;
    let (id, timestamp) = (due.event_id.to_string(), at.as_millis() / 1_000);
    let secrets = endpoint.secrets.iter().filter(|secret| secret.valid_until.is_none_or(|until| until > at));
    let signature = sign::signature_header(&id, timestamp, &body, secrets.map(|secret| &secret.key));
    headers.insert(&WEBHOOK_ID, HeaderValue::try_from(id).ok()?);
    headers.insert(&WEBHOOK_TIMESTAMP, HeaderValue::from(timestamp));
    headers.insert(&WEBHOOK_SIGNATURE, HeaderValue::try_from(signature).ok()?);
    Some(OutboundRequest {
        method: Method::POST,
        target: endpoint.target.clone()?,
        headers,
        body,
        timeout: settings.timeout,
        body_max: RESPONSE_BYTES_MAX,
        tenant,
    })
}

fn read_response(at: Timestamp, now: Timestamp, response: &OutboundResponse) -> (DeliveryAttempt, Option<Timestamp>) {
    let attempt = DeliveryAttempt {
        at,
        status_code: Some(i64::from(response.status)),
        error: find_status_error(response.status),
        response_body: Some(response_excerpt(&response.body)),
        address: Some(response.address.to_string()),
        duration_ms: response.timings.total_ms,
        timings: to_delivery_timings(&response.timings),
    };
    (attempt, find_retry_after(&response.headers, now))
}

/// A status counts even if the body then breaks off, because the body is only for the log. Only a success needs a whole
/// body.
fn read_failure(at: Timestamp, now: Timestamp, failure: &Failure) -> (DeliveryAttempt, Option<Timestamp>) {
    let broken = format!("{}: {}", failure.kind.as_str(), failure.detail);
    let error = match failure.status.and_then(find_status_error) {
        Some(status_error) => format!("{status_error}, and then {broken}"),
        None => broken,
    };
    let attempt = DeliveryAttempt {
        at,
        status_code: failure.status.map(i64::from),
        error: Some(error),
        response_body: failure.status.map(|_| response_excerpt(&failure.body)),
        address: failure.address.map(|address| address.to_string()),
        duration_ms: failure.timings.total_ms,
        timings: to_delivery_timings(&failure.timings),
    };
    (attempt, find_retry_after(&failure.headers, now))
}

/// Why a response with this status is no success.
fn find_status_error(status: u16) -> Option<String> {
    match status {
        200..=299 => None,
        300..=399 => Some("redirect: redirects are not followed".to_owned()),
        status => Some(format!("http_status: answered {status}")),
    }
}

/// The start of a response body, as text that both databases can store.
fn response_excerpt(body: &[u8]) -> String {
    let start = &body[..body.len().min(RESPONSE_BYTES_KEPT)];
    String::from_utf8_lossy(start).replace('\0', "\u{fffd}")
}

fn to_delivery_timings(timings: &kernel::outbound::OutboundTimings) -> DeliveryTimings {
    DeliveryTimings {
        resolve_ms: timings.resolve_ms,
        connect_ms: timings.connect_ms,
        tls_ms: timings.tls_ms,
        first_byte_ms: timings.first_byte_ms,
    }
}
