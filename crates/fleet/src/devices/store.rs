//! SQL of devices: creating, changing and deleting them, with their parts, report row, index, history, audit and events.

use kernel::args;
use kernel::audit::{self, NewAuditEntry};
use kernel::base::{Error, Result, StringEnum, Timestamp};
use kernel::events;
use kernel::store::{Db, FactRetention, Tick, Tx, Value, to_json};

use super::changes::{DeviceChanges, DeviceDifferences};
use super::facts::device_fact;
use super::rules;
use super::stored::{DEVICE_LIST, DeviceChangeColumns, DeviceRecordColumns};
use super::{
    DEVICE_CREATED, DEVICE_DELETED, DEVICE_OFFLINE, DEVICE_UPDATED, Device, DeviceId, DeviceParts, DeviceStatus,
    FieldChange, FullDevice, StoredDevice, UpdatedDevice, compare_devices, index, software,
};

/// The beginning of a statement that reads devices, deleted ones included.
pub const SELECT_DEVICES: &str = kernel::sql![
    "SELECT ",
    DEVICE_LIST,
    " FROM devices LEFT JOIN device_reports ON device_reports.tenant_id = devices.tenant_id AND device = number
        WHERE devices.tenant_id = $1"
];

kernel::statements! {
    /// One live device of an organization, by its term: a deleted device has no terms.
    OF_ORGANIZATION = "SELECT number FROM device_terms WHERE tenant_id = $1 AND term = 'o:' || CAST($2 AS TEXT) LIMIT 1";
    BY_ID = kernel::sql![SELECT_DEVICES, " AND id = $2 AND deleted_at IS NULL"];
    BY_NUMBER = kernel::sql![SELECT_DEVICES, " AND number = $2 AND deleted_at IS NULL"];
    NUMBER = "SELECT number FROM devices WHERE tenant_id = $1 AND id = $2";
    PARTS = "SELECT disks, volumes, nics, software, ports, supplies FROM device_parts WHERE tenant_id = $1 AND number = $2";
    NEXT_NUMBER = "UPDATE tenant_clocks SET device_number = device_number + 1 WHERE tenant_id = $1 RETURNING device_number";
    INSERT = DeviceRecordColumns::INSERT;
    UPDATE = DeviceRecordColumns::UPDATE;
    INSERT_PARTS = "INSERT INTO device_parts (tenant_id, number, disks, volumes, nics, software, ports, supplies)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";
    UPDATE_PARTS = "UPDATE device_parts SET disks = $3, volumes = $4, nics = $5, software = $6, ports = $7, supplies = $8
        WHERE tenant_id = $1 AND number = $2";
    DELETE_PARTS = "DELETE FROM device_parts WHERE tenant_id = $1 AND number = $2";
    INSERT_REPORT = "INSERT INTO device_reports (tenant_id, device, last_seen_at, inventory_at, check_at, digest)
        VALUES ($1, $2, $3, $4, $5, $6)";
    UPDATE_REPORT = "UPDATE device_reports SET last_seen_at = $3, inventory_at = $4, check_at = $5, digest = $6
        WHERE tenant_id = $1 AND device = $2";
    UPDATE_REPORT_TIMES = "UPDATE device_reports SET last_seen_at = $3, inventory_at = $4, check_at = $5
        WHERE tenant_id = $1 AND device = $2";
    CHECK_AT = "UPDATE device_reports SET check_at = $3 WHERE tenant_id = $1 AND device = $2";
    EDITED = "UPDATE device_reports SET check_at = $3, digest = NULL WHERE tenant_id = $1 AND device = $2";
    /// Changes nothing; locks the row against other writers.
    LOCK_REPORT = "UPDATE device_reports SET check_at = check_at WHERE tenant_id = $1 AND device = $2";
    END_REPORT = "UPDATE device_reports SET check_at = NULL, digest = NULL WHERE tenant_id = $1 AND device = $2";
    DELETE_IDENTITIES = "DELETE FROM device_identities /* INDEXED BY device_identities_by_device */
        WHERE tenant_id = $1 AND number = $2";
    INSERT_CHANGE = DeviceChangeColumns::INSERT;
    TRIM_HISTORY = "DELETE FROM device_changes WHERE tenant_id = $1 AND number = $2 AND version < (
            SELECT c.version FROM device_changes c WHERE c.tenant_id = $1 AND c.number = $2
            ORDER BY c.version DESC LIMIT 1 OFFSET $3)";
    /// Devices that were changed while the tenant's clock was ahead.
    IN_FUTURE = kernel::sql![SELECT_DEVICES, " AND updated_at > $2 ORDER BY updated_at, sequence, number LIMIT $3"];
    /// Every device becomes due, so that its status is checked again.
    REPORTS_IN_FUTURE = "UPDATE device_reports SET check_at = $2,
            last_seen_at = CASE WHEN last_seen_at > $2 THEN $2 ELSE last_seen_at END,
            inventory_at = CASE WHEN inventory_at > $2 THEN $2 ELSE inventory_at END
        WHERE tenant_id = $1 AND device > $3 AND device <= $4";
    LAST_NUMBER = "SELECT device_number FROM tenant_clocks WHERE tenant_id = $1";
}

