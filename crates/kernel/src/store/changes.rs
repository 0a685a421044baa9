//! The feed of changes: which record of which tenant was written, read behind the commits and over all tenants.
//!
//! Whoever writes something that others keep a copy of notes it in the same transaction. A note says which record it is and
//! nothing of what has changed: a reader looks at the record as it is when it reads, so that notes which are read twice, or
//! in another order than the commits of two tenants, do no harm. Every reader has a place of its own, and what all of them
//! have passed is removed. It leaves out who reads, and what for.
//!
//! On PostgreSQL a transaction that began early may commit late. A note is shown only when no transaction that began before
//! its own is still under way: so nothing can appear in front of a place that was read already.

use std::fmt::Display;

use crate::args;
use crate::base::{Error, Result, TenantId, Timestamp};

use super::{Db, FromRow, Row, Tx, dialect};

crate::statements! {
    BEGIN_READER = "INSERT INTO change_readers (id, written_by, number, seen_at) VALUES ($1, $2, $3, $4)";
    READER = "SELECT written_by, number FROM change_readers WHERE id = $1";
    /// From where it was last, or again: another who reads under this name would let what is needed be removed.
    PASS = "UPDATE change_readers SET written_by = $4, number = $5, seen_at = $6
        WHERE id = $1 AND ((written_by = $2 AND number = $3) OR (written_by = $4 AND number = $5))";
    END_READER = "DELETE FROM change_readers WHERE id = $1";
    READER_SEEN = "SELECT seen_at FROM change_readers WHERE id = $1";
    /// Readers that are gone for good must not keep everything for ever; nor those of a clock that was ahead.
    FORGET_READERS = "DELETE FROM change_readers WHERE seen_at < $1 OR seen_at > $2";
    ANY_READER = "SELECT id FROM change_readers LIMIT 1";
    CHANGE_AT = "SELECT written_by, number FROM changes WHERE written_by = $1 AND number = $2";
    FORGET_ALL_READERS = "DELETE FROM change_readers";
    NUMBERS_BEHIND = "SELECT number FROM changes WHERE (written_by, number) > ($1, $2) ORDER BY written_by, number LIMIT $3";
    LAST_READER = "SELECT written_by, number FROM change_readers ORDER BY written_by, number LIMIT 1";
    CLEAN = "DELETE FROM changes WHERE (written_by, number) IN (SELECT written_by, number FROM changes
        WHERE (written_by, number) < ($1, $2) ORDER BY written_by, number LIMIT $3)";
}

/// Numbers that a millisecond has, where changes are numbered by the time.
const NUMBERS_OF_A_MS: i64 = 1_024;

/// A place in the feed: everything up to it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The transaction that wrote it; always the same on the embedded store, whose one writer makes the order.
    pub written_by: i64,
    pub number: i64,
}

impl FromRow for Place {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        Ok(Place { written_by: row.get(0)?, number: row.get(1)? })
    }
}

/// A record that was made, changed or removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    pub place: Place,
    pub tenant: TenantId,
    pub kind: String,
    pub id: String,
}

impl FromRow for Changed {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        let place = Place { written_by: row.get(0)?, number: row.get(1)? };
        Ok(Changed { place, tenant: row.get(2)?, kind: row.get(3)?, id: row.get(4)? })
    }
}

impl Tx {
    /// Notes that a record was made, changed or removed, for those who keep a copy of it.
    pub async fn changed(&mut self, kind: &'static str, id: impl Display) -> Result<()> {
        if self.tenant_id().is_none() {
            return Err(Error::internal("only a tenant's records change"));
        }
        let mut noted = vec![kind.into(), id.to_string().into()];
        if dialect::numbers_changes_by_time(self.engine()) {
            noted.push(self.world().now().as_millis().saturating_mul(NUMBERS_OF_A_MS).into());
        }
        self.later(dialect::note_change(self.engine()), noted).await
    }
}

/// Where somebody begins who has read all records, if it reads them after this: what is written from here on is behind it.
pub async fn end(system: &Db) -> Result<Place> {
    system.one(dialect::changes_end(system.engine()), args![]).await
}

/// The time as all nodes have it: whose clock is wrong must not forget the others.
async fn now(system: &Db) -> Result<Timestamp> {
    match dialect::time_of_the_database(system.engine()) {
        Some(statement) => system.one(statement, args![]).await,
        None => Ok(system.world().now()),
    }
}

