//! A transaction in progress, the same on both engines.

use std::any::Any;
use std::borrow::Cow;
use std::mem::replace;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;

use crate::base::{Actor, ActorKind, Error, Result, TenantId, Timestamp, World, sha256};

use super::clock::Tick;
use super::handle::Handle;
use super::job::{AnyJob, Made};
use super::news::News;
use super::postgres::Session;
use super::row::{EachRow, take_only};
use super::sqlite::{self, Lite};
use super::values::params;
use super::{Args, Engine, Followers, FromRow, Select, Value, dialect};

/// How long a whole write may hold its connection to PostgreSQL. Statements have their own, shorter limit; this one
/// ends a job that awaits something other than its transaction and would never release the connection.
const JOB_MAX: Duration = Duration::from_mins(1);

/// A transaction in progress.
///
/// One failed statement dooms it, even if its error is swallowed: PostgreSQL would refuse everything after it, and
/// both engines behave the same. A write may await only its transaction.
pub struct Tx {
    pub(super) connection: Conn,
    pub(super) handle: Arc<Handle>,
    pub(super) doomed: bool,
    pub(super) tick: Option<Tick>,
    /// The tick of a clock that was advanced by [`Tx::send_tick`] and not awaited yet.
    pub(super) ticking: Option<Ahead<(Timestamp, i64)>>,
    pub(super) sequence_used: bool,
    /// Whether waiting readers are notified after the commit.
    announced: bool,
}

/// The actor before a workflow took over: see [`Tx::act_as`].
pub struct Before(Arc<Handle>);

/// The rows of a query that was sent and not awaited yet: see [`Tx::send_query`].
pub struct Ahead<T>(Asked<T>);

enum Asked<T> {
    /// SQLite has run the query already.
    Known(Vec<T>),
    Sent(usize),
}

pub(super) enum Conn {
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

    /// Makes a workflow the actor of all further statements and audit entries. Only a workflow may replace another actor.
    /// The previous actor is returned for [`Tx::restore_actor`].
    pub fn act_as(&mut self, actor: Actor) -> Result<Before> {
        if actor.who.kind != ActorKind::Workflow {
            return Err(Error::internal("only a workflow acts in somebody's place"));
        }
        let acting = Arc::new(self.handle.acting(actor));
        Ok(Before(replace(&mut self.handle, acting)))
    }

    /// Restores the previous actor.
    pub fn act_again(&mut self, before: Before) {
        self.handle = before.0;
    }

    /// The followers of this transaction's events.
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

    /// Runs a statement whose result is not needed, in order with the others. On PostgreSQL it is deferred and sent with the
    /// next awaited statement or with the commit, so it costs no round trip. If it fails, the next awaited statement returns
    /// its error; the error names the failed statement, and its broken constraint is not taken for one of the awaited
    /// statement.
    pub async fn later(&mut self, sql: &'static str, values: Vec<Value>) -> Result<()> {
        if let Conn::Postgres(session) = &mut self.connection {
            self.handle.world.statements.note();
            session.put_off(sql, values);
            return Ok(());
        }
        let done = self.exec_each(sql, std::slice::from_ref(&values)).await;
        done.map(drop).map_err(|error| error.of_statement(sql))
    }

    /// Like [`Tx::enqueue`], once for each row of values.
    pub async fn later_each(&mut self, sql: &'static str, rows: Vec<Vec<Value>>) -> Result<()> {
        if let Conn::Postgres(session) = &mut self.connection {
            for values in rows {
                self.handle.world.statements.note();
                session.put_off(sql, values);
            }
            return Ok(());
        }
        self.exec_each(sql, &rows).await.map(drop).map_err(|error| error.of_statement(sql))
    }

    /// The value to bind for `database_time!`: see [`super::Db::given_time`].
    pub fn given_time(&self) -> Option<Timestamp> {
        self.handle.given_time(self.engine())
    }

    /// Whether statements that do nothing unless `sql` finds a row are worth sending. On SQLite the query runs, because it
    /// is cheaper than the statements. On PostgreSQL it would be a round trip, while the statements are deferred; so it is
    /// skipped.
    pub async fn is_worthwhile(&mut self, sql: &str, args: Args<'_>) -> Result<bool> {
        match &self.connection {
            Conn::Sqlite(_) => Ok(self.find::<String>(sql, args).await?.is_some()),
            Conn::Postgres(_) => Ok(true),
        }
    }

