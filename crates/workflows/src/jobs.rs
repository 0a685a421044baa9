//! Background jobs of workflows beside the engine: cleaning and measuring.

use kernel::base::Result;
use kernel::jobs::{ServerNode, lanes, tenants};
use kernel::store::Purpose;

use super::retention::store;

/// Queued runs are counted up to this number.
const WAITING_MAX: i64 = 10_000;

/// Deletes runs whose retention is over, and deleted workflows that have no runs left, tenant by tenant. A tenant that
/// fails does not stop the others.
pub async fn clean_history(node: &ServerNode, retention_ms: i64) -> Result<()> {
    let before = node.env.now().plus_ms(-retention_ms);
    let db = node.store.system(Purpose::Housekeeping);
    let clean_tenant = async |tenant| {
        let db = lanes::tenant_db(&node.store, tenant);
        db.write(async move |tx| store::clean_runs(tx, before).await).await
    };
    tenants::for_each_tenant("cleaning the runs", |after| store::find_tenant_after(&db, after), clean_tenant).await
}

/// Updates the gauge of queued runs.
pub async fn measure_queue(node: &ServerNode) -> Result<()> {
    let waiting = store::count_waiting_runs(&node.store.system(Purpose::Jobs), WAITING_MAX).await?;
    metrics::gauge!("workflow_queue_depth").set(f64::from(u32::try_from(waiting).unwrap_or(u32::MAX)));
    Ok(())
}
