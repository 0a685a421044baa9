//! SQL of the summary: reads the counters that every change maintains.

use kernel::args;
use kernel::base::Result;
use kernel::store::Db;

use super::super::{Count, Summary};
use crate::devices::{ALL, NONE, SOFTWARE, software};
use feature_kit::IdOrNone;
use people::organizations::OrganizationId;

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
pub async fn summary(db: &Db, of: Option<IdOrNone<OrganizationId>>) -> Result<Summary> {
    software::store::index_all(db).await?;
    let of = of.map_or_else(|| ALL.to_owned(), |id| id.to_string());
    let platform = largest(db, &of, "platform", VALUES_MAX).await?;
    Ok(Summary {
        total: platform.iter().map(|count| count.count).sum(),
        platform,
        os: largest(db, &of, "os", VALUES_MAX).await?,
        r#type: largest(db, &of, "type", VALUES_MAX).await?,
        status: largest(db, &of, "status", VALUES_MAX).await?,
        health: largest(db, &of, "health", VALUES_MAX).await?,
        organization: largest(db, &of, "organization", ORGANIZATIONS_MAX).await?,
        warranty: largest(db, &of, "warranty", VALUES_MAX).await?,
        software: largest(db, &of, SOFTWARE, SOFTWARE_MAX).await?,
    })
}

async fn largest(db: &Db, of: &str, dimension: &str, limit: i64) -> Result<Vec<Count>> {
    let least: Option<i64> = db.find(LEAST_SIZE, args![of, dimension, limit - 1]).await?;
    let (least, read) = (least.unwrap_or(0), limit + ALIKE_MAX);
    let rows: Vec<(String, String, i64)> = db.list(LARGEST, args![of, dimension, least, read, limit]).await?;
    let none = |value: &str| (dimension == "organization" && value == NONE) || (dimension == "os" && value.is_empty());
    let count = |(value, label, count): (String, String, i64)| Count { value: (!none(&value)).then_some(label), count };
    Ok(rows.into_iter().map(count).collect())
}
