//! SQL of devices: creating, changing and deleting them, with their parts, report row, index, history, audit and events.

use kernel::args;
use kernel::audit::{self, Entry};
use kernel::base::{Error, Result, Timestamp, Word};
use kernel::events;
use kernel::store::{Db, Tick, Tx, Value};

use super::changes::{Changes, Differences};
use super::rules;
use super::stored::{ChangeColumns, DEVICE_LIST, DeviceColumns, json};
use super::{
    DEVICE_CREATED, DEVICE_DELETED, DEVICE_OFFLINE, DEVICE_UPDATED, Device, DeviceId, FieldChange, FullDevice, Parts,
    Status, StoredDevice, UpdatedDevice, differences, index,
};

const WITH_REPORTS: &str = " FROM devices LEFT JOIN device_reports ON device_reports.tenant_id = devices.tenant_id
    AND device = number WHERE devices.tenant_id = $1";

const FULL: &str = kernel::sql!["SELECT ", DEVICE_LIST, WITH_REPORTS];

kernel::statements! {
    /// One live device of an organization, by its term: a deleted device has no terms.
    OF_ORGANIZATION = "SELECT number FROM device_terms WHERE tenant_id = $1 AND term = 'o:' || CAST($2 AS TEXT) LIMIT 1";
    BY_ID = kernel::sql![FULL, " AND id = $2 AND deleted_at IS NULL"];
    BY_NUMBER = kernel::sql![FULL, " AND number = $2 AND deleted_at IS NULL"];
    NUMBER = "SELECT number FROM devices WHERE tenant_id = $1 AND id = $2";
    PARTS = "SELECT disks, volumes, nics, software FROM device_parts WHERE tenant_id = $1 AND number = $2";
    NEXT_NUMBER = "UPDATE tenant_clocks SET device_number = device_number + 1 WHERE tenant_id = $1 RETURNING device_number";
    INSERT = DeviceColumns::INSERT;
    UPDATE = DeviceColumns::UPDATE;
    INSERT_PARTS = "INSERT INTO device_parts (tenant_id, number, disks, volumes, nics, software) VALUES ($1, $2, $3, $4, $5, $6)";
    UPDATE_PARTS = "UPDATE device_parts SET disks = $3, volumes = $4, nics = $5, software = $6 WHERE tenant_id = $1 AND number = $2";
    DELETE_PARTS = "DELETE FROM device_parts WHERE tenant_id = $1 AND number = $2";
    INSERT_REPORT = "INSERT INTO device_reports (tenant_id, device, last_seen_at, inventory_at, check_at, digest)
        VALUES ($1, $2, $3, $4, $5, $6)";
    UPDATE_REPORT = "UPDATE device_reports SET last_seen_at = $3, inventory_at = $4, check_at = $5, digest = $6
        WHERE tenant_id = $1 AND device = $2";
    NOTE_REPORT = "UPDATE device_reports SET last_seen_at = $3, inventory_at = $4, check_at = $5
        WHERE tenant_id = $1 AND device = $2";
    CHECK_AT = "UPDATE device_reports SET check_at = $3 WHERE tenant_id = $1 AND device = $2";
    EDITED = "UPDATE device_reports SET check_at = $3, digest = NULL WHERE tenant_id = $1 AND device = $2";
    /// Changes nothing; locks the row against other writers.
    LOCK_REPORT = "UPDATE device_reports SET check_at = check_at WHERE tenant_id = $1 AND device = $2";
    END_REPORT = "UPDATE device_reports SET check_at = NULL, digest = NULL WHERE tenant_id = $1 AND device = $2";
    DELETE_IDENTITIES = "DELETE FROM device_identities /* INDEXED BY device_identities_by_device */
        WHERE tenant_id = $1 AND number = $2";
    INSERT_CHANGE = ChangeColumns::INSERT;
    TRIM_HISTORY = "DELETE FROM device_changes WHERE tenant_id = $1 AND number = $2 AND version < (
            SELECT c.version FROM device_changes c WHERE c.tenant_id = $1 AND c.number = $2
            ORDER BY c.version DESC LIMIT 1 OFFSET $3)";
    /// Devices that were changed while the tenant's clock was ahead.
    IN_FUTURE = kernel::sql![FULL, " AND updated_at > $2 ORDER BY updated_at, sequence, number LIMIT $3"];
    /// Every device becomes due, so that its status is checked again.
    REPORTS_IN_FUTURE = "UPDATE device_reports SET check_at = $2,
            last_seen_at = CASE WHEN last_seen_at > $2 THEN $2 ELSE last_seen_at END,
            inventory_at = CASE WHEN inventory_at > $2 THEN $2 ELSE inventory_at END
        WHERE tenant_id = $1 AND device > $3 AND device <= $4";
    LAST_NUMBER = "SELECT device_number FROM tenant_clocks WHERE tenant_id = $1";
}

