//! A transaction in progress, the same on both engines.

use std::any::Any;
use std::borrow::Cow;
use std::mem::replace;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;

use crate::args;
use crate::base::{Actor, Clock, Error, MINUTE_MS, Result, TenantId, Timestamp, World, sha256};

use super::delta::LAST_TICK;
use super::handle::Handle;
use super::job::{AnyJob, Made};
use super::news::News;
use super::postgres::Session;
use super::row::{EachRow, take_only};
use super::sqlite::{self, Lite};
use super::{Args, Engine, Followers, FromRow, Param, Select, Value, dialect};

/// How long a whole write may hold its connection to PostgreSQL. Statements have their own, shorter limit; this one
/// ends a job that awaits something else and so would never give the connection back.
const JOB_MAX: Duration = Duration::from_mins(1);

/// How far a tenant's clock may be ahead of the database's own time: more than clocks of healthy machines ever differ. One
/// node whose clock is months ahead would otherwise take the times of every record with it, for good.
pub const CLOCK_AHEAD_MAX_MS: i64 = 10 * MINUTE_MS;

/// Moves the tenant's clock: time never goes back, and no two writes have the same number.
const TICK: &str = "UPDATE tenant_clocks SET last_at = CASE WHEN last_at > $2 THEN last_at ELSE $2 END, \
     sequence = sequence + 1 WHERE tenant_id = $1 RETURNING last_at, sequence";

/// The same where nobody else can move it meanwhile.
const SET_CLOCK: &str = "UPDATE tenant_clocks SET last_at = $2, sequence = $3 WHERE tenant_id = $1";

/// Starts the clock of a tenant that has none yet; of two that try, the second moves what the first has made.
const FIRST_TICK: &str = "INSERT INTO tenant_clocks (tenant_id, last_at, sequence) VALUES ($1, $2, 1) \
     ON CONFLICT (tenant_id) DO UPDATE SET \
     last_at = CASE WHEN tenant_clocks.last_at > $2 THEN tenant_clocks.last_at ELSE $2 END, \
     sequence = tenant_clocks.sequence + 1 RETURNING last_at, sequence";

/// One more number of a write that tells of several things.
const NEXT_SEQUENCE: &str = "UPDATE tenant_clocks SET sequence = sequence + 1 WHERE tenant_id = $1 RETURNING sequence";

/// The statements of this module, for the test that prepares every statement.
pub const STATEMENTS: &[(&str, &str)] = &[
    ("TICK", TICK),
    ("SET_CLOCK", SET_CLOCK),
    ("FIRST_TICK", FIRST_TICK),
    ("NEXT_SEQUENCE", NEXT_SEQUENCE),
    ("LAST_TICK", LAST_TICK),
];

/// The moment and the number of a tenant's write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tick {
    pub at: Timestamp,
    pub sequence: i64,
}

/// A transaction in progress.
///
/// One failed statement dooms it, even if its error is swallowed: PostgreSQL would refuse everything after it, and
/// both engines shall behave the same. A write may await only its transaction.
pub struct Tx {
    connection: Conn,
    handle: Arc<Handle>,
    doomed: bool,
    tick: Option<Tick>,
    sequence_used: bool,
    /// Whether others shall be told of this write when it is on disk.
    announced: bool,
}

/// What was asked and has not been waited for: see [`Tx::ask`].
pub struct Ahead<T>(Asked<T>);

enum Asked<T> {
    /// SQLite answers at once.
    Known(Vec<T>),
    Sent(usize),
}

enum Conn {
    Sqlite(Lite),
    Postgres(Session),
}

impl Tx {
    pub fn tenant_id(&self) -> Option<TenantId> {
        self.handle.tenant_id()
    }

    pub fn actor(&self) -> &Actor {
        &self.handle.actor
    }

    pub fn world(&self) -> &World {
        &self.handle.world
    }

    /// Who follows the events of this transaction.
    pub fn followers(&self) -> Result<Followers> {
        self.handle
            .followers
            .ok_or_else(|| Error::internal("the store was opened without saying who follows its events"))
    }

