//! How the jobs of a group share a transaction of SQLite, and how one that fails is undone alone.
//!
//! A savepoint around each job copies every page that the job changes, which is a sixth of what a small write costs, and is
//! seldom needed. So jobs run without one, and what they write is noted: every statement with its values. When a job
//! fails that has written, the whole transaction is rolled back, and the statements of the jobs before it are run again. No
//! closure runs twice, and nobody has read what the failed one wrote, because it was the last that has run. The same
//! statements with the same values, from the same state and in the same order, come to the same: what they change is counted,
//! and that nobody else has written in between is looked at. Otherwise the whole group fails.
//!
//! That costs as much as those jobs did, so it is not done again and again: behind it, and where the notes would become too
//! large, jobs run in savepoints. What a probe of the disk writes is not noted: it changes nothing.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use rusqlite::Statement;
use rusqlite::types::{ToSqlOutput, Value};

use crate::base::{Error, Result};

use super::sqlite::{Lite, fault};
use super::{Param, dialect};

/// For each job that was written again, so many run in savepoints after it. So writing again adds a sixteenth to the writer's
/// work at most, however many fail; and one that fails with none before it costs nobody anything.
const CAUTION: usize = 16;

/// What is noted of a group at most: some hundred tickets of the largest size, or thousands of usual ones.
const NOTES_BYTES_MAX: usize = 8 << 20;

/// What a value takes beside its text.
const VALUE_BYTES: usize = size_of::<Value>();

/// How the writer's jobs run. A connection that only reads has one that stays as it is.
#[derive(Default)]
pub(super) struct Journal {
    /// What this group has written; none while its jobs run in savepoints.
    notes: RefCell<Option<Notes>>,
    /// Whether the job that runs has tried to write.
    touched: Cell<bool>,
    /// Writing jobs that still run in savepoints.
    cautious: Cell<usize>,
    /// Rows changed on this connection before the job that runs.
    changes_before: Cell<u64>,
    /// Whether a job of this group has changed something that is kept.
    has_changed: Cell<bool>,
}

struct Notes {
    steps: Vec<Step>,
    bytes: usize,
    /// Jobs before the one that runs, and their steps.
    jobs: usize,
    kept: usize,
    /// Tells whether somebody else has written.
    version: i64,
}

/// A statement that was run, with all that was bound to it, and how many rows it changed or returned.
struct Step {
    sql: Arc<str>,
    rows: Vec<Vec<Value>>,
    count: u64,
}

impl Journal {
    /// A statement is about to run. Tells whether it is to be noted when it has.
    pub fn touch(&self, statement: &Statement<'_>) -> bool {
        if statement.readonly() {
            return false;
        }
        self.touched.set(true);
        self.notes.borrow().as_ref().is_some_and(|notes| notes.bytes <= NOTES_BYTES_MAX)
    }

    pub fn note(&self, sql: Arc<str>, rows: Vec<Vec<Value>>, count: u64) {
        if let Some(notes) = &mut *self.notes.borrow_mut() {
            notes.bytes += rows.iter().flatten().map(size).sum::<usize>();
            notes.steps.push(Step { sql, rows, count });
        }
    }
}

impl Lite {
    /// Begins the transaction of a group, or tells what keeps it from beginning.
    pub fn begin_group(&self) -> Result<(), String> {
        self.journal.has_changed.set(false);
        let failed = |error: rusqlite::Error| self.patience.explain(&error);
        self.patience.begin(&self.connection, dialect::SQLITE_BEGIN).map_err(failed)?;
        if self.journal.cautious.get() == 0 {
            let version = self.version().map_err(failed)?;
            let notes = Notes { steps: Vec::new(), bytes: 0, jobs: 0, kept: 0, version };
            self.journal.notes.replace(Some(notes));
        }
        Ok(())
    }

    /// The group has ended. Tells whether there is something of it that is kept.
    pub fn end_group(&self) -> bool {
        self.journal.notes.take();
        self.journal.has_changed.get()
    }

    /// Begins a job of the group.
    pub fn open_job(&self) -> Result<(), String> {
        self.journal.touched.set(false);
        self.journal.changes_before.set(self.connection.total_changes());
        if self.journal.notes.borrow().is_some() {
            return Ok(());
        }
        self.control(dialect::SQLITE_JOB_OPEN).map_err(|error| format!("the savepoint failed: {error}"))
    }

