//! A tenant whose customers back up every night, in an embedded store: written as the product would have written it, but by
//! direct SQL, runs in the order of their times, indexes at the end.
//!
//! Deliberately left out: inventories and events, at which nothing looks that is measured here.

use std::path::{Path, PathBuf};
use std::time::Instant;

use ::backups::config::store::{ConfigColumns, StoredLevel};
use ::backups::config::{BackupConfigId, ConfigOwner};
use ::backups::job_reports::JobRunId;
use ::backups::policy::PolicyLevel;
use ::backups::posture::rows::{DeviceColumns, PostureColumns};
use ::backups::runs::store::RunColumns;
use kernel::base::{DAY_MS, Env, Timestamp};
use kernel::store::Value;
use rusqlite::{Connection, Statement, params};
use tenant_control::features::devices::{DeviceRecordColumns, Platform, StoredDevice};
use tenant_control::features::inventory::blank_device;

use super::data::{Customer, Machine, Plan, make_customers, tenant_level};
use super::rows::{device_row, posture_row, run_row};
use crate::harness::Outcome;
use crate::inventory::agent::IngestKey;
use crate::server::{Server, admin, make_tenant};

/// Nothing is safe while it is filled: half a file is of no use anyway.
const FILLING: &str = "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA locking_mode = EXCLUSIVE; \
     PRAGMA foreign_keys = OFF; PRAGMA cache_size = -500000;";
const PARTS: &str =
    "INSERT INTO device_parts (tenant_id, number, disks, volumes, nics, software) VALUES (?, ?, ?, ?, ?, ?)";
const ORGANIZATION: &str = "INSERT INTO organizations (tenant_id, id, slug, name, version, created_at, updated_at)
    VALUES (?1, ?2, printf('customer-%04d', ?3), printf('Customer %d', ?3), 1, ?4, ?4)";
const CLOCK: &str = "INSERT INTO tenant_clocks (tenant_id, last_at, sequence, device_number) VALUES (?1, ?2, ?3, ?3)
    ON CONFLICT (tenant_id) DO UPDATE SET last_at = MAX(last_at, ?2), sequence = MAX(sequence, ?3), device_number = ?3";
const INDEXES: &str =
    "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL AND tbl_name = 'backup_runs'";

/// A store that has been filled.
pub struct Loaded {
    pub folder: PathBuf,
    pub tenant: String,
    pub key: String,
    pub ingest_key: IngestKey,
    /// When it was judged.
    pub end: Timestamp,
    pub customers: Vec<Customer>,
}

impl Loaded {
    pub fn database(&self) -> PathBuf {
        self.folder.join("tenant-control.db")
    }

    /// Fills the folder.
    pub fn make(folder: &Path, plan: Plan) -> Outcome<Self> {
        let started = Instant::now();
        let server = Server::start(folder)?;
        let (tenant, key) = make_tenant(&server, folder, &[], "bench")?;
        let ingest_key = IngestKey::read(&admin(folder, &["ingest-key", "create", "--tenant", "bench"])?)?;
        server.stop()?;
        let end = Env::default().now();
        let customers = make_customers(plan, end);
        let loaded = Loaded { folder: folder.to_owned(), tenant, key, ingest_key, end, customers };
        let reports = loaded.fill(plan)?;
        let bytes = std::fs::metadata(loaded.database())?.len() / 1_000_000;
        let (organizations, seconds) = (loaded.customers.len(), started.elapsed().as_secs());
        println!(
            "  {organizations} organizations, {} devices, of which {} have reasons, {reports} reports: {bytes} MB, filled in \
             {seconds} s",
            plan.devices,
            loaded.machines().filter(|machine| !machine.findings.is_empty()).count()
        );
        Ok(loaded)
    }

    pub fn machines(&self) -> impl Iterator<Item = &Machine> {
        self.customers.iter().flat_map(|customer| &customer.machines)
    }