/// A device as it was loaded, before a change.
#[derive(Clone, Debug)]
pub struct Kept {
    pub number: i64,
    pub full: FullDevice,
}

/// How a change updates the report row.
#[derive(Clone, Debug)]
pub enum Noted {
    /// The device has reported; the times are in the record. The digest is that of a full inventory. A change without a
    /// digest clears the stored one, because the last full inventory no longer describes the device.
    Report { digest: Option<String>, check_at: Option<Timestamp> },
    /// The next time at which time alone may change the device.
    CheckAt(Option<Timestamp>),
    /// A user changed the device: it is checked soon, and the next report is parsed even if it is unchanged.
    Edit,
}

/// What caused a change. Only deliberate changes are audited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// A report or the passing of time: these are too many for the audit trail.
    Itself,
    /// An operator, an import or a workflow.
    Somebody,
}

pub async fn find(tx: &mut Tx, id: DeviceId) -> Result<Option<Kept>> {
    let found: Option<StoredDevice> = tx.find(BY_ID, args![id]).await?;
    with_parts(tx, found).await
}

pub async fn find_by_number(tx: &mut Tx, number: i64) -> Result<Option<Kept>> {
    let found: Option<StoredDevice> = tx.find(BY_NUMBER, args![number]).await?;
    with_parts(tx, found).await
}

async fn with_parts(tx: &mut Tx, found: Option<StoredDevice>) -> Result<Option<Kept>> {
    let Some(StoredDevice { device, number, .. }) = found else { return Ok(None) };
    let parts: Option<Parts> = tx.find(PARTS, args![number]).await?;
    Ok(Some(Kept { number, full: FullDevice { device, parts: parts.unwrap_or_default() } }))
}

/// Inserts a device. Its id, number, version and times are set here.
pub async fn create(tx: &mut Tx, mut full: FullDevice, noted: Noted, by: By) -> Result<Kept> {
    let Tick { at, sequence } = tx.tick().await?;
    let number: i64 = tx.one(NEXT_NUMBER, args![]).await?;
    full.device.id = DeviceId::new_numbered(tx.world(), at, number);
    (full.device.version, full.device.created_at, full.device.updated_at) = (1, at, at);
    rules::settle(&mut full, at);
    tx.later(INSERT, StoredDevice { device: full.device.clone(), number, sequence }.values()?).await?;
    tx.changed("device", full.device.id).await?;
    tx.later(INSERT_PARTS, parts_row(number, &full.parts)?).await?;
    let (digest, check_at) = match noted {
        Noted::Report { digest, check_at } => (digest, check_at),
        Noted::CheckAt(check_at) => (None, check_at),
        Noted::Edit => (None, Some(at)),
    };
    tx.later(INSERT_REPORT, report_row(number, &full.device, check_at, digest)).await?;
    index::store::update(tx, number, None, &full).await?;
    let status = full.device.status.as_str().into();
    let begun = Changes([("status".to_owned(), FieldChange { from: serde_json::Value::Null, to: status })].into());
    note(tx, number, &full.device, &begun).await?;
    audit(tx, by, "device.create", full.device.id, &Changes::default()).await?;
    events::publish(tx, &DEVICE_CREATED, full.device.id, &full.device).await?;
    Ok(Kept { number, full })
}

