//! Webhook endpoints of a tenant: their types, and which events match their subscriptions.
//!
//! `input` parses request bodies, `deliveries` is the delivery log, `events` the catalogue and the feed of events, and
//! `sender` sends the deliveries.

pub mod deliveries;
pub mod events;
pub mod feature;
/// Creates a delivery for every subscribed endpoint when an event is published.
pub mod follow {
    pub mod store;
}
pub mod input;
pub mod jobs;
/// Clamps future timestamps of endpoints and their deliveries.
pub mod repair {
    pub mod store;
}
pub mod routes;
pub mod sender;
pub mod store;
mod stored;

use std::collections::BTreeMap;

use feature_kit::subscription::TEST_KIND;
use kernel::base::{ActorRef, Id, Identified, Timestamp};
use kernel::events::EventKind;
use kernel::http::Record;
use serde::Serialize;
use utoipa::ToSchema;

pub const WEBHOOK_AUTO_DISABLED: EventKind<Webhook> = EventKind::new(
    "webhook.auto_disabled",
    "An endpoint was disabled: it answered 410, or failed for days. Events are kept as skipped.",
);
pub const WEBHOOK_TEST: EventKind<Webhook> =
    EventKind::new(TEST_KIND, "Sent on request, to see whether an endpoint works.");

pub type WebhookId = Id<Webhook>;

impl Identified for Webhook {
    const PREFIX: &'static str = "wh";
    const ABOUT: &'static str = "The endpoint to act on.";
}

/// The lane kind of webhook sending; each endpoint has one lane.
pub const WEBHOOK_LANE: &str = "webhook";

/// How many endpoints a tenant may have.
pub const WEBHOOKS_MAX: i64 = 50;
pub const RATE_MAX: i64 = 1_000;
pub const OVERLAP_HOURS_MAX: i64 = 168;
pub const OVERLAP_HOURS_DEFAULT: i64 = 24;

kernel::string_enum! {
    /// Whether an endpoint is sent to.
    #[schema(as = WebhookStatus)]
    pub enum WebhookStatus { Enabled "enabled", Disabled "disabled", AutoDisabled "auto_disabled" }
}

/// A webhook endpoint, without its secret and the values of its headers.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(example = json!({
    "id": "wh_01jd8z6v2mfkpb7h3q9xw5t4ra", "name": "Chat", "url": "https://hooks.acme.example/tickets",
    "events": ["ticket.*"], "enabled": true, "headers": {"Authorization": "********"},
    "rate_limit_per_second": null, "ordered": false, "status": "enabled", "disabled_reason": null,
    "last_success_at": "2026-11-15T08:00:00.000Z", "last_failure_at": null, "consecutive_failures": 0,
    "backlog": {"pending": 0, "next_attempt_at": null, "paused_until": null, "paused_reason": null},
    "recovery": null,
    "created_by": {"type": "user", "id": "usr_01jd8z6v2mfkpb7h3q9xw5t4rb", "name": "Admin"},
    "version": 1, "created_at": "2026-11-15T08:00:00.000Z", "updated_at": "2026-11-15T08:00:00.000Z"
}))]
pub struct Webhook {
    #[schema(value_type = String)]
    pub id: WebhookId,
    pub name: String,
    pub url: String,
    pub events: Vec<String>,
    pub enabled: bool,
    /// Sent with every delivery. Values are never shown.
    pub headers: BTreeMap<String, String>,
    /// Deliveries per second at most; null means unlimited.
    #[schema(required)]
    pub rate_limit_per_second: Option<i64>,
    /// Whether later events of a record wait until the earlier one succeeds or is given up.
    pub ordered: bool,
    pub status: WebhookStatus,
    /// `manual`, `gone` (it answered 410) or `failing` (nothing but failures for days); null while enabled.
    #[schema(required)]
    pub disabled_reason: Option<String>,
    #[schema(value_type = Option<String>, format = DateTime, required)]
    pub last_success_at: Option<Timestamp>,
    #[schema(value_type = Option<String>, format = DateTime, required)]
    pub last_failure_at: Option<Timestamp>,
    /// Attempts that failed since the last success.
    pub consecutive_failures: i64,
    pub backlog: WebhookBacklog,
    /// The recovery under way, or the last one.
    #[schema(required)]
    pub recovery: Option<WebhookRecovery>,
    pub created_by: ActorRef,
    pub version: i64,
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    pub updated_at: Timestamp,
}

impl Record for Webhook {
    fn version(&self) -> i64 {
        self.version
    }
}

/// What waits to be sent to an endpoint.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = WebhookBacklog)]
pub struct WebhookBacklog {
    /// Deliveries that wait, counted up to 1000.
    pub pending: i64,
    /// When the next of them is due.
    #[schema(value_type = Option<String>, format = DateTime, required)]
    pub next_attempt_at: Option<Timestamp>,
    /// Nothing is sent before this.
    #[schema(value_type = Option<String>, format = DateTime, required)]
    pub paused_until: Option<Timestamp>,
    /// `failing`: one attempt at a time until one succeeds; `rate_limit`: the endpoint's own limit; `retry_after`: the
    /// endpoint answered 429 or 503 and asked for it.
    #[schema(required)]
    pub paused_reason: Option<String>,
}

/// How far a recovery has come.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = WebhookRecovery, example = json!({
    "webhook_id": "wh_01jd8z6v2mfkpb7h3q9xw5t4ra", "since": "2026-11-14T08:00:00.000Z",
    "until": "2026-11-15T08:00:00.000Z", "status": "running", "examined": 0, "queued": 0,
    "started_at": "2026-11-15T08:00:00.000Z", "finished_at": null
}))]
pub struct WebhookRecovery {
    #[schema(value_type = String)]
    pub webhook_id: WebhookId,
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    pub until: Timestamp,
    pub status: WebhookRecoveryStatus,
    /// Events of the window looked at so far.
    pub examined: i64,
    /// Events queued to be sent so far, among them those that waited for a retry.
    pub queued: i64,
    #[schema(value_type = String, format = DateTime)]
    pub started_at: Timestamp,
    #[schema(value_type = Option<String>, format = DateTime, required)]
    pub finished_at: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = WebhookRecoveryStatus)]
pub enum WebhookRecoveryStatus {
    Running,
    Done,
    /// The endpoint was switched off before the end.
    Cancelled,
}

/// A webhook endpoint with its secret, which is shown this once.
#[derive(Serialize, ToSchema)]
#[schema(example = json!({
    "id": "wh_01jd8z6v2mfkpb7h3q9xw5t4ra", "name": "Chat", "url": "https://hooks.acme.example/tickets",
    "events": ["ticket.*"], "enabled": true, "headers": {}, "rate_limit_per_second": null, "ordered": false,
    "status": "enabled", "disabled_reason": null, "last_success_at": null, "last_failure_at": null,
    "consecutive_failures": 0,
    "backlog": {"pending": 0, "next_attempt_at": null, "paused_until": null, "paused_reason": null},
    "recovery": null,
    "created_by": {"type": "user", "id": "usr_01jd8z6v2mfkpb7h3q9xw5t4rb", "name": "Admin"},
    "version": 1, "created_at": "2026-11-15T08:00:00.000Z", "updated_at": "2026-11-15T08:00:00.000Z",
    "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYo="
}))]
pub struct NewWebhook {
    #[serde(flatten)]
    pub record: Webhook,
    /// What deliveries are signed with, as Standard Webhooks says. It cannot be read again.
    pub secret: String,
}

impl Record for NewWebhook {
    fn version(&self) -> i64 {
        self.record.version
    }
}
