//! Machines that have ended, and orders that have failed, leave the list after a while. That depends on no sync: those of a
//! provider that is disabled, refused or out of reach leave, too.

use kernel::args;
use kernel::base::{DAY_MS, Result, TenantId, Timestamp};
use kernel::jobs::lanes::tenant_db;
use kernel::jobs::{ServerNode, tenants};
use kernel::store::{Db, Purpose};

use super::super::store::{READ, StoredVm, forget_listed};

kernel::statements! {
    /// The next tenant with machines that ended so long ago: one index lookup for each.
    ENDED_TENANT = "SELECT t.id FROM tenants t WHERE t.id > $2 AND (
            SELECT v.id FROM vms v WHERE v.tenant_id = t.id AND v.deleted_at IS NULL AND v.terminated_at < $1
            ORDER BY v.terminated_at, v.id LIMIT 1
        ) IS NOT NULL ORDER BY t.id LIMIT 1";
    ENDED = kernel::sql![
        READ,
        " AND v.deleted_at IS NULL AND v.terminated_at < $2 ORDER BY v.terminated_at, v.id LIMIT $3"
    ];
}

/// How long a machine that has ended stays in the list.
const ENDED_MS: i64 = 30 * DAY_MS;
/// Machines of one transaction: few, so that other writes do not wait long.
const TRANSACTION_ROWS: usize = 100;

/// Forgets the machines of all tenants that ended so long ago. Several nodes may do this at once: the tenant's clock serializes
/// them.
pub async fn forget_ended_machines(node: &ServerNode) -> Result<()> {
    let (before, system) = (node.env.now().plus_ms(-ENDED_MS), node.store.system(Purpose::Housekeeping));
    let next = |after| find_tenant_after(&system, before, after);
    let forget_of_tenant = |tenant| forget_some(tenant_db(&node.store, tenant), before);
    tenants::for_each_tenant("forgetting ended machines", next, forget_of_tenant).await
}

async fn find_tenant_after(system: &Db, before: Timestamp, after: Option<TenantId>) -> Result<Option<TenantId>> {
    let after = after.map(|tenant| tenant.to_string()).unwrap_or_default();
    system.find(ENDED_TENANT, args![before, after]).await
}

/// Returns whether there may be more.
async fn forget_some(db: Db, before: Timestamp) -> Result<bool> {
    db.write(async move |tx| {
        tx.tick().await?;
        let ended: Vec<StoredVm> = tx.list(ENDED, args![before, TRANSACTION_ROWS as i64]).await?;
        let is_full = ended.len() == TRANSACTION_ROWS;
        forget_listed(tx, ended).await?;
        Ok(is_full)
    })
    .await
}