/// Saves the new state of a device. Without a difference only the report row is updated, and nothing is published.
pub async fn save(tx: &mut Tx, kept: &Kept, mut after: FullDevice, noted: Noted, by: By) -> Result<Device> {
    let Tick { at, sequence } = tx.tick().await?;
    let number = kept.number;
    rules::settle(&mut after, at);
    let Differences { told, any } = differences(&kept.full, &after)?;
    match noted {
        // Nothing changed, so the stored digest still describes the device.
        Noted::Report { digest: None, check_at } if !any => {
            let mut row = report_row(number, &after.device, check_at, None);
            row.pop();
            tx.later(NOTE_REPORT, row).await?;
        }
        Noted::Report { digest, check_at } => {
            tx.later(UPDATE_REPORT, report_row(number, &after.device, check_at, digest)).await?;
        }
        Noted::Edit if !any => {}
        Noted::CheckAt(check_at) => tx.later(CHECK_AT, vec![number.into(), check_at.into()]).await?,
        Noted::Edit => tx.later(EDITED, vec![number.into(), at.into()]).await?,
    }
    if !any {
        return Ok(after.device);
    }
    after.device.version += 1;
    after.device.updated_at = at;
    tx.later(UPDATE, StoredDevice { device: after.device.clone(), number, sequence }.values()?).await?;
    tx.changed("device", after.device.id).await?;
    if kept.full.parts != after.parts {
        tx.later(UPDATE_PARTS, parts_row(number, &after.parts)?).await?;
    }
    index::store::update(tx, number, Some(&kept.full), &after).await?;
    if after.device.version % TRIM_EVERY == 0 {
        tx.later(TRIM_HISTORY, vec![number.into(), HISTORY_MAX.into()]).await?;
    }
    if !told.0.is_empty() {
        note(tx, number, &after.device, &told).await?;
        audit(tx, by, "device.update", after.device.id, &told).await?;
        tell(tx, &kept.full.device, &after.device, told).await?;
    }
    Ok(after.device)
}

/// Publishes `device.offline` or `device.updated`.
async fn tell(tx: &mut Tx, before: &Device, after: &Device, changes: Changes) -> Result<()> {
    // A device can also go from online to stale directly.
    if before.status == Status::Online && after.status != Status::Online {
        return events::publish(tx, &DEVICE_OFFLINE, after.id, after).await.map(drop);
    }
    let updated = UpdatedDevice { device: after.clone(), changes };
    events::publish(tx, &DEVICE_UPDATED, after.id, &updated).await.map(drop)
}

/// Changes a device on behalf of a user. The device is checked soon, in case time has changed it meanwhile.
pub async fn edit(tx: &mut Tx, id: DeviceId, change: impl FnOnce(&mut FullDevice) -> Result<()>) -> Result<Device> {
    tx.tick().await?;
    let kept = find(tx, id).await?.ok_or_else(Error::not_found)?;
    let mut after = kept.full.clone();
    change(&mut after)?;
    save(tx, &kept, after, Noted::Edit, By::Somebody).await
}

/// Locks the report row of a device by its id.
pub async fn lock(tx: &mut Tx, id: DeviceId) -> Result<()> {
    match tx.find::<i64>(NUMBER, args![id]).await? {
        Some(number) => lock_report(tx, number).await,
        None => Ok(()),
    }
}

/// Locks the report row of a device until the end of the transaction.
pub async fn lock_report(tx: &mut Tx, number: i64) -> Result<()> {
    tx.exec(LOCK_REPORT, args![number]).await.map(drop)
}

/// Deletes a device. Its tombstone stays for readers of changes.
pub async fn delete(tx: &mut Tx, id: DeviceId, by: By) -> Result<Device> {
    let Tick { at, sequence } = tx.tick().await?;
    let kept = find(tx, id).await?.ok_or_else(Error::not_found)?;
    let number = kept.number;
    let mut after = FullDevice { device: kept.full.device.clone(), parts: Parts::default() };
    after.device.deleted_at = Some(at);
    after.device.version += 1;
    after.device.updated_at = at;
    tx.later(UPDATE, StoredDevice { device: after.device.clone(), number, sequence }.values()?).await?;
    tx.changed("device", id).await?;
    index::store::update(tx, number, Some(&kept.full), &after).await?;
    tx.later(DELETE_PARTS, vec![number.into()]).await?;
    tx.later(DELETE_IDENTITIES, vec![number.into()]).await?;
    tx.later(END_REPORT, vec![number.into()]).await?;
    let gone = FieldChange { from: serde_json::Value::Null, to: serde_json::to_value(at).map_err(Error::internal)? };
    let changes = Changes([("deleted_at".to_owned(), gone)].into());
    note(tx, number, &after.device, &changes).await?;
    audit(tx, by, "device.delete", id, &Changes::default()).await?;
    events::publish(tx, &DEVICE_DELETED, id, &after.device).await?;
    Ok(after.device)
}

