//! Counts of machines by state, provider, region, size and organization.

use kernel::base::Result;
use kernel::store::{Db, Select};
use serde::Serialize;
use utoipa::ToSchema;

kernel::statements! {
    COUNT_BY_STATE = "SELECT state, COUNT(*) FROM vms WHERE tenant_id = $1 AND deleted_at IS NULL GROUP BY state ORDER BY 2 DESC, 1";
    COUNT_BY_PROVIDER = "SELECT provider_id, COUNT(*) FROM vms WHERE tenant_id = $1 AND deleted_at IS NULL AND state NOT IN ('terminated', 'failed') GROUP BY provider_id
        ORDER BY 2 DESC, 1";
    COUNT_BY_REGION = "SELECT region, COUNT(*) FROM vms WHERE tenant_id = $1 AND deleted_at IS NULL AND state NOT IN ('terminated', 'failed') GROUP BY region ORDER BY 2 DESC, 1";
    COUNT_BY_SIZE = "SELECT size_id, COUNT(*) FROM vms WHERE tenant_id = $1 AND deleted_at IS NULL AND state NOT IN ('terminated', 'failed') GROUP BY size_id ORDER BY 2 DESC, 1";
    COUNT_BY_ORGANIZATION = "SELECT organization_id, COUNT(*) FROM vms WHERE tenant_id = $1 AND deleted_at IS NULL AND state NOT IN ('terminated', 'failed')
        GROUP BY organization_id ORDER BY 2 DESC, 1";
}

/// Values of one field; the others are the rare ones.
const VALUES_MAX: usize = 1_000;

/// How many machines there are, by each of these, the most frequent first. Those that are `terminated` or `failed` count in
/// `state` alone.
#[derive(Debug, Serialize, ToSchema)]
#[schema(example = json!({
    "state": [{"value": "running", "count": 12}], "provider": [{"value": "prv_01jd8z6v2mfkpb7h3q9xw5t4ra", "count": 12}],
    "region": [{"value": "eu-central-1", "count": 12}], "size": [{"value": "t3.micro", "count": 12}],
    "organization": [{"value": null, "count": 12}]
}))]
pub struct VmSummary {
    pub state: Vec<VmCount>,
    pub provider: Vec<VmCount>,
    pub region: Vec<VmCount>,
    pub size: Vec<VmCount>,
    /// `null` counts machines without an organization.
    pub organization: Vec<VmCount>,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct VmCount {
    #[schema(required)]
    pub value: Option<String>,
    pub count: i64,
}

pub async fn summarize_vms(db: &Db) -> Result<VmSummary> {
    Ok(VmSummary {
        state: count_by(db, COUNT_BY_STATE).await?,
        provider: count_by(db, COUNT_BY_PROVIDER).await?,
        region: count_by(db, COUNT_BY_REGION).await?,
        size: count_by(db, COUNT_BY_SIZE).await?,
        organization: count_by(db, COUNT_BY_ORGANIZATION).await?,
    })
}

/// Reads all machines of the tenant, apart from the threads that serve requests.
async fn count_by(db: &Db, sql: &'static str) -> Result<Vec<VmCount>> {
    let rows: Vec<(Option<String>, i64)> = db.scan(&Select::new(sql).limit(VALUES_MAX)).await?;
    Ok(rows.into_iter().map(|(value, count)| VmCount { value, count }).collect())
}