    pub fn engine(&self) -> Engine {
        match self.connection {
            Conn::Sqlite(_) => Engine::Sqlite,
            Conn::Postgres(_) => Engine::Postgres,
        }
    }

    /// Runs a statement whose answer nobody needs, in its place among the others. On PostgreSQL it is sent together with
    /// the next that is waited for, or with the commit: many of them cost no round trip. If it fails, whatever comes next does; the error names the
    /// statement that failed, and a constraint that it broke is not taken for one of whoever came next.
    pub async fn later(&mut self, sql: &'static str, values: Vec<Value>) -> Result<()> {
        if let Conn::Postgres(session) = &mut self.connection {
            session.put_off(sql, values);
            return Ok(());
        }
        let done = self.exec_each(sql, std::slice::from_ref(&values)).await;
        done.map(drop).map_err(|error| error.of_statement(sql))
    }

    /// Whether statements that do nothing unless `sql` finds a row are worth sending. SQLite is asked: a look costs it less than
    /// they do. On PostgreSQL a look is a round trip, and they go along with others.
    pub async fn is_worthwhile(&mut self, sql: &str, args: Args<'_>) -> Result<bool> {
        match &self.connection {
            Conn::Sqlite(_) => Ok(self.find::<String>(sql, args).await?.is_some()),
            Conn::Postgres(_) => Ok(true),
        }
    }

    /// Asks in its place among the others what [`Tx::answer`] tells later. On PostgreSQL it is sent together with the next
    /// statement that is waited for; if it fails, that does, as after [`Tx::later`].
    pub async fn ask<T: FromRow>(&mut self, sql: impl Into<Cow<'static, str>>, values: Vec<Value>) -> Result<Ahead<T>> {
        let sql = sql.into();
        if let Conn::Postgres(session) = &mut self.connection {
            return Ok(Ahead(Asked::Sent(session.ask_ahead(sql, values))));
        }
        self.list(&sql, &params(&values)).await.map(|rows| Ahead(Asked::Known(rows)))
    }

    /// Every row of what was asked before.
    pub async fn answer<T: FromRow>(&mut self, ahead: Ahead<T>) -> Result<Vec<T>> {
        let number = match ahead.0 {
            Asked::Known(rows) => return Ok(rows),
            Asked::Sent(number) => number,
        };
        let doomed = replace(&mut self.doomed, true);
        let Conn::Postgres(session) = &mut self.connection else {
            return Err(Error::internal("what was asked of one engine is not answered by the other"));
        };
        let rows = session.fetch(&self.handle, number).await?;
        self.doomed = doomed;
        Ok(rows)
    }

    /// Runs a statement that returns no rows, and says how many it changed.
    pub async fn exec(&mut self, sql: &str, args: Args<'_>) -> Result<u64> {
        // Doomed until it has worked: a future dropped half-way must not leave a transaction that looks sound.
        let doomed = replace(&mut self.doomed, true);
        let changed = match &mut self.connection {
            Conn::Sqlite(lite) => lite.exec(self.handle.bound(), sql, args)?,
            Conn::Postgres(session) => session.exec(&self.handle, sql, args).await?,
        };
        self.doomed = doomed;
        Ok(changed)
    }

    /// Runs one statement for each of these rows of arguments, and says how many rows it changed in all.
    ///
    /// On PostgreSQL they are sent without waiting for each other's answers: many small changes cost one round trip.
    pub async fn exec_each(&mut self, sql: &str, rows: &[Vec<Value>]) -> Result<u64> {
        let doomed = replace(&mut self.doomed, true);
        let mut changed = 0;
        match &mut self.connection {
            Conn::Sqlite(lite) => changed = lite.exec_each(self.handle.bound(), sql, rows)?,
            Conn::Postgres(session) if !rows.is_empty() => {
                changed = session.exec_each(&self.handle, sql, rows).await?;
            }
            Conn::Postgres(_) => {}
        }
        self.doomed = doomed;
        Ok(changed)
    }

    /// The one row there must be; none is "not found", which does not doom the transaction.
    pub async fn one<T: FromRow>(&mut self, sql: &str, args: Args<'_>) -> Result<T> {
        self.find(sql, args).await?.ok_or_else(Error::not_found)
    }

