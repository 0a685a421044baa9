//! What the store is measured against: rusqlite with one writer thread and group commit, and nothing else. Statements
//! are prepared once and held, values are bound by place, a job is a plain struct, and a failure ends the run.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, params};
use tokio::sync::{mpsc, oneshot};

use crate::harness::Outcome;
use crate::workload::{AUDIT, BODY, EVENT, RECORD, SUBJECT, id};

/// The store's own bounds.
pub const QUEUE_MAX: usize = 1_024;
pub const GROUP_MAX: usize = 256;

/// The store's own settings of its writing connection.
pub const SETTINGS: &str = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; \
     PRAGMA cache_size = -32768; PRAGMA wal_autocheckpoint = 4000; PRAGMA journal_size_limit = 67108864; \
     PRAGMA temp_store = MEMORY;";

/// The clock as the store moves it here: what RETURNING returns would be gathered in a table of its own each time.
pub const LAST_TICK: &str = "SELECT last_at, sequence FROM tenant_clocks WHERE tenant_id = $1";
pub const SET_CLOCK: &str = "UPDATE tenant_clocks SET last_at = ?2, sequence = ?3 WHERE tenant_id = ?1";

/// Whether each job can fail alone, as in the store.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Savepoints {
    Yes,
    No,
}

pub struct BareWriter(mpsc::Sender<Queued>);

struct Queued {
    tenant: String,
    record: String,
    entry: String,
    number: i64,
    reply: oneshot::Sender<rusqlite::Result<()>>,
}

impl BareWriter {
    pub fn start(path: &Path, savepoints: Savepoints) -> Outcome<Self> {
        let (sender, receiver) = mpsc::channel(QUEUE_MAX);
        let connection = Connection::open(path)?;
        connection.execute_batch(SETTINGS)?;
        std::thread::spawn(move || {
            // Whoever waits is told by the channel, which closes.
            let _ = write_loop(&connection, receiver, savepoints);
        });
        Ok(BareWriter(sender))
    }

    pub async fn write(&self, tenant: String, n: usize) -> Outcome {
        let (reply, answer) = oneshot::channel();
        let job = Queued { tenant, record: id(2 * n), entry: id(2 * n + 1), number: n as i64, reply };
        self.0.send(job).await.map_err(|_| "the bare writer has stopped")?;
        Ok(answer.await.map_err(|_| "the bare writer has stopped")??)
    }
}

fn write_loop(
    connection: &Connection,
    mut queue: mpsc::Receiver<Queued>,
    savepoints: Savepoints,
) -> rusqlite::Result<()> {
    let mut begin = connection.prepare("BEGIN IMMEDIATE")?;
    let mut commit = connection.prepare("COMMIT")?;
    let mut open = connection.prepare("SAVEPOINT job")?;
    let mut keep = connection.prepare("RELEASE job")?;
    let mut last_tick = connection.prepare(LAST_TICK)?;
    let mut set_clock = connection.prepare(SET_CLOCK)?;
    let mut record = connection.prepare(RECORD)?;
    let mut event = connection.prepare(EVENT)?;
    let mut audit = connection.prepare(AUDIT)?;
    let mut group = Vec::with_capacity(GROUP_MAX);
    while queue.blocking_recv_many(&mut group, GROUP_MAX) > 0 {
        begin.raw_execute()?;
        for job in &group {
            if savepoints == Savepoints::Yes {
                open.raw_execute()?;
            }
            let (last, sequence): (i64, i64) =
                last_tick.query_row(params![job.tenant], |row| Ok((row.get(0)?, row.get(1)?)))?;
            let (at, sequence) = (last.max(now_ms()), sequence + 1);
            set_clock.execute(params![job.tenant, at, sequence])?;
            record.execute(params![job.tenant, job.record, job.number, SUBJECT, at])?;
            event.execute(params![job.tenant, sequence, BODY, at])?;
            audit.execute(params![job.tenant, job.entry, at, job.record])?;
            if savepoints == Savepoints::Yes {
                keep.raw_execute()?;
            }
        }
        commit.raw_execute()?;
        for job in group.drain(..) {
            let _ = job.reply.send(Ok(()));
        }
    }
    Ok(())
}

fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(0))
}
