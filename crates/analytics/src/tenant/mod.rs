//! The figures of one tenant.

pub mod feature;
pub mod routes;

use kernel::base::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::buckets::Interval;
use crate::families::Families;

/// The figures of a tenant.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(example = example_analytics)]
pub struct TenantAnalytics {
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    pub until: Timestamp,
    pub interval: Interval,
    pub timezone: String,
    #[serde(flatten)]
    pub families: Families,
}

fn example_analytics() -> Value {
    let tickets = json!({
        "created": 3, "resolved": 1, "open": 2, "backlog": 2, "first_response_seconds": {"p50": 900.0, "p90": 900.0},
        "resolution_seconds": {"p50": 7200.0, "p90": 7200.0}, "sla_met_percent": 100.0
    });
    let mut totals = tickets.clone();
    totals["by_status"] = json!({
        "new": 1, "open": 1, "in_progress": 0, "pending": 0, "on_hold": 0, "resolved": 1, "closed": 0, "cancelled": 0
    });
    totals["by_priority"] = json!({"low": 0, "medium": 2, "high": 1, "critical": 0});
    totals["by_organization"] = json!([{"organization_id": "org_01jd8z6v2mfkpb7h3q9xw5t4rd", "created": 3, "open": 2}]);
    let mut bucket = tickets;
    bucket["start"] = json!("2026-11-16T00:00:00.000Z");
    json!({
        "since": "2026-11-16T00:00:00.000Z", "until": "2026-11-17T00:00:00.000Z", "interval": "day", "timezone": "UTC",
        "tickets": {"totals": totals, "series": [bucket]}
    })
}
