//! A transaction in progress, the same on both engines.

use std::borrow::Cow;
use std::mem::replace;
use std::sync::Arc;

use crate::base::{Actor, ActorKind, Env, Error, Result, TenantId, Timestamp, sha256};

use super::handle::HandleContext;
use super::postgres::PostgresSession;
use super::row::{RowCallback, set_only_row};
use super::sqlite::SqliteConnection;
use super::tick::Tick;
use super::values::to_params;
use super::{Args, DatabaseEngine, Followers, FromRow, Select, Value, dialect};

/// A transaction in progress.
///
/// One failed statement dooms it, even if its error is swallowed: PostgreSQL would refuse everything after it, and
/// both engines behave the same. A write may await only its transaction.
pub struct Tx {
    pub(super) connection: EngineConnection,
    pub(super) handle: Arc<HandleContext>,
    pub(super) doomed: bool,
    pub(super) tick: Option<Tick>,
    /// The tick of a clock that was advanced by [`Tx::defer_tick`] and not awaited yet.
    pub(super) pending_tick: Option<PendingRows<(Timestamp, i64)>>,
    pub(super) sequence_used: bool,
    /// Whether waiting readers are notified after the commit.
    pub(super) notify_after_commit: bool,
}

/// The actor before a workflow took over: see [`Tx::act_as`].
pub struct PreviousActor(Arc<HandleContext>);

/// The rows of a query that was sent and not awaited yet: see [`Tx::defer_query`].
pub struct PendingRows<T>(PendingRowsState<T>);

enum PendingRowsState<T> {
    /// SQLite has run the query already.
    Ready(Vec<T>),
    Deferred(usize),
}

pub(super) enum EngineConnection {
    Sqlite(SqliteConnection),
    Postgres(PostgresSession),
}

impl Tx {
    pub(super) fn on_sqlite(connection: SqliteConnection, handle: Arc<HandleContext>) -> Self {
        Tx::new(EngineConnection::Sqlite(connection), handle)
    }

    pub(super) fn on_postgres(session: PostgresSession, handle: Arc<HandleContext>) -> Self {
        Tx::new(EngineConnection::Postgres(session), handle)
    }

    fn new(connection: EngineConnection, handle: Arc<HandleContext>) -> Self {
        Tx {
            connection,
            handle,
            doomed: false,
            tick: None,
            pending_tick: None,
            sequence_used: false,
            notify_after_commit: false,
        }
    }

    pub fn tenant_id(&self) -> Option<TenantId> {
        self.handle.tenant_id()
    }

    pub fn actor(&self) -> &Actor {
        &self.handle.actor
    }

    pub fn env(&self) -> &Env {
        &self.handle.env
    }

    /// Makes a workflow the actor of all further statements and audit entries. Only a workflow may replace another actor.
    /// The previous actor is returned for [`Tx::restore_actor`].
    pub fn act_as(&mut self, actor: Actor) -> Result<PreviousActor> {
        if actor.who.kind != ActorKind::Workflow {
            return Err(Error::internal("only a workflow may replace another actor"));
        }
        let acting = Arc::new(self.handle.with_actor(actor));
        Ok(PreviousActor(replace(&mut self.handle, acting)))
    }

    /// Restores the previous actor.
    pub fn restore_actor(&mut self, previous: PreviousActor) {
        self.handle = previous.0;
    }

    /// The followers of this transaction's events.
    pub fn get_followers(&self) -> Result<Followers> {
        self.handle
            .followers
            .ok_or_else(|| Error::internal("the store was opened without declaring the followers of its events"))
    }

    pub fn engine(&self) -> DatabaseEngine {
        match self.connection {
            EngineConnection::Sqlite(_) => DatabaseEngine::Sqlite,
            EngineConnection::Postgres(_) => DatabaseEngine::Postgres,
        }
    }

