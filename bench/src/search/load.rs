//! Tenants with all that can be found, in an embedded store: written by direct SQL, tenants in the order of their ids, rows in
//! the order of their keys, indexes at the end.
//!
//! Deliberately left out: what no search reads, such as the terms of lists, history, events and reports of devices.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use kernel::base::{DAY_MS, Env, TenantId, Timestamp, UserId};
use rusqlite::{Connection, params};
use serde_json::json;
use tenant_control::features::devices::{ALL_ORGANIZATIONS, DeviceId, SOFTWARE_DIMENSION, size_class};
use tenant_control::features::organizations::OrganizationId;
use tenant_control::features::tickets::TicketId;

use super::data::{Makings, capital};
use super::queries::Known;
use crate::chance::Chance;
use crate::harness::Outcome;
use crate::server::{Server, make_tenant};
use crate::tickets::data::{DONE, LIVE, TYPES};

/// Nothing is safe while it is filled: half a file is of no use anyway.
const FILLING: &str = "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA locking_mode = EXCLUSIVE; \
     PRAGMA foreign_keys = OFF; PRAGMA cache_size = -500000;";
/// Written at the end, so that a folder without it is made anew.
const NOTE: &str = "loaded.txt";
/// Small tenants that are asked; each has a key of its own.
const ASKED: usize = 32;
const DOCUMENTS_MIN: usize = 10_000;
const DOCUMENTS_EACH: usize = 1_000;
const LARGEST_MAX: usize = 20_000;
/// The oldest record is as old as this.
const AGE_MS: i64 = 730 * DAY_MS;
const TAGS: [&str; 6] = ["hardware", "network", "vip", "onboarding", "security", "backup"];

const TENANT: &str =
    "INSERT INTO tenants (id, slug, name, version, created_at, updated_at) VALUES (?1, ?2, ?2, 1, ?3, ?3)";
const CLOCK: &str = "INSERT INTO tenant_clocks (tenant_id, last_at, sequence, ticket_number, device_number)
    VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (tenant_id) DO UPDATE SET last_at = MAX(last_at, ?2),
        sequence = MAX(sequence, ?3), ticket_number = ?4, device_number = ?5";
const ORGANIZATION: &str = "INSERT INTO organizations (tenant_id, id, slug, name, version, created_at, updated_at)
    VALUES (?1, ?2, ?3, ?4, 1, ?5, ?5)";
const USER: &str =
    "INSERT INTO users (tenant_id, id, email, name, role, platform_operator, version, created_at, updated_at)
    VALUES (?1, ?2, ?3, ?4, 'member', 0, 1, ?5, ?5)";
const TICKET: &str = "INSERT INTO tickets (tenant_id, id, number, subject, type, status, priority, organization_id,
        requester_name, requester_email, assignee_id, team, category, tags, device_ids, external_id, source, sla_pauses,
        comment_count, version, created_at, updated_at, custom_fields, description, sequence)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, 'Service desk', 'Workplace', ?12, '[]', ?13, 'api', '[]', 0, 1, ?14,
        ?15, '{}', ?16, ?3)";
const DEVICE: &str = "INSERT INTO devices (tenant_id, id, number, hostname, type, platform, os_name, os_version, status, health,
        organization_id, manufacturer, model, serial_number, primary_ip, primary_mac, last_logged_user, warranty_status, tags,
        custom_fields, version, created_at, updated_at, sequence)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, 'healthy', ?10, ?11, ?12, ?13, ?14, ?15, ?16, 'unknown', ?17, '{}', 1, ?18, ?19,
        ?3)";
const PARTS: &str = "INSERT INTO device_parts (tenant_id, number, disks, volumes, nics, software)
    VALUES (?1, ?2, '[]', '[]', ?3, '[]')";
const COUNT: &str = "INSERT INTO device_counts (tenant_id, organization_id, dimension, value, label, devices, size)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
const INDEXES: &str = "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL
    AND tbl_name IN ('tickets', 'devices')";

