//! SQL of what time alone changes: a backup grows too old, a scheduled run is missed, a run leaves the last 24 hours.
//!
//! Each device and each organization has the moment of its next change, and an index of those moments is all that is read.

use fleet::devices::DeviceId;
use kernel::args;
use kernel::base::{Result, TenantId, Timestamp};
use kernel::jobs::lanes::tenant_db;
use kernel::jobs::{ServerNode, tenants};
use kernel::store::{Db, Purpose};
use people::organizations::OrganizationId;

use super::super::pending::store::apply_pending;
use super::super::store::PostureUpdate;

kernel::statements! {
    /// The next tenant with something due: a few index lookups for each.
    DUE_TENANT = "SELECT t.id FROM tenants t WHERE t.id > $2 AND (
            (SELECT d.device_id FROM backup_devices d WHERE d.tenant_id = t.id AND d.next_at <= $1 ORDER BY d.next_at LIMIT 1) IS NOT NULL
            OR (SELECT p.organization_id FROM backup_postures p WHERE p.tenant_id = t.id AND p.next_at <= $1
                ORDER BY p.next_at LIMIT 1) IS NOT NULL
            OR (SELECT w.record_id FROM backup_pending w WHERE w.tenant_id = t.id LIMIT 1) IS NOT NULL
        ) ORDER BY t.id LIMIT 1";
    DUE_DEVICES = "SELECT device_id FROM backup_devices WHERE tenant_id = $1 AND next_at <= $2 ORDER BY next_at LIMIT $3";
    DUE_POSTURES = "SELECT organization_id FROM backup_postures WHERE tenant_id = $1 AND next_at <= $2 ORDER BY next_at LIMIT $3";
}

/// Devices and organizations of one transaction: few, so that other writes do not wait long.
const BATCH_ROWS: i64 = 50;
/// Batches of one tenant in one round. The rest waits for the next round, so no other tenant waits for it.
const BATCHES_MAX: usize = 40;

/// Judges again what is due. Several nodes may do this at once: the tenant's clock serializes them, and who comes second finds
/// nothing due.
pub async fn judge_due_backups(node: &ServerNode) -> Result<()> {
    let (now, system) = (node.env.now(), node.store.system(Purpose::Jobs));
    let judge_tenant = async |tenant| {
        judge_tenant_backups(&tenant_db(&node.store, tenant), now).await?;
        Ok(false)
    };
    let next = |after| find_due_tenant(&system, now, after);
    tenants::for_each_tenant("judging backups", next, judge_tenant).await
}

async fn find_due_tenant(system: &Db, now: Timestamp, after: Option<TenantId>) -> Result<Option<TenantId>> {
    let after = after.map(|tenant| tenant.to_string()).unwrap_or_default();
    system.find(DUE_TENANT, args![now, after]).await
}

async fn judge_tenant_backups(db: &Db, now: Timestamp) -> Result<()> {
    for _ in 0..BATCHES_MAX {
        let has_pending = apply_pending(db).await?;
        if !judge_batch(db, now).await? && !has_pending {
            break;
        }
        db.yield_write_lock().await;
    }
    Ok(())
}

/// Judges some devices and organizations that are due; false if none was.
async fn judge_batch(db: &Db, now: Timestamp) -> Result<bool> {
    let devices: Vec<DeviceId> = db.list(DUE_DEVICES, args![now, BATCH_ROWS]).await?;
    let organizations: Vec<OrganizationId> = db.list(DUE_POSTURES, args![now, BATCH_ROWS]).await?;
    if devices.is_empty() && organizations.is_empty() {
        return Ok(false);
    }
    db.write(async move |tx| {
        let mut update = PostureUpdate::begin(tx).await?;
        for id in devices {
            if let Some(stored) = PostureUpdate::find_stored(tx, id).await? {
                update.update_device(tx, &stored.to_inventory(id), Some(stored), None).await?;
            }
        }
        for id in organizations {
            update.update_organization(tx, id).await?;
        }
        update.save(tx).await
    })
    .await?;
    Ok(true)
}
