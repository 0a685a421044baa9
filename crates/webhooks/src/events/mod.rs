//! The catalogue of events, and the feed of a tenant's own events for clients that poll instead of receiving webhooks.

pub mod document;
pub mod feed;
pub mod reader;
pub mod routes;
pub mod store;

use feature_kit::CUSTOM_KINDS;
use feature_kit::registry;
use feature_kit::subscription::EVERYTHING;
use kernel::base::{EventId, Result, TenantId, Timestamp};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::WEBHOOK_TEST;

const PATH: &str = "/api/admin/webhooks/events";

/// One kind of event.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = EventType, example = json!({
    "type": "api_key.revoked",
    "description": "An API key was revoked.",
    "schema": {"type": "object"},
    "example": {
        "id": "evt_01jd8z6v2mfkpb7h3q9xw5t4rc", "type": "api_key.revoked", "timestamp": "2026-11-15T08:00:00.000Z",
        "tenant_id": "ten_01jd8z6v2mfkpb7h3q9xw5t4rd", "sequence": 42, "data": {}
    }
}))]
pub struct EventType {
    pub r#type: String,
    pub description: String,
    /// A JSON Schema of the whole body of a delivery.
    #[schema(value_type = Object)]
    pub schema: Value,
    /// A whole body of a delivery.
    #[schema(value_type = Object)]
    pub example: Value,
}

/// An event, exactly as it is delivered.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(example = json!({
    "id": "evt_01jd8z6v2mfkpb7h3q9xw5t4rc", "type": "api_key.revoked", "timestamp": "2026-11-15T08:00:00.000Z",
    "tenant_id": "ten_01jd8z6v2mfkpb7h3q9xw5t4rd", "sequence": 42,
    "data": {"id": "key_01jd8z6v2mfkpb7h3q9xw5t4ra", "name": "Nightly report", "status": "revoked"}
}))]
pub struct Event {
    #[schema(value_type = String)]
    pub id: EventId,
    pub r#type: String,
    #[schema(value_type = String, format = DateTime)]
    pub timestamp: Timestamp,
    #[schema(value_type = String)]
    pub tenant_id: TenantId,
    /// Rises strictly in the order of commits; gaps are normal.
    pub sequence: i64,
    /// The record as the API shows it, plus what the kind adds.
    #[schema(value_type = Object)]
    pub data: Value,
}

/// Which events of the feed a reader selects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FeedSelection {
    All,
    AllButTests,
    /// `custom.*` stands for every event that tenants name themselves.
    Kinds(Vec<String>),
}

impl FeedSelection {
    /// The events that an endpoint with these patterns would receive, and tests if they are named.
    pub fn from_patterns(patterns: &[String]) -> Result<Self> {
        let kinds = registry().matching_kinds(patterns)?;
        if !patterns.iter().any(|pattern| pattern == EVERYTHING) {
            return Ok(FeedSelection::Kinds(kinds));
        }
        Ok(if kinds.iter().any(|kind| kind == WEBHOOK_TEST.name()) {
            FeedSelection::All
        } else {
            FeedSelection::AllButTests
        })
    }

    pub fn includes_event(&self, family: &str, kind: &str) -> bool {
        match self {
            FeedSelection::All => true,
            FeedSelection::AllButTests => kind != WEBHOOK_TEST.name(),
            FeedSelection::Kinds(kinds) => {
                let named = |name: &str| kinds.iter().any(|kind| kind == name);
                named(kind) || (family == kernel::events::family_of(CUSTOM_KINDS) && named(CUSTOM_KINDS))
            }
        }
    }
}