    /// Runs a statement whose result is not needed, in order with the others. On PostgreSQL it is deferred and sent with the
    /// next awaited statement or with the commit, so it costs no round trip. If it fails, the next awaited statement returns
    /// its error; the error names the failed statement, and its broken constraint is not taken for one of the awaited
    /// statement.
    pub async fn defer_exec(&mut self, sql: &'static str, values: Vec<Value>) -> Result<()> {
        if let EngineConnection::Postgres(session) = &mut self.connection {
            self.handle.env.statements.add_one();
            session.defer_statement(sql, values);
            return Ok(());
        }
        let done = self.exec_each(sql, std::slice::from_ref(&values)).await;
        done.map(drop).map_err(|error| error.in_statement(sql))
    }

    /// Like [`Tx::defer_exec`], once for each row of values.
    pub async fn defer_exec_each(&mut self, sql: &'static str, rows: Vec<Vec<Value>>) -> Result<()> {
        if let EngineConnection::Postgres(session) = &mut self.connection {
            for values in rows {
                self.handle.env.statements.add_one();
                session.defer_statement(sql, values);
            }
            return Ok(());
        }
        self.exec_each(sql, &rows).await.map(drop).map_err(|error| error.in_statement(sql))
    }

    /// The value to bind for `database_time!`: see [`super::Db::clock_override`].
    pub fn clock_override(&self) -> Option<Timestamp> {
        self.handle.clock_override(self.engine())
    }

    /// Whether statements that do nothing unless `sql` finds a row are worth sending. On SQLite the query runs, because it
    /// is cheaper than the statements. On PostgreSQL it would be a round trip, while the statements are deferred; so it is
    /// skipped.
    pub async fn is_worthwhile(&mut self, sql: &str, args: Args<'_>) -> Result<bool> {
        match &self.connection {
            EngineConnection::Sqlite(_) => Ok(self.find::<String>(sql, args).await?.is_some()),
            EngineConnection::Postgres(_) => Ok(true),
        }
    }

    /// Runs a query in order with the others; [`Tx::await_rows`] returns its rows. On PostgreSQL it is deferred and sent
    /// with the next awaited statement, which returns its error if it fails, as after [`Tx::defer_exec`].
    pub async fn defer_query<T: FromRow>(
        &mut self,
        sql: impl Into<Cow<'static, str>>,
        values: Vec<Value>,
    ) -> Result<PendingRows<T>> {
        let sql = sql.into();
        if let EngineConnection::Postgres(session) = &mut self.connection {
            return Ok(PendingRows(PendingRowsState::Deferred(session.defer_query(sql, values))));
        }
        self.list(&sql, &to_params(&values).collect::<Vec<_>>())
            .await
            .map(|rows| PendingRows(PendingRowsState::Ready(rows)))
    }

    /// All rows of a query sent by [`Tx::defer_query`].
    pub async fn await_rows<T: FromRow>(&mut self, pending: PendingRows<T>) -> Result<Vec<T>> {
        let number = match pending.0 {
            PendingRowsState::Ready(rows) => return Ok(rows),
            PendingRowsState::Deferred(number) => number,
        };
        self.begin_statement()?;
        let EngineConnection::Postgres(session) = &mut self.connection else {
            return Err(Error::internal("a query that was deferred on one engine was awaited on the other"));
        };
        let rows = session.fetch_rows(&self.handle, number).await?;
        self.doomed = false;
        Ok(rows)
    }

    /// The transaction is doomed until the statement succeeds, because a future dropped half-way must not leave one that
    /// could be committed. A doomed transaction runs nothing more: SQLite may have ended it by itself, and further writes
    /// would persist.
    fn begin_statement(&mut self) -> Result<()> {
        self.env().statements.add_one();
        if replace(&mut self.doomed, true) {
            return Err(Error::internal("a statement of the write failed before, and its error was swallowed"));
        }
        Ok(())
    }

