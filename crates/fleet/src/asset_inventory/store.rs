//! SQL of the responses: one device, parts of devices, and history.

use std::collections::HashMap;

use kernel::args;
use kernel::base::Result;
use kernel::http::PageBytes;
use kernel::store::{Db, FromRow, Row, Select};
use serde_json::value::RawValue;

use super::DevicePart;
use super::shown::{FieldSelection, InventoryDevice, RawDeviceParts, raw_json};
use crate::devices::{CHANGE_COLUMNS, DeviceChange, DeviceId, SELECT_DEVICES, StoredDevice, row_limit};

kernel::statements! {
    BY_ID = kernel::sql![SELECT_DEVICES, " AND id = $2 AND deleted_at IS NULL"];
    NUMBER = "SELECT number FROM devices WHERE tenant_id = $1 AND id = $2 AND deleted_at IS NULL";
    VERSION = "SELECT version FROM devices WHERE tenant_id = $1 AND id = $2 AND deleted_at IS NULL";
    // One statement per part: a device has thousands of packages, which a request for its disks must not read.
    DISKS = "SELECT number, disks FROM device_parts WHERE tenant_id = $1";
    VOLUMES = "SELECT number, volumes FROM device_parts WHERE tenant_id = $1";
    NICS = "SELECT number, nics FROM device_parts WHERE tenant_id = $1";
    SOFTWARE = "SELECT number, software FROM device_parts WHERE tenant_id = $1";
    PORTS = "SELECT number, ports FROM device_parts WHERE tenant_id = $1";
    SUPPLIES = "SELECT number, supplies FROM device_parts WHERE tenant_id = $1";
    CHANGES_BEFORE = "SELECT version, size_bytes FROM device_changes WHERE tenant_id = $1 AND number = $2 AND version < $3
        ORDER BY version DESC LIMIT $4";
    HISTORY = kernel::sql![CHANGE_COLUMNS, " AND number = $2 AND version >= $3 ORDER BY version LIMIT $4"];
}

/// Changes in the response for one device, and their bytes together.
const EMBEDDED_CHANGES_MAX: i64 = 1_000;
const EMBEDDED_BYTES_MAX: i64 = 4_000_000;

/// One device with its history. It is read again once if it changes meanwhile.
pub async fn get_device(db: &Db, id: DeviceId, choice: &FieldSelection) -> Result<InventoryDevice> {
    let shown = read_device(db, id, choice).await?;
    if is_unchanged(db, &shown).await? {
        return Ok(shown);
    }
    let shown = read_device(db, id, choice).await?;
    is_unchanged(db, &shown).await?;
    Ok(shown)
}

/// Whether the device still has the version that was read: it is read in several queries. A deleted device is not found.
async fn is_unchanged(db: &Db, shown: &InventoryDevice) -> Result<bool> {
    let version: i64 = db.get_one(VERSION, args![shown.device.id]).await?;
    Ok(version == shown.device.version)
}

async fn read_device(db: &Db, id: DeviceId, choice: &FieldSelection) -> Result<InventoryDevice> {
    let stored: StoredDevice = db.get_one(BY_ID, args![id]).await?;
    db.env().faults.check_outside_tx("asset_inventory.get.found").await?;
    let number = stored.number;
    let mut parts = load_parts(db, &choice.include, &[number]).await?;
    let history = if choice.fields.is_some() { None } else { Some(newest_changes(db, number).await?) };
    let parts = parts.remove(&number).unwrap_or_default();
    Ok(InventoryDevice { device: stored.device, parts, history, fields: choice.fields.clone() })
}

/// The newest changes of a device within the bounds, oldest first.
async fn newest_changes(db: &Db, number: i64) -> Result<Vec<DeviceChange>> {
    let sizes: Vec<(i64, i64)> = db.list(CHANGES_BEFORE, args![number, i64::MAX, EMBEDDED_CHANGES_MAX]).await?;
    let mut bytes = 0;
    let fits = |(_, size): &&(i64, i64)| {
        bytes += size;
        bytes <= EMBEDDED_BYTES_MAX
    };
    let first = sizes.iter().take_while(fits).last().map_or(i64::MAX, |(version, _)| *version);
    db.list(HISTORY, args![number, first, EMBEDDED_CHANGES_MAX]).await
}

/// The changes of a device, newest first, and the version after which the next page starts.
pub async fn list_history(
    db: &Db,
    id: DeviceId,
    after: Option<i64>,
    limit: usize,
) -> Result<(Vec<DeviceChange>, Option<i64>)> {
    let number: i64 = db.get_one(NUMBER, args![id]).await?;
    let before = after.unwrap_or(i64::MAX);
    let sizes: Vec<(i64, i64)> = db.list(CHANGES_BEFORE, args![number, before, row_limit(limit + 1)]).await?;
    let mut bytes = PageBytes::default();
    let fits = |(_, size): &&(i64, i64)| bytes.fits_bytes(usize::try_from(*size).unwrap_or_default());
    let shown = sizes.iter().take(limit).take_while(fits).count();
    let Some((last, _)) = shown.checked_sub(1).and_then(|at| sizes.get(at)) else { return Ok((Vec::new(), None)) };
    let mut rows: Vec<DeviceChange> = db.list(HISTORY, args![number, last, row_limit(shown)]).await?;
    rows.reverse();
    Ok((rows, (sizes.len() > shown).then_some(*last)))
}

/// A part of a device. Its JSON is validated where the row is read, which for long lists is off the request threads.
struct DevicePartRow(i64, Box<RawValue>);

impl FromRow for DevicePartRow {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        Ok(DevicePartRow(row.get(0)?, raw_json(row.get(1)?)?))
    }
}

/// The requested parts of these devices.
pub async fn load_parts(db: &Db, include: &[DevicePart], numbers: &[i64]) -> Result<HashMap<i64, RawDeviceParts>> {
    let mut all: HashMap<i64, RawDeviceParts> = HashMap::new();
    for part in include {
        let (name, sql) = match part {
            DevicePart::Disks => ("disks", DISKS),
            DevicePart::Volumes => ("volumes", VOLUMES),
            DevicePart::Nics => ("nics", NICS),
            DevicePart::Software => ("software", SOFTWARE),
            DevicePart::Ports => ("ports", PORTS),
            DevicePart::Supplies => ("supplies", SUPPLIES),
        };
        let select = Select::new(sql).where_in("number", numbers.iter().copied()).limit(numbers.len());
        // Thousands of packages are a megabyte of text.
        let rows: Vec<DevicePartRow> =
            if *part == DevicePart::Software { db.scan(&select).await? } else { db.select(&select).await? };
        for number in numbers {
            // A tombstone has no parts.
            all.entry(*number).or_default().0.push((name, raw_json("[]".to_owned())?));
        }
        for DevicePartRow(number, list) in rows {
            if let Some(slot) = all.get_mut(&number).and_then(|parts| parts.0.last_mut()) {
                slot.1 = list;
            }
        }
    }
    Ok(all)
}
