//! SQL of installed software: what is noted of a change, and how it comes into the index.

use std::collections::{BTreeMap, HashSet};

use kernel::args;
use kernel::base::{Error, Result, TenantId};
use kernel::jobs::Node;
use kernel::jobs::lanes::tenant_db;
use kernel::store::{Db, FromRow, Purpose, Row, Select, Tx, Value};

use super::super::index::store::{count_and_tell, write};
use super::super::stored::{from_json, json};
use super::super::{FullDevice, Software};
use super::{Folded, Note, Versions, notes, software_of};

kernel::statements! {
    INSERT_NOTE = "INSERT INTO device_software_changes (tenant_id, bucket, number, version, part, sequence, changes)
        VALUES ($1, $2, $3, $4, $5, $6, $7)";
    NOTES = "SELECT bucket, number, version, part, changes FROM device_software_changes
        WHERE tenant_id = $1 AND sequence <= $2 ORDER BY bucket, number, version, part LIMIT $3";
    NOTED = "SELECT number FROM device_software_changes
        WHERE tenant_id = $1 AND sequence <= $2 ORDER BY bucket, number, version, part LIMIT $3";
    DELETE_NOTE = "DELETE FROM device_software_changes
        WHERE tenant_id = $1 AND bucket = $2 AND number = $3 AND version = $4 AND part = $5";
    /// Tenants of which something is noted: a look for each.
    NOTED_TENANTS = "SELECT t.id FROM tenants t WHERE t.id > $1 AND (
            SELECT n.number FROM device_software_changes n WHERE n.tenant_id = t.id ORDER BY n.bucket, n.number, n.version, n.part LIMIT 1
        ) IS NOT NULL ORDER BY t.id LIMIT $2";
    /// Several at once; what is left over of the places is null.
    INSERT_SOFTWARE = "INSERT INTO device_software (tenant_id, name, number, versions)
        SELECT CAST($1 AS TEXT), slot.column1, slot.column2, slot.column3 FROM (VALUES
            (CAST($2 AS TEXT), CAST($3 AS BIGINT), CAST($4 AS TEXT)), ($5, $6, $7), ($8, $9, $10), ($11, $12, $13),
            ($14, $15, $16), ($17, $18, $19), ($20, $21, $22), ($23, $24, $25), ($26, $27, $28), ($29, $30, $31),
            ($32, $33, $34), ($35, $36, $37), ($38, $39, $40), ($41, $42, $43), ($44, $45, $46), ($47, $48, $49)) AS slot
        WHERE slot.column1 IS NOT NULL
        ON CONFLICT (tenant_id, name, number) DO UPDATE SET versions = excluded.versions";
    // One by one: of a list, PostgreSQL might walk all that the tenant has and look for it there.
    DELETE_SOFTWARE = "DELETE FROM device_software WHERE tenant_id = $1 AND name = $2 AND number = $3";
    INSTALLED = "SELECT software FROM device_parts WHERE tenant_id = $1 AND number = $2";
}

/// Bounds of one transaction that indexes software: some 20 ms on SQLite, where every write waits for it. A new name costs most; the
/// same name on several devices is one counter.
const DISTINCT_NAMES_MAX: usize = 250;
const INSTALLATIONS_MAX: usize = 1_000;
const STEP_BYTES_MAX: usize = 256 << 10;
const STEP_NOTES_MAX: usize = 16;

/// Notes that a tenant's reports may leave to others: so many that they are worth being taken together.
const MANY: usize = 128;

/// Turns of whoever waits until the index is up to date: some ninety machines with thousands of packages, of which each is new.
const TURNS_MAX: usize = 4_000;

/// Turns that the job has for one tenant before it goes to the next.
const ROUND_TURNS_MAX: usize = 64;

/// Notes that are looked at where devices are judged one by one; if there are more, every device may have one.
const NOTED_MAX: usize = 1_000;

/// Whatever is noted, and not only what was noted by then.
const WHENEVER: i64 = i64::MAX;

/// Tenants that are asked for together.
const TENANTS: i64 = 200;

/// Notes what is to be indexed of a change that is being made.
pub async fn note(tx: &mut Tx, number: i64, before: Option<&FullDevice>, after: &FullDevice) -> Result<()> {
    let (version, sequence) = (after.device.version, tx.tick().await?.sequence);
    for (part, note) in (0_i64..).zip(notes(before, after)) {
        let row = [i64::from(note.bucket), number, version, part, sequence].map(Value::from);
        tx.later(INSERT_NOTE, row.into_iter().chain([json(&note)?.into()]).collect()).await?;
    }
    Ok(())
}

/// Brings everything into the index that was noted by now. What is noted meanwhile is not waited for.
pub async fn index_all(db: &Db) -> Result<()> {
    index_until(db, db.last_tick().await?.sequence).await
}

/// The same of what was noted by then.
pub async fn index_until(db: &Db, until: i64) -> Result<()> {
    let is_done = index_down_to(db, 1, until, TURNS_MAX).await?;
    is_done.then_some(()).ok_or_else(|| Error::unavailable("the software of many devices is being indexed"))
}

