//! The feed of changes: which record of which tenant was written, read after the commit and over all tenants.
//!
//! When a record is written of which readers keep a copy, the same transaction inserts a change. A change names the record
//! and nothing else: a reader loads the record's current state, so reading a change twice, or out of the order of two
//! tenants' commits, does no harm. Every reader has a position of its own, and changes that all readers have passed are
//! deleted. Deliberately left out: who the readers are, and what they do.
//!
//! On PostgreSQL a transaction that began early may commit late. A change is visible to readers only when no transaction
//! that began before its own is still in progress, so no change can appear before a position that was read already.

use std::fmt::Display;

use crate::args;
use crate::base::{Error, Result, TenantId, Timestamp};

use super::{Db, FromRow, Row, Tx, dialect};

crate::statements! {
    INSERT_READER = "INSERT INTO change_readers (id, written_by, number, seen_at) VALUES ($1, $2, $3, $4)";
    READER = "SELECT written_by, number FROM change_readers WHERE id = $1";
    /// From the expected position, or repeated: a second reader of this name would let needed changes be deleted.
    ADVANCE_READER = "UPDATE change_readers SET written_by = $4, number = $5, seen_at = $6
        WHERE id = $1 AND ((written_by = $2 AND number = $3) OR (written_by = $4 AND number = $5))";
    DELETE_READER = "DELETE FROM change_readers WHERE id = $1";
    READER_SEEN = "SELECT seen_at FROM change_readers WHERE id = $1";
    /// A reader that is gone for good must not keep changes for ever, nor one whose node's clock was ahead.
    DELETE_STALE_READERS = "DELETE FROM change_readers WHERE seen_at < $1 OR seen_at > $2";
    ANY_READER = "SELECT id FROM change_readers LIMIT 1";
    CHANGE_AT = "SELECT written_by, number FROM changes WHERE written_by = $1 AND number = $2";
    DELETE_ALL_READERS = "DELETE FROM change_readers";
    LIST_NUMBERS_AFTER = "SELECT number FROM changes WHERE (written_by, number) > ($1, $2) ORDER BY written_by, number LIMIT $3";
    LAST_READER = "SELECT written_by, number FROM change_readers ORDER BY written_by, number LIMIT 1";
    CLEAN = "DELETE FROM changes WHERE (written_by, number) IN (SELECT written_by, number FROM changes
        WHERE (written_by, number) < ($1, $2) ORDER BY written_by, number LIMIT $3)";
}

/// Numbers per millisecond, where changes are numbered by time.
const NUMBERS_PER_MS: i64 = 1_024;

/// A feed position: every change up to it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChangePosition {
    /// The id of the transaction that wrote it; always 0 on SQLite, whose single writer makes the order.
    pub written_by: i64,
    pub number: i64,
}

impl FromRow for ChangePosition {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        Ok(ChangePosition { written_by: row.get(0)?, number: row.get(1)? })
    }
}

/// A record that was created, changed or deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedRecord {
    pub position: ChangePosition,
    pub tenant: TenantId,
    pub kind: String,
    pub id: String,
}

impl FromRow for ChangedRecord {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        let position = ChangePosition { written_by: row.get(0)?, number: row.get(1)? };
        Ok(ChangedRecord { position, tenant: row.get(2)?, kind: row.get(3)?, id: row.get(4)? })
    }
}

impl Tx {
    /// Records that a record was created, changed or deleted, for readers that keep a copy of it.
    pub async fn record_change(&mut self, kind: &'static str, id: impl Display) -> Result<()> {
        if self.tenant_id().is_none() {
            return Err(Error::internal("only a tenant's records change"));
        }
        let mut values = vec![kind.into(), id.to_string().into()];
        if dialect::numbers_changes_by_time(self.engine()) {
            values.push(self.env().now().as_millis().saturating_mul(NUMBERS_PER_MS).into());
        }
        self.defer_exec(dialect::insert_change(self.engine()), values).await
    }
}

/// The end of the feed. A new reader takes it before it loads all records: every later write comes after this position.
pub async fn get_end_position(system: &Db) -> Result<ChangePosition> {
    system.get_one(dialect::changes_end(system.engine()), args![]).await
}

/// Registers a reader, so that no change after its position is deleted.
pub async fn insert_reader(system: &Db, reader: &str, position: ChangePosition) -> Result<()> {
    let (reader, now) = (reader.to_owned(), system.database_now().await?);
    let insert =
        async move |tx: &mut Tx| tx.exec(INSERT_READER, args![reader, position.written_by, position.number, now]).await;
    system.write(insert).await.map(drop)
}

