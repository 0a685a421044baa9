//! SQLite: opens connections, binds statements and maps errors.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{CachedStatement, Connection, ErrorCode, OpenFlags, Statement, ffi};

use crate::base::{Error, Result};

use super::dialect;
use super::handle::parameter_mismatch;
use super::row::RowCallback;
use super::values::to_params;
use super::{Args, Param, Row, SqliteSynchronous, StoreOptions, Value};

/// Prepared statements kept per connection: more than the product has, so that only lists with rare filters are
/// ever prepared again.
const STATEMENTS_MAX: usize = 256;

/// Pages in the log before the writer moves them into the database: 16 MiB, which spreads the work of moving over thousands
/// of commits and is read back in well under a second after a crash. More pages would save a few percent of the time, but
/// each checkpoint would block all writers longer, on a slow disk until the queue is full.
const CHECKPOINT_PAGES: i64 = 4_000;

/// The size to which the log is truncated after a long read has made it grow.
const LOG_BYTES_MAX: i64 = 64 << 20;

/// The free space for which the disk counts as writable: the pages of a busy group.
const PROBE_BYTES: usize = 256 << 10;

/// How long, and at which interval, switching a new file to the write-ahead log is retried while another process does the
/// same.
const WAL_WAIT_MAX: Duration = Duration::from_secs(5);
const WAL_RETRY_DELAY: Duration = Duration::from_millis(10);

/// How long to wait for another process before `on_wait` is called: about when a person at a terminal begins to wonder.
const SILENCE_MAX: Duration = Duration::from_secs(2);

/// Opens the connection that writes. A missing file is created, readable by its owner only.
pub(super) fn open_writer(path: &Path, options: &StoreOptions) -> Result<SqliteConnection> {
    create_private(path)
        .map_err(|error| Error::unavailable(format!("{} cannot be opened: {error}", path.display())))?;
    let connection = open_connection(path, options.wait_max)?;
    enter_wal(&connection)?;
    let synchronous = match options.synchronous {
        SqliteSynchronous::Full => "FULL",
        SqliteSynchronous::Off => "OFF",
    };
    let settings = format!(
        "PRAGMA synchronous = {synchronous}; PRAGMA foreign_keys = ON; PRAGMA cache_size = -32768; \
         PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}; PRAGMA journal_size_limit = {LOG_BYTES_MAX};"
    );
    connection.execute_batch(&settings).map_err(map_sqlite_error)?;
    let lock_wait = LockWait { path: path.to_owned(), wait_max: options.wait_max, on_wait: options.on_lock_wait };
    Ok(SqliteConnection { lock_wait, ..connection.into() })
}

/// Opens a connection that can only read. The file exists, because the writer was opened first.
pub(super) fn open_reader(path: &Path, wait_max: Duration) -> Result<SqliteConnection> {
    let connection = open_connection(path, wait_max)?;
    connection.execute_batch("PRAGMA query_only = ON; PRAGMA cache_size = -16384;").map_err(map_sqlite_error)?;
    Ok(connection.into())
}

/// Opens a connection that waits up to `wait_max` for another process (an admin command, a backup) to release the lock.
///
/// Memory-mapped reads stay off: with them an I/O error is a signal that ends the process, without them it is an error.
pub(super) fn open_connection(path: &Path, wait_max: Duration) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(map_sqlite_error)?;
    connection.busy_timeout(wait_max).map_err(map_sqlite_error)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    // One plan per statement, independent of the bound values. Otherwise the bundled SQLite prepares every join and range
    // again at each execution, in case the new values deserve another plan: five to ten times the cost of a read.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map_err(map_sqlite_error)?;
    connection.execute_batch("PRAGMA temp_store = MEMORY;").map_err(map_sqlite_error)?;
    Ok(connection)
}

/// SQLite gives the log and the index beside it the permissions of the database.
pub(super) fn create_private(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// Writes a file beside the database and removes it again. A single page can still fit on a disk that is full for
/// everything else, so a write to the database alone does not prove that there is space.
pub(super) fn probe_disk(database: &Path) -> Result<()> {
    let file = database.with_extension("probe");
    let written = create_private(&file).and_then(|mut probe| {
        probe.write_all(&vec![0; PROBE_BYTES])?;
        probe.sync_all()
    });
    // Another probe may have removed it already.
    let _ = std::fs::remove_file(&file);
    written.map_err(|error| Error::unavailable(format!("the disk takes no writes: {error}")))
}

/// The switch needs exclusive access for a moment, and does not wait for it as other statements do.
fn enter_wal(connection: &Connection) -> Result<()> {
    let started = Instant::now();
    while started.elapsed() < WAL_WAIT_MAX {
        match connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get::<_, String>(0)) {
            Ok(mode) if mode == "wal" => return Ok(()),
            Ok(mode) => {
                let message = format!("the file system does not support SQLite's write-ahead log (got {mode})");
                return Err(Error::unavailable(message));
            }
            Err(error) if is_busy(&error) => {
                std::thread::sleep(WAL_RETRY_DELAY);
            }
            Err(error) => return Err(map_sqlite_error(error)),
        }
    }
    Err(Error::unavailable("another process keeps the database from being opened"))
}

