//! Changes that time alone causes: a silent device goes offline and then stale, and a warranty ends.
//!
//! Each device has a `check_at`. A report without news does not move it: the check sees that the device has reported, and
//! moves `check_at` on.

use kernel::args;
use kernel::base::{Code, HOUR_MS, Result, TenantId, Timestamp};
use kernel::jobs::ServerNode;
use kernel::jobs::lanes::tenant_db;
use kernel::store::{Db, Purpose, Tx};

use super::super::rules::{self, DeviceSettings, status_at, warranty_at};
use super::super::store::{
    BY_NUMBER, CHECK_AT, ChangeOrigin, ReportRowUpdate, find_device_by_number, lock_report, save_device,
};
use super::super::{Device, StoredDevice};

kernel::statements! {
    /// Tenants with due devices: one index lookup for each.
    DUE_TENANTS = "SELECT t.id FROM tenants t WHERE t.id > $2 AND (
            SELECT r.device FROM device_reports r WHERE r.tenant_id = t.id AND r.check_at <= $1 ORDER BY r.check_at LIMIT 1
        ) IS NOT NULL ORDER BY t.id LIMIT $3";
    DUE = "SELECT device FROM device_reports WHERE tenant_id = $1 AND check_at <= $2 ORDER BY check_at LIMIT $3";
}

/// Tenants read with one query.
const TENANTS_PER_QUERY: i64 = 200;
/// Devices of one tenant in one round. The rest waits for the next round, so no other tenant waits for it.
const ROUND_DEVICES_MAX: i64 = 500;
/// Devices of one transaction: few, so that other writes do not wait long.
const TRANSACTION_DEVICES_MAX: usize = 50;
/// Delay before a device is retried whose check failed.
const RETRY_AFTER_MS: i64 = HOUR_MS;

/// Checks every due device. Several nodes may do this at once: the tenant's clock serializes them.
pub async fn check_due_devices(node: &ServerNode, settings: DeviceSettings) -> Result<()> {
    let (now, system) = (node.env.now(), node.store.system(Purpose::Jobs));
    let mut behind = String::new();
    loop {
        let tenants: Vec<TenantId> = system.list(DUE_TENANTS, args![now, behind, TENANTS_PER_QUERY]).await?;
        for tenant in &tenants {
            // A failure for one tenant must not stop the others.
            if let Err(error) = check_tenant_devices(&tenant_db(&node.store, *tenant), settings, now).await {
                tracing::warn!(%error, %tenant, "failed to check due devices; will retry");
            }
        }
        match tenants.last() {
            Some(last) => behind = last.to_string(),
            None => return Ok(()),
        }
    }
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
    if is_up_to_date(&device, now, &settings) {
        let next = rules::next_check_at(device.last_seen_at, device.status, &device.warranty, &settings);
        return tx.exec(CHECK_AT, args![number, next]).await.map(drop);
    }
    let Some(before) = find_device_by_number(tx, number).await? else { return Ok(()) };
    let mut updated = before.full.clone();
    let device = &mut updated.device;
    device.status = status_at(device.last_seen_at, now, &settings);
    device.warranty.status = warranty_at(device.warranty.end_date.as_deref(), now);
    let next = rules::next_check_at(device.last_seen_at, device.status, &device.warranty, &settings);
    save_device(tx, &before, updated, ReportRowUpdate::CheckAt(next), ChangeOrigin::Automatic).await.map(drop)
}

fn is_up_to_date(device: &Device, now: Timestamp, settings: &DeviceSettings) -> bool {
    let warranty = warranty_at(device.warranty.end_date.as_deref(), now);
    device.status == status_at(device.last_seen_at, now, settings) && device.warranty.status == warranty
}