    /// Runs a query in order with the others; [`Tx::await_rows`] returns its rows. On PostgreSQL it is deferred and sent
    /// with the next awaited statement, which returns its error if it fails, as after [`Tx::enqueue`].
    pub async fn ask<T: FromRow>(&mut self, sql: impl Into<Cow<'static, str>>, values: Vec<Value>) -> Result<Ahead<T>> {
        let sql = sql.into();
        if let Conn::Postgres(session) = &mut self.connection {
            return Ok(Ahead(Asked::Sent(session.ask_ahead(sql, values))));
        }
        self.list(&sql, &params(&values).collect::<Vec<_>>()).await.map(|rows| Ahead(Asked::Known(rows)))
    }

    /// All rows of a query sent by [`Tx::send_query`].
    pub async fn answer<T: FromRow>(&mut self, ahead: Ahead<T>) -> Result<Vec<T>> {
        let number = match ahead.0 {
            Asked::Known(rows) => return Ok(rows),
            Asked::Sent(number) => number,
        };
        self.begin_statement()?;
        let Conn::Postgres(session) = &mut self.connection else {
            return Err(Error::internal("what was asked of one engine is not answered by the other"));
        };
        let rows = session.fetch(&self.handle, number).await?;
        self.doomed = false;
        Ok(rows)
    }

    /// The transaction is doomed until the statement succeeds, because a future dropped half-way must not leave one that
    /// could be committed. A doomed transaction runs nothing more: SQLite may have ended it by itself, and further writes
    /// would persist.
    fn begin_statement(&mut self) -> Result<()> {
        self.world().statements.note();
        if replace(&mut self.doomed, true) {
            return Err(Error::internal("a statement of the write failed before, and its error was swallowed"));
        }
        Ok(())
    }

    /// Runs a statement that returns no rows, and returns how many rows it changed.
    pub async fn exec(&mut self, sql: &str, args: Args<'_>) -> Result<u64> {
        self.begin_statement()?;
        let changed = match &mut self.connection {
            Conn::Sqlite(lite) => lite.exec(self.handle.bound(), sql, args)?,
            Conn::Postgres(session) => session.exec(&self.handle, sql, args).await?,
        };
        self.doomed = false;
        Ok(changed)
    }

    /// Runs a statement once for each row of arguments, and returns how many rows it changed in all.
    ///
    /// On PostgreSQL all are sent at once: many small changes cost one round trip.
    pub async fn exec_each(&mut self, sql: &str, rows: &[Vec<Value>]) -> Result<u64> {
        self.begin_statement()?;
        let mut changed = 0;
        match &mut self.connection {
            Conn::Sqlite(lite) => changed = lite.exec_each(self.handle.bound(), sql, rows)?,
            Conn::Postgres(session) if !rows.is_empty() => {
                changed = session.exec_each(&self.handle, sql, rows).await?;
            }
            Conn::Postgres(_) => {}
        }
        self.doomed = false;
        Ok(changed)
    }

    /// The one row of a query; no row is "not found", which does not doom the transaction.
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
        self.begin_statement()?;
        match &mut self.connection {
            Conn::Sqlite(lite) => lite.ask(self.handle.bound(), sql, args, each)?,
            Conn::Postgres(session) => session.ask_each(&self.handle, sql, args, each).await?,
        }
        self.doomed = false;
        Ok(())
    }

    pub async fn select<T: FromRow>(&mut self, select: &Select) -> Result<Vec<T>> {
        let finished = select.finish();
        self.handle.check_select(finished.tenant)?;
        self.list(&finished.text, &finished.params()).await
    }

    /// Notifies readers that wait for this tenant's events after the commit; see [`super::Store::subscribe_commits`].
    pub fn announce(&mut self) {
        self.announced = true;
    }

    /// The tenant whose readers are notified after the commit.
    pub(super) fn news(&self) -> Option<TenantId> {
        self.tenant_id().filter(|_| self.announced)
    }

    /// The end of a SELECT that locks its rows and skips locked ones. Empty on SQLite, which has one writer.
    pub fn skip_locked(&self) -> &'static str {
        dialect::skip_locked(self.engine())
    }

    /// Tries to take the lock `name` until the end of this transaction.
    ///
    /// On SQLite this always succeeds, because there is one writer. On PostgreSQL it does not wait for another holder.
    pub async fn try_lock(&mut self, name: &str) -> Result<bool> {
        let locking = self.ask_lock(name);
        Ok(self.answer(locking).await?.contains(&true))
    }

    /// The same without waiting: [`Tx::await_rows`] returns whether the lock was taken. Later queries run under it.
    pub fn ask_lock(&mut self, name: &str) -> Ahead<bool> {
        Ahead(match &mut self.connection {
            Conn::Sqlite(_) => Asked::Known(vec![true]),
            Conn::Postgres(session) => {
                let digest = sha256(name.as_bytes());
                let number = digest[..8].iter().fold(0_i64, |number, byte| (number << 8) | i64::from(*byte));
                Asked::Sent(session.ask_unbound_ahead(dialect::POSTGRES_TRY_LOCK, vec![number.into()]))
            }
        })
    }
}