    fn fill(&self, plan: Plan) -> Outcome<usize> {
        let connection = Connection::open(self.database())?;
        connection.execute_batch(FILLING)?;
        let indexes: Vec<(String, String)> = connection
            .prepare(INDEXES)?
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<rusqlite::Result<_>>()?;
        for (name, _) in &indexes {
            connection.execute_batch(&format!("DROP INDEX {name}"))?;
        }
        connection.execute_batch("BEGIN")?;
        self.insert_customers(&connection)?;
        connection.execute_batch("COMMIT")?;
        let mut reports = 0;
        for nights_ago in (0..plan.nights()).rev() {
            connection.execute_batch("BEGIN")?;
            reports += self.insert_night(&connection, plan, nights_ago)?;
            connection.execute_batch("COMMIT")?;
        }
        for (_, sql) in &indexes {
            connection.execute_batch(sql)?;
        }
        connection.execute_batch("PRAGMA locking_mode = NORMAL; PRAGMA journal_mode = WAL;")?;
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
        Ok(reports)
    }

    fn insert_customers(&self, connection: &Connection) -> Outcome {
        let (env, known_since) = (Env::default(), self.end.plus_ms(-365 * DAY_MS));
        let mut config = self.prepare(connection, ConfigColumns::INSERT)?;
        let mut insert_config = |owner: ConfigOwner, policy: PolicyLevel| {
            let level = StoredLevel {
                id: BackupConfigId::new_at(&env, known_since),
                level: owner.level(),
                policy,
                version: 1,
                created_at: known_since,
                updated_at: known_since,
            };
            insert(&mut config, &level.to_values(&owner.to_key())?)
        };
        insert_config(ConfigOwner::Tenant, tenant_level())?;
        let mut posture = self.prepare(connection, PostureColumns::INSERT)?;
        let mut device = self.prepare(connection, DeviceColumns::INSERT)?;
        let mut inventory = self.prepare(connection, DeviceRecordColumns::INSERT)?;
        let mut parts = self.prepare(connection, PARTS)?;
        let mut devices = 0;
        for (n, customer) in self.customers.iter().enumerate() {
            let id = customer.id.to_string();
            connection.execute(ORGANIZATION, params![self.tenant, id, i64::try_from(n)?, known_since.as_millis()])?;
            insert_config(ConfigOwner::Organization(customer.id), customer.level.clone())?;
            insert(&mut posture, &posture_row(customer)?)?;
            for machine in &customer.machines {
                insert(&mut inventory, &inventory_row(customer, machine)?)?;
                let lists = ["[]"; 4].map(Value::from);
                insert(&mut parts, &[machine.number.into()].into_iter().chain(lists).collect::<Vec<_>>())?;
                insert(&mut device, &device_row(machine, customer.id)?)?;
                devices = machine.number;
            }
        }
        connection.execute(CLOCK, params![self.tenant, self.end.as_millis(), devices])?;
        Ok(())
    }

    fn insert_night(&self, connection: &Connection, plan: Plan, nights_ago: i64) -> Outcome<usize> {
        let (env, mut reports) = (Env::default(), 0);
        let mut statement = self.prepare(connection, RunColumns::INSERT)?;
        for customer in &self.customers {
            for machine in &customer.machines {
                for run in customer.runs_of(machine, plan, self.end, nights_ago) {
                    let id = JobRunId::new_at(&env, run.ended_at);
                    let external_id = format!("{}-{}-{}", machine.hostname(), run.target, run.ended_at.as_millis());
                    insert(&mut statement, &run_row(id, &external_id, (machine.id, customer.id), &run)?)?;
                    reports += 1;
                }
            }
        }
        Ok(reports)
    }

    /// With the tenant bound, which every row has.
    fn prepare<'a>(&self, connection: &'a Connection, sql: &str) -> Outcome<Statement<'a>> {
        let mut statement = connection.prepare(sql)?;
        statement.raw_bind_parameter(1, &self.tenant)?;
        Ok(statement)
    }
}

fn insert(statement: &mut Statement<'_>, row: &[Value]) -> Outcome {
    for (place, value) in row.iter().enumerate() {
        statement.raw_bind_parameter(place + 2, value)?;
    }
    statement.raw_execute()?;
    Ok(())
}

fn inventory_row(customer: &Customer, machine: &Machine) -> Outcome<Vec<Value>> {
    let mut device = blank_device(machine.known_since).device;
    device.id = machine.id;
    device.hostname = Some(machine.hostname());
    device.r#type = machine.kind;
    device.platform = Platform::Linux;
    device.organization_id = Some(customer.id);
    Ok(StoredDevice { device, number: machine.number, sequence: machine.number }.to_values()?)
}