/// What a store is to hold.
#[derive(Clone, Copy)]
pub struct Plan {
    pub tenants: usize,
    pub largest: usize,
    /// Records of each other tenant.
    pub average: usize,
}

impl Plan {
    pub fn of(documents: usize) -> Outcome<Self> {
        if documents < DOCUMENTS_MIN {
            return Err(format!("at least {DOCUMENTS_MIN} documents: fewer tell nothing").into());
        }
        let (tenants, largest) = (documents / DOCUMENTS_EACH, (documents / 10).min(LARGEST_MAX));
        Ok(Plan { tenants, largest, average: (documents - largest) / (tenants - 1) })
    }

    /// About as many as were asked for.
    pub fn documents(self) -> usize {
        self.largest + (self.tenants - 1) * self.average
    }
}

/// How many records of each kind a tenant of a size has.
pub struct Sizes {
    pub tickets: i64,
    pub devices: i64,
    pub users: i64,
    pub organizations: i64,
    pub software: i64,
}

impl Sizes {
    pub fn of(size: i64) -> Self {
        let share = |hundredths: i64| size * hundredths / 100;
        let (tickets, devices, users, organizations) = (share(60), share(30), share(6), share(2));
        let software = size - tickets - devices - users - organizations;
        Sizes { tickets, devices, users, organizations, software }
    }
}

/// A store that has been filled.
pub struct Loaded {
    pub folder: PathBuf,
    pub documents: usize,
    /// The largest, and then some of the others.
    pub tenants: Vec<Tenant>,
}

/// A tenant that can be asked.
pub struct Tenant {
    pub id: String,
    pub key: String,
    pub size: i64,
    pub known: Known,
}

impl Loaded {
    pub fn database(&self) -> PathBuf {
        self.folder.join("tenant-control.db")
    }

    pub fn largest(&self) -> Outcome<&Tenant> {
        self.tenants.first().ok_or_else(|| "no tenant".into())
    }

    /// The largest, or any other.
    pub fn pick(&self, chance: &mut Chance, is_largest: bool) -> &Tenant {
        let place = if is_largest { 0 } else { 1 + chance.below(self.tenants.len() - 1) };
        &self.tenants[place]
    }

    /// Fills the folder, unless it has been filled before.
    pub fn make(folder: &Path, plan: Plan) -> Outcome<Self> {
        let (note, database) = (folder.join(NOTE), folder.join("tenant-control.db"));
        if !note.exists() {
            let started = Instant::now();
            std::fs::create_dir_all(folder)?;
            let mut text = String::new();
            let server = Server::start(folder)?;
            for n in 0..plan.tenants.min(1 + ASKED) {
                let (id, key) = make_tenant(&server, folder, &[], &format!("bench-{n}"))?;
                let size = if n == 0 { plan.largest } else { plan.average };
                writeln!(text, "{id} {key} {size}")?;
            }
            server.stop()?;
            fill(&database, plan)?;
            std::fs::write(&note, format!("{}\n{text}", plan.documents()))?;
            let (bytes, seconds) = (std::fs::metadata(&database)?.len(), started.elapsed().as_secs());
            println!("  the file has {} MB, filled in {seconds} s", bytes / 1_000_000);
        }
        Loaded::read(folder)
    }

    fn read(folder: &Path) -> Outcome<Self> {
        let note = std::fs::read_to_string(folder.join(NOTE))?;
        let (documents, lines) = note.split_once('\n').ok_or("half a note")?;
        let connection = Connection::open(folder.join("tenant-control.db"))?;
        let mut tenants = Vec::new();
        for line in lines.lines() {
            let [id, key, size] = line.split(' ').collect::<Vec<_>>()[..] else { return Err("half a note".into()) };
            let known = Known::read(&connection, id)?;
            tenants.push(Tenant { id: id.to_owned(), key: key.to_owned(), size: size.parse()?, known });
        }
        if tenants.len() < 2 {
            return Err("half a note".into());
        }
        Ok(Loaded { folder: folder.to_owned(), documents: documents.parse()?, tenants })
    }
}