/// Brings what is noted into the index until little is left. Whoever reports much takes its part in it, and waits as long.
pub async fn index_most(db: &Db) -> Result<()> {
    index_down_to(db, MANY, WHENEVER, TURNS_MAX).await.map(drop)
}

/// The same for a command beside a server, which must come in between.
pub async fn index_most_beside(db: &Db) -> Result<()> {
    for _ in 0..TURNS_MAX {
        if is_indexed(db, MANY, WHENEVER).await? {
            break;
        }
        db.make_way().await;
    }
    Ok(())
}

/// Whether so many turns were enough.
async fn index_down_to(db: &Db, few: usize, until: i64, turns: usize) -> Result<bool> {
    for _ in 0..turns {
        if is_indexed(db, few, until).await? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether there are fewer notes than so many until then. If not, some of them are brought into the index.
async fn is_indexed(db: &Db, few: usize, until: i64) -> Result<bool> {
    if !has_notes(db, few, until).await? {
        return Ok(true);
    }
    let permit = db.acquire_maintenance_permit().await?;
    // Whoever had the turn before may have done it.
    if has_notes(db, few, until).await? {
        db.write_in_own_commit(permit, async move |tx: &mut Tx| fold(tx, until).await).await?;
    }
    Ok(false)
}

async fn has_notes(db: &Db, count: usize, until: i64) -> Result<bool> {
    let noted: Vec<i64> = db.list(NOTED, args![until, rows(count)]).await?;
    Ok(noted.len() == count)
}

/// Brings some of what is noted into the index for every tenant. Nodes may do this at the same time: the tenant's clock decides
/// who is first.
pub async fn index_tenants(node: &Node) -> Result<()> {
    let (system, mut behind) = (node.store.system(Purpose::Jobs), String::new());
    loop {
        let tenants: Vec<TenantId> = system.list(NOTED_TENANTS, args![behind, TENANTS]).await?;
        for tenant in &tenants {
            // What cannot be done for one tenant must not keep the others waiting.
            let db = tenant_db(&node.store, *tenant);
            if let Err(error) = index_down_to(&db, 1, WHENEVER, ROUND_TURNS_MAX).await {
                tracing::warn!(%error, %tenant, "software of devices could not be indexed; it will be tried again");
            }
        }
        match tenants.last() {
            Some(last) => behind = last.to_string(),
            None => return Ok(()),
        }
    }
}

/// Brings the next notes into the index.
async fn fold(tx: &mut Tx, until: i64) -> Result<()> {
    // Whoever else does the same, or notes something, waits.
    tx.tick().await?;
    let noted: Vec<(i64, i64, i64, i64, String)> = tx.list(NOTES, args![until, rows(STEP_NOTES_MAX)]).await?;
    let (mut folded, mut done, mut names, mut size_bytes) = (Folded::default(), Vec::new(), HashSet::new(), 0);
    let mut installations = 0;
    for (bucket, number, version, part, changes) in noted {
        let note: Note = serde_json::from_str(&changes).map_err(Error::internal)?;
        names.extend(note.names.iter().map(|name| name.name.clone()));
        installations += note.names.len();
        size_bytes += changes.len();
        let is_enough =
            names.len() > DISTINCT_NAMES_MAX || installations > INSTALLATIONS_MAX || size_bytes > STEP_BYTES_MAX;
        if is_enough && !done.is_empty() {
            break;
        }
        folded.add(number, note);
        done.push([bucket, number, version, part].map(Value::from).to_vec());
    }
    let (mut gone, mut here) = (Vec::new(), Vec::new());
    for ((name, number), versions) in folded.installed {
        match versions {
            Some(versions) => here.push(vec![name.into(), number.into(), versions.into()]),
            None => gone.push(vec![Value::from(name), number.into()]),
        }
    }
    tx.exec_each(DELETE_SOFTWARE, &gone).await?;
    write(tx, INSERT_SOFTWARE, &[], here).await?;
    for name in count_and_tell(tx, &folded.counts).await? {
        tx.changed("software", name).await?;
    }
    tx.exec_each(DELETE_NOTE, &done).await.map(drop)
}

fn rows(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Those of these devices whose place in the index may not be up to date.
pub async fn not_indexed(db: &Db, numbers: &[i64]) -> Result<Vec<i64>> {
    let noted: Vec<i64> = db.list(NOTED, args![WHENEVER, rows(NOTED_MAX)]).await?;
    let all = noted.len() == NOTED_MAX;
    let noted: HashSet<i64> = noted.into_iter().collect();
    Ok(numbers.iter().filter(|number| all || noted.contains(number)).copied().collect())
}

/// What is installed on a device by its own list, which may be long: it is not read on the threads that serve requests.
pub async fn installed_on(db: &Db, number: i64) -> Result<BTreeMap<String, Versions>> {
    struct Installed(BTreeMap<String, Versions>);
    impl FromRow for Installed {
        fn from_row(row: &Row<'_>) -> Result<Self> {
            let list: Vec<Software> = from_json(&row.get::<String>(0)?)?;
            Ok(Installed(software_of(&list)))
        }
    }
    let select = Select::new(INSTALLED).bind(number).limit(1);
    let found: Vec<Installed> = db.scan(&select).await?;
    Ok(found.into_iter().next().map(|one| one.0).unwrap_or_default())
}