/// How the engines run a job.
impl Tx {
    pub(super) fn sqlite(connection: Lite, handle: Arc<Handle>) -> Self {
        Tx::new(Conn::Sqlite(connection), handle)
    }

    pub(super) fn postgres(session: Session, handle: Arc<Handle>) -> Self {
        Tx::new(Conn::Postgres(session), handle)
    }

    fn new(connection: Conn, handle: Arc<Handle>) -> Self {
        Tx { connection, handle, doomed: false, tick: None, ticking: None, sequence_used: false, announced: false }
    }

    /// Begins the transaction of a group commit on SQLite.
    pub(super) fn begin_group(&self) -> Result<(), String> {
        self.lite()?.begin_group()
    }

    /// Whether the group that has ended changed something.
    pub(super) fn end_group(&self) -> bool {
        self.lite().is_ok_and(Lite::end_group)
    }

    /// Runs a job on SQLite's writer thread. The outer error means that the whole transaction is lost. A failed job that was
    /// the first to write ends the transaction.
    pub(super) fn run_in_group(&mut self, handle: Arc<Handle>, job: AnyJob) -> Result<Result<Made>, String> {
        self.handle = handle;
        self.doomed = false;
        self.tick = None;
        self.ticking = None;
        self.sequence_used = false;
        self.announced = false;
        self.lite()?.open_job();
        // The future is dropped inside in any case, so that nothing of the job is left when it is undone.
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
        self.lite()?.close_job(outcome.is_ok())?;
        Ok(outcome)
    }

    fn lite(&self) -> Result<&Lite, String> {
        match &self.connection {
            Conn::Sqlite(lite) => Ok(lite),
            Conn::Postgres(_) => Err("only SQLite runs jobs in groups".to_owned()),
        }
    }

    /// Runs a job on PostgreSQL. The caller has spawned this, so it always runs to its end.
    pub(super) async fn run_to_commit(mut self, job: AnyJob, news: &News) -> Result<Made> {
        let whole = async {
            let done = job(&mut self).await?;
            if self.ticking.is_some() {
                self.tick().await?;
            }
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

    /// Runs a fixed statement on SQLite. On PostgreSQL the session controls the transaction.
    pub(super) fn control(&self, sql: &str) -> rusqlite::Result<()> {
        match &self.connection {
            Conn::Sqlite(lite) => lite.control(sql),
            Conn::Postgres(_) => Ok(()),
        }
    }

    /// Whether SQLite is outside a transaction.
    pub(super) fn is_idle(&self) -> bool {
        matches!(&self.connection, Conn::Sqlite(lite) if lite.connection.is_autocommit())
    }

    /// Rolls a failed transaction of SQLite back, unless SQLite has done so.
    pub(super) fn abandon(&self) {
        if !self.is_idle()
            && let Err(error) = self.control(dialect::SQLITE_ROLLBACK)
        {
            tracing::error!(%error, "failed to roll back a transaction");
        }
    }

    /// Writes to SQLite's file without changing anything, to check whether the disk accepts writes again.
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

fn panicked(panic: &(dyn Any + Send)) -> Error {
    let message = panic.downcast_ref::<&str>().copied();
    let message = message.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    Error::internal(format!("a write panicked: {}", message.unwrap_or("without a message")))
}