    pub async fn find<T: FromRow>(&mut self, sql: &str, args: Args<'_>) -> Result<Option<T>> {
        let mut found = None;
        self.ask_each(sql, args, &mut |row| take_only(&mut found, row, sql)).await?;
        Ok(found)
    }

    pub async fn list<T: FromRow>(&mut self, sql: &str, args: Args<'_>) -> Result<Vec<T>> {
        let mut found = Vec::new();
        self.ask_each(sql, args, &mut |row| T::from_row(row).map(|row| found.push(row))).await?;
        Ok(found)
    }

    async fn ask_each(&mut self, sql: &str, args: Args<'_>, each: EachRow<'_>) -> Result<()> {
        let doomed = replace(&mut self.doomed, true);
        match &mut self.connection {
            Conn::Sqlite(lite) => lite.ask(self.handle.bound(), sql, args, each)?,
            Conn::Postgres(session) => session.ask_each(&self.handle, sql, args, each).await?,
        }
        self.doomed = doomed;
        Ok(())
    }

    pub async fn select<T: FromRow>(&mut self, select: &Select) -> Result<Vec<T>> {
        let finished = select.finish();
        self.handle.check_select(finished.tenant)?;
        self.list(&finished.text, &finished.params()).await
    }

    /// Moves the tenant's clock, once per transaction; asked again it answers the same.
    ///
    /// On PostgreSQL the row stays locked until the end, so that one tenant's writes come one after the other, as
    /// they do on SQLite anyway. A clock that would be far ahead of the database's own time is not moved, and nothing is
    /// written: see [`CLOCK_AHEAD_MAX_MS`].
    pub async fn tick(&mut self) -> Result<Tick> {
        if let Some(tick) = self.tick {
            return Ok(tick);
        }
        if self.tenant_id().is_none() {
            return Err(Error::internal("only a tenant's handle has a clock to move"));
        }
        let now = self.world().now();
        let moved = match self.move_clock(now).await? {
            Some(moved) => moved,
            None => self.one(FIRST_TICK, args![now]).await?,
        };
        self.ticked(moved)
    }

    fn ticked(&mut self, (at, sequence): (Timestamp, i64)) -> Result<Tick> {
        self.check_ahead(at)?;
        let tick = Tick { at, sequence };
        self.tick = Some(tick);
        Ok(tick)
    }

    /// Moves the tenant's clock and then looks for a row. On PostgreSQL both are one round trip.
    pub async fn tick_and_find<T: FromRow>(&mut self, sql: &str, args: Args<'_>) -> Result<Option<T>> {
        if self.tick.is_none() && self.tenant_id().is_some() && self.engine() == Engine::Postgres {
            let ticking = self.ask(TICK, vec![self.world().now().into()]).await?;
            let found = self.find(sql, args).await?;
            if let Some(moved) = self.answer(ticking).await?.pop() {
                self.ticked(moved)?;
                return Ok(found);
            }
            // The clock starts only now, and what was found was not found under it.
        }
        self.tick().await?;
        self.find(sql, args).await
    }

    /// What RETURNING returns SQLite gathers in a table that it makes for each execution: dearer than a look and a change,
    /// between which nobody else writes.
    async fn move_clock(&mut self, now: Timestamp) -> Result<Option<(Timestamp, i64)>> {
        if self.engine() == Engine::Postgres {
            return self.find(TICK, args![now]).await;
        }
        let Some((last, sequence)) = self.find::<(Timestamp, i64)>(LAST_TICK, args![]).await? else { return Ok(None) };
        let moved = (last.max(now), sequence + 1);
        self.exec(SET_CLOCK, args![moved.0, moved.1]).await?;
        Ok(Some(moved))
    }

    /// What the database takes for the time: its own where it has one, once a statement has been asked.
    pub fn database_now(&self) -> Timestamp {
        match (&self.connection, &self.world().clock) {
            (Conn::Postgres(_), Clock::Manual(_)) | (Conn::Sqlite(_), _) => self.world().now(),
            (Conn::Postgres(session), _) => session.began_at().unwrap_or_else(|| self.world().now()),
        }
    }