/// Makes a reader known, so that nothing behind its place is removed.
pub async fn begin_reader(system: &Db, reader: &str, place: Place) -> Result<()> {
    let (reader, now) = (reader.to_owned(), now(system).await?);
    let begin =
        async move |tx: &mut Tx| tx.exec(BEGIN_READER, args![reader, place.written_by, place.number, now]).await;
    system.write(begin).await.map(drop)
}

/// How far a reader has noted that it has read; none if it was forgotten, and may have missed something.
pub async fn find_reader(system: &Db, reader: &str) -> Result<Option<Place>> {
    system.find(READER, args![reader]).await
}

/// Notes that a reader needs nothing any more up to here, and that it is still there. False if it was forgotten meanwhile, or is not
/// where it was: somebody else reads as the same.
pub async fn pass(system: &Db, reader: &str, from: Place, to: Place) -> Result<bool> {
    let (reader, now) = (reader.to_owned(), now(system).await?);
    let pass = async move |tx: &mut Tx| {
        tx.exec(PASS, args![reader, from.written_by, from.number, to.written_by, to.number, now]).await
    };
    Ok(system.write(pass).await? == 1)
}

/// A reader that is not needed any more.
pub async fn end_reader(system: &Db, reader: &str) -> Result<()> {
    let reader = reader.to_owned();
    system.write(async move |tx| tx.exec(END_READER, args![reader]).await).await.map(drop)
}

/// Whether a reader was seen within so long. None if it was forgotten.
pub async fn is_seen(system: &Db, reader: &str, within_ms: i64) -> Result<Option<bool>> {
    let seen_at: Option<Timestamp> = system.find(READER_SEEN, args![reader]).await?;
    let since = now(system).await?.plus(-within_ms);
    Ok(seen_at.map(|seen_at| seen_at >= since))
}

/// Whether the store has the change up to which a reader has read. It is never removed as long as the reader is known: one that is
/// not there belongs to a store that was put back to an earlier state.
pub async fn is_there(system: &Db, place: Place) -> Result<bool> {
    // Whoever began to read and found no change has none to show.
    let found: Option<Place> = system.find(CHANGE_AT, args![place.written_by, place.number]).await?;
    Ok(place.number == 0 || found.is_some())
}

/// How many changes there are behind a place, counted up to so many.
pub async fn count_behind(system: &Db, behind: Place, max: i64) -> Result<usize> {
    let numbers: Vec<i64> = system.list(NUMBERS_BEHIND, args![behind.written_by, behind.number, max]).await?;
    Ok(numbers.len())
}

pub async fn has_readers(system: &Db) -> Result<bool> {
    let any: Option<String> = system.find(ANY_READER, args![]).await?;
    Ok(any.is_some())
}

/// Nobody who keeps a copy knows what a store was like that is put back: all of them begin anew.
pub async fn forget_readers(system: &Db) -> Result<()> {
    system.write(async |tx| tx.exec(FORGET_ALL_READERS, args![]).await).await.map(drop)
}

/// The next changes of all tenants behind a place.
pub async fn read(system: &Db, behind: Place, limit: i64) -> Result<Vec<Changed>> {
    system.list(dialect::changes_behind(system.engine()), args![behind.written_by, behind.number, limit]).await
}

/// Removes at most so many of what every reader has passed, and tells how many. Readers that were not seen for so long are
/// forgotten. The last change of all stays on the embedded store: from it the next one is counted.
pub async fn clean(system: &Db, forget_after_ms: i64, limit: i64) -> Result<u64> {
    let now = now(system).await?;
    let (seen_before, seen_after) = (now.plus(-forget_after_ms), now.plus(forget_after_ms));
    let clean = async move |tx: &mut Tx| {
        // One at a time: two would wait for each other's rows.
        if !tx.try_lock("changes.clean").await? {
            return Ok(0);
        }
        tx.exec(FORGET_READERS, args![seen_before, seen_after]).await?;
        // The end first: whoever begins to read after this is behind it, and whoever began before is found.
        let end: Place = tx.one(dialect::changes_end(tx.engine()), args![]).await?;
        let last: Option<Place> = tx.find(LAST_READER, args![]).await?;
        let passed = last.map_or(end, |last| last.min(end));
        tx.exec(CLEAN, args![passed.written_by, passed.number, limit]).await
    };
    system.write(clean).await
}
