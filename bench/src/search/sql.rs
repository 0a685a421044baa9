//! The same questions without an index, as a sensible person would ask them: of each table of the tenant whether any of its
//! columns has the text, the newest first, as many as a page has. In this process and over connections that are kept, so that
//! nothing is sent, parsed, authorized, counted, ranked or marked.

use std::path::Path;
use std::time::Instant;

use rusqlite::{Connection, OpenFlags, Params, params, params_from_iter};

use super::load::{Loaded, Tenant};
use super::measured::{Asking, CELL_MAX, Measured};
use super::queries::Sought;
use crate::harness::Outcome;

/// What is selected of each table, and the columns in which a search finds words. Along the numbers, which SQLite might not choose by
/// itself, rows are read in the order in which they lie.
const TABLES: [(&str, &[&str]); 6] = [
    (
        "SELECT 'ticket' AS kind, id, subject AS title, updated_at AS at FROM tickets WHERE tenant_id = ?1 AND number > 0",
        &["subject", "description", "requester_name", "requester_email", "external_id", "category", "team", "tags"],
    ),
    (
        "SELECT 'device', id, hostname, updated_at FROM devices WHERE tenant_id = ?1 AND number > 0 AND deleted_at IS NULL",
        &[
            "hostname",
            "display_name",
            "serial_number",
            "asset_tag",
            "primary_ip",
            "primary_mac",
            "model",
            "manufacturer",
            "os_name",
            "last_logged_user",
            "tags",
        ],
    ),
    ("SELECT 'user', id, name, updated_at FROM users WHERE tenant_id = ?1", &["name", "email"]),
    ("SELECT 'organization', id, name, updated_at FROM organizations WHERE tenant_id = ?1", &["name", "slug"]),
    ("SELECT 'workflow', id, name, updated_at FROM workflows WHERE tenant_id = ?1 AND deleted_at IS NULL", &["name"]),
    (
        "SELECT 'software', value, label, 0 FROM device_counts
         WHERE tenant_id = ?1 AND organization_id = '*' AND dimension = 'software' AND devices > 0",
        &["label"],
    ),
];
const OPEN_TICKETS: &str = "SELECT 'ticket', id, subject, updated_at FROM tickets
    WHERE tenant_id = ?1 AND status = 'open' ORDER BY updated_at DESC LIMIT 50";
const SERIAL: &str = "SELECT 'device', id, hostname, updated_at FROM devices
    WHERE tenant_id = ?1 AND number > 0 AND deleted_at IS NULL AND serial_number = ?2 COLLATE NOCASE ORDER BY updated_at DESC LIMIT 50";
/// The organization first, so that the rest is found by its id.
const ORGANIZATION: &str = "SELECT 'ticket' AS kind, t.id AS id, t.subject AS title, t.updated_at AS at
        FROM organizations o CROSS JOIN tickets t ON t.tenant_id = o.tenant_id AND t.organization_id = o.id
        WHERE o.tenant_id = ?1 AND (o.name = ?2 COLLATE NOCASE OR o.slug = ?2 COLLATE NOCASE)
    UNION ALL SELECT 'device', d.id, d.hostname, d.updated_at
        FROM organizations o CROSS JOIN devices d ON d.tenant_id = o.tenant_id AND d.organization_id = o.id
        WHERE o.tenant_id = ?1 AND (o.name = ?2 COLLATE NOCASE OR o.slug = ?2 COLLATE NOCASE) AND d.deleted_at IS NULL
    ORDER BY at DESC LIMIT 50";
const NUMBER: &str = "SELECT 'ticket', id, subject, updated_at FROM tickets WHERE tenant_id = ?1 AND number = ?2";

/// A statement for texts, so many of which must all be there.
fn scan(texts: usize) -> String {
    let arms: Vec<String> = TABLES
        .iter()
        .map(|(select, columns)| {
            let mut arm = (*select).to_owned();
            for place in 2..2 + texts {
                let likes: Vec<String> = columns.iter().map(|column| format!("{column} LIKE ?{place}")).collect();
                arm = format!("{arm} AND ({})", likes.join(" OR "));
            }
            arm
        })
        .collect();
    format!("SELECT * FROM ({}) ORDER BY at DESC LIMIT 50", arms.join(" UNION ALL "))
}

/// As many readers as there are connections to the server.
pub struct Rival(Vec<Connection>);

impl Rival {
    pub fn open(database: &Path, readers: usize) -> Outcome<Self> {
        let open = |_| -> rusqlite::Result<Connection> {
            let connection = Connection::open_with_flags(database, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
            // As a reader of the store has it.
            connection.execute_batch("PRAGMA cache_size = -8192; PRAGMA temp_store = MEMORY;")?;
            Ok(connection)
        };
        Ok(Rival((0..readers).map(open).collect::<rusqlite::Result<_>>()?))
    }

    /// Asks what the server is asked, all readers at once.
    pub fn ask(&mut self, loaded: &Loaded, asking: Asking) -> Outcome<Measured> {
        let readers = self.0.len();
        std::thread::scope(|scope| -> Outcome<Measured> {
            let mut reading = Vec::new();
            for (reader, connection) in self.0.iter_mut().enumerate() {
                reading.push(scope.spawn(move || read(connection, loaded, asking, reader, readers)));
            }
            let mut measured = Measured::default();
            for reader in reading {
                measured.add(reader.join().map_err(|_| "a reader failed")??);
            }
            Ok(measured)
        })
    }
}

fn read(
    connection: &mut Connection,
    loaded: &Loaded,
    asking: Asking,
    reader: usize,
    readers: usize,
) -> Outcome<Measured> {
    let scans = [scan(1), scan(2)];
    let (mut chance, mut measured) = (asking.chance(reader, readers), Measured::default());
    let until = Instant::now() + CELL_MAX;
    for _ in 0..asking.requests.div_ceil(readers) {
        if Instant::now() > until {
            break;
        }
        let tenant = loaded.pick(&mut chance, asking.is_largest);
        let question = asking.query.spell(&mut chance, &tenant.known);
        let started = Instant::now();
        measured.hits += find(connection, &scans, tenant, &question.sought)?;
        measured.ms.push(started.elapsed().as_secs_f64() * 1e3);
    }
    Ok(measured)
}

fn find(connection: &Connection, scans: &[String; 2], tenant: &Tenant, sought: &Sought) -> Outcome<usize> {
    let id = &tenant.id;
    let found = match sought {
        Sought::Text(texts) => {
            let scan = scans.get(texts.len() - 1).ok_or("too many texts")?;
            let mut values = vec![id.clone()];
            values.extend(texts.iter().map(|text| format!("%{text}%")));
            rows(connection, scan, params_from_iter(values))
        }
        Sought::OpenTickets => rows(connection, OPEN_TICKETS, params![id]),
        Sought::Serial(serial) => rows(connection, SERIAL, params![id, serial]),
        Sought::Organization(name) => rows(connection, ORGANIZATION, params![id, name]),
        Sought::Number(number) => rows(connection, NUMBER, params![id, number]),
    };
    Ok(found?.len())
}

/// The id and the title of each.
fn rows(connection: &Connection, sql: &str, values: impl Params) -> rusqlite::Result<Vec<(String, Option<String>)>> {
    let mut statement = connection.prepare_cached(sql)?;
    let found = statement.query_map(values, |row| Ok((row.get(1)?, row.get(2)?)))?;
    found.collect()
}
