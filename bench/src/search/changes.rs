//! How long searches take while 5,000 records a second change, against how long without; and how far behind the index is then.
//!
//! The changes are written beside the server by direct SQL, as the product notes them: over the API one writer would not make as
//! many on every disk. What the writing itself takes of the machine is measured too, by the same writes that nobody notes.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kernel::base::Env;
use rusqlite::{Connection as Sqlite, params};
use tokio::task::JoinSet;

use super::client::{path, request};
use super::data::Makings;
use super::load::Loaded;
use super::measured::{Measured, gather, small, verdict};
use super::options::Options;
use super::queries::Query;
use super::rebuild::Memory;
use crate::chance::Chance;
use crate::harness::{Outcome, runtime};
use crate::report::limit;
use crate::server::{Server, cpu_seconds, get};
use crate::tickets::client::Connection;

/// Of the slowest hundredth, beside changes to without.
const AIM: f64 = 2.0;
/// What is promised: what was written is found within a second.
const BEHIND_LIMIT_S: f64 = 1.0;
/// Rows of a transaction, and from one to the next: 5,000 a second.
const BATCH: usize = 250;
const BATCH_EVERY: Duration = Duration::from_millis(50);
const BATCHES_PER_SECOND: usize = 20;
/// Between two requests of a connection: as fast as possible would measure how two cores are shared.
const PAUSE: Duration = Duration::from_millis(10);
/// One request in so many is the large tenant's.
const LARGEST_EACH: usize = 4;
/// Tickets to change, which is more than a run does; and texts for them.
const TICKETS_MAX: i64 = 250_000;
const SUBJECTS: usize = 5_000;
/// Until the last change is found.
const FOUND_MAX: Duration = Duration::from_mins(2);
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// How long the server's own writer is waited for.
const BUSY_MAX: Duration = Duration::from_secs(30);

/// As the store's own writer has it.
const SETTINGS: &str = "PRAGMA synchronous = FULL; PRAGMA cache_size = -32768; PRAGMA wal_autocheckpoint = 4000;";
const UPDATE: &str = "UPDATE tickets SET subject = ?3, version = version + 1 WHERE tenant_id = ?1 AND id = ?2";
/// As `Tx::changed` does.
const NOTE: &str = "INSERT INTO changes (written_by, number, tenant_id, kind, record_id)
    SELECT 0, COALESCE((SELECT MAX(number) FROM changes WHERE written_by = 0), 0) + 1, ?1, 'ticket', ?2";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Writing {
    Nothing,
    Unnoted,
    Noted,
}

const PHASES: [(Writing, &str); 3] = [
    (Writing::Nothing, "without changes"),
    (Writing::Unnoted, "beside writes that nobody notes"),
    (Writing::Noted, "beside changes"),
];

struct Phase {
    asked: Measured,
    written: Written,
    /// Of the server.
    cpu_seconds: f64,
}

#[derive(Default)]
struct Written {
    changes: usize,
    seconds: f64,
    /// From the last commit until that change was found.
    behind_seconds: f64,
}

pub fn run(server: &Server, loaded: &Arc<Loaded>, options: &Options) -> Outcome {
    let Options { connections, seconds, .. } = *options;
    println!(
        "changes: {} a second in transactions of {BATCH}, {seconds} s; all queries in turn over {connections} connections, {} ms \
         apart, every fourth to the large tenant",
        BATCH * BATCHES_PER_SECOND,
        PAUSE.as_millis()
    );
    let writer = Writer::new(server, loaded, seconds)?;
    let runtime = runtime()?;
    let time = Duration::from_secs(seconds as u64);
    let mut phases = Vec::new();
    for (writing, name) in PHASES {
        let before = cpu_seconds(server.id())?;
        let (asked, written) = std::thread::scope(|scope| -> Outcome<(Measured, Written)> {
            let thread = scope.spawn(|| writer.write(writing));
            let asked = runtime.block_on(ask(server.address, loaded, connections, time))?;
            Ok((asked, thread.join().map_err(|_| "the writer failed")??))
        })?;
        let phase = Phase { asked, written, cpu_seconds: cpu_seconds(server.id())? - before };
        println!("  {name}: {}", phase.asked.spell());
        phases.push(phase);
    }
    print(&phases);
    println!("memory after changes: {}", Memory::of(server.id())?.spell());
    Ok(())
}

fn print(phases: &[Phase]) {
    let [quiet, unnoted, noted] = phases else { return };
    let p99 = noted.asked.p99();
    let (ratio, of_writes) = (p99 / quiet.asked.p99(), p99 / unnoted.asked.p99());
    let is_met = ratio <= AIM && noted.asked.refused == 0;
    println!(
        "p99 beside changes: {p99:.2} ms, {:.2} ms without (ratio {ratio:.2}, aim at most {AIM}: {}); {of_writes:.2} times as long \
         as beside writes that nobody notes",
        quiet.asked.p99(),
        verdict(is_met)
    );
    let (written, aim) = (&noted.written, small(BATCH * BATCHES_PER_SECOND));
    let rate = small(written.changes) / written.seconds;
    // A batch may be late by a wait for the disk.
    println!("changes written: {rate:.0}/s (aim {aim:.0}/s, ratio {:.2}: {})", rate / aim, verdict(rate >= 0.98 * aim));
    limit("behind the last change by", vec![written.behind_seconds], "s", BEHIND_LIMIT_S);
    println!(
        "processor time of the server for a change: {:.0} us",
        (noted.cpu_seconds - unnoted.cpu_seconds) * 1e6 / small(written.changes.max(1))
    );
}