    /// Ends it. An error means that the transaction of the group is lost.
    pub fn close_job(&self, is_kept: bool) -> Result<(), String> {
        let journal = &self.journal;
        let touched = journal.touched.get();
        if is_kept && self.connection.total_changes() != journal.changes_before.get() {
            journal.has_changed.set(true);
        }
        let mut noted = journal.notes.borrow_mut();
        match &mut *noted {
            Some(_) if !touched => {}
            // What does not fit any more is not noted, so that nothing before it can be undone from here on.
            Some(notes) if is_kept && notes.bytes > NOTES_BYTES_MAX => *noted = None,
            Some(notes) if is_kept => {
                notes.jobs += 1;
                notes.kept = notes.steps.len();
            }
            Some(_) => {
                drop(noted);
                self.control(dialect::SQLITE_ROLLBACK).map_err(|error| format!("the job was not undone: {error}"))?;
                return self.write_again();
            }
            None => {
                if touched {
                    journal.cautious.update(|jobs| jobs.saturating_sub(1));
                }
                if touched && !is_kept {
                    self.control(dialect::SQLITE_JOB_UNDO)
                        .map_err(|error| format!("the job was not undone: {error}"))?;
                }
                self.control(dialect::SQLITE_JOB_KEEP)
                    .map_err(|error| format!("the savepoint did not end: {error}"))?;
            }
        }
        Ok(())
    }

    /// Writes in a new transaction what the jobs before the failed one have written. Those behind it run in savepoints.
    fn write_again(&self) -> Result<(), String> {
        let Some(notes) = self.journal.notes.take() else { return Err("nothing was noted".to_owned()) };
        self.control(dialect::SQLITE_BEGIN).map_err(|error| format!("the group was not begun again: {error}"))?;
        let version = self.version().map_err(|error| error.to_string())?;
        if version != notes.version {
            return Err("another process was at the database before the group could be written again".to_owned());
        }
        for step in notes.steps.iter().take(notes.kept) {
            let count = self.repeat(step).map_err(|error| format!("the group was not written again: {error}"))?;
            if count != step.count {
                return Err(format!("written again, {} changed {count} rows and not {}", step.sql, step.count));
            }
        }
        if notes.jobs > 0 {
            self.journal.cautious.set(notes.jobs * CAUTION);
            metrics::counter!("store_groups_written_again").increment(1);
        }
        Ok(())
    }

    fn repeat(&self, step: &Step) -> rusqlite::Result<u64> {
        let mut statement = self.connection.prepare_cached(&step.sql)?;
        let mut count = 0;
        for row in &step.rows {
            for (place, value) in row.iter().enumerate() {
                statement.raw_bind_parameter(place + 1, value)?;
            }
            if statement.column_count() == 0 {
                count += statement.raw_execute()? as u64;
                continue;
            }
            let mut returned = statement.raw_query();
            while returned.next()?.is_some() {
                count += 1;
            }
        }
        Ok(count)
    }

    /// Changes when another connection has written.
    fn version(&self) -> rusqlite::Result<i64> {
        self.connection.prepare_cached(dialect::SQLITE_VERSION)?.query_row([], |row| row.get(0))
    }
}

/// All that is bound to a statement, kept for later.
pub(super) fn kept<'a>(tenant: Option<&String>, args: impl Iterator<Item = &'a dyn Param>) -> Result<Vec<Value>> {
    let tenant = tenant.map(|tenant| Ok(Value::Text(tenant.clone())));
    tenant.into_iter().chain(args.map(own)).collect()
}

fn own(value: &dyn Param) -> Result<Value> {
    match rusqlite::ToSql::to_sql(value).map_err(fault)? {
        ToSqlOutput::Borrowed(value) => value.try_into().map_err(Error::internal),
        ToSqlOutput::Owned(value) => Ok(value),
        _ => Err(Error::internal("a value of a kind that cannot be kept")),
    }
}

