//! SQL of the summary: reads the counters that every change maintains.

use feature_kit::IdOrNone;
use kernel::args;
use kernel::base::Result;
use kernel::store::Db;
use people::organizations::OrganizationId;

use super::super::{InventoryCount, InventorySummary};
use crate::devices::{ALL_ORGANIZATIONS, NO_ORGANIZATION, SOFTWARE_DIMENSION, software};

kernel::statements! {
    /// The size class of the last of the largest counters.
    LEAST_SIZE = "SELECT size FROM device_counts /* INDEXED BY device_counts_by_size */
        WHERE tenant_id = $1 AND organization_id = $2 AND dimension = $3 ORDER BY size DESC, value LIMIT 1 OFFSET $4";
    /// Reads counters of these size classes, the largest first, and sorts them.
    LARGEST = "SELECT value, label, devices FROM (
            SELECT value, label, devices FROM device_counts /* INDEXED BY device_counts_by_size */
            WHERE tenant_id = $1 AND organization_id = $2 AND dimension = $3 AND size >= $4 ORDER BY size DESC, value LIMIT $5
        ) AS large ORDER BY devices DESC, value LIMIT $6";
}

/// All organizations of a tenant, and the devices without one.
const ORGANIZATIONS_MAX: i64 = 10_001;
/// Values of one dimension; more are of no use in a summary.
const VALUES_MAX: i64 = 1_000;
const SOFTWARE_MAX: i64 = 50;
/// Extra counters of the last size class that are read and sorted. Counters of up to three devices are exact size classes,
/// and so already in order.
const ALIKE_MAX: i64 = 5_000;

/// The summary of all devices, or of those of one organization.
pub async fn load_summary(db: &Db, of: Option<IdOrNone<OrganizationId>>) -> Result<InventorySummary> {
    software::store::index_all(db).await?;
    let of = of.map_or_else(|| ALL_ORGANIZATIONS.to_owned(), |id| id.to_string());
    let platform = largest_counts(db, &of, "platform", VALUES_MAX).await?;
    Ok(InventorySummary {
        total: platform.iter().map(|count| count.count).sum(),
        platform,
        os: largest_counts(db, &of, "os", VALUES_MAX).await?,
        r#type: largest_counts(db, &of, "type", VALUES_MAX).await?,
        status: largest_counts(db, &of, "status", VALUES_MAX).await?,
        health: largest_counts(db, &of, "health", VALUES_MAX).await?,
        organization: largest_counts(db, &of, "organization", ORGANIZATIONS_MAX).await?,
        warranty: largest_counts(db, &of, "warranty", VALUES_MAX).await?,
        software: largest_counts(db, &of, SOFTWARE_DIMENSION, SOFTWARE_MAX).await?,
    })
}

async fn largest_counts(db: &Db, of: &str, dimension: &str, limit: i64) -> Result<Vec<InventoryCount>> {
    let least: Option<i64> = db.find(LEAST_SIZE, args![of, dimension, limit - 1]).await?;
    let (least, read) = (least.unwrap_or(0), limit + ALIKE_MAX);
    let rows: Vec<(String, String, i64)> = db.list(LARGEST, args![of, dimension, least, read, limit]).await?;
    let none = |value: &str| {
        (dimension == "organization" && value == NO_ORGANIZATION) || (dimension == "os" && value.is_empty())
    };
    let count = |(value, label, count): (String, String, i64)| InventoryCount {
        value: (!none(&value)).then_some(label),
        count,
    };
    Ok(rows.into_iter().map(count).collect())
}
