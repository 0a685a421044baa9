//! Group commit on SQLite: the writes of a group share a transaction, and a savepoint undoes a failed write alone.
//!
//! A savepoint copies every page that is changed after it, so it is opened only where it is needed: by the first statement
//! of a write that is no query, and only if an earlier write of the group has something to keep. If the first write with such
//! a statement fails, the whole transaction is rolled back and the group ends. The lock is never released between two writes, so another
//! process writes before or after a group and never within it.

use rusqlite::Statement;

use crate::base::Result;

use super::dialect;
use super::sqlite::{SqliteConnection, WriteProgress, map_sqlite_error};

impl SqliteConnection {
    /// Begins the transaction of a group; the error says why it could not.
    pub fn begin_group(&self) -> Result<(), String> {
        self.group.has_kept.set(false);
        self.group.has_changed.set(false);
        self.lock_wait
            .begin_transaction(&self.connection, dialect::SQLITE_BEGIN)
            .map_err(|error| self.lock_wait.describe_failure(&error))
    }

    /// Whether the group that has ended changed rows that are kept.
    pub fn end_group(&self) -> bool {
        self.group.has_changed.get()
    }

    /// Begins a write of the group.
    pub fn open_write(&self) {
        self.group.write.set(WriteProgress::ReadOnly);
        self.group.changes_before.set(self.connection.total_changes());
    }

    /// Called before each statement: opens the savepoint at the first statement that is no query, where the write needs one.
    pub fn open_savepoint_if_needed(&self, statement: &Statement<'_>) -> Result<()> {
        if self.group.write.get() != WriteProgress::ReadOnly || statement.readonly() {
            return Ok(());
        }
        let state = if self.group.has_kept.get() {
            self.exec_control(dialect::SQLITE_WRITE_OPEN).map_err(map_sqlite_error)?;
            WriteProgress::WrittenInSavepoint
        } else {
            WriteProgress::Written
        };
        self.group.write.set(state);
        Ok(())
    }

    /// Ends the write. An error means that the group's transaction is lost. If the write is not kept and was the first to change rows,
    /// the group's transaction is rolled back.
    pub fn close_write(&self, is_kept: bool) -> Result<(), String> {
        let group = &self.group;
        if is_kept && self.connection.total_changes() != group.changes_before.get() {
            group.has_changed.set(true);
        }
        let not_undone = |error| format!("the write was not undone: {error}");
        match (group.write.get(), is_kept) {
            (WriteProgress::ReadOnly, _) => return Ok(()),
            (WriteProgress::Written, true) => {}
            (WriteProgress::Written, false) => return self.exec_control(dialect::SQLITE_ROLLBACK).map_err(not_undone),
            (WriteProgress::WrittenInSavepoint, true) => self.release_savepoint()?,
            (WriteProgress::WrittenInSavepoint, false) => {
                self.exec_control(dialect::SQLITE_WRITE_UNDO).map_err(not_undone)?;
                return self.release_savepoint();
            }
        }
        group.has_kept.set(true);
        Ok(())
    }

    fn release_savepoint(&self) -> Result<(), String> {
        self.exec_control(dialect::SQLITE_WRITE_KEEP).map_err(|error| format!("the savepoint did not end: {error}"))
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::super::{StoreOptions, sqlite};
    use super::*;
    use crate::args;
    use crate::base::{Env, TenantId};

    const INSERT: &str = "INSERT INTO t (n) VALUES ($1)";

    /// Runs `work` with the writer inside a group, and the connection of another process.
    fn with_group(work: impl FnOnce(&SqliteConnection, &rusqlite::Connection)) {
        let folder = std::env::temp_dir().join(TenantId::new(&Env::default()).to_string());
        std::fs::create_dir(&folder).unwrap();
        let path = folder.join("test.db");
        let lite = sqlite::open_writer(&path, &StoreOptions::sqlite(&path)).unwrap();
        lite.connection.execute_batch("CREATE TABLE t (n INTEGER PRIMARY KEY) STRICT").unwrap();
        lite.begin_group().unwrap();
        let other = rusqlite::Connection::open(&path).unwrap();
        other.busy_timeout(std::time::Duration::ZERO).unwrap();
        work(&lite, &other);
        drop(lite);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    /// Runs a job that writes a number and is kept or undone.
    fn run_test_job(lite: &SqliteConnection, number: i64, is_kept: bool) {
        lite.open_write();
        lite.exec(None, INSERT, args![number]).unwrap();
        lite.close_write(is_kept).unwrap();
    }

    fn list_rows(connection: &rusqlite::Connection) -> Vec<i64> {
        let mut statement = connection.prepare("SELECT n FROM t ORDER BY n").unwrap();
        statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    }

    #[test]
    fn one_that_fails_is_undone_alone() {
        with_group(|lite, other| {
            for (number, is_kept) in [(1, true), (2, false), (3, true), (4, false), (5, false), (6, true)] {
                run_test_job(lite, number, is_kept);
                // Another process cannot write in between.
                assert!(other.execute("BEGIN IMMEDIATE", []).is_err(), "{number}");
            }
            lite.exec_control(dialect::SQLITE_COMMIT).unwrap();
            assert!(lite.end_group());
            assert_eq!(list_rows(other), [1, 3, 6]);
        });
    }

    #[test]
    fn the_first_that_fails_ends_the_group() {
        with_group(|lite, other| {
            lite.open_write();
            lite.query_each(None, "SELECT n FROM t", args![], &mut |_| Ok(())).unwrap();
            lite.close_write(true).unwrap();
            assert!(!lite.connection.is_autocommit(), "what only reads is no reason");
            run_test_job(lite, 1, false);
            assert!(lite.connection.is_autocommit() && !lite.end_group());
            lite.begin_group().unwrap();
            run_test_job(lite, 2, true);
            lite.exec_control(dialect::SQLITE_COMMIT).unwrap();
            assert_eq!(list_rows(other), [2]);
        });
    }

    #[test]
    fn a_job_that_wrote_nothing_is_not_undone() {
        with_group(|lite, other| {
            run_test_job(lite, 1, true);
            lite.open_write();
            lite.query_each(None, "SELECT n FROM t", args![], &mut |_| Ok(())).unwrap();
            assert_eq!(lite.group.write.get(), WriteProgress::ReadOnly, "and has no savepoint");
            lite.close_write(false).unwrap();
            lite.exec_control(dialect::SQLITE_COMMIT).unwrap();
            assert_eq!(list_rows(other), [1]);
        });
    }

    #[test]
    fn what_is_undone_is_nothing_that_reached_the_disk() {
        with_group(|lite, other| {
            run_test_job(lite, 1, true);
            lite.exec_control(dialect::SQLITE_COMMIT).unwrap();
            assert!(lite.end_group());
            lite.begin_group().unwrap();
            // The statement writes but changes no row.
            lite.open_write();
            lite.exec(None, "DELETE FROM t WHERE n = $1", args![7_i64]).unwrap();
            lite.close_write(true).unwrap();
            run_test_job(lite, 9, false);
            lite.exec_control(dialect::SQLITE_COMMIT).unwrap();
            assert!(!lite.end_group());
            assert_eq!(list_rows(other), [1]);
        });
    }
}