/// A device as it was loaded, before a change.
#[derive(Clone, Debug)]
pub struct LoadedDevice {
    pub number: i64,
    pub full: FullDevice,
}

/// How a change updates the report row.
#[derive(Clone, Debug)]
pub enum ReportRowUpdate {
    /// The device has reported; the times are in the record. The digest is that of a full inventory. A change without a
    /// digest clears the stored one, because the last full inventory no longer describes the device.
    Report { digest: Option<String>, check_at: Option<Timestamp> },
    /// A scan has seen the device, on which an agent runs; the times are in the record. The digest stays: what the agent tells
    /// is as it was.
    Scan { check_at: Option<Timestamp> },
    /// The next time at which time alone may change the device.
    CheckAt(Option<Timestamp>),
    /// A user changed the device: it is checked soon, and the next report is parsed even if it is unchanged.
    Edit,
}

/// What caused a change. Only deliberate changes are audited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeOrigin {
    /// A report or the passing of time: these are too many for the audit trail.
    Automatic,
    /// An operator, an import or a workflow.
    Deliberate,
}

pub async fn find_device(tx: &mut Tx, id: DeviceId) -> Result<Option<LoadedDevice>> {
    let found: Option<StoredDevice> = tx.find(BY_ID, args![id]).await?;
    load_parts(tx, found).await
}

pub async fn find_device_by_number(tx: &mut Tx, number: i64) -> Result<Option<LoadedDevice>> {
    let found: Option<StoredDevice> = tx.find(BY_NUMBER, args![number]).await?;
    load_parts(tx, found).await
}

async fn load_parts(tx: &mut Tx, found: Option<StoredDevice>) -> Result<Option<LoadedDevice>> {
    let Some(StoredDevice { device, number, .. }) = found else { return Ok(None) };
    let parts: Option<DeviceParts> = tx.find(PARTS, args![number]).await?;
    Ok(Some(LoadedDevice { number, full: FullDevice { device, parts: parts.unwrap_or_default() } }))
}

/// Inserts a device. Its id, number, version and times are set here.
pub async fn create_device(
    tx: &mut Tx,
    mut full: FullDevice,
    report_update: ReportRowUpdate,
    by: ChangeOrigin,
) -> Result<LoadedDevice> {
    let Tick { at, sequence } = tx.tick().await?;
    let number: i64 = tx.get_one(NEXT_NUMBER, args![]).await?;
    full.device.id = DeviceId::new_numbered(tx.env(), at, number);
    (full.device.version, full.device.created_at, full.device.updated_at) = (1, at, at);
    rules::update_derived_fields(&mut full, at);
    tx.defer_exec(INSERT, StoredDevice { device: full.device.clone(), number, sequence }.to_values()?).await?;
    tx.record_change("device", full.device.id).await?;
    tx.defer_exec(INSERT_PARTS, parts_row(number, &full.parts)?).await?;
    let (digest, check_at) = match report_update {
        ReportRowUpdate::Report { digest, check_at } => (digest, check_at),
        ReportRowUpdate::Scan { check_at } | ReportRowUpdate::CheckAt(check_at) => (None, check_at),
        ReportRowUpdate::Edit => (None, Some(at)),
    };
    tx.defer_exec(INSERT_REPORT, report_row(number, &full.device, check_at, digest)).await?;
    update_indexes(tx, number, None, &full).await?;
    tx.record_fact(&device_fact(None, &full.device, at), FactRetention::Long).await?;
    let status = full.device.status.as_str().into();
    let created = DeviceChanges([("status".to_owned(), FieldChange::new(serde_json::Value::Null, status))].into());
    insert_history(tx, number, &full.device, &created).await?;
    record_audit(tx, by, "device.create", full.device.id, &DeviceChanges::default()).await?;
    events::publish(tx, &DEVICE_CREATED, full.device.id, &full.device).await?;
    Ok(LoadedDevice { number, full })
}

