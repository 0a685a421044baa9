//! How the engines run a write: in a group commit on SQLite, in a transaction of its own on PostgreSQL.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;

use crate::base::{Error, Result};

use super::commit_notifier::CommitNotifier;
use super::dialect;
use super::handle::HandleContext;
use super::sqlite::{self, SqliteConnection};
use super::tx::{EngineConnection, Tx};
use super::write_fn::{BoxedWrite, WriteOutput};

/// How long a whole write may hold its connection to PostgreSQL. Statements have their own, shorter limit; this one
/// ends a write that awaits something other than its transaction and would never release the connection.
const WRITE_TIME_MAX: Duration = Duration::from_mins(1);

impl Tx {
    /// Begins the transaction of a group commit on SQLite.
    pub(super) fn begin_group(&self) -> Result<(), String> {
        self.get_sqlite()?.begin_group()
    }

    /// Whether the group that has ended changed something.
    pub(super) fn end_group(&self) -> bool {
        self.get_sqlite().is_ok_and(SqliteConnection::end_group)
    }

    /// Runs a write on SQLite's writer thread. The outer error means that the whole transaction is lost. A failed write that
    /// was the first to change rows ends the transaction.
    pub(super) fn run_in_group(
        &mut self,
        handle: Arc<HandleContext>,
        write: BoxedWrite,
    ) -> Result<Result<WriteOutput>, String> {
        self.handle = handle;
        self.doomed = false;
        self.tick = None;
        self.pending_tick = None;
        self.sequence_used = false;
        self.notify_after_commit = false;
        self.get_sqlite()?.open_write();
        // The future is dropped inside in any case, so that nothing of the write is left when it is undone.
        let result = std::panic::catch_unwind(AssertUnwindSafe(|| write(&mut *self).now_or_never()));
        let outcome = self.fail_if_doomed(match result {
            Ok(Some(outcome)) => outcome,
            Ok(None) => Err(Error::internal("a write awaited something else than its transaction")),
            Err(panic) => Err(panic_error(panic.as_ref())),
        });
        // A full disk or an I/O error makes SQLite roll back everything by itself.
        if self.is_idle() {
            let reason = outcome.err().map_or_else(String::new, |error| error.to_string());
            return Err(format!("SQLite gave up the transaction: {reason}"));
        }
        self.get_sqlite()?.close_write(outcome.is_ok())?;
        Ok(outcome)
    }

    fn get_sqlite(&self) -> Result<&SqliteConnection, String> {
        match &self.connection {
            EngineConnection::Sqlite(lite) => Ok(lite),
            EngineConnection::Postgres(_) => Err("only SQLite runs writes in groups".to_owned()),
        }
    }

    /// Runs a write on PostgreSQL. The caller has spawned this, so it always runs to its end.
    pub(super) async fn run_to_commit(mut self, write: BoxedWrite, notifier: &CommitNotifier) -> Result<WriteOutput> {
        let run = async {
            let output = write(&mut self).await?;
            if self.pending_tick.is_some() {
                self.tick().await?;
            }
            if let EngineConnection::Postgres(session) = &mut self.connection {
                session.begin_if_deferred(&self.handle).await?;
            }
            Ok(output)
        };
        let result = AssertUnwindSafe(tokio::time::timeout(WRITE_TIME_MAX, run)).catch_unwind().await;
        let outcome = self.fail_if_doomed(match result {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) => Err(Error::unavailable("the write took too long")),
            Err(panic) => Err(panic_error(panic.as_ref())),
        });
        let outcome = outcome.and_then(|output| self.check_node_clock().map(|()| output));
        let tenant = self.tenant_to_notify();
        let EngineConnection::Postgres(session) = &mut self.connection else {
            return outcome;
        };
        let ended = match outcome {
            Ok(output) => session.commit(&self.handle).await.map(|()| output),
            failed => failed,
        };
        match &ended {
            Ok(_) => notifier.notify_commit(tenant),
            Err(_) => session.rollback().await,
        }
        ended
    }

    fn fail_if_doomed<R>(&self, outcome: Result<R>) -> Result<R> {
        match outcome {
            Ok(_) if self.doomed => {
                Err(Error::internal("a statement of the write failed and its error was swallowed; all was undone"))
            }
            outcome => outcome,
        }
    }

    /// Runs a fixed statement on SQLite. On PostgreSQL the session controls the transaction.
    pub(super) fn exec_control(&self, sql: &str) -> rusqlite::Result<()> {
        match &self.connection {
            EngineConnection::Sqlite(lite) => lite.exec_control(sql),
            EngineConnection::Postgres(_) => Ok(()),
        }
    }

    /// Whether SQLite is outside a transaction.
    pub(super) fn is_idle(&self) -> bool {
        matches!(&self.connection, EngineConnection::Sqlite(lite) if lite.connection.is_autocommit())
    }

    /// Rolls a failed transaction of SQLite back, unless SQLite has done so.
    pub(super) fn rollback_if_open(&self) {
        if !self.is_idle()
            && let Err(error) = self.exec_control(dialect::SQLITE_ROLLBACK)
        {
            tracing::error!(%error, "failed to roll back a transaction");
        }
    }

    /// Writes to SQLite's file without changing anything, to check whether the disk accepts writes again.
    pub(super) fn probe_write(&mut self) -> Result<()> {
        let EngineConnection::Sqlite(SqliteConnection { connection, .. }) = &self.connection else {
            return Ok(());
        };
        let version: i64 =
            connection.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(sqlite::map_sqlite_error)?;
        connection.pragma_update(None, "user_version", version).map_err(sqlite::map_sqlite_error)
    }

    pub(super) fn checkpoint_log(&self) -> rusqlite::Result<()> {
        match &self.connection {
            EngineConnection::Sqlite(lite) => {
                lite.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
            }
            EngineConnection::Postgres(_) => Ok(()),
        }
    }
}

fn panic_error(panic: &(dyn Any + Send)) -> Error {
    let message = panic.downcast_ref::<&str>().copied();
    let message = message.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    Error::internal(format!("a write panicked: {}", message.unwrap_or("without a message")))
}