/// How a connection waits for the write lock of another process.
#[derive(Default)]
pub(super) struct LockWait {
    pub path: PathBuf,
    pub wait_max: Duration,
    pub on_wait: Option<fn(&Path)>,
}

impl LockWait {
    /// Begins a write transaction by one of the fixed statements. During a long wait `on_wait` is called once.
    pub fn begin_transaction(&self, connection: &Connection, sql: &str) -> rusqlite::Result<()> {
        let begin = || connection.prepare_cached(sql)?.raw_execute().map(drop);
        let Some(on_wait) = self.on_wait.filter(|_| self.wait_max > SILENCE_MAX) else { return begin() };
        connection.busy_timeout(SILENCE_MAX)?;
        let mut result = begin();
        if result.as_ref().is_err_and(is_busy) {
            on_wait(&self.path);
            connection.busy_timeout(self.wait_max.saturating_sub(SILENCE_MAX))?;
            result = begin();
        }
        connection.busy_timeout(self.wait_max)?;
        result
    }

    /// The error for a transaction that did not begin.
    pub fn map_error(&self, error: rusqlite::Error) -> Error {
        if is_busy(&error) { Error::unavailable(self.describe_failure(&error)) } else { map_sqlite_error(error) }
    }

    /// Why a transaction did not begin, and what to do if another process holds the lock.
    pub fn describe_failure(&self, error: &rusqlite::Error) -> String {
        if !is_busy(error) {
            return format!("the transaction did not begin: {error}");
        }
        format!(
            "another process has been writing to {} for {:?}; let it finish, or end the transaction that it has open, in \
             a sqlite3 shell for example, and try again",
            self.path.display(),
            self.wait_max
        )
    }
}

fn is_busy(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
}

/// The state of the running group. It never changes on a connection that only reads.
#[derive(Default)]
pub(super) struct GroupState {
    /// Whether a write of the group has written something that is kept.
    pub has_kept: Cell<bool>,
    /// Whether that changed any rows.
    pub has_changed: Cell<bool>,
    /// The progress of the running write.
    pub write: Cell<WriteProgress>,
    /// Rows changed on this connection before the running write.
    pub changes_before: Cell<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum WriteProgress {
    #[default]
    ReadOnly,
    /// The write is the first of its group with a statement that is no query.
    Written,
    WrittenInSavepoint,
}

/// A connection, with its statements translated for SQLite.
pub(super) struct SqliteConnection {
    pub connection: Connection,
    pub lock_wait: LockWait,
    pub group: GroupState,
    texts: RefCell<SqliteTexts>,
}

impl From<Connection> for SqliteConnection {
    fn from(connection: Connection) -> Self {
        SqliteConnection {
            connection,
            lock_wait: LockWait::default(),
            group: GroupState::default(),
            texts: RefCell::default(),
        }
    }
}

impl SqliteConnection {
    /// Runs one of the fixed statements that open and end transactions, prepared once.
    pub fn exec_control(&self, sql: &str) -> rusqlite::Result<()> {
        self.connection.prepare_cached(sql)?.raw_execute().map(drop)
    }

    pub fn exec(&self, tenant: Option<&String>, sql: &str, args: Args<'_>) -> Result<u64> {
        let mut statement = self.prepare_cached(sql)?;
        self.open_savepoint_if_needed(&statement)?;
        bind_all(&mut statement, tenant, sql, args)?;
        Ok(statement.raw_execute().map_err(map_sqlite_error)? as u64)
    }

    /// Runs the statement once for each row of arguments, and returns how many rows it changed in all.
    pub fn exec_each(&self, tenant: Option<&String>, sql: &str, rows: &[Vec<Value>]) -> Result<u64> {
        let mut changed = 0;
        let Some(first) = rows.first() else { return Ok(changed) };
        let mut statement = self.prepare_cached(sql)?;
        self.open_savepoint_if_needed(&statement)?;
        check_parameters(&statement, tenant, sql, first.len())?;
        // Bound once: the value stays bound for all rows.
        bind_tenant(&mut statement, tenant)?;
        for row in rows {
            if row.len() != first.len() {
                let own = usize::from(tenant.is_some());
                return Err(parameter_mismatch(sql, own + first.len(), own + row.len()));
            }
            bind_args(&mut statement, tenant, to_params(row))?;
            changed += statement.raw_execute().map_err(map_sqlite_error)? as u64;
        }
        Ok(changed)
    }