    /// Nothing is written by a node whose clock is far ahead of the database's: what it takes for old it would remove, and
    /// what it leases would be its own for as long.
    fn check_node(&self) -> Result<()> {
        let (now, own) = (self.world().now(), self.database_now());
        if now <= own.plus(CLOCK_AHEAD_MAX_MS) {
            return Ok(());
        }
        Err(Error::unavailable(format!(
            "this node's clock says {now} and the database's {own}: nothing is written until they agree"
        )))
    }

    fn check_ahead(&mut self, at: Timestamp) -> Result<()> {
        let own = self.database_now();
        if at <= own.plus(CLOCK_AHEAD_MAX_MS) {
            return Ok(());
        }
        // It has been moved already, in this transaction, which must not be kept.
        self.doomed = true;
        self.check_node()?;
        let tenant = self.handle.visible();
        Err(Error::unavailable(format!(
            "the clock of {tenant} stands at {at}, and it is {own}: a node's clock was wrong; `tenant-control admin clock \
             repair` sets it back"
        )))
    }

    /// A number of its own for each event of this write: rising in the order of commits, because the tenant's clock
    /// stays locked to the end.
    pub async fn next_sequence(&mut self) -> Result<i64> {
        let tick = self.tick().await?;
        if replace(&mut self.sequence_used, true) {
            return self.one(NEXT_SEQUENCE, args![]).await;
        }
        Ok(tick.sequence)
    }

    /// Tells whoever waits for news of this tenant, once this write is on disk; see [`super::Store::news`].
    pub fn announce(&mut self) {
        self.announced = true;
    }

    /// Whose news this write has made, for when it is on disk.
    pub(super) fn news(&self) -> Option<TenantId> {
        self.tenant_id().filter(|_| self.announced)
    }

    /// What ends a SELECT that locks rows and passes over those that are locked. SQLite has one writer and needs none.
    pub fn skip_locked(&self) -> &'static str {
        dialect::skip_locked(self.engine())
    }

    /// Tries to be the only transaction that holds `name`, until the end of this one.
    ///
    /// On SQLite that is always so, because there is one writer. On PostgreSQL it is asked without waiting.
    pub async fn try_lock(&mut self, name: &str) -> Result<bool> {
        let doomed = replace(&mut self.doomed, true);
        let locked = match &mut self.connection {
            Conn::Sqlite(_) => true,
            Conn::Postgres(session) => {
                let digest = sha256(name.as_bytes());
                let number = digest[..8].iter().fold(0_i64, |number, byte| (number << 8) | i64::from(*byte));
                session.ask_unbound(&self.handle, dialect::POSTGRES_TRY_LOCK, args![number]).await?
            }
        };
        self.doomed = doomed;
        Ok(locked)
    }
}

/// What the engines do around a job.
impl Tx {
    pub(super) fn sqlite(connection: Lite, handle: Arc<Handle>) -> Self {
        Tx::new(Conn::Sqlite(connection), handle)
    }

    pub(super) fn postgres(session: Session, handle: Arc<Handle>) -> Self {
        Tx::new(Conn::Postgres(session), handle)
    }

    fn new(connection: Conn, handle: Arc<Handle>) -> Self {
        Tx { connection, handle, doomed: false, tick: None, sequence_used: false, announced: false }
    }

    /// Runs a job on SQLite's writer thread. The outer error means that the whole transaction is lost.
    pub(super) fn run_in_savepoint(&mut self, handle: Arc<Handle>, job: AnyJob) -> Result<Result<Made>, String> {
        self.handle = handle;
        self.doomed = false;
        self.tick = None;
        self.sequence_used = false;
        self.announced = false;
        self.control(dialect::SQLITE_JOB_OPEN).map_err(|error| format!("the savepoint failed: {error}"))?;
        // The future is dropped inside, whatever becomes of it, so that nothing of the job is left when its
        // savepoint ends.
        let ran = std::panic::catch_unwind(AssertUnwindSafe(|| job(&mut *self).now_or_never()));
        let outcome = self.judge(match ran {
            Ok(Some(outcome)) => outcome,
            Ok(None) => Err(Error::internal("a write awaited something else than its transaction")),
            Err(panic) => Err(panicked(panic.as_ref())),
        });
        // A full disk or an I/O error makes SQLite roll back everything by itself.
        if self.is_idle() {
            let reason = outcome.err().map_or_else(String::new, |error| error.to_string());
            return Err(format!("SQLite gave up the transaction: {reason}"));
        }
        if outcome.is_err() {
            self.control(dialect::SQLITE_JOB_UNDO).map_err(|error| format!("the job was not undone: {error}"))?;
        }
        self.control(dialect::SQLITE_JOB_KEEP).map_err(|error| format!("the savepoint did not end: {error}"))?;
        Ok(outcome)
    }

