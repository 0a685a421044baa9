//! The delivery log: one delivery for every event and endpoint, with its attempts; and the actions that send again.

/// Lists deliveries by filter.
pub mod log {
    pub mod store;
}
pub mod routes;
pub mod store;

use kernel::base::{EventId, Id, Identified, Timestamp};
use kernel::http::{BodyFields, FromBody};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::WebhookId;

pub type DeliveryId = Id<Delivery>;

impl Identified for Delivery {
    const PREFIX: &'static str = "dlv";
}

/// How much of an endpoint's response body is stored and shown.
pub const RESPONSE_BYTES_KEPT: usize = 4 << 10;

kernel::string_enum! {
    #[schema(as = DeliveryStatus)]
    pub enum DeliveryStatus {
        /// Waits for its first or next attempt.
        Pending "pending",
        /// An attempt is under way.
        Delivering "delivering",
        Succeeded "succeeded",
        /// Given up after the last retry.
        Failed "failed",
        /// Not sent, because the endpoint was switched off or deleted.
        Skipped "skipped",
    }
}

/// One event on its way to one endpoint.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(example = json!({
    "id": "dlv_01jd8z6v2mfkpb7h3q9xw50000", "webhook_id": "wh_01jd8z6v2mfkpb7h3q9xw5t4ra",
    "event_id": "evt_01jd8z6v2mfkpb7h3q9xw5t4rc", "event_type": "api_key.created", "status": "pending",
    "skipped_reason": null, "waiting_for": "retry", "next_attempt_at": "2026-11-15T08:00:05.000Z",
    "attempts": [{
        "at": "2026-11-15T08:00:00.000Z", "status_code": 503, "error": "http_status", "response_body": "busy",
        "address": "198.51.100.7:443", "duration_ms": 31,
        "timings": {"resolve_ms": 2, "connect_ms": 9, "tls_ms": 12, "first_byte_ms": 30}
    }],
    "created_at": "2026-11-15T08:00:00.000Z"
}))]
pub struct Delivery {
    #[schema(value_type = String)]
    pub id: DeliveryId,
    #[schema(value_type = String)]
    pub webhook_id: WebhookId,
    #[schema(value_type = String)]
    pub event_id: EventId,
    pub event_type: String,
    pub status: DeliveryStatus,
    /// Why it was not sent: `disabled`, `auto_disabled` or `deleted` (the endpoint), or `expired` (the payload).
    #[schema(required)]
    pub skipped_reason: Option<String>,
    /// Why it is not sent yet: `turn` (others are before it), `retry` (between attempts), `failing` (the endpoint fails and
    /// is tried one attempt at a time), `retry_after` (the endpoint asked for time with 429 or 503), `rate_limit` (the
    /// endpoint's own) or `earlier_event` (of the same record, on an ordered endpoint). Null unless pending.
    #[schema(required)]
    pub waiting_for: Option<String>,
    #[schema(value_type = Option<String>, format = DateTime, required)]
    pub next_attempt_at: Option<Timestamp>,
    /// Oldest first; the last 100 of them.
    pub attempts: Vec<DeliveryAttempt>,
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
}

/// One request to an endpoint.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = DeliveryAttempt)]
pub struct DeliveryAttempt {
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    #[schema(required)]
    pub status_code: Option<i64>,
    /// Null on success. Else `http_status`, `redirect`, or what broke: `target_not_allowed`, `name_not_resolved`,
    /// `connect_failed`, `tls_failed`, `timeout`, `connection_broken`, followed by what is known.
    #[schema(required)]
    pub error: Option<String>,
    /// The first 4 KiB.
    #[schema(required)]
    pub response_body: Option<String>,
    /// What was connected to.
    #[schema(required)]
    pub address: Option<String>,
    pub duration_ms: i64,
    pub timings: DeliveryTimings,
}

/// Milliseconds since the start of the attempt's parts; null where a connection was used again.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, ToSchema)]
#[schema(as = DeliveryTimings)]
pub struct DeliveryTimings {
    #[schema(required)]
    pub resolve_ms: Option<i64>,
    #[schema(required)]
    pub connect_ms: Option<i64>,
    #[schema(required)]
    pub tls_ms: Option<i64>,
    #[schema(required)]
    pub first_byte_ms: Option<i64>,
}

/// The body of POST.
#[derive(Clone, Copy, Debug)]
pub enum DeliveryAction {
    Resend(DeliveryId),
    Recover { webhook: WebhookId, since: Timestamp, until: Option<Timestamp> },
    Test(WebhookId),
}

impl FromBody for DeliveryAction {
    fn from_fields(fields: &mut BodyFields) -> Option<Self> {
        let actions = ["resend", "recover", "test"];
        let action = fields.read_required("action", |field| {
            field.read_parsed("unknown_action", |text| {
                let found = actions.into_iter().find(|action| *action == text);
                found.ok_or_else(|| format!("must be one of {}", actions.join(", ")))
            })
        });
        match action? {
            "resend" => fields.read_required("delivery_id", |field| field.read_id()).map(DeliveryAction::Resend),
            "recover" => {
                let webhook = fields.read_required("webhook_id", |field| field.read_id());
                let since = fields.read_required("since", |field| field.read_time());
                let until = fields.read_optional("until", |field| field.read_time());
                if let (Some(since), Some(Some(until))) = (since, until)
                    && until <= since
                {
                    fields.report_field("until", "out_of_range", "must be after since");
                    return None;
                }
                Some(DeliveryAction::Recover { webhook: webhook?, since: since?, until: until? })
            }
            _ => fields.read_required("webhook_id", |field| field.read_id()).map(DeliveryAction::Test),
        }
    }
}

/// Sends one delivery again.
#[derive(ToSchema)]
#[schema(as = ResendAction, example = json!({"action": "resend", "delivery_id": "dlv_01jd8z6v2mfkpb7h3q9xw50000"}))]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "the document's description of what DeliveryAction::from_fields reads")]
pub struct ResendAction {
    #[schema(pattern = "^resend$")]
    action: String,
    delivery_id: String,
}

/// Sends every matching event of the window that has had no success, a few at a time.
#[derive(ToSchema)]
#[schema(as = RecoverAction, example = json!({
    "action": "recover", "webhook_id": "wh_01jd8z6v2mfkpb7h3q9xw5t4ra", "since": "2026-11-14T08:00:00Z"
}))]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "the document's description of what DeliveryAction::from_fields reads")]
pub struct RecoverAction {
    #[schema(pattern = "^recover$")]
    action: String,
    webhook_id: String,
    /// Events of this moment and later.
    #[schema(format = DateTime)]
    since: String,
    /// Events before this moment; now when omitted.
    #[schema(format = DateTime, nullable = false)]
    until: Option<String>,
}

/// Sends a `webhook.test` event to one endpoint alone, whatever it or others subscribe to.
#[derive(ToSchema)]
#[schema(as = TestAction, example = json!({"action": "test", "webhook_id": "wh_01jd8z6v2mfkpb7h3q9xw5t4ra"}))]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "the document's description of what DeliveryAction::from_fields reads")]
pub struct TestAction {
    #[schema(pattern = "^test$")]
    action: String,
    webhook_id: String,
}
