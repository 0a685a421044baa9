//! SQL of the software index: saving software changes, and indexing them.

use std::collections::{BTreeMap, HashSet};

use kernel::args;
use kernel::base::{Error, Result, TenantId};
use kernel::jobs::lanes::tenant_db;
use kernel::jobs::{ServerNode, tenants};
use kernel::store::{Db, FromRow, Purpose, Row, Select, Tx, Value, from_json, to_json};

use super::super::index::store::{adjust_counters_listing_changes, insert_rows};
use super::super::stored::row_limit;
use super::super::{FullDevice, Software};
use super::{InstalledVersions, SoftwareChange, SoftwareIndexBatch, installed_versions, software_changes};

kernel::statements! {
    INSERT_PENDING = "INSERT INTO device_software_changes (tenant_id, bucket, number, version, part, sequence, changes)
        VALUES ($1, $2, $3, $4, $5, $6, $7)";
    LIST_PENDING = "SELECT bucket, number, version, part, changes FROM device_software_changes
        WHERE tenant_id = $1 AND sequence <= $2 ORDER BY bucket, number, version, part LIMIT $3";
    PENDING_NUMBERS = "SELECT number FROM device_software_changes
        WHERE tenant_id = $1 AND sequence <= $2 ORDER BY bucket, number, version, part LIMIT $3";
    DELETE_PENDING = "DELETE FROM device_software_changes
        WHERE tenant_id = $1 AND bucket = $2 AND number = $3 AND version = $4 AND part = $5";
    /// The next tenant with pending software changes: one lookup for each.
    PENDING_TENANT = "SELECT t.id FROM tenants t WHERE t.id > $1 AND (
            SELECT n.number FROM device_software_changes n WHERE n.tenant_id = t.id ORDER BY n.bucket, n.number, n.version, n.part LIMIT 1
        ) IS NOT NULL ORDER BY t.id LIMIT 1";
    /// Several rows at once; unused slots are null.
    INSERT_SOFTWARE = "INSERT INTO device_software (tenant_id, name, number, versions)
        SELECT CAST($1 AS TEXT), slot.column1, slot.column2, slot.column3 FROM (VALUES
            (CAST($2 AS TEXT), CAST($3 AS BIGINT), CAST($4 AS TEXT)), ($5, $6, $7), ($8, $9, $10), ($11, $12, $13),
            ($14, $15, $16), ($17, $18, $19), ($20, $21, $22), ($23, $24, $25), ($26, $27, $28), ($29, $30, $31),
            ($32, $33, $34), ($35, $36, $37), ($38, $39, $40), ($41, $42, $43), ($44, $45, $46), ($47, $48, $49)) AS slot
        WHERE slot.column1 IS NOT NULL
        ON CONFLICT (tenant_id, name, number) DO UPDATE SET versions = excluded.versions";
    // One row each: with a list of names, PostgreSQL might scan all software of the tenant.
    DELETE_SOFTWARE = "DELETE FROM device_software WHERE tenant_id = $1 AND name = $2 AND number = $3";
    INSTALLED = "SELECT software FROM device_parts WHERE tenant_id = $1 AND number = $2";
}

/// Bounds of one transaction that indexes software: some 20 ms on SQLite, where every write waits for it. A new name costs
/// most; the same name on several devices is one counter.
const DISTINCT_NAMES_MAX: usize = 250;
const INSTALLATIONS_MAX: usize = 1_000;
const STEP_BYTES_MAX: usize = 256 << 10;
const STEP_CHANGES_MAX: usize = 16;

/// Pending changes that the reports of a tenant may leave behind: enough that indexing them together pays off.
const BACKLOG_MAX: usize = 128;

/// Index steps of one wait for an up-to-date index: enough for some ninety machines with thousands of new packages each.
const STEPS_MAX: usize = 4_000;

/// Index steps that the job runs for one tenant before the next.
const ROUND_STEPS_MAX: usize = 64;

/// Pending changes read to find out which devices have some. If there are more, any device may have one.
const PENDING_LISTED_MAX: usize = 1_000;

/// No bound on the sequence: all pending changes.
const ANY_SEQUENCE: i64 = i64::MAX;

/// Saves the software changes of a device change, to be indexed later.
pub async fn insert_software_changes(
    tx: &mut Tx,
    number: i64,
    before: Option<&FullDevice>,
    after: &FullDevice,
) -> Result<()> {
    let (version, sequence) = (after.device.version, tx.tick().await?.sequence);
    for (part, change) in (0_i64..).zip(software_changes(before, after)) {
        let row = [i64::from(change.bucket), number, version, part, sequence].map(Value::from);
        tx.defer_exec(INSERT_PENDING, row.into_iter().chain([to_json(&change)?.into()]).collect()).await?;
    }
    Ok(())
}

/// Indexes all changes that are pending now. Changes that arrive meanwhile are not waited for.
pub async fn index_all(db: &Db) -> Result<()> {
    index_until(db, db.last_tick().await?.sequence).await
}

/// Indexes all changes up to a sequence.
pub async fn index_until(db: &Db, until: i64) -> Result<()> {
    let is_done = index_down_to(db, 1, until, STEPS_MAX).await?;
    is_done.then_some(()).ok_or_else(|| Error::unavailable("the software of many devices is being indexed"))
}

/// Indexes pending changes until few are left. A report with much software shares this work, which slows its agent down.
pub async fn index_most(db: &Db) -> Result<()> {
    index_down_to(db, BACKLOG_MAX, ANY_SEQUENCE, STEPS_MAX).await.map(drop)
}

