//! What time alone changes of devices: one that is silent goes offline and then stale, and a warranty ends.
//!
//! Each device has a moment at which somebody must look at it. A report does not move it: whoever looks then sees that the
//! device has been heard of, and puts the moment off.

use kernel::args;
use kernel::base::{Code, HOUR_MS, Result, TenantId, Timestamp};
use kernel::jobs::Node;
use kernel::jobs::lanes::tenant_db;
use kernel::store::{Db, Purpose, Tx};

use super::super::rules::{self, Settings, status_at, warranty_at};
use super::super::store::{BY_NUMBER, By, CHECK_AT, Noted, find_by_number, lock_report, save};
use super::super::{Device, StoredDevice};

kernel::statements! {
    /// Tenants with devices whose moment has come: a look into the index for each.
    DUE_TENANTS = "SELECT t.id FROM tenants t WHERE t.id > $2 AND (
            SELECT r.device FROM device_reports r WHERE r.tenant_id = t.id AND r.check_at <= $1 ORDER BY r.check_at LIMIT 1
        ) IS NOT NULL ORDER BY t.id LIMIT $3";
    DUE = "SELECT device FROM device_reports WHERE tenant_id = $1 AND check_at <= $2 ORDER BY check_at LIMIT $3";
}

/// Tenants that are asked for together.
const TENANTS: i64 = 200;
/// Devices of one tenant in one round; what is left waits for the next, and keeps no other tenant waiting.
const ROUND_MAX: i64 = 500;
/// Devices of one transaction, so that nobody's write waits long for it.
const TOGETHER: usize = 50;
/// Until a device that could not be looked at is tried again.
const AGAIN_MS: i64 = HOUR_MS;

/// Looks at every device whose moment has come. Nodes may do this at the same time: the tenant's clock decides who is first.
pub async fn look(node: &Node, settings: Settings) -> Result<()> {
    let (now, system) = (node.world.now(), node.store.system(Purpose::Jobs));
    let mut behind = String::new();
    loop {
        let tenants: Vec<TenantId> = system.list(DUE_TENANTS, args![now, behind, TENANTS]).await?;
        for tenant in &tenants {
            // What cannot be done for one tenant must not keep the others waiting.
            if let Err(error) = look_at_tenant(&tenant_db(&node.store, *tenant), settings, now).await {
                tracing::warn!(%error, %tenant, "devices whose time has come could not be looked at; it will be tried again");
            }
        }
        match tenants.last() {
            Some(last) => behind = last.to_string(),
            None => return Ok(()),
        }
    }
}

async fn look_at_tenant(db: &Db, settings: Settings, now: Timestamp) -> Result<()> {
    let numbers: Vec<i64> = db.list(DUE, args![now, ROUND_MAX]).await?;
    for some in numbers.chunks(TOGETHER) {
        if look_at(db, settings, some.to_vec()).await.is_ok() {
            continue;
        }
        // One of them keeps the others from it: each by itself, then.
        for number in some.iter().copied() {
            if let Err(error) = look_at(db, settings, vec![number]).await {
                // Not its fault: in the next round, then.
                if error.code() != Code::Internal {
                    return Err(error);
                }
                let put_off = now.plus(AGAIN_MS);
                db.write(async move |tx| tx.exec(CHECK_AT, args![number, put_off]).await).await?;
                tracing::warn!(%error, number, "a device could not be looked at");
            }
        }
    }
    Ok(())
}

async fn look_at(db: &Db, settings: Settings, numbers: Vec<i64>) -> Result<()> {
    db.write(async move |tx| {
        tx.tick().await?;
        for number in numbers {
            look_at_one(tx, settings, number).await?;
        }
        Ok(())
    })
    .await
}

async fn look_at_one(tx: &mut Tx, settings: Settings, number: i64) -> Result<()> {
    let now = tx.tick().await?.at;
    // From here on no report is noted that is not seen here.
    lock_report(tx, number).await?;
    let Some(StoredDevice { device, .. }) = tx.find(BY_NUMBER, args![number]).await? else {
        return tx.exec(CHECK_AT, args![number, None::<i64>]).await.map(drop);
    };
    if is_as_it_was(&device, now, &settings) {
        let next = rules::next_check(device.last_seen_at, device.status, &device.warranty, &settings);
        return tx.exec(CHECK_AT, args![number, next]).await.map(drop);
    }
    let Some(kept) = find_by_number(tx, number).await? else { return Ok(()) };
    let mut after = kept.full.clone();
    let device = &mut after.device;
    device.status = status_at(device.last_seen_at, now, &settings);
    device.warranty.status = warranty_at(device.warranty.end_date.as_deref(), now);
    let next = rules::next_check(device.last_seen_at, device.status, &device.warranty, &settings);
    save(tx, &kept, after, Noted::CheckAt(next), By::Itself).await.map(drop)
}

fn is_as_it_was(device: &Device, now: Timestamp, settings: &Settings) -> bool {
    let warranty = warranty_at(device.warranty.end_date.as_deref(), now);
    device.status == status_at(device.last_seen_at, now, settings) && device.warranty.status == warranty
}
