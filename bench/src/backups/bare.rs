//! What a report is measured against: its rows in a transaction of rusqlite, with one writer thread and group commit, as in
//! `bare_sqlite`. Statements are held prepared, values are bound by place. Nothing is parsed, looked up, judged or answered.

use std::path::Path;

use ::backups::posture::rows::{DeviceColumns, PostureColumns};
use ::backups::runs::store::RunColumns;
use kernel::base::Env;
use kernel::store::Value;
use rusqlite::{Connection, Statement, params};
use tokio::sync::{mpsc, oneshot};

use crate::bare_sqlite::{GROUP_MAX, LAST_TICK, QUEUE_MAX, SET_CLOCK, SETTINGS};
use crate::harness::Outcome;

/// The rows of a report: a new run, and what is known of its device and organization from then on.
pub struct ReportRows {
    pub run: Vec<Value>,
    pub device: Vec<Value>,
    pub posture: Vec<Value>,
}

pub struct BareWriter(mpsc::Sender<Queued>);

struct Queued {
    rows: ReportRows,
    reply: oneshot::Sender<()>,
}

impl BareWriter {
    pub fn start(path: &Path, tenant: String) -> Outcome<Self> {
        let (sender, receiver) = mpsc::channel(QUEUE_MAX);
        let connection = Connection::open(path)?;
        connection.execute_batch(SETTINGS)?;
        std::thread::spawn(move || {
            // Whoever waits is told by the channel, which closes.
            let _ = write_loop(&connection, &tenant, receiver);
        });
        Ok(BareWriter(sender))
    }

    pub async fn write(&self, rows: ReportRows) -> Outcome {
        let (reply, answer) = oneshot::channel();
        self.0.send(Queued { rows, reply }).await.map_err(|_| "the bare writer has stopped")?;
        Ok(answer.await.map_err(|_| "the bare writer has failed")?)
    }
}

fn write_loop(connection: &Connection, tenant: &str, mut queue: mpsc::Receiver<Queued>) -> rusqlite::Result<()> {
    let mut begin = connection.prepare("BEGIN IMMEDIATE")?;
    let mut commit = connection.prepare("COMMIT")?;
    let mut last_tick = connection.prepare(LAST_TICK)?;
    let mut set_clock = connection.prepare(SET_CLOCK)?;
    let mut run = prepare(connection, RunColumns::INSERT, tenant)?;
    let mut device = prepare(connection, DeviceColumns::UPDATE, tenant)?;
    let mut posture = prepare(connection, PostureColumns::UPDATE, tenant)?;
    let (env, mut group) = (Env::default(), Vec::with_capacity(GROUP_MAX));
    while queue.blocking_recv_many(&mut group, GROUP_MAX) > 0 {
        begin.raw_execute()?;
        for Queued { rows, .. } in &group {
            let (last, sequence): (i64, i64) =
                last_tick.query_row(params![tenant], |row| Ok((row.get(0)?, row.get(1)?)))?;
            set_clock.execute(params![tenant, last.max(env.now().as_millis()), sequence + 1])?;
            write_row(&mut run, &rows.run)?;
            write_row(&mut device, &rows.device)?;
            write_row(&mut posture, &rows.posture)?;
        }
        commit.raw_execute()?;
        for job in group.drain(..) {
            let _ = job.reply.send(());
        }
    }
    Ok(())
}

/// With the tenant bound, which every row has. To SQLite `$3` is a name, and `?3` a place.
fn prepare<'a>(connection: &'a Connection, sql: &str, tenant: &str) -> rusqlite::Result<Statement<'a>> {
    let mut statement = connection.prepare(&sql.replace('$', "?"))?;
    statement.raw_bind_parameter(1, tenant)?;
    Ok(statement)
}

fn write_row(statement: &mut Statement<'_>, row: &[Value]) -> rusqlite::Result<()> {
    for (place, value) in row.iter().enumerate() {
        statement.raw_bind_parameter(place + 2, value)?;
    }
    // None or two would not be the same writes.
    match statement.raw_execute()? {
        1 => Ok(()),
        rows => Err(rusqlite::Error::StatementChangedRows(rows)),
    }
}