fn parts_row(number: i64, parts: &Parts) -> Result<Vec<Value>> {
    Ok(vec![
        number.into(),
        json(&parts.disks)?.into(),
        json(&parts.volumes)?.into(),
        json(&parts.nics)?.into(),
        json(&parts.software)?.into(),
    ])
}

/// The values of a report row.
fn report_row(number: i64, device: &Device, check_at: Option<Timestamp>, digest: Option<String>) -> Vec<Value> {
    vec![number.into(), device.last_seen_at.into(), device.inventory_at.into(), check_at.into(), digest.into()]
}

/// Inserts a history row for the version that the change made.
async fn note(tx: &mut Tx, number: i64, device: &Device, changes: &Changes) -> Result<()> {
    let actor = tx.actor().who.clone();
    let changes = json(changes)?;
    let row = ChangeColumns {
        number: number.into(),
        version: device.version.into(),
        at: device.updated_at.into(),
        actor_type: actor.kind.as_str().into(),
        actor_id: actor.id.into(),
        actor_name: actor.name.into(),
        size_bytes: Value::Int(changes.len() as i64),
        changes: changes.into(),
    };
    tx.later(INSERT_CHANGE, row.into_vec()).await
}

/// History rows kept for one device: nearly three years of a device that changes every day.
const HISTORY_MAX: i64 = 1_000;
/// The history is trimmed once in so many versions.
const TRIM_EVERY: i64 = 64;

/// The longest change that the audit trail repeats.
const AUDITED_BYTES_MAX: usize = 1_000;

async fn audit(tx: &mut Tx, by: By, action: &'static str, id: DeviceId, changes: &Changes) -> Result<()> {
    if by == By::Itself {
        return Ok(());
    }
    let mut entry = audit::Changes::default();
    for (field, change) in &changes.0 {
        let long = json(change)?.len() > AUDITED_BYTES_MAX;
        let brief =
            |value: &serde_json::Value| if long { serde_json::json!({"truncated": true}) } else { value.clone() };
        entry.tell(field, &brief(&change.from), &brief(&change.to));
    }
    audit::record(tx, Entry::new(action, "device", id).changes(entry)).await
}

/// Devices clamped in one transaction.
const BRING_BACK_ROWS: i64 = 200;

/// Report rows clamped in one transaction: more, because only times are written.
const REPORTS_ROWS: i64 = 2_000;

/// Clamps future times of devices before the tenant's clock is set back. Returns the number of devices changed.
pub async fn bring_back(db: &Db, now: Timestamp) -> Result<u64> {
    let last: Option<i64> = db.find(LAST_NUMBER, args![]).await?;
    let mut behind = 0;
    while behind < last.unwrap_or(0) {
        let until = behind + REPORTS_ROWS;
        db.write(async move |tx| tx.exec(REPORTS_IN_FUTURE, args![now, behind, until]).await).await?;
        behind = until;
    }
    let mut all = 0;
    loop {
        let brought = db.write(async move |tx| {
            let found: Vec<StoredDevice> = tx.list(IN_FUTURE, args![now, BRING_BACK_ROWS]).await?;
            let mut rows = Vec::with_capacity(found.len());
            for mut stored in found {
                let device = &mut stored.device;
                device.created_at = device.created_at.min(now);
                device.updated_at = device.updated_at.min(now);
                device.first_seen_at = device.first_seen_at.map(|at| at.min(now));
                device.deleted_at = device.deleted_at.map(|at| at.min(now));
                tx.changed("device", device.id).await?;
                rows.push(stored.values()?);
            }
            tx.exec_each(UPDATE, &rows).await
        });
        let brought = brought.await?;
        all += brought;
        if brought < BRING_BACK_ROWS.unsigned_abs() {
            return Ok(all);
        }
    }
}
