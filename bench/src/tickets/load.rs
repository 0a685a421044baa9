//! One tenant with so many tickets in an embedded store, written as the product would have written them, but by direct
//! SQL: rows in the order of their numbers, terms in their own order, indexes at the end.
//!
//! Deliberately left out: comments, history, events and audit entries, which no list looks at.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use kernel::base::{Env, Timestamp, UserId};
use rusqlite::{Connection, Statement, params};
use tenant_control::features::organizations::OrganizationId;
use tenant_control::features::tickets::TicketId;

use super::data::{DAY_MS, DONE, LIVE, Makings, ORGANIZATIONS, PRIORITIES, TECHNICIANS, TYPES, Ticket, external_id};
use crate::harness::Outcome;
use crate::server::{Server, make_key};

/// Nothing is safe while it is filled: half a file is of no use anyway.
const FILLING: &str = "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA locking_mode = EXCLUSIVE; \
     PRAGMA foreign_keys = OFF; PRAGMA cache_size = -1000000;";
/// Rows under one commit.
const STEP: u32 = 500_000;
/// Written at the end, so that a file without it is made anew.
const NOTE: &str = "loaded.txt";

/// Beside the one that every installation starts with.
const TENANT: &str = "SELECT id FROM tenants WHERE slug = 'bench'";

const INSERT: &str = "INSERT INTO tickets (tenant_id, id, number, subject, type, status, priority, organization_id,
        requester_name, requester_email, assignee_id, team, category, tags, device_ids, external_id, source, due_at,
        first_responded_at, sla_paused_at, sla_pauses, resolved_at, closed_at, comment_count, version, created_at, updated_at,
        custom_fields, description)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, '[]', ?15, 'api', ?16, ?17, ?18, '[]', ?19, ?20, ?21,
        ?22, ?23, ?24, '{}', ?25)";
const DESCRIPTION: &str = "It worked yesterday and nothing was changed since then. The person next to me has the same \
    problem, and restarting did not help. Please call before you come; I am in a meeting until noon.";

/// A loaded tenant.
pub struct Loaded {
    pub folder: PathBuf,
    pub key: String,
    pub tenant: String,
    pub size: u32,
    /// When its last ticket was made.
    pub end: i64,
    pub organizations: Vec<String>,
    pub technicians: Vec<String>,
}

impl Loaded {
    pub fn database(&self) -> PathBuf {
        self.folder.join("tenant-control.db")
    }

    /// Fills the folder, unless it has been filled before.
    pub fn make(folder: &Path, size: u32, makings: &Makings) -> Outcome<Self> {
        let note = folder.join(NOTE);
        if !note.exists() {
            let started = Instant::now();
            std::fs::create_dir_all(folder)?;
            let server = Server::start(folder)?;
            let key = make_key(&server, folder)?;
            server.stop()?;
            let end = Env::default().now().as_millis();
            let database = folder.join("tenant-control.db");
            fill(&database, size, end, makings)?;
            std::fs::write(&note, format!("{key}\n{end}\n"))?;
            let (bytes, seconds) = (std::fs::metadata(&database)?.len(), started.elapsed().as_secs());
            println!("  {size} tickets: the file has {} MB, filled in {seconds} s", bytes / 1_000_000);
        }
        Loaded::read(folder, size)
    }

    fn read(folder: &Path, size: u32) -> Outcome<Self> {
        let note = std::fs::read_to_string(folder.join(NOTE))?;
        let (key, end) = note.trim().split_once('\n').ok_or("half a note")?;
        let connection = Connection::open(folder.join("tenant-control.db"))?;
        let tenant: String = connection.query_row(TENANT, [], |row| row.get(0))?;
        let ids = |sql: &str| -> rusqlite::Result<Vec<String>> {
            connection.prepare(sql)?.query_map([], |row| row.get(0))?.collect()
        };
        Ok(Loaded {
            folder: folder.to_owned(),
            key: key.to_owned(),
            tenant,
            size,
            end: end.parse()?,
            organizations: ids("SELECT id FROM organizations ORDER BY slug")?,
            technicians: ids("SELECT id FROM users WHERE email LIKE 'technician-%' ORDER BY email")?,
        })
    }
}