    pub fn query_each(&self, tenant: Option<&String>, sql: &str, args: Args<'_>, each: RowCallback<'_>) -> Result<()> {
        let mut statement = self.prepare_cached(sql)?;
        self.open_savepoint_if_needed(&statement)?;
        bind_all(&mut statement, tenant, sql, args)?;
        let mut rows = statement.raw_query();
        while let Some(row) = rows.next().map_err(map_sqlite_error)? {
            each(&Row::from_sqlite(row))?;
        }
        Ok(())
    }

    /// Prepares a statement without running it.
    pub fn prepare_check(&self, sql: &str) -> Result<()> {
        self.prepare_cached(sql).map(drop)
    }

    fn prepare_cached(&self, sql: &str) -> Result<CachedStatement<'_>> {
        self.connection.prepare_cached(self.texts.borrow_mut().get_or_translate(sql)).map_err(map_sqlite_error)
    }
}

/// Translated statements by the address of their text: the product's texts are static. For other texts an address may be
/// reused, so the text is compared, too.
#[derive(Default)]
struct SqliteTexts(HashMap<usize, SqliteText>);

struct SqliteText {
    written: Box<str>,
    translated: Box<str>,
}

impl SqliteTexts {
    fn get_or_translate(&mut self, sql: &str) -> &str {
        if self.0.len() >= STATEMENTS_MAX {
            self.0.clear();
        }
        let translate = || SqliteText { written: sql.into(), translated: dialect::sqlite_text(sql).into() };
        let text = self.0.entry(sql.as_ptr().addr()).or_insert_with(translate);
        if *text.written != *sql {
            *text = translate();
        }
        &text.translated
    }
}

/// Binds the tenant to `$1`, if there is one, and the arguments to the parameters after it.
fn bind_all(statement: &mut Statement<'_>, tenant: Option<&String>, sql: &str, args: Args<'_>) -> Result<()> {
    check_parameters(statement, tenant, sql, args.len())?;
    bind_tenant(statement, tenant)?;
    bind_args(statement, tenant, args.iter().copied())
}

/// Checks that the statement's parameters are the tenant and `args` arguments.
fn check_parameters(statement: &Statement<'_>, tenant: Option<&String>, sql: &str, args: usize) -> Result<()> {
    let own = usize::from(tenant.is_some());
    let (uses, bound) = (statement.parameter_count(), own + args);
    // `uses` is the highest number. That all lower ones occur is checked in debug builds; the tenant's is always checked.
    let checked = if cfg!(debug_assertions) { uses } else { own.min(uses) };
    if uses != bound || (1..=checked).any(|index| statement.parameter_name(index).is_none()) {
        return Err(parameter_mismatch(sql, uses, bound));
    }
    Ok(())
}

fn bind_tenant(statement: &mut Statement<'_>, tenant: Option<&String>) -> Result<()> {
    tenant.map_or(Ok(()), |tenant| statement.raw_bind_parameter(1, tenant).map_err(map_sqlite_error))
}

fn bind_args<'a>(
    statement: &mut Statement<'_>,
    tenant: Option<&String>,
    args: impl Iterator<Item = &'a dyn Param>,
) -> Result<()> {
    let own = usize::from(tenant.is_some());
    for (index, value) in args.enumerate() {
        statement.raw_bind_parameter(own + index + 1, value).map_err(map_sqlite_error)?;
    }
    Ok(())
}

/// Maps a failure of SQLite to the error for the client.
pub(super) fn map_sqlite_error(error: rusqlite::Error) -> Error {
    let rusqlite::Error::SqliteFailure(failure, _) = &error else {
        return Error::internal(error);
    };
    match (failure.code, failure.extended_code) {
        (_, ffi::SQLITE_CONSTRAINT_UNIQUE | ffi::SQLITE_CONSTRAINT_PRIMARYKEY | ffi::SQLITE_CONSTRAINT_ROWID) => {
            Error::duplicate_key(error)
        }
        (
            ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::DiskFull
            | ErrorCode::SystemIoFailure
            | ErrorCode::CannotOpen
            | ErrorCode::OutOfMemory
            | ErrorCode::FileLockingProtocolFailed,
            _,
        ) => Error::unavailable(error),
        // The disk was mounted read-only, or the file was moved away. A write on a read handle is our own bug.
        (ErrorCode::ReadOnly, extended) if extended != ffi::SQLITE_READONLY => Error::unavailable(error),
        _ => Error::internal(error),
    }
}