/// Saves the new state of a device. Without a difference only the report row is updated, and nothing is published.
pub async fn save_device(
    tx: &mut Tx,
    before: &LoadedDevice,
    mut updated: FullDevice,
    report_update: ReportRowUpdate,
    by: ChangeOrigin,
) -> Result<Device> {
    let Tick { at, sequence } = tx.tick().await?;
    let number = before.number;
    rules::update_derived_fields(&mut updated, at);
    let DeviceDifferences { published: published_changes, has_changes } = compare_devices(&before.full, &updated)?;
    match report_update {
        ReportRowUpdate::Scan { check_at } => {
            tx.defer_exec(UPDATE_REPORT_TIMES, report_times(number, &updated.device, check_at)).await?;
        }
        // Nothing changed, so the stored digest still describes the device.
        ReportRowUpdate::Report { digest: None, check_at } if !has_changes => {
            tx.defer_exec(UPDATE_REPORT_TIMES, report_times(number, &updated.device, check_at)).await?;
        }
        ReportRowUpdate::Report { digest, check_at } => {
            tx.defer_exec(UPDATE_REPORT, report_row(number, &updated.device, check_at, digest)).await?;
        }
        ReportRowUpdate::Edit if !has_changes => {}
        ReportRowUpdate::CheckAt(check_at) => tx.defer_exec(CHECK_AT, vec![number.into(), check_at.into()]).await?,
        ReportRowUpdate::Edit => tx.defer_exec(EDITED, vec![number.into(), at.into()]).await?,
    }
    if !has_changes {
        return Ok(updated.device);
    }
    updated.device.version += 1;
    updated.device.updated_at = at;
    tx.defer_exec(UPDATE, StoredDevice { device: updated.device.clone(), number, sequence }.to_values()?).await?;
    tx.record_change("device", updated.device.id).await?;
    if before.full.parts != updated.parts {
        tx.defer_exec(UPDATE_PARTS, parts_row(number, &updated.parts)?).await?;
    }
    update_indexes(tx, number, Some(&before.full), &updated).await?;
    tx.record_fact(&device_fact(Some(&before.full.device), &updated.device, at), FactRetention::Long).await?;
    if updated.device.version % TRIM_EVERY == 0 {
        tx.defer_exec(TRIM_HISTORY, vec![number.into(), HISTORY_MAX.into()]).await?;
    }
    if !published_changes.0.is_empty() {
        insert_history(tx, number, &updated.device, &published_changes).await?;
        record_audit(tx, by, "device.update", updated.device.id, &published_changes).await?;
        publish_change(tx, &before.full.device, &updated.device, published_changes).await?;
    }
    Ok(updated.device)
}

/// Publishes `device.offline` or `device.updated`.
async fn publish_change(tx: &mut Tx, before: &Device, after: &Device, changes: DeviceChanges) -> Result<()> {
    // A device can also go from online to stale directly.
    if before.status == DeviceStatus::Online && after.status != DeviceStatus::Online {
        return events::publish(tx, &DEVICE_OFFLINE, after.id, after).await.map(drop);
    }
    let updated = UpdatedDevice { device: after.clone(), changes };
    events::publish(tx, &DEVICE_UPDATED, after.id, &updated).await.map(drop)
}

/// Changes a device on behalf of a user. The device is checked soon, in case time has changed it meanwhile.
pub async fn edit_device(
    tx: &mut Tx,
    id: DeviceId,
    change: impl FnOnce(&mut FullDevice) -> Result<()>,
) -> Result<Device> {
    tx.tick().await?;
    let before = find_device(tx, id).await?.ok_or_else(Error::not_found)?;
    let mut updated = before.full.clone();
    change(&mut updated)?;
    save_device(tx, &before, updated, ReportRowUpdate::Edit, ChangeOrigin::Deliberate).await
}