fn fill(database: &Path, size: u32, end: i64, makings: &Makings) -> Outcome {
    let connection = Connection::open(database)?;
    connection.execute_batch(FILLING)?;
    let tenant: String = connection.query_row(TENANT, [], |row| row.get(0))?;
    let indexes: Vec<(String, String)> = connection
        .prepare(
            "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND tbl_name = 'tickets' AND sql IS NOT NULL",
        )?
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<rusqlite::Result<_>>()?;
    for (name, _) in &indexes {
        connection.execute_batch(&format!("DROP INDEX {name}"))?;
    }
    let people = insert_people(&connection, &tenant, end)?;
    let terms = insert_tickets(&connection, &tenant, size, end, makings, &people)?;
    insert_terms(&connection, &tenant, terms, makings, &people)?;
    for (_, sql) in &indexes {
        connection.execute_batch(sql)?;
    }
    let clock = "UPDATE tenant_clocks SET ticket_number = ?2, last_at = MAX(last_at, ?3) WHERE tenant_id = ?1";
    connection.execute(clock, params![tenant, size, end])?;
    connection.execute_batch("PRAGMA locking_mode = NORMAL; PRAGMA journal_mode = WAL;")?;
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    Ok(())
}

struct People {
    organizations: Vec<String>,
    technicians: Vec<String>,
}

fn insert_people(connection: &Connection, tenant: &str, end: i64) -> Outcome<People> {
    let (world, at) = (Env::default(), Timestamp::from_millis(end - DAY_MS));
    let organizations: Vec<String> =
        (0..ORGANIZATIONS).map(|_| OrganizationId::new_at(&world, at).to_string()).collect();
    let technicians: Vec<String> = (0..TECHNICIANS).map(|_| UserId::new_at(&world, at).to_string()).collect();
    let organization = "INSERT INTO organizations (tenant_id, id, slug, name, version, created_at, updated_at)
        VALUES (?1, ?2, printf('customer-%04d', ?3), printf('Customer %d', ?3), 1, ?4, ?4)";
    for (n, id) in organizations.iter().enumerate() {
        connection.execute(organization, params![tenant, id, i64::try_from(n)?, end])?;
    }
    let user =
        "INSERT INTO users (tenant_id, id, email, name, role, platform_operator, version, created_at, updated_at)
        VALUES (?1, ?2, printf('technician-%04d@bench.test', ?3), printf('Technician %d', ?3), 'member', 0, 1, ?4, ?4)";
    for (n, id) in technicians.iter().enumerate() {
        connection.execute(user, params![tenant, id, i64::try_from(n)?, end])?;
    }
    Ok(People { organizations, technicians })
}

/// What a ticket can be found by, as small numbers: ten million tickets have a hundred million of these.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Term {
    Status(&'static str),
    Priority(bool, usize),
    Type(bool, usize),
    Assignee(bool, Option<usize>),
    Organization(bool, Option<usize>),
    Tag(bool, usize),
    Word(bool, usize),
}

