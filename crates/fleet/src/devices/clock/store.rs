//! Changes that time alone causes: a silent device goes offline and then stale, and a warranty ends.
//!
//! Each device has a `check_at`. A report without news does not move it: the check sees that the device has reported, and
//! moves `check_at` on.

use kernel::args;
use kernel::base::{Code, HOUR_MS, Result, TenantId, Timestamp};
use kernel::jobs::lanes::tenant_db;
use kernel::jobs::{ServerNode, tenants};
use kernel::store::{Db, Purpose, Tx};

use super::super::StoredDevice;
use super::super::rules::{DeviceSettings, next_check_at, status_at, warranty_at};
use super::super::store::{
    BY_NUMBER, CHECK_AT, ChangeOrigin, ReportRowUpdate, find_device_by_number, lock_report, save_device,
};

kernel::statements! {
    /// The next tenant with due devices: one index lookup for each.
    DUE_TENANT = "SELECT t.id FROM tenants t WHERE t.id > $2 AND (
            SELECT r.device FROM device_reports r WHERE r.tenant_id = t.id AND r.check_at <= $1 ORDER BY r.check_at LIMIT 1
        ) IS NOT NULL ORDER BY t.id LIMIT 1";
    DUE = "SELECT device FROM device_reports WHERE tenant_id = $1 AND check_at <= $2 ORDER BY check_at LIMIT $3";
}

/// Devices of one tenant in one round. The rest waits for the next round, so no other tenant waits for it.
const ROUND_DEVICES_MAX: i64 = 500;
/// Devices of one transaction: few, so that other writes do not wait long.
const TRANSACTION_DEVICES_MAX: usize = 50;
/// Delay before a device is retried whose check failed.
const RETRY_AFTER_MS: i64 = HOUR_MS;

/// Checks every due device. Several nodes may do this at once: the tenant's clock serializes them.
pub async fn check_due_devices(node: &ServerNode, settings: DeviceSettings) -> Result<()> {
    let (now, system) = (node.env.now(), node.store.system(Purpose::Jobs));
    let check_tenant = async |tenant| {
        check_tenant_devices(&tenant_db(&node.store, tenant), settings, now).await?;
        Ok(false)
    };
    let next = |after| find_due_tenant(&system, now, after);
    tenants::for_each_tenant("checking silent devices", next, check_tenant).await
}

async fn find_due_tenant(system: &Db, now: Timestamp, after: Option<TenantId>) -> Result<Option<TenantId>> {
    let after = after.map(|tenant| tenant.to_string()).unwrap_or_default();
    system.find(DUE_TENANT, args![now, after]).await
}

async fn check_tenant_devices(db: &Db, settings: DeviceSettings, now: Timestamp) -> Result<()> {
    let numbers: Vec<i64> = db.list(DUE, args![now, ROUND_DEVICES_MAX]).await?;
    for some in numbers.chunks(TRANSACTION_DEVICES_MAX) {
        if check_devices(db, settings, some.to_vec()).await.is_ok() {
            continue;
        }
        // One device failed the whole transaction: check each in its own.
        for number in some.iter().copied() {
            if let Err(error) = check_devices(db, settings, vec![number]).await {
                // The device is not the cause: the next round retries.
                if error.code() != Code::Internal {
                    return Err(error);
                }
                let retry_at = now.plus_ms(RETRY_AFTER_MS);
                db.write(async move |tx| tx.exec(CHECK_AT, args![number, retry_at]).await).await?;
                tracing::warn!(%error, number, "failed to check device");
            }
        }
    }
    Ok(())
}

async fn check_devices(db: &Db, settings: DeviceSettings, numbers: Vec<i64>) -> Result<()> {
    db.write(async move |tx| {
        tx.tick().await?;
        for number in numbers {
            check_device(tx, settings, number).await?;
        }
        Ok(())
    })
    .await
}

async fn check_device(tx: &mut Tx, settings: DeviceSettings, number: i64) -> Result<()> {
    let now = tx.tick().await?.at;
    // From here on no report can be saved that this check does not see.
    lock_report(tx, number).await?;
    let Some(StoredDevice { device, .. }) = tx.find(BY_NUMBER, args![number]).await? else {
        return tx.exec(CHECK_AT, args![number, None::<i64>]).await.map(drop);
    };
    let is_up_to_date = device.status == status_at(device.last_seen_at, now, &settings)
        && device.warranty.status == warranty_at(device.warranty.end_date.as_deref(), now);
    if is_up_to_date {
        return tx.exec(CHECK_AT, args![number, next_check_at(&device, &settings)]).await.map(drop);
    }
    let Some(before) = find_device_by_number(tx, number).await? else { return Ok(()) };
    let mut updated = before.full.clone();
    let device = &mut updated.device;
    device.status = status_at(device.last_seen_at, now, &settings);
    device.warranty.status = warranty_at(device.warranty.end_date.as_deref(), now);
    let next = next_check_at(device, &settings);
    save_device(tx, &before, updated, ReportRowUpdate::CheckAt(next), ChangeOrigin::Automatic).await.map(drop)
}