fn size(value: &Value) -> usize {
    VALUE_BYTES
        + match value {
            Value::Text(text) => text.len(),
            Value::Blob(bytes) => bytes.len(),
            Value::Null | Value::Integer(_) | Value::Real(_) => 0,
        }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::super::{Options, sqlite};
    use super::*;
    use crate::args;
    use crate::base::{TenantId, World};

    const INSERT: &str = "INSERT INTO t (n) VALUES ($1)";

    /// The writer, a group of one job that is kept and one that is not, both of which have written, and another process.
    fn group(work: impl FnOnce(&Lite, &rusqlite::Connection)) {
        let folder = std::env::temp_dir().join(TenantId::new(&World::default()).to_string());
        std::fs::create_dir(&folder).unwrap();
        let path = folder.join("test.db");
        let lite = sqlite::open_writer(&path, &Options::sqlite(&path)).unwrap();
        lite.connection.execute_batch("CREATE TABLE t (n INTEGER PRIMARY KEY, m INTEGER) STRICT").unwrap();
        lite.begin_group().unwrap();
        lite.open_job().unwrap();
        lite.exec(None, INSERT, args![1_i64]).unwrap();
        lite.ask(None, "UPDATE t SET m = n + $1 RETURNING m", args![6_i64], &mut |_| Ok(())).unwrap();
        lite.close_job(true).unwrap();
        lite.open_job().unwrap();
        lite.exec(None, INSERT, args![2_i64]).unwrap();
        work(&lite, &rusqlite::Connection::open(&path).unwrap());
        drop(lite);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    fn rows(connection: &rusqlite::Connection) -> Vec<(i64, Option<i64>)> {
        let mut statement = connection.prepare("SELECT n, m FROM t ORDER BY n").unwrap();
        statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap().map(Result::unwrap).collect()
    }

    #[test]
    fn what_was_written_before_the_failed_one_is_written_again() {
        group(|lite, other| {
            lite.close_job(false).unwrap();
            assert_eq!(lite.journal.cautious.get(), CAUTION);
            // The next is undone by its savepoint.
            for (number, is_kept) in [(3, false), (4, true)] {
                lite.open_job().unwrap();
                lite.exec(None, INSERT, args![number]).unwrap();
                lite.close_job(is_kept).unwrap();
            }
            assert_eq!(lite.journal.cautious.get(), CAUTION - 2);
            lite.control(dialect::SQLITE_COMMIT).unwrap();
            assert_eq!(rows(other), [(1, Some(7)), (4, None)]);
        });
    }

    #[test]
    fn nothing_is_written_again_over_what_somebody_else_has_written() {
        group(|lite, other| {
            lite.control(dialect::SQLITE_ROLLBACK).unwrap();
            other.execute("INSERT INTO t (n) VALUES (5)", []).unwrap();
            let reason = lite.write_again().unwrap_err();
            assert!(reason.contains("another process"), "{reason}");
            lite.control(dialect::SQLITE_ROLLBACK).unwrap();
            assert_eq!(rows(other), [(5, None)]);
        });
    }

    #[test]
    fn what_does_not_come_to_the_same_is_not_kept() {
        group(|lite, _| {
            lite.journal.notes.borrow_mut().as_mut().unwrap().steps[1].count = 2;
            let reason = lite.close_job(false).unwrap_err();
            assert!(reason.contains("changed 1 rows and not 2"), "{reason}");
        });
    }

    #[test]
    fn a_job_that_wrote_nothing_is_not_undone() {
        group(|lite, other| {
            lite.close_job(true).unwrap();
            lite.open_job().unwrap();
            lite.ask(None, "SELECT n FROM t", args![], &mut |_| Ok(())).unwrap();
            lite.close_job(false).unwrap();
            assert_eq!(lite.journal.cautious.get(), 0);
            assert!(lite.journal.notes.borrow().is_some());
            lite.control(dialect::SQLITE_COMMIT).unwrap();
            assert_eq!(rows(other), [(1, Some(7)), (2, None)]);
        });
    }

    #[test]
    fn caution_ends() {
        group(|lite, _| {
            lite.close_job(false).unwrap();
            lite.control(dialect::SQLITE_COMMIT).unwrap();
            lite.journal.cautious.set(1);
            for number in [3, 4] {
                lite.begin_group().unwrap();
                assert_eq!(lite.journal.notes.borrow().is_some(), number == 4);
                lite.open_job().unwrap();
                lite.exec(None, INSERT, args![number]).unwrap();
                lite.close_job(true).unwrap();
                lite.control(dialect::SQLITE_COMMIT).unwrap();
                assert!(lite.end_group());
            }
        });
    }

    #[test]
    fn what_is_undone_is_nothing_that_reached_the_disk() {
        group(|lite, other| {
            lite.close_job(true).unwrap();
            lite.control(dialect::SQLITE_COMMIT).unwrap();
            assert!(lite.end_group());
            for is_cautious in [false, true] {
                lite.journal.cautious.set(usize::from(is_cautious));
                lite.begin_group().unwrap();
                lite.open_job().unwrap();
                lite.exec(None, INSERT, args![9_i64]).unwrap();
                lite.close_job(false).unwrap();
                lite.control(dialect::SQLITE_COMMIT).unwrap();
                assert!(!lite.end_group());
                assert_eq!(lite.journal.cautious.get(), 0, "nothing was written again");
            }
            assert_eq!(rows(other), [(1, Some(7)), (2, None)]);
        });
    }
}