fn fill(database: &Path, plan: Plan) -> Outcome {
    let connection = Connection::open(database)?;
    connection.execute_batch(FILLING)?;
    let indexes: Vec<(String, String)> = connection
        .prepare(INDEXES)?
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<rusqlite::Result<_>>()?;
    for (name, _) in &indexes {
        connection.execute_batch(&format!("DROP INDEX {name}"))?;
    }
    let (world, makings) = (Env::default(), Makings::new());
    let end = world.now().as_millis();
    for (seed, (id, is_largest)) in tenants(&connection, plan, &world, end)?.into_iter().enumerate() {
        let size = i64::try_from(if is_largest { plan.largest } else { plan.average })?;
        let mut filling = Filling {
            connection: &connection,
            world: &world,
            makings: &makings,
            chance: Chance::new(seed as u64 + 1),
            tenant: id,
            end,
        };
        connection.execute_batch("BEGIN")?;
        filling.insert_all(&Sizes::of(size))?;
        connection.execute_batch("COMMIT")?;
    }
    for (_, sql) in &indexes {
        connection.execute_batch(sql)?;
    }
    connection.execute_batch("PRAGMA locking_mode = NORMAL; PRAGMA journal_mode = WAL;")?;
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    Ok(())
}

/// Those that the server has made, and as many more as are missing; in the order of their ids, and whether it is the largest.
fn tenants(connection: &Connection, plan: Plan, world: &Env, end: i64) -> Outcome<Vec<(String, bool)>> {
    let mut all: Vec<(String, bool)> = connection
        .prepare("SELECT id, slug = 'bench-0' FROM tenants WHERE slug LIKE 'bench-%'")?
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<rusqlite::Result<_>>()?;
    connection.execute_batch("BEGIN")?;
    for n in all.len()..plan.tenants {
        let id = TenantId::new_at(world, Timestamp::from_millis(end)).to_string();
        connection.execute(TENANT, params![id, format!("bench-{n}"), end])?;
        all.push((id, false));
    }
    connection.execute_batch("COMMIT")?;
    all.sort();
    Ok(all)
}

/// Writes what one tenant has.
struct Filling<'a> {
    connection: &'a Connection,
    world: &'a Env,
    makings: &'a Makings,
    chance: Chance,
    tenant: String,
    end: i64,
}

