//! SQL of what changes elsewhere leave to be done. Publishing a device's or an organization's event inserts a row; a change of
//! policy inserts one for all devices below it, whose position says how far it has come.

use fleet::devices::{DeviceId, Type};
use kernel::args;
use kernel::base::{RecordId, Result, StringEnum, Timestamp};
use kernel::store::{Db, Follower, FromRow, NewEvent, Row, Tx, Value};
use people::organizations::OrganizationId;

use super::super::queue::store::{PendingKind, enqueue, enqueue_sweep};
use super::super::rows::InventoryDevice;
use super::super::store::PostureUpdate;
use crate::policy::DeviceClass;

kernel::statements! {
    /// Whether an event is of a record that is judged here.
    IS_FOLLOWED = "SELECT id FROM tenants WHERE id = $1 AND CAST($2 AS TEXT) <> ''";
    INSERT_FOLLOWED = "INSERT INTO backup_pending (tenant_id, kind, record_id, position)
        SELECT CAST($1 AS TEXT), CAST($2 AS TEXT), CAST($3 AS TEXT), '' WHERE CAST($2 AS TEXT) <> ''
        ON CONFLICT (tenant_id, kind, record_id) DO NOTHING";
    NEXT = "SELECT kind, record_id, position FROM backup_pending WHERE tenant_id = $1 ORDER BY kind, record_id LIMIT $2";
    DELETE = "DELETE FROM backup_pending WHERE tenant_id = $1 AND kind = $2 AND record_id = $3";
    MOVE = "UPDATE backup_pending SET position = $4 WHERE tenant_id = $1 AND kind = $2 AND record_id = $3";
    DEVICE = "SELECT id, type, organization_id, created_at FROM devices WHERE tenant_id = $1 AND id = $2 AND deleted_at IS NULL";
    /// Two devices of one name are ambiguous already.
    BY_NAME = "SELECT id, type, organization_id, created_at FROM devices /* INDEXED BY devices_by_hostname */
        WHERE tenant_id = $1 AND sort_name = $2 AND deleted_at IS NULL ORDER BY number LIMIT 2";
    BY_NAME_IN_ORGANIZATION = "SELECT id, type, organization_id, created_at FROM devices /* INDEXED BY devices_by_hostname */
        WHERE tenant_id = $1 AND sort_name = $2 AND deleted_at IS NULL AND organization_id = $3 ORDER BY number LIMIT 2";
    BY_NAME_IN_NONE = "SELECT id, type, organization_id, created_at FROM devices /* INDEXED BY devices_by_hostname */
        WHERE tenant_id = $1 AND sort_name = $2 AND deleted_at IS NULL AND organization_id IS NULL ORDER BY number LIMIT 2";
    ORGANIZATION = "SELECT id FROM organizations WHERE tenant_id = $1 AND id = $2";
    ALL_AFTER = "SELECT device_id FROM backup_devices WHERE tenant_id = $1 AND device_id > $2 ORDER BY device_id LIMIT $3";
    OF_ORGANIZATION_AFTER = "SELECT device_id FROM backup_devices /* INDEXED BY backup_devices_by_organization */
        WHERE tenant_id = $1 AND organization_id = $2 AND device_id > $3 ORDER BY device_id LIMIT $4";
    POSTURES_AFTER = "SELECT organization_id FROM backup_postures WHERE tenant_id = $1 AND organization_id > $2
        ORDER BY organization_id LIMIT $3";
}

/// Notes the devices and organizations that have changed.
pub const CHANGED_RECORDS: Follower = Follower {
    name: "backup",
    only_if: Some((IS_FOLLOWED, kind_values)),
    statements: &[(INSERT_FOLLOWED, pending_values)],
};

