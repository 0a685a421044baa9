//! The order of changes, for readers that keep a copy of a tenant's records.
//!
//! A record that can be followed has the columns `updated_at` and `sequence`, both of the [`Tick`] of its last change,
//! and an index (`tenant_id`, `updated_at`, `sequence`, its own key). A later write has a higher sequence, so nothing
//! that comes later can fall behind a place that a reader has reached, though thousands share a millisecond. What one
//! write changes at once has one sequence and is told apart by the key: it becomes visible together, and none of it
//! can come later.
//!
//! A record that is deleted stays in its place as a tombstone: deleting is a change, which sets the time of the deletion
//! beside the two columns. Who follows sees it; every other list leaves it out.

use super::{Compare, Db, Direction, Select, Tick, Value};
use crate::args;
use crate::base::{Result, Timestamp};

pub(super) const LAST_TICK: &str = "SELECT last_at, sequence FROM tenant_clocks WHERE tenant_id = $1";

impl Db {
    /// The tenant's last write that every later statement sees, with all that came before it.
    ///
    /// The statements of one page do not see one state. A page that showed a change behind this one could lead its
    /// reader past another that an earlier statement did not see yet.
    pub async fn last_tick(&self) -> Result<Tick> {
        let found: Option<(Timestamp, i64)> = self.find(LAST_TICK, args![]).await?;
        let (at, sequence) = found.unwrap_or((Timestamp::from_millis(0), 0));
        Ok(Tick { at, sequence })
    }
}

/// Where a reader goes on.
#[derive(Clone, Debug)]
pub enum From {
    /// Whatever changed at this moment or later.
    Since(Timestamp),
    /// Behind this record: its `updated_at`, `sequence` and key.
    Behind(Vec<Value>),
}

/// How the records of one table are followed.
#[derive(Clone, Copy, Debug)]
pub struct Delta {
    /// The last column of the index.
    pub key: &'static str,
    /// The column that says when a record was deleted, where records of the table can be.
    pub tombstone: Option<&'static str>,
}

impl Delta {
    /// The changes from a place on, in their order, and none behind `until`: see [`Db::last_tick`].
    pub fn follow(self, select: Select, from: From, until: Tick) -> Select {
        let fields = ["updated_at", "sequence", self.key];
        let select = match from {
            From::Since(since) => select.compare("updated_at", Compare::AtLeast, since),
            From::Behind(position) => select.after(&fields, Direction::Ascending, position),
        };
        let bound = [until.at.into(), until.sequence.into()];
        select.raw("AND (updated_at, sequence) <= (?, ?)", bound).order(&fields, Direction::Ascending)
    }

    /// For every list that nobody follows: without what is deleted.
    pub fn present(self, select: Select) -> Select {
        match self.tombstone {
            Some(column) => select.absent(column),
            None => select,
        }
    }
}