/// Locks the report row of a device by its id.
pub async fn lock_device(tx: &mut Tx, id: DeviceId) -> Result<()> {
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
pub async fn delete_device(tx: &mut Tx, id: DeviceId, by: ChangeOrigin) -> Result<Device> {
    let Tick { at, sequence } = tx.tick().await?;
    let before = find_device(tx, id).await?.ok_or_else(Error::not_found)?;
    let number = before.number;
    let mut deleted = FullDevice { device: before.full.device.clone(), parts: DeviceParts::default() };
    deleted.device.deleted_at = Some(at);
    deleted.device.version += 1;
    deleted.device.updated_at = at;
    tx.defer_exec(UPDATE, StoredDevice { device: deleted.device.clone(), number, sequence }.to_values()?).await?;
    tx.record_change("device", id).await?;
    update_indexes(tx, number, Some(&before.full), &deleted).await?;
    tx.record_fact(&device_fact(Some(&before.full.device), &deleted.device, at), FactRetention::Long).await?;
    tx.defer_exec(DELETE_PARTS, vec![number.into()]).await?;
    tx.defer_exec(DELETE_IDENTITIES, vec![number.into()]).await?;
    tx.defer_exec(END_REPORT, vec![number.into()]).await?;
    let deletion = FieldChange::new(serde_json::Value::Null, serde_json::to_value(at).map_err(Error::internal)?);
    let changes = DeviceChanges([("deleted_at".to_owned(), deletion)].into());
    insert_history(tx, number, &deleted.device, &changes).await?;
    record_audit(tx, by, "device.delete", id, &DeviceChanges::default()).await?;
    events::publish(tx, &DEVICE_DELETED, id, &deleted.device).await?;
    Ok(deleted.device)
}

/// Updates everything that a device is found and counted by. Software changes are queued for indexing.
async fn update_indexes(tx: &mut Tx, number: i64, before: Option<&FullDevice>, after: &FullDevice) -> Result<()> {
    index::store::update_index(tx, number, before, after).await?;
    software::store::insert_software_changes(tx, number, before, after).await
}

fn parts_row(number: i64, parts: &DeviceParts) -> Result<Vec<Value>> {
    Ok(vec![
        number.into(),
        to_json(&parts.disks)?.into(),
        to_json(&parts.volumes)?.into(),
        to_json(&parts.nics)?.into(),
        to_json(&parts.software)?.into(),
        to_json(&parts.ports)?.into(),
        to_json(&parts.supplies)?.into(),
    ])
}

/// The values of a report row.
fn report_row(number: i64, device: &Device, check_at: Option<Timestamp>, digest: Option<String>) -> Vec<Value> {
    vec![number.into(), device.last_seen_at.into(), device.inventory_at.into(), check_at.into(), digest.into()]
}

/// The same without the digest.
fn report_times(number: i64, device: &Device, check_at: Option<Timestamp>) -> Vec<Value> {
    vec![number.into(), device.last_seen_at.into(), device.inventory_at.into(), check_at.into()]
}

/// Inserts a history row for the version that the change made.
async fn insert_history(tx: &mut Tx, number: i64, device: &Device, changes: &DeviceChanges) -> Result<()> {
    let actor = tx.actor().who.clone();
    let changes = to_json(changes)?;
    let row = DeviceChangeColumns {
        number: number.into(),
        version: device.version.into(),
        at: device.updated_at.into(),
        actor_type: actor.kind.as_str().into(),
        actor_id: actor.id.into(),
        actor_name: actor.name.into(),
        size_bytes: Value::Int(changes.len() as i64),
        changes: changes.into(),
    };
    tx.defer_exec(INSERT_CHANGE, row.into_vec()).await
}

/// History rows kept for one device: nearly three years of a device that changes every day.
const HISTORY_MAX: i64 = 1_000;
/// The history is trimmed once in so many versions.
const TRIM_EVERY: i64 = 64;

/// The longest change that the audit trail repeats.
const AUDITED_BYTES_MAX: usize = 1_000;

async fn record_audit(
    tx: &mut Tx,
    by: ChangeOrigin,
    action: &'static str,
    id: DeviceId,
    changes: &DeviceChanges,
) -> Result<()> {
    if by == ChangeOrigin::Automatic {
        return Ok(());
    }
    let mut entry = audit::AuditChanges::default();
    for (field, change) in &changes.0 {
        let long = to_json(change)?.len() > AUDITED_BYTES_MAX;
        let brief =
            |value: &serde_json::Value| if long { serde_json::json!({"truncated": true}) } else { value.clone() };
        entry.add_described(field, &brief(&change.from), &brief(&change.to));
    }
    audit::record_entry(tx, NewAuditEntry::new(action, "device", id).with_changes(entry)).await
}

/// Devices clamped in one transaction.
const CLAMP_ROWS: i64 = 200;

/// Report rows clamped in one transaction: more, because only times are written.
const CLAMP_REPORT_ROWS: i64 = 2_000;

/// Clamps future times of devices before the tenant's clock is set back. Returns the number of devices changed.
pub async fn clamp_future_timestamps(db: &Db, now: Timestamp) -> Result<u64> {
    let last: Option<i64> = db.find(LAST_NUMBER, args![]).await?;
    let mut behind = 0;
    while behind < last.unwrap_or(0) {
        let until = behind + CLAMP_REPORT_ROWS;
        db.write(async move |tx| tx.exec(REPORTS_IN_FUTURE, args![now, behind, until]).await).await?;
        behind = until;
    }
    let clamp = db.write_in_batches(CLAMP_ROWS, async move |tx| {
        let found: Vec<StoredDevice> = tx.list(IN_FUTURE, args![now, CLAMP_ROWS]).await?;
        let mut rows = Vec::with_capacity(found.len());
        for mut stored in found {
            let device = &mut stored.device;
            device.created_at = device.created_at.min(now);
            device.updated_at = device.updated_at.min(now);
            device.first_seen_at = device.first_seen_at.map(|at| at.min(now));
            device.deleted_at = device.deleted_at.map(|at| at.min(now));
            tx.record_change("device", device.id).await?;
            rows.push(stored.to_values()?);
        }
        tx.exec_each(UPDATE, &rows).await
    });
    clamp.await
}