    /// Runs a job on PostgreSQL. The caller has spawned this, so it always comes to its end.
    pub(super) async fn run_to_commit(mut self, job: AnyJob, news: &News) -> Result<Made> {
        let whole = async {
            let done = job(&mut self).await?;
            if let Conn::Postgres(session) = &mut self.connection {
                session.begin_if_put_off(&self.handle).await?;
            }
            Ok(done)
        };
        let ran = AssertUnwindSafe(tokio::time::timeout(JOB_MAX, whole)).catch_unwind().await;
        let outcome = self.judge(match ran {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) => Err(Error::unavailable("the write took too long")),
            Err(panic) => Err(panicked(panic.as_ref())),
        });
        let outcome = outcome.and_then(|done| self.check_node().map(|()| done));
        let made = self.news();
        let Conn::Postgres(session) = &mut self.connection else {
            return outcome;
        };
        let ended = match outcome {
            Ok(done) => session.commit(&self.handle).await.map(|()| done),
            failed => failed,
        };
        match &ended {
            Ok(_) => news.tell(made),
            Err(_) => session.rollback().await,
        }
        ended
    }

    fn judge<R>(&self, outcome: Result<R>) -> Result<R> {
        match outcome {
            Ok(_) if self.doomed => {
                Err(Error::internal("a statement of the write failed and its error was swallowed; all was undone"))
            }
            outcome => outcome,
        }
    }

    /// Runs a fixed statement on SQLite; on PostgreSQL the session does this itself.
    pub(super) fn control(&self, sql: &str) -> rusqlite::Result<()> {
        match &self.connection {
            Conn::Sqlite(lite) => lite.control(sql),
            Conn::Postgres(_) => Ok(()),
        }
    }

    /// Whether SQLite is outside a transaction.
    fn is_idle(&self) -> bool {
        matches!(&self.connection, Conn::Sqlite(lite) if lite.connection.is_autocommit())
    }

    /// Ends a failed transaction of SQLite, unless SQLite has done so.
    pub(super) fn abandon(&self) {
        if !self.is_idle()
            && let Err(error) = self.control(dialect::SQLITE_ROLLBACK)
        {
            tracing::error!(%error, "a failed transaction could not be rolled back");
        }
    }

    pub(super) fn changes(&self) -> u64 {
        match &self.connection {
            Conn::Sqlite(lite) => lite.connection.total_changes(),
            Conn::Postgres(_) => 0,
        }
    }

    /// Writes to SQLite's file without changing anything, to find out whether the disk takes writes again.
    pub(super) fn probe(&mut self) -> Result<()> {
        let Conn::Sqlite(Lite { connection, .. }) = &self.connection else {
            return Ok(());
        };
        let version: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(sqlite::fault)?;
        connection.pragma_update(None, "user_version", version).map_err(sqlite::fault)
    }

    pub(super) fn checkpoint(&self) -> rusqlite::Result<()> {
        match &self.connection {
            Conn::Sqlite(lite) => lite.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())),
            Conn::Postgres(_) => Ok(()),
        }
    }
}

fn params(row: &[Value]) -> Vec<&dyn Param> {
    row.iter().map(|value| value as &dyn Param).collect()
}

fn panicked(panic: &(dyn Any + Send)) -> Error {
    let message = panic.downcast_ref::<&str>().copied();
    let message = message.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    Error::internal(format!("a write panicked: {}", message.unwrap_or("without a message")))
}
