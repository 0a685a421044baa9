//! The figures of all tenants together.

pub mod feature;
pub mod routes;
pub mod store;

use kernel::base::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::buckets::Interval;
use crate::families::Families;

/// The figures of the platform.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(example = example_analytics)]
pub struct PlatformAnalytics {
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    pub until: Timestamp,
    pub interval: Interval,
    pub timezone: String,
    pub tenants: TenantCounts,
    /// The tenants with the most requests in the range, the most first: at most 20.
    pub top_tenants: Vec<TopTenant>,
    pub growth: Growth,
    pub nodes: Vec<PlatformNode>,
    #[serde(flatten)]
    pub families: Families,
}

#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
#[schema(as = AnalyticsTenantCounts)]
pub struct TenantCounts {
    /// Tenants that there were at the end of the range.
    pub total: i64,
    /// Of them those that made a request to the API in the range.
    pub active: i64,
}

#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = AnalyticsTopTenant)]
pub struct TopTenant {
    pub tenant_id: String,
    pub slug: String,
    /// Requests in the range.
    pub requests: i64,
    /// Tickets that were created in the range.
    pub tickets: i64,
    /// Live devices at its end.
    pub devices: i64,
}

/// In percent, against the range of the same length before; null where there was nothing.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = AnalyticsGrowth)]
pub struct Growth {
    /// Of the tenants at the end of the range, against its beginning.
    #[schema(required)]
    pub tenants: Option<f64>,
    /// Of the tickets that were created.
    #[schema(required)]
    pub tickets: Option<f64>,
    /// Of the live devices at the end of the range, against its beginning.
    #[schema(required)]
    pub devices: Option<f64>,
}

#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = PlatformNode)]
pub struct PlatformNode {
    /// The name of the process, new at every start.
    pub id: String,
    #[schema(required)]
    pub version: Option<String>,
    #[schema(value_type = Option<String>, format = DateTime, required)]
    pub started_at: Option<Timestamp>,
    #[schema(value_type = String, format = DateTime)]
    pub last_seen_at: Timestamp,
    pub status: NodeStatus,
}

kernel::string_enum! {
    /// `lost`: not heard of for a minute. A node that was stopped in order is in the list no more.
    #[schema(as = PlatformNodeStatus)]
    pub enum NodeStatus { Running "running", Lost "lost" }
}

/// By how many percent `now` is more than `before`.
pub fn growth_percent(before: i64, now: i64) -> Option<f64> {
    #[expect(clippy::cast_precision_loss, reason = "counts are far fewer than 2^53")]
    (before > 0).then(|| (1_000.0 * (now - before) as f64 / before as f64).round() / 10.0)
}

fn example_analytics() -> Value {
    json!({
        "since": "2026-11-16T00:00:00.000Z", "until": "2026-11-17T00:00:00.000Z", "interval": "day", "timezone": "UTC",
        "tenants": {"total": 2, "active": 1},
        "top_tenants": [{
            "tenant_id": "ten_01jd8z6v2mfkpb7h3q9xw5t4rd", "slug": "acme", "requests": 1200, "tickets": 3, "devices": 40
        }],
        "growth": {"tenants": 100.0, "tickets": null, "devices": 5.3},
        "nodes": [{
            "id": "3kTMd", "version": "0.1.0", "started_at": "2026-11-15T08:00:00.000Z",
            "last_seen_at": "2026-11-16T23:59:58.000Z", "status": "running"
        }],
        "workflows": {
            "totals": {"runs": 2, "succeeded": 1, "failed": 1, "cancelled": 0, "duration_seconds": {"p50": 1.2, "p90": 4.0}},
            "series": [{
                "start": "2026-11-16T00:00:00.000Z", "runs": 2, "succeeded": 1, "failed": 1, "cancelled": 0,
                "duration_seconds": {"p50": 1.2, "p90": 4.0}
            }]
        }
    })
}
