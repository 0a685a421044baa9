//! The order of changes, for clients that keep a copy of a tenant's records.
//!
//! Such a record has the columns `updated_at` and `sequence`, both from the [`Tick`] of its last change, and an index
//! (`tenant_id`, `updated_at`, `sequence`, its own key). A later write has a higher sequence, so no later change can
//! appear before a position that a reader has reached, even if thousands share a millisecond. The records changed by one
//! write share a sequence and are ordered by the key; they become visible together.
//!
//! A deleted record stays as a tombstone: deleting is a change, which also sets the time of the deletion. Only the list of
//! changes shows it; every other list leaves it out.

use super::{Compare, Db, Select, SortDirection, Tick, Value};
use crate::args;
use crate::base::{Result, Timestamp};

pub(super) const LAST_TICK: &str = "SELECT last_at, sequence FROM tenant_clocks WHERE tenant_id = $1";

impl Db {
    /// The tick of the tenant's last write. Later statements see this write and all earlier ones.
    ///
    /// The statements of one page share no snapshot. A page that showed a change after this tick could move its reader past
    /// another change that an earlier statement did not see.
    pub async fn last_tick(&self) -> Result<Tick> {
        let found: Option<(Timestamp, i64)> = self.find(LAST_TICK, args![]).await?;
        let (at, sequence) = found.unwrap_or((Timestamp::from_millis(0), 0));
        Ok(Tick { at, sequence })
    }
}

/// Where a list of changes starts.
#[derive(Clone, Debug)]
pub enum DeltaStart {
    /// At the changes of this time or later.
    Since(Timestamp),
    /// After this record: its `updated_at`, `sequence` and key.
    Behind(Vec<Value>),
}

/// How the changes of one table are listed.
#[derive(Clone, Copy, Debug)]
pub struct Delta {
    /// The last column of the index.
    pub key: &'static str,
    /// The column with the time of the deletion, if the table has tombstones.
    pub tombstone: Option<&'static str>,
}

impl Delta {
    /// Selects the changes from `from` on, in their order, and none after `until`: see [`Db::last_tick`].
    pub fn select_changes(self, select: Select, from: DeltaStart, until: Tick) -> Select {
        let fields = ["updated_at", "sequence", self.key];
        let select = match from {
            DeltaStart::Since(since) => select.where_compare("updated_at", Compare::AtLeast, since),
            DeltaStart::Behind(position) => select.seek_after(&fields, SortDirection::Ascending, position),
        };
        let bound = [until.at.into(), until.sequence.into()];
        select.append_sql("AND (updated_at, sequence) <= (?, ?)", bound).order_by(&fields, SortDirection::Ascending)
    }

    /// Excludes tombstones, for every other list.
    pub fn exclude_deleted(self, select: Select) -> Select {
        match self.tombstone {
            Some(column) => select.where_null(column),
            None => select,
        }
    }
}