impl Filling<'_> {
    fn insert_all(&mut self, sizes: &Sizes) -> Outcome {
        let sequence = sizes.tickets.max(sizes.devices);
        self.connection.execute(CLOCK, params![self.tenant, self.end, sequence, sizes.tickets, sizes.devices])?;
        let organizations = self.insert_organizations(sizes.organizations)?;
        let users = self.insert_users(sizes.users)?;
        self.insert_tickets(sizes.tickets, &organizations, &users)?;
        self.insert_devices(sizes.devices, &organizations)?;
        self.insert_software(sizes.software)
    }

    fn insert_organizations(&mut self, count: i64) -> Outcome<Vec<String>> {
        let mut insert = self.connection.prepare_cached(ORGANIZATION)?;
        let mut ids = Vec::new();
        for number in 1..=count {
            let (at, name) = (self.end - AGE_MS + number, self.makings.company(&mut self.chance));
            let id = OrganizationId::new_numbered(self.world, Timestamp::from_millis(at), number).to_string();
            let slug = format!("{}-{number}", name.to_lowercase().replace(' ', "-"));
            insert.execute(params![self.tenant, id, slug, name, at])?;
            ids.push(id);
        }
        Ok(ids)
    }

    fn insert_users(&mut self, count: i64) -> Outcome<Vec<String>> {
        let mut insert = self.connection.prepare_cached(USER)?;
        let mut ids = Vec::new();
        for number in 1..=count {
            let (at, person) = (self.end - AGE_MS + number, self.makings.person(&mut self.chance, number));
            let id = UserId::new_numbered(self.world, Timestamp::from_millis(at), number).to_string();
            insert.execute(params![self.tenant, id, person.email, person.name, at])?;
            ids.push(id);
        }
        Ok(ids)
    }

    fn insert_tickets(&mut self, count: i64, organizations: &[String], users: &[String]) -> Outcome {
        let mut insert = self.connection.prepare_cached(TICKET)?;
        let chance = &mut self.chance;
        for number in 1..=count {
            let created_at = self.end - AGE_MS + number * (AGE_MS / (count + 1));
            let updated_at = (created_at + below(chance, 3 * DAY_MS)).min(self.end);
            let id = TicketId::new_numbered(self.world, Timestamp::from_millis(created_at), number).to_string();
            let (first, more) = (capital(self.makings.word(chance)), 3 + chance.below(3));
            let subject = format!("{first} {}", self.makings.text(chance, more));
            let status =
                if chance.below(100) < 15 { LIVE[chance.pick(&[25, 25, 25, 15])] } else { DONE[chance.pick(&[88, 6])] };
            let requester = (chance.below(4) > 0).then(|| self.makings.person(chance, number));
            let words = 15 + chance.below(31);
            insert.execute(params![
                self.tenant,
                id,
                number,
                subject,
                TYPES[chance.pick(&[55, 30, 3, 5])],
                status,
                i64::try_from(chance.pick(&[25, 55, 15]))?,
                some_of(chance, organizations),
                requester.as_ref().map(|person| &person.name),
                requester.as_ref().map(|person| &person.email),
                some_of(chance, users),
                format!("[\"{}\"]", TAGS[chance.below(TAGS.len())]),
                (number % 3 == 0).then(|| format!("PSA-{number}")),
                created_at,
                updated_at,
                self.makings.text(chance, words),
            ])?;
        }
        Ok(())
    }

    fn insert_devices(&mut self, count: i64, organizations: &[String]) -> Outcome {
        let mut insert = self.connection.prepare_cached(DEVICE)?;
        let mut parts = self.connection.prepare_cached(PARTS)?;
        let chance = &mut self.chance;
        for number in 1..=count {
            let created_at = self.end - AGE_MS + number * (AGE_MS / (count + 1));
            let id = DeviceId::new_numbered(self.world, Timestamp::from_millis(created_at), number).to_string();
            let machine = Makings::machine(chance, number);
            insert.execute(params![
                self.tenant,
                id,
                number,
                machine.hostname,
                machine.r#type,
                machine.platform,
                machine.os_name,
                machine.os_version,
                ["online", "offline", "stale"][chance.pick(&[85, 10])],
                some_of(chance, organizations),
                machine.manufacturer,
                machine.model,
                machine.serial_number,
                machine.ip,
                machine.mac,
                self.makings.person(chance, number).name,
                format!("[\"{}\"]", TAGS[chance.below(TAGS.len())]),
                created_at,
                self.end - below(chance, 30 * DAY_MS),
            ])?;
            let nics = json!([{
                "name": "eno1", "mac": machine.mac, "type": "ethernet", "status": "up", "ips": [machine.ip]
            }]);
            parts.execute(params![self.tenant, number, nics.to_string()])?;
        }
        Ok(())
    }

    fn insert_software(&mut self, count: i64) -> Outcome {
        let mut insert = self.connection.prepare_cached(COUNT)?;
        for number in 1..=count {
            let label = self.makings.program(&mut self.chance, number);
            let devices = 1 + below(&mut self.chance, 200);
            let name = label.to_lowercase();
            insert.execute(params![
                self.tenant,
                ALL_ORGANIZATIONS,
                SOFTWARE_DIMENSION,
                name,
                label,
                devices,
                size_class(devices)
            ])?;
        }
        Ok(())
    }
}

/// Nineteen times of twenty.
fn some_of<'a>(chance: &mut Chance, ids: &'a [String]) -> Option<&'a String> {
    let place = chance.below(ids.len());
    ids.get(place).filter(|_| chance.below(20) > 0)
}

fn below(chance: &mut Chance, most: i64) -> i64 {
    i64::try_from(chance.next() % most.max(1).unsigned_abs()).unwrap_or(0)
}
