//! SQL that brings back what a node's clock that ran ahead has put into the future: a backup from there would stay fresh.

use fleet::devices::DeviceId;
use kernel::args;
use kernel::base::{RecordId, Result, Timestamp};
use kernel::store::Db;
use people::organizations::OrganizationId;

use crate::posture::store::PostureUpdate;

kernel::statements! {
    DEVICES_AFTER = "SELECT device_id FROM backup_devices WHERE tenant_id = $1 AND device_id > $2 ORDER BY device_id LIMIT $3";
    POSTURES_AFTER = "SELECT organization_id FROM backup_postures WHERE tenant_id = $1 AND organization_id > $2
        ORDER BY organization_id LIMIT $3";
    CLAMP_RUNS = "UPDATE backup_runs SET ended_at = $3, started_at = CASE WHEN started_at > $3 THEN $3 ELSE started_at END
        WHERE tenant_id = $1 AND device_id = $2 AND kind = 'backup' AND ended_at > $3";
    CLAMP_DEVICE = "UPDATE backup_devices SET record = $3, known_since = CASE WHEN known_since > $4 THEN $4 ELSE known_since END,
            next_at = $4 WHERE tenant_id = $1 AND device_id = $2";
    CLAMP_POSTURE = "UPDATE backup_postures SET record = $3, next_at = $4 WHERE tenant_id = $1 AND organization_id = $2";
}

/// Devices or organizations of one transaction.
const BATCH_ROWS: i64 = 100;

/// Clamps future times before the tenant's clock is set back, and has everything judged again. Returns how many devices.
pub async fn clamp_future_timestamps(db: &Db, now: Timestamp) -> Result<u64> {
    let (mut after, mut clamped) = (DeviceId::NONE, 0);
    loop {
        let ids: Vec<DeviceId> = db.list(DEVICES_AFTER, args![after, BATCH_ROWS]).await?;
        let Some(last) = ids.last().copied() else { break };
        (after, clamped) = (last, clamped + ids.len() as u64);
        db.write(async move |tx| {
            for id in ids {
                let Some(mut stored) = PostureUpdate::find_stored(tx, id).await? else { continue };
                tx.exec(CLAMP_RUNS, args![id, now]).await?;
                stored.record.clamp_times(now);
                tx.exec(CLAMP_DEVICE, args![id, kernel::store::to_json(&stored.record)?, now]).await?;
            }
            Ok(())
        })
        .await?;
    }
    clamp_postures(db, now).await?;
    Ok(clamped)
}

async fn clamp_postures(db: &Db, now: Timestamp) -> Result<()> {
    let mut after = String::new();
    loop {
        let ids: Vec<OrganizationId> = db.list(POSTURES_AFTER, args![after, BATCH_ROWS]).await?;
        let Some(last) = ids.last() else { return Ok(()) };
        after = last.to_string();
        db.write(async move |tx| {
            for id in ids {
                let Some(mut record) = PostureUpdate::find_organization(tx, id).await? else { continue };
                record.clamp_times(now);
                tx.exec(CLAMP_POSTURE, args![id, kernel::store::to_json(&record)?, now]).await?;
            }
            Ok(())
        })
        .await?;
    }
}