/// The same for a command beside a running server: it yields to the writes of the server.
pub async fn index_most_yielding(db: &Db) -> Result<()> {
    for _ in 0..STEPS_MAX {
        if run_index_step(db, BACKLOG_MAX, ANY_SEQUENCE).await? {
            break;
        }
        db.yield_write_lock().await;
    }
    Ok(())
}

/// Returns whether so many steps were enough.
async fn index_down_to(db: &Db, threshold: usize, until: i64, steps_max: usize) -> Result<bool> {
    for _ in 0..steps_max {
        if run_index_step(db, threshold, until).await? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns true if fewer than `threshold` changes are pending up to a sequence. Otherwise indexes a batch and returns
/// false.
async fn run_index_step(db: &Db, threshold: usize, until: i64) -> Result<bool> {
    if !has_pending_changes(db, threshold, until).await? {
        return Ok(true);
    }
    let permit = db.acquire_maintenance_permit().await?;
    // The previous holder of the permit may have indexed them.
    if has_pending_changes(db, threshold, until).await? {
        db.write_in_own_commit(permit, async move |tx: &mut Tx| index_next_batch(tx, until).await).await?;
    }
    Ok(false)
}

async fn has_pending_changes(db: &Db, count: usize, until: i64) -> Result<bool> {
    let pending: Vec<i64> = db.list(PENDING_NUMBERS, args![until, row_limit(count)]).await?;
    Ok(pending.len() == count)
}

/// Indexes pending changes of every tenant. Several nodes may do this at once: the tenant's clock serializes them.
pub async fn index_tenants(node: &ServerNode) -> Result<()> {
    let system = node.store.system(Purpose::Jobs);
    let index_tenant = async |tenant| {
        index_down_to(&tenant_db(&node.store, tenant), 1, ANY_SEQUENCE, ROUND_STEPS_MAX).await?;
        Ok(false)
    };
    let next = |after| find_pending_tenant(&system, after);
    tenants::for_each_tenant("indexing the software of devices", next, index_tenant).await
}

async fn find_pending_tenant(system: &Db, after: Option<TenantId>) -> Result<Option<TenantId>> {
    let after = after.map(|tenant| tenant.to_string()).unwrap_or_default();
    system.find(PENDING_TENANT, args![after]).await
}

/// Indexes the next batch of pending changes.
async fn index_next_batch(tx: &mut Tx, until: i64) -> Result<()> {
    // The tick makes other indexers and writers of this tenant wait.
    tx.tick().await?;
    let pending: Vec<(i64, i64, i64, i64, String)> =
        tx.list(LIST_PENDING, args![until, row_limit(STEP_CHANGES_MAX)]).await?;
    let (mut folded, mut done, mut names, mut size_bytes) =
        (SoftwareIndexBatch::default(), Vec::new(), HashSet::new(), 0);
    let mut installations = 0;
    for (bucket, number, version, part, changes) in pending {
        let change: SoftwareChange = from_json(&changes)?;
        names.extend(change.names.iter().map(|name| name.name.clone()));
        installations += change.names.len();
        size_bytes += changes.len();
        let is_enough =
            names.len() > DISTINCT_NAMES_MAX || installations > INSTALLATIONS_MAX || size_bytes > STEP_BYTES_MAX;
        if is_enough && !done.is_empty() {
            break;
        }
        folded.add_change(number, change);
        done.push([bucket, number, version, part].map(Value::from).to_vec());
    }
    let (mut removed, mut added) = (Vec::new(), Vec::new());
    for ((name, number), versions) in folded.installed {
        match versions {
            Some(versions) => added.push(vec![name.into(), number.into(), versions.into()]),
            None => removed.push(vec![Value::from(name), number.into()]),
        }
    }
    tx.exec_each(DELETE_SOFTWARE, &removed).await?;
    insert_rows(tx, INSERT_SOFTWARE, &[], added).await?;
    for name in adjust_counters_listing_changes(tx, &folded.counts).await? {
        tx.record_change("software", name).await?;
    }
    tx.exec_each(DELETE_PENDING, &done).await.map(drop)
}

/// Those of these devices whose software may not be fully indexed.
pub async fn list_unindexed(db: &Db, numbers: &[i64]) -> Result<Vec<i64>> {
    let pending: Vec<i64> = db.list(PENDING_NUMBERS, args![ANY_SEQUENCE, row_limit(PENDING_LISTED_MAX)]).await?;
    let all = pending.len() == PENDING_LISTED_MAX;
    let pending: HashSet<i64> = pending.into_iter().collect();
    Ok(numbers.iter().filter(|number| all || pending.contains(number)).copied().collect())
}

/// The installed software from the device's own list. The list may be long, so it is read off the request threads.
pub async fn load_installed(db: &Db, number: i64) -> Result<BTreeMap<String, InstalledVersions>> {
    struct InstalledSoftwareRow(BTreeMap<String, InstalledVersions>);
    impl FromRow for InstalledSoftwareRow {
        fn from_row(row: &Row<'_>) -> Result<Self> {
            let list: Vec<Software> = row.get_json(0)?;
            Ok(InstalledSoftwareRow(installed_versions(&list)))
        }
    }
    let select = Select::new(INSTALLED).bind_value(number).limit(1);
    let found: Vec<InstalledSoftwareRow> = db.scan(&select).await?;
    Ok(found.into_iter().next().map(|one| one.0).unwrap_or_default())
}