/// The saved position of a reader; none if the reader was deleted and may have missed changes.
pub async fn find_reader_position(system: &Db, reader: &str) -> Result<Option<ChangePosition>> {
    system.find(READER, args![reader]).await
}

/// Advances a reader's position and marks it as alive. False if the reader was deleted, or its position is not `from`:
/// another process reads under the same name.
pub async fn advance_reader(system: &Db, reader: &str, from: ChangePosition, to: ChangePosition) -> Result<bool> {
    let (reader, now) = (reader.to_owned(), system.database_now().await?);
    let advance = async move |tx: &mut Tx| {
        tx.exec(ADVANCE_READER, args![reader, from.written_by, from.number, to.written_by, to.number, now]).await
    };
    Ok(system.write(advance).await? == 1)
}

/// Deletes a reader that is no longer needed.
pub async fn delete_reader(system: &Db, reader: &str) -> Result<()> {
    let reader = reader.to_owned();
    system.write(async move |tx| tx.exec(DELETE_READER, args![reader]).await).await.map(drop)
}

/// Whether a reader was alive within the last `within_ms`. None if it was deleted.
pub async fn find_reader_liveness(system: &Db, reader: &str, within_ms: i64) -> Result<Option<bool>> {
    let seen_at: Option<Timestamp> = system.find(READER_SEEN, args![reader]).await?;
    let since = system.database_now().await?.plus_ms(-within_ms);
    Ok(seen_at.map(|seen_at| seen_at >= since))
}

/// Whether the store has the change at a reader's position. It is never deleted while the reader is registered, so a missing
/// one means that the store was restored to an earlier state.
pub async fn has_change_at(system: &Db, position: ChangePosition) -> Result<bool> {
    // Number 0 is the position of a reader that has read no change yet.
    let found: Option<ChangePosition> = system.find(CHANGE_AT, args![position.written_by, position.number]).await?;
    Ok(position.number == 0 || found.is_some())
}

/// The number of changes after a position, counted up to `max`.
pub async fn count_changes_after(system: &Db, after: ChangePosition, max: i64) -> Result<usize> {
    let numbers: Vec<i64> = system.list(LIST_NUMBERS_AFTER, args![after.written_by, after.number, max]).await?;
    Ok(numbers.len())
}

pub async fn has_readers(system: &Db) -> Result<bool> {
    let any: Option<String> = system.find(ANY_READER, args![]).await?;
    Ok(any.is_some())
}

/// Deletes all readers after a restore: their copies no longer match the store, so each must start over.
pub async fn delete_all_readers(system: &Db) -> Result<()> {
    system.write(async |tx| tx.exec(DELETE_ALL_READERS, args![]).await).await.map(drop)
}

/// The next changes of all tenants after a position.
pub async fn list_changes_after(system: &Db, after: ChangePosition, limit: i64) -> Result<Vec<ChangedRecord>> {
    system.list(dialect::changes_after(system.engine()), args![after.written_by, after.number, limit]).await
}

/// Deletes at most `limit` changes that every reader has passed, and returns how many. Readers that were not alive for
/// `forget_after_ms` are deleted, too. On SQLite the last change stays, because the next one is numbered from it.
pub async fn delete_passed_changes(system: &Db, forget_after_ms: i64, limit: i64) -> Result<u64> {
    let now = system.database_now().await?;
    let (seen_before, seen_after) = (now.plus_ms(-forget_after_ms), now.plus_ms(forget_after_ms));
    let clean = async move |tx: &mut Tx| {
        // Only one node at a time: two would wait for each other's rows.
        if !tx.try_lock("changes.clean").await? {
            return Ok(0);
        }
        tx.exec(DELETE_STALE_READERS, args![seen_before, seen_after]).await?;
        // The end is read first: a reader that registers after this starts beyond it, and one that registered before is
        // found.
        let end: ChangePosition = tx.get_one(dialect::changes_end(tx.engine()), args![]).await?;
        let last: Option<ChangePosition> = tx.find(LAST_READER, args![]).await?;
        let passed = last.map_or(end, |last| last.min(end));
        tx.exec(CLEAN, args![passed.written_by, passed.number, limit]).await
    };
    system.write(clean).await
}
