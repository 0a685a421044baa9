//! Background jobs of deliveries beside sending: cleaning the log and measuring the queue.

use kernel::base::Result;
use kernel::jobs::{ServerNode, lanes, tenants};
use kernel::store::Purpose;

use super::deliveries::store;

/// The count stops here: each node counts every few seconds, and more than this is a backlog anyway.
pub const WAITING_MAX: i64 = 10_000;

/// Deletes deliveries older than the retention, tenant by tenant and a few hundred rows at a time. A tenant whose cleaning
/// fails does not keep the others from being cleaned.
pub async fn clean_deliveries(node: &ServerNode, retention_ms: i64) -> Result<()> {
    let before = node.env.now().plus_ms(-retention_ms);
    let db = node.store.system(Purpose::Housekeeping);
    let clean_tenant = async |tenant| {
        let db = lanes::tenant_db(&node.store, tenant);
        db.write(async move |tx| store::clean_deliveries(tx, before).await).await
    };
    tenants::for_each_tenant(
        "cleaning the log of deliveries",
        |after| store::find_tenant_after(&db, after),
        clean_tenant,
    )
    .await
}

/// Updates the gauge of pending deliveries.
pub async fn measure_queue(node: &ServerNode) -> Result<()> {
    let waiting = store::count_waiting(&node.store.system(Purpose::Jobs), WAITING_MAX).await?;
    metrics::gauge!("webhook_queue_depth").set(f64::from(u32::try_from(waiting).unwrap_or(u32::MAX)));
    Ok(())
}