    /// Runs a statement that returns no rows, and returns how many rows it changed.
    pub async fn exec(&mut self, sql: &str, args: Args<'_>) -> Result<u64> {
        self.begin_statement()?;
        let changed = match &mut self.connection {
            EngineConnection::Sqlite(lite) => lite.exec(self.handle.bound_tenant(), sql, args)?,
            EngineConnection::Postgres(session) => session.exec(&self.handle, sql, args).await?,
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
            EngineConnection::Sqlite(lite) => changed = lite.exec_each(self.handle.bound_tenant(), sql, rows)?,
            EngineConnection::Postgres(session) if !rows.is_empty() => {
                changed = session.exec_each(&self.handle, sql, rows).await?;
            }
            EngineConnection::Postgres(_) => {}
        }
        self.doomed = false;
        Ok(changed)
    }

    /// The one row of a query; no row is "not found", which does not doom the transaction.
    pub async fn get_one<T: FromRow>(&mut self, sql: &str, args: Args<'_>) -> Result<T> {
        self.find(sql, args).await?.ok_or_else(Error::not_found)
    }

    pub async fn find<T: FromRow>(&mut self, sql: &str, args: Args<'_>) -> Result<Option<T>> {
        let mut found = None;
        self.query_each(sql, args, &mut |row| set_only_row(&mut found, row, sql)).await?;
        Ok(found)
    }

    pub async fn list<T: FromRow>(&mut self, sql: &str, args: Args<'_>) -> Result<Vec<T>> {
        let mut found = Vec::new();
        self.query_each(sql, args, &mut |row| T::from_row(row).map(|row| found.push(row))).await?;
        Ok(found)
    }

    async fn query_each(&mut self, sql: &str, args: Args<'_>, each: RowCallback<'_>) -> Result<()> {
        self.begin_statement()?;
        match &mut self.connection {
            EngineConnection::Sqlite(lite) => lite.query_each(self.handle.bound_tenant(), sql, args, each)?,
            EngineConnection::Postgres(session) => session.query_each(&self.handle, sql, args, each).await?,
        }
        self.doomed = false;
        Ok(())
    }

    pub async fn select<T: FromRow>(&mut self, select: &Select) -> Result<Vec<T>> {
        let finished = select.to_statement();
        self.handle.check_select(finished.for_tenant)?;
        self.list(&finished.text, &finished.to_params()).await
    }

    /// Notifies readers that wait for this tenant's events after the commit; see [`super::Store::subscribe_commits`].
    pub fn notify_after_commit(&mut self) {
        self.notify_after_commit = true;
    }

    /// The tenant whose readers are notified after the commit.
    pub(super) fn tenant_to_notify(&self) -> Option<TenantId> {
        self.tenant_id().filter(|_| self.notify_after_commit)
    }

    /// The end of a SELECT that locks its rows and skips locked ones. Empty on SQLite, which has one writer.
    pub fn skip_locked(&self) -> &'static str {
        dialect::skip_locked(self.engine())
    }

    /// Tries to take the lock `name` until the end of this transaction.
    ///
    /// On SQLite this always succeeds, because there is one writer. On PostgreSQL it does not wait for another holder.
    pub async fn try_lock(&mut self, name: &str) -> Result<bool> {
        let pending = self.defer_try_lock(name);
        Ok(self.await_rows(pending).await?.contains(&true))
    }

    /// The same without waiting: [`Tx::await_rows`] returns whether the lock was taken. Later queries run under it.
    pub fn defer_try_lock(&mut self, name: &str) -> PendingRows<bool> {
        PendingRows(match &mut self.connection {
            EngineConnection::Sqlite(_) => PendingRowsState::Ready(vec![true]),
            EngineConnection::Postgres(session) => {
                let digest = sha256(name.as_bytes());
                let number = digest[..8].iter().fold(0_i64, |number, byte| (number << 8) | i64::from(*byte));
                PendingRowsState::Deferred(session.defer_unbound_query(dialect::POSTGRES_TRY_LOCK, vec![number.into()]))
            }
        })
    }
}