async fn ask(address: SocketAddr, loaded: &Arc<Loaded>, connections: usize, time: Duration) -> Outcome<Measured> {
    let mut callers: JoinSet<Outcome<Measured>> = JoinSet::new();
    let until = Instant::now() + time;
    for caller in 0..connections {
        let loaded = loaded.clone();
        callers.spawn(async move {
            let (mut connection, mut measured) = (Connection::open(address).await?, Measured::default());
            let mut chance = Chance::new(caller as u64 + 1_000);
            for (query, _) in Query::ALL.iter().cycle() {
                if Instant::now() > until {
                    break;
                }
                let is_largest = chance.below(LARGEST_EACH) == 0;
                let tenant = loaded.pick(&mut chance, is_largest);
                let q = query.spell(&mut chance, &tenant.known).q;
                measured.time(&mut connection, &request(&tenant.key, &q)).await?;
                tokio::time::sleep(PAUSE).await;
            }
            Ok(measured)
        });
    }
    gather(callers).await
}

/// Who changes records beside the server.
struct Writer {
    database: PathBuf,
    address: SocketAddr,
    seconds: usize,
    /// Tenant and id, in an order of chance.
    tickets: Vec<(String, String)>,
    subjects: Vec<String>,
    /// A ticket of a tenant whose key is known, for the last change.
    last: (String, String),
    key: String,
}

impl Writer {
    fn new(server: &Server, loaded: &Loaded, seconds: usize) -> Outcome<Self> {
        let (database, largest) = (loaded.database(), loaded.largest()?);
        let connection = Sqlite::open(&database)?;
        let all: i64 = connection.query_row("SELECT MAX(rowid) FROM tickets", [], |row| row.get(0))?;
        let mut tickets: Vec<(String, String)> = connection
            .prepare("SELECT tenant_id, id FROM tickets WHERE rowid % ?1 = 0")?
            .query_map([1 + all / TICKETS_MAX], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<rusqlite::Result<_>>()?;
        let (mut chance, makings) = (Chance::new(5), Makings::new());
        chance.shuffle(&mut tickets);
        let last = "SELECT id FROM tickets WHERE tenant_id = ?1 ORDER BY number DESC LIMIT 1";
        let last: String = connection.query_row(last, [&largest.id], |row| row.get(0))?;
        Ok(Writer {
            address: server.address,
            seconds,
            tickets,
            subjects: (0..SUBJECTS).map(|_| makings.text(&mut chance, 5)).collect(),
            last: (largest.id.clone(), last),
            key: largest.key.clone(),
            database,
        })
    }

    /// Writes for as long as is measured, or twice as long if it cannot keep up; and waits until the last is found.
    fn write(&self, writing: Writing) -> Outcome<Written> {
        if writing == Writing::Nothing {
            return Ok(Written::default());
        }
        let connection = open(&self.database)?;
        let (mut update, mut note) = (connection.prepare(UPDATE)?, connection.prepare(NOTE)?);
        let mut change = |(tenant, id): &(String, String), subject: &str| -> rusqlite::Result<()> {
            update.execute(params![tenant, id, subject])?;
            if writing == Writing::Noted {
                note.execute(params![tenant, id])?;
            }
            Ok(())
        };
        // Both phases change the same tickets, and not to what they are.
        let shift = usize::from(writing == Writing::Noted);
        let (started, mut changes) = (Instant::now(), 0);
        for batch in 0..self.seconds * BATCHES_PER_SECOND {
            std::thread::sleep((BATCH_EVERY * u32::try_from(batch)?).saturating_sub(started.elapsed()));
            if started.elapsed() > Duration::from_secs(2 * self.seconds as u64) {
                break;
            }
            connection.execute_batch("BEGIN IMMEDIATE")?;
            for n in batch * BATCH..(batch + 1) * BATCH {
                change(&self.tickets[n % self.tickets.len()], &self.subjects[(n + shift) % SUBJECTS])?;
            }
            connection.execute_batch("COMMIT")?;
            changes += BATCH;
        }
        let seconds = started.elapsed().max(BATCH_EVERY).as_secs_f64();
        let mark = format!("mark{}", Env::default().now().as_millis());
        change(&self.last, &format!("{mark} is the last that was written"))?;
        let behind_seconds = if writing == Writing::Noted { self.wait_for(&mark)? } else { 0.0 };
        Ok(Written { changes, seconds, behind_seconds })
    }

    /// Until this word is found; after how many seconds.
    fn wait_for(&self, mark: &str) -> Outcome<f64> {
        let (waiting, header) = (Instant::now(), format!("Authorization: Bearer {}\r\n", self.key));
        // In quotes: nothing but this word.
        let asked = path(&format!("\"{mark}\""));
        loop {
            let answer = get(self.address, &asked, &header)?;
            if answer.status == 200 && answer.body.contains("\"score\":") {
                return Ok(waiting.elapsed().as_secs_f64());
            }
            if waiting.elapsed() > FOUND_MAX {
                return Err(format!("the last change was not found: {} {}", answer.status, answer.body).into());
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

fn open(database: &Path) -> Outcome<Sqlite> {
    let connection = Sqlite::open(database)?;
    connection.busy_timeout(BUSY_MAX)?;
    connection.execute_batch(SETTINGS)?;
    Ok(connection)
}
