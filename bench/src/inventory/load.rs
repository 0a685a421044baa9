//! Tenants with devices in an embedded store, written as the product would have written them, but by direct SQL: tenants in
//! the order of their ids, rows in the order of their keys, indexes at the end.
//!
//! Deliberately left out: history, events, and by what a device is known again, which no list looks at.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::mpsc::sync_channel;
use std::time::Instant;

use kernel::base::{Env, TenantId, Timestamp};
use kernel::store::Value;
use rusqlite::{Connection, Statement, params};
use tenant_control::features::devices::software::InstalledVersions;
use tenant_control::features::devices::{
    ALL_ORGANIZATIONS, DeviceCounter, DeviceRecordColumns, SOFTWARE_DIMENSION, StoredDevice, counters_of,
    installed_versions, organization_of, size_class, terms_of,
};
use tenant_control::features::organizations::OrganizationId;

use super::data::{Made, Makings, ORGANIZATIONS};
use crate::harness::Outcome;
use crate::server::{Server, make_tenant};

/// Nothing is safe while it is filled: half a file is of no use anyway.
const FILLING: &str = "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA locking_mode = EXCLUSIVE; \
     PRAGMA foreign_keys = OFF; PRAGMA cache_size = -500000;";
/// Devices that are written together; all of a tenant, where they are counted.
const STEP: i64 = 20_000;
/// Written at the end, so that a folder without it is made anew.
const NOTE: &str = "loaded.txt";
/// Tenants that are asked, beside the largest.
const AVERAGE: usize = 8;
/// Of a tenant that is not the largest.
const FEW_ORGANIZATIONS: usize = 20;

const PARTS: &str =
    "INSERT INTO device_parts (tenant_id, number, disks, volumes, nics, software) VALUES (?, ?, ?, ?, ?, ?)";
const REPORT: &str = "INSERT INTO device_reports (tenant_id, device, last_seen_at, inventory_at, check_at, digest)
    VALUES (?, ?, ?, ?, ?, ?)";
const TERM: &str = "INSERT INTO device_terms (tenant_id, term, number) VALUES (?, ?, ?)";
const INSTALLED: &str = "INSERT INTO device_software (tenant_id, name, number, versions) VALUES (?, ?, ?, ?)";
const COUNT: &str = "INSERT INTO device_counts (tenant_id, organization_id, dimension, value, label, devices, size)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
const ORGANIZATION: &str = "INSERT INTO organizations (tenant_id, id, slug, name, version, created_at, updated_at)
    VALUES (?1, ?2, printf('customer-%04d', ?3), printf('Customer %d', ?3), 1, ?4, ?4)";
const INDEXES: &str = "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL
    AND tbl_name IN ('devices', 'device_reports', 'device_counts')";

/// What a store is to hold.
#[derive(Clone, Copy)]
pub struct Plan {
    pub tenants: usize,
    pub largest: i64,
    /// Devices of each other tenant.
    pub average: i64,
}

/// A store that has been filled.
pub struct Loaded {
    pub folder: PathBuf,
    pub end: i64,
    /// The largest, and then some of the others.
    pub tenants: Vec<Tenant>,
}

/// A tenant that can be asked.
pub struct Tenant {
    pub id: String,
    pub key: String,
    pub size: i64,
    pub organizations: Vec<String>,
}

impl Loaded {
    pub fn database(&self) -> PathBuf {
        self.folder.join("tenant-control.db")
    }

    /// Fills the folder, unless it has been filled before.
    pub fn make(folder: &Path, plan: Plan, makings: &Makings) -> Outcome<Self> {
        let (note, database) = (folder.join(NOTE), folder.join("tenant-control.db"));
        if !note.exists() {
            let started = Instant::now();
            std::fs::create_dir_all(folder)?;
            let mut text = String::new();
            let server = Server::start(folder)?;
            for n in 0..plan.tenants.min(1 + AVERAGE) {
                let (id, key) = make_tenant(&server, folder, &[], &format!("bench-{n}"))?;
                let size = if n == 0 { plan.largest } else { plan.average };
                writeln!(text, "{id} {key} {size}")?;
            }
            server.stop()?;
            let end = Env::default().now().as_millis();
            let devices = fill(&database, plan, end, makings)?;
            std::fs::write(&note, format!("{end}\n{text}"))?;
            let (bytes, seconds) = (std::fs::metadata(&database)?.len(), started.elapsed().as_secs());
            println!("  {devices} devices: the file has {} MB, filled in {seconds} s", bytes / 1_000_000);
        }
        Loaded::read(folder)
    }

