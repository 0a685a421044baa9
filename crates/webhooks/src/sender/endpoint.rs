//! An endpoint as the sender needs it, with the state that its lane has saved.

use std::collections::BTreeMap;

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use kernel::base::{HmacKey, Timestamp};
use kernel::outbound::Target;

const USER_AGENT: &str = concat!("tenant-control/", env!("CARGO_PKG_VERSION"));
/// `webhook-id`, `webhook-timestamp`, `webhook-signature`, `content-type`, `content-length` and `user-agent`.
const OUR_HEADERS: usize = 6;

/// An endpoint as the sender needs it.
pub struct Endpoint {
    pub version: i64,
    /// `None` when nothing may be sent to the endpoint.
    pub target: Option<Target>,
    /// The headers that every request has; `None` if a header of the tenant cannot be sent.
    pub headers: Option<HeaderMap>,
    pub secrets: Vec<SigningSecret>,
    pub rate_limit_per_second: Option<i64>,
    pub ordered: bool,
    pub generation: i64,
    pub deleted: bool,
    pub events: Vec<String>,
    /// Why pending deliveries are skipped, if the endpoint is disabled or deleted.
    pub skip_reason: &'static str,
    pub recovering: bool,
    pub state: EndpointState,
}

impl Endpoint {
    /// Whether all deliveries that were pending when the endpoint was last disabled have been skipped.
    pub fn is_drained(&self) -> bool {
        self.state.drained >= self.generation
    }
}

/// A signing key, and when it stops signing.
pub struct SigningSecret {
    pub key: HmacKey,
    pub valid_until: Option<Timestamp>,
}

/// The saved state of an endpoint, as its lane last left it.
pub struct EndpointState {
    pub consecutive_failures: i64,
    pub failing_since: Option<Timestamp>,
    pub paused: Option<(Timestamp, PauseReason)>,
    pub drained: i64,
    /// Whether deliveries that were pending when order was enabled still need their record id.
    pub records_missing: bool,
}

/// Why nothing is sent to an endpoint for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PauseReason {
    Failing,
    RateLimit,
    /// The endpoint asked for it with `Retry-After`.
    RetryAfter,
}

impl PauseReason {
    pub fn as_str(self) -> &'static str {
        match self {
            PauseReason::Failing => "failing",
            PauseReason::RateLimit => "rate_limit",
            PauseReason::RetryAfter => "retry_after",
        }
    }

    pub fn find_stored(text: &str) -> Option<PauseReason> {
        [PauseReason::Failing, PauseReason::RateLimit, PauseReason::RetryAfter]
            .into_iter()
            .find(|pause| pause.as_str() == text)
    }
}

/// The columns of a pause.
pub fn pause_columns(pause: Option<(Timestamp, PauseReason)>) -> (Option<Timestamp>, Option<&'static str>) {
    (pause.map(|(until, _)| until), pause.map(|(_, reason)| reason.as_str()))
}

/// The headers that every request to an endpoint has: the tenant's own, and our constant ones. `None` if one cannot be sent.
pub fn build_base_headers(tenant_headers: &BTreeMap<String, String>) -> Option<HeaderMap> {
    let mut headers = HeaderMap::with_capacity(tenant_headers.len() + OUR_HEADERS);
    for (name, value) in tenant_headers {
        headers.insert(HeaderName::try_from(name).ok()?, HeaderValue::try_from(value).ok()?);
    }
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::USER_AGENT, HeaderValue::from_static(USER_AGENT));
    Some(headers)
}