/// The kind of pending work that an event leaves; empty for none.
fn kind_of_event(event: &NewEvent<'_>) -> &'static str {
    match event.kind {
        "device.created" | "device.updated" | "device.deleted" => PendingKind::Device.as_str(),
        "organization.created" | "organization.updated" | "organization.deleted" => PendingKind::Organization.as_str(),
        _ => "",
    }
}

fn kind_values(event: &NewEvent<'_>) -> Vec<Value> {
    vec![kind_of_event(event).into()]
}

fn pending_values(event: &NewEvent<'_>) -> Vec<Value> {
    vec![kind_of_event(event).into(), event.record.into()]
}

/// Rows of one transaction: devices that are judged again.
const BATCH_ROWS: i64 = 100;

/// Does some of what is pending; false if nothing was.
pub async fn apply_pending(db: &Db) -> Result<bool> {
    let next: Vec<(String, String, String)> = db.list(NEXT, args![1_i64]).await?;
    if next.is_empty() {
        return Ok(false);
    }
    db.write(async move |tx| apply_rows(tx).await).await?;
    Ok(true)
}

/// Transactions that a reader waits for. A larger change is shown as far as it has come.
const READER_BATCHES_MAX: usize = 3;

/// Does what is pending before it is read, as far as that is little.
pub async fn apply_before_read(db: &Db) {
    for _ in 0..READER_BATCHES_MAX {
        match apply_pending(db).await {
            Ok(true) => {}
            Ok(false) => break,
            // What is stored is shown while nothing can be written.
            Err(error) => {
                tracing::warn!(%error, "failed to judge backups before they are shown");
                break;
            }
        }
    }
}

/// Notes a change of policy of the tenant (`""`), an organization or a device, and does the first part of it at once.
pub async fn apply_policy(tx: &mut Tx, owner: &str) -> Result<()> {
    enqueue_sweep(tx, owner).await?;
    apply_rows(tx).await
}

/// Does what is pending first, as much as one transaction may.
async fn apply_rows(tx: &mut Tx) -> Result<()> {
    let mut update = PostureUpdate::begin(tx).await?;
    let mut rows = BATCH_ROWS;
    while rows > 0 {
        let done = apply_some(tx, &mut update, rows).await?;
        if done == 0 {
            break;
        }
        rows -= done;
    }
    update.save(tx).await
}

/// Does a part of what is pending first, of at most so many rows. Returns how many there were; none if nothing is pending.
async fn apply_some(tx: &mut Tx, update: &mut PostureUpdate, rows: i64) -> Result<i64> {
    let next: Vec<(String, String, String)> = tx.list(NEXT, args![1_i64]).await?;
    let Some((kind_name, record, position)) = next.into_iter().next() else { return Ok(0) };
    let Some(kind) = PendingKind::ALL.into_iter().find(|kind| kind.as_str() == kind_name) else {
        return Err(kernel::base::Error::internal(format!("unknown pending work {kind_name:?}")));
    };
    let owns_tenant = record.is_empty();
    let end = match kind {
        PendingKind::Device => {
            refresh_device(tx, update, record.parse().unwrap_or(DeviceId::NONE)).await?;
            SweepEnd { rows: 1, last: None }
        }
        PendingKind::Organization => {
            refresh_organization(tx, update, record.parse().unwrap_or(OrganizationId::NONE)).await?;
            SweepEnd { rows: 1, last: None }
        }
        PendingKind::Policy => sweep_policy(tx, update, &record, &position, rows).await?,
        PendingKind::Postures => sweep_postures(tx, update, &position, rows).await?,
    };
    let is_done = end.is_done();
    match end.last {
        Some(last) => tx.exec(MOVE, args![kind_name, record, last]).await?,
        None => tx.exec(DELETE, args![kind_name, record]).await?,
    };
    if kind == PendingKind::Policy && owns_tenant && is_done {
        enqueue(tx, PendingKind::Postures, "").await?;
    }
    Ok(end.rows.max(1))
}

/// How far a sweep has come.
struct SweepEnd {
    rows: i64,
    /// After which it goes on; none at the end.
    last: Option<String>,
}

impl SweepEnd {
    fn is_done(&self) -> bool {
        self.last.is_none()
    }

    fn new<I: ToString>(found: &[I], limit: i64) -> Self {
        let rows = found.len() as i64;
        SweepEnd { rows, last: found.last().filter(|_| rows == limit).map(ToString::to_string) }
    }
}

async fn sweep_policy(
    tx: &mut Tx,
    update: &mut PostureUpdate,
    owner: &str,
    position: &str,
    rows: i64,
) -> Result<SweepEnd> {
    let (devices, end) = if owner.is_empty() {
        let devices: Vec<DeviceId> = tx.list(ALL_AFTER, args![position, rows]).await?;
        let end = SweepEnd::new(&devices, rows);
        (devices, end)
    } else if let Ok(organization) = owner.parse::<OrganizationId>() {
        refresh_organization(tx, update, organization).await?;
        let devices: Vec<DeviceId> = tx.list(OF_ORGANIZATION_AFTER, args![organization, position, rows]).await?;
        let end = SweepEnd::new(&devices, rows);
        (devices, end)
    } else {
        (owner.parse().into_iter().collect(), SweepEnd { rows: 1, last: None })
    };
    for id in devices {
        if let Some(stored) = PostureUpdate::find_stored(tx, id).await? {
            update.update_device(tx, &stored.to_inventory(id), Some(stored), None).await?;
        }
    }
    Ok(end)
}

async fn sweep_postures(tx: &mut Tx, update: &mut PostureUpdate, position: &str, rows: i64) -> Result<SweepEnd> {
    let organizations: Vec<OrganizationId> = tx.list(POSTURES_AFTER, args![position, rows]).await?;
    for id in &organizations {
        update.update_organization(tx, *id).await?;
    }
    Ok(SweepEnd::new(&organizations, rows))
}

/// Brings a device up to what the inventory says of it now.
async fn refresh_device(tx: &mut Tx, update: &mut PostureUpdate, id: DeviceId) -> Result<()> {
    let stored = PostureUpdate::find_stored(tx, id).await?;
    match (find_inventory_device(tx, id).await?, stored) {
        (Some(device), stored) => update.update_device(tx, &device, stored, None).await,
        (None, Some(stored)) => update.remove_device(tx, id, &stored).await,
        (None, None) => Ok(()),
    }
}

/// Brings an organization up to what is known of it now. One that was deleted has no policy any more; saving it sees whether it
/// is still shown.
pub async fn refresh_organization(tx: &mut Tx, update: &mut PostureUpdate, id: OrganizationId) -> Result<()> {
    if id != OrganizationId::NONE && tx.find::<OrganizationId>(ORGANIZATION, args![id]).await?.is_none() {
        update.remove_policy(tx, id).await?;
    }
    update.update_organization(tx, id).await
}

/// A live device of the inventory.
pub async fn find_inventory_device(tx: &mut Tx, id: DeviceId) -> Result<Option<InventoryDevice>> {
    tx.find(DEVICE, args![id]).await
}

/// The live devices with this hostname, in any case, or two of them. Of an organization: its own first, because a device that
/// belongs to none is a guess beside them.
pub async fn find_namesakes(tx: &mut Tx, hostname: &str, of: Option<OrganizationId>) -> Result<Vec<InventoryDevice>> {
    let name = hostname.to_lowercase();
    let Some(organization) = of else { return tx.list(BY_NAME, args![name]).await };
    let own: Vec<InventoryDevice> = tx.list(BY_NAME_IN_ORGANIZATION, args![name, organization]).await?;
    if own.is_empty() { tx.list(BY_NAME_IN_NONE, args![name]).await } else { Ok(own) }
}

impl FromRow for InventoryDevice {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        let organization: Option<OrganizationId> = row.get(2)?;
        let created_at: Timestamp = row.get(3)?;
        Ok(InventoryDevice {
            id: row.get(0)?,
            class: DeviceClass::of(Type::from_stored(&row.get::<String>(1)?)?),
            organization_id: organization.unwrap_or(OrganizationId::NONE),
            created_at,
        })
    }
}