    fn read(folder: &Path) -> Outcome<Self> {
        let note = std::fs::read_to_string(folder.join(NOTE))?;
        let (end, lines) = note.split_once('\n').ok_or("half a note")?;
        let connection = Connection::open(folder.join("tenant-control.db"))?;
        let mut ids = connection.prepare("SELECT id FROM organizations WHERE tenant_id = ?1 ORDER BY slug")?;
        let mut tenants = Vec::new();
        for line in lines.lines() {
            let [id, key, size] = line.split(' ').collect::<Vec<_>>()[..] else { return Err("half a note".into()) };
            let organizations = ids.query_map([id], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
            tenants.push(Tenant { id: id.to_owned(), key: key.to_owned(), size: size.parse()?, organizations });
        }
        Ok(Loaded { folder: folder.to_owned(), end: end.parse()?, tenants })
    }
}

/// Devices of one tenant, as rows.
struct Batch {
    tenant: String,
    devices: Vec<Vec<Value>>,
    parts: Vec<Vec<Value>>,
    reports: Vec<Vec<Value>>,
    terms: BTreeMap<String, Vec<i64>>,
    software: BTreeMap<String, Vec<(i64, String)>>,
    counts: BTreeMap<DeviceCounter, (String, i64)>,
}

fn fill(database: &Path, plan: Plan, end: i64, makings: &Makings) -> Outcome<i64> {
    let connection = Connection::open(database)?;
    connection.execute_batch(FILLING)?;
    let indexes: Vec<(String, String)> = connection
        .prepare(INDEXES)?
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<rusqlite::Result<_>>()?;
    for (name, _) in &indexes {
        connection.execute_batch(&format!("DROP INDEX {name}"))?;
    }
    let tenants = insert_tenants(&connection, plan, end)?;
    let all = std::thread::scope(|scope| {
        let (send, receive) = sync_channel::<Outcome<Batch>>(2);
        scope.spawn(move || {
            for (seed, tenant) in tenants.iter().enumerate() {
                for first in (1..=tenant.size).step_by(usize::try_from(STEP).unwrap_or(1)) {
                    if send.send(batch(seed, tenant, first, end, makings)).is_err() {
                        return;
                    }
                }
            }
        });
        let mut all = 0;
        for batch in receive {
            all += insert(&connection, &batch?)?;
        }
        Outcome::Ok(all)
    })?;
    for (_, sql) in &indexes {
        connection.execute_batch(sql)?;
    }
    connection.execute_batch("PRAGMA locking_mode = NORMAL; PRAGMA journal_mode = WAL;")?;
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    Ok(all)
}

struct Filled {
    id: String,
    size: i64,
    organizations: Vec<OrganizationId>,
}

/// Those that the server has made, and as many more as are missing; in the order of their ids.
fn insert_tenants(connection: &Connection, plan: Plan, end: i64) -> Outcome<Vec<Filled>> {
    let (world, at) = (Env::default(), Timestamp::from_millis(end));
    let made: Vec<(String, String)> = connection
        .prepare("SELECT id, slug FROM tenants WHERE slug LIKE 'bench-%'")?
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<rusqlite::Result<_>>()?;
    let mut all: Vec<(String, bool)> = made.into_iter().map(|(id, slug)| (id, slug == "bench-0")).collect();
    connection.execute_batch("BEGIN")?;
    for n in all.len()..plan.tenants {
        let id = TenantId::new_at(&world, at).to_string();
        let tenant =
            "INSERT INTO tenants (id, slug, name, version, created_at, updated_at) VALUES (?1, ?2, ?2, 1, ?3, ?3)";
        connection.execute(tenant, params![id, format!("bench-{n}"), end])?;
        all.push((id, false));
    }
    all.sort();
    let mut tenants = Vec::new();
    for (id, is_largest) in all {
        let size = if is_largest { plan.largest } else { plan.average };
        let count = if is_largest { ORGANIZATIONS } else { FEW_ORGANIZATIONS };
        let organizations: Vec<OrganizationId> = (0..count).map(|_| OrganizationId::new_at(&world, at)).collect();
        for (n, organization) in organizations.iter().enumerate() {
            connection.execute(ORGANIZATION, params![id, organization.to_string(), i64::try_from(n)?, end])?;
        }
        let clock = "INSERT INTO tenant_clocks (tenant_id, last_at, sequence, device_number) VALUES (?1, ?2, ?3, ?3)
            ON CONFLICT (tenant_id) DO UPDATE SET last_at = MAX(last_at, ?2), sequence = MAX(sequence, ?3), device_number = ?3";
        connection.execute(clock, params![id, end, size])?;
        tenants.push(Filled { id, size, organizations });
    }
    connection.execute_batch("COMMIT")?;
    Ok(tenants)
}

fn batch(seed: usize, tenant: &Filled, first: i64, end: i64, makings: &Makings) -> Outcome<Batch> {
    let mut batch = Batch {
        tenant: tenant.id.clone(),
        devices: Vec::new(),
        parts: Vec::new(),
        reports: Vec::new(),
        terms: BTreeMap::new(),
        software: BTreeMap::new(),
        counts: BTreeMap::new(),
    };
    for number in first..(first + STEP).min(tenant.size + 1) {
        let Made { full, check_at } = makings.device(seed as u64, number, tenant.size, end, &tenant.organizations);
        let (device, parts) = (&full.device, &full.parts);
        let lists = [
            serde_json::to_string(&parts.disks)?,
            serde_json::to_string(&parts.volumes)?,
            serde_json::to_string(&parts.nics)?,
            serde_json::to_string(&parts.software)?,
        ];
        batch.parts.push([number.into()].into_iter().chain(lists.map(Value::from)).collect());
        let digest = format!("{:>43}", device.id.to_string());
        let seen = [device.last_seen_at, device.inventory_at, check_at].map(Value::from);
        batch.reports.push([number.into()].into_iter().chain(seen).chain([digest.into()]).collect());
        if makings.with_parts {
            for term in terms_of(device) {
                batch.terms.entry(term).or_default().push(number);
            }
            let own = organization_of(device);
            for (name, InstalledVersions { label, versions }) in installed_versions(&parts.software) {
                for organization in [ALL_ORGANIZATIONS, &own] {
                    let counted = DeviceCounter {
                        organization: organization.to_owned(),
                        dimension: SOFTWARE_DIMENSION,
                        value: name.clone(),
                    };
                    batch.counts.entry(counted).or_insert_with(|| (label.clone(), 0)).1 += 1;
                }
                batch.software.entry(name).or_default().push((number, versions));
            }
            for counted in counters_of(device) {
                let label = counted.value.clone();
                batch.counts.entry(counted).or_insert((label, 0)).1 += 1;
            }
        }
        batch.devices.push(StoredDevice { device: full.device, number, sequence: number }.to_values()?);
    }
    Ok(batch)
}

fn insert(connection: &Connection, batch: &Batch) -> Outcome<i64> {
    connection.execute_batch("BEGIN")?;
    for (sql, rows) in [(DeviceRecordColumns::INSERT, &batch.devices), (PARTS, &batch.parts), (REPORT, &batch.reports)]
    {
        let mut statement = of_tenant(connection, sql, &batch.tenant)?;
        for row in rows {
            for (place, value) in row.iter().enumerate() {
                statement.raw_bind_parameter(place + 2, value)?;
            }
            statement.raw_execute()?;
        }
    }
    let mut statement = of_tenant(connection, TERM, &batch.tenant)?;
    for (term, numbers) in &batch.terms {
        statement.raw_bind_parameter(2, term)?;
        for number in numbers {
            statement.raw_bind_parameter(3, number)?;
            statement.raw_execute()?;
        }
    }
    let mut statement = of_tenant(connection, INSTALLED, &batch.tenant)?;
    for (name, devices) in &batch.software {
        statement.raw_bind_parameter(2, name)?;
        for (number, versions) in devices {
            statement.raw_bind_parameter(3, number)?;
            statement.raw_bind_parameter(4, versions)?;
            statement.raw_execute()?;
        }
    }
    let mut statement = connection.prepare_cached(COUNT)?;
    for (DeviceCounter { organization, dimension, value }, (label, devices)) in &batch.counts {
        statement.execute(params![
            batch.tenant,
            organization,
            dimension,
            value,
            label,
            devices,
            size_class(*devices)
        ])?;
    }
    connection.execute_batch("COMMIT")?;
    Ok(i64::try_from(batch.devices.len())?)
}

/// With the tenant bound, which every row has.
fn of_tenant<'a>(connection: &'a Connection, sql: &str, tenant: &str) -> Outcome<Statement<'a>> {
    let mut statement = connection.prepare(sql)?;
    statement.raw_bind_parameter(1, tenant)?;
    Ok(statement)
}