impl Term {
    fn all_of(ticket: &Ticket) -> Vec<Term> {
        let live = ticket.live;
        let mut terms = vec![
            Term::Status(ticket.status),
            Term::Priority(live, ticket.priority),
            Term::Type(live, ticket.r#type),
            Term::Assignee(live, ticket.assignee),
            Term::Organization(live, ticket.organization),
        ];
        terms.extend(ticket.tags.iter().map(|n| Term::Tag(live, *n)));
        terms.extend(ticket.words.iter().map(|n| Term::Word(live, *n)));
        terms
    }

    /// As the product spells it.
    fn spell(self, makings: &Makings, people: &People) -> String {
        let with = |live: bool, letter: char, value: &str| format!("{}{letter}:{value}", if live { '+' } else { '-' });
        match self {
            Term::Status(word) => format!("s:{word}"),
            Term::Priority(live, n) => with(live, 'p', PRIORITIES[n]),
            Term::Type(live, n) => with(live, 't', TYPES[n]),
            Term::Assignee(live, n) => with(live, 'a', n.map_or(NOBODY, |n| &people.technicians[n])),
            Term::Organization(live, n) => with(live, 'o', n.map_or(NOBODY, |n| &people.organizations[n])),
            Term::Tag(live, n) => with(live, 'g', &makings.tags[n]),
            Term::Word(live, n) => with(live, 'w', &makings.words[n]),
        }
    }
}

/// What is assigned to nobody, or of no organization, can be found by that.
const NOBODY: &str = "none";

type Terms = HashMap<Term, Vec<u32>>;

fn insert_tickets(
    connection: &Connection,
    tenant: &str,
    size: u32,
    end: i64,
    makings: &Makings,
    people: &People,
) -> Outcome<Terms> {
    let (world, mut terms) = (Env::default(), Terms::new());
    let mut insert = connection.prepare(INSERT)?;
    for first in (1..=size).step_by(STEP as usize) {
        connection.execute_batch("BEGIN")?;
        for number in first..=size.min(first + STEP - 1) {
            let ticket = makings.ticket(number, size, end);
            let id = TicketId::new_numbered(&world, Timestamp::from_millis(ticket.created_at), i64::from(number));
            insert_ticket(&mut insert, tenant, number, &id.to_string(), &ticket, makings, people)?;
            for term in Term::all_of(&ticket) {
                let numbers = terms.entry(term).or_default();
                // A word or tag can come twice in a ticket.
                if numbers.last() != Some(&number) {
                    numbers.push(number);
                }
            }
        }
        connection.execute_batch("COMMIT")?;
    }
    Ok(terms)
}

fn insert_ticket(
    insert: &mut Statement<'_>,
    tenant: &str,
    number: u32,
    id: &str,
    ticket: &Ticket,
    makings: &Makings,
    people: &People,
) -> Outcome {
    let subject = ticket.words.iter().map(|n| makings.words[*n].as_str()).collect::<Vec<_>>().join(" ");
    let mut tags: Vec<&str> = ticket.tags.iter().map(|n| makings.tags[*n].as_str()).collect();
    tags.dedup();
    let other = ticket.other;
    let named = !other.is_multiple_of(4);
    let done_at = (!ticket.live).then_some(ticket.updated_at);
    let stopped = matches!(ticket.status, "pending" | "on_hold").then_some(ticket.updated_at);
    let words = usize::try_from(other % 130)? + 30;
    insert.execute(params![
        tenant,
        id,
        number,
        subject,
        TYPES[ticket.r#type],
        ticket.status,
        i64::try_from(ticket.priority)?,
        ticket.organization.map(|n| &people.organizations[n]),
        named.then(|| format!("Person {}", other % 9_973)),
        named.then(|| format!("person-{}@customer.test", other % 9_973)),
        ticket.assignee.map(|n| &people.technicians[n]),
        (!other.is_multiple_of(3)).then_some("Service desk"),
        other.is_multiple_of(2).then_some("Workplace"),
        serde_json::to_string(&tags)?,
        ticket.external.then(|| external_id(number)),
        ticket.due_at,
        (ticket.status != LIVE[0]).then_some(ticket.created_at + 60_000),
        done_at.or(stopped),
        done_at.filter(|_| ticket.status != DONE[2]),
        done_at.filter(|_| ticket.status == DONE[0]),
        i64::try_from(other % 6)?,
        i64::try_from(other % 6)? + 2,
        ticket.created_at,
        ticket.updated_at,
        (other / 7).is_multiple_of(2).then(|| &DESCRIPTION[..words]),
    ])?;
    Ok(())
}

fn insert_terms(connection: &Connection, tenant: &str, terms: Terms, makings: &Makings, people: &People) -> Outcome {
    let mut spelt: Vec<(String, Vec<u32>)> =
        terms.into_iter().map(|(term, numbers)| (term.spell(makings, people), numbers)).collect();
    spelt.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
    let mut insert = connection.prepare("INSERT INTO ticket_terms (tenant_id, term, number) VALUES (?1, ?2, ?3)")?;
    insert.raw_bind_parameter(1, tenant)?;
    connection.execute_batch("BEGIN")?;
    for (term, numbers) in spelt {
        insert.raw_bind_parameter(2, &term)?;
        for number in numbers {
            insert.raw_bind_parameter(3, number)?;
            insert.raw_execute()?;
        }
    }
    connection.execute_batch("COMMIT")?;
    Ok(())
}
