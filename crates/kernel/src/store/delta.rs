//! The order of changes, for clients that keep a copy of a tenant's records.
//!
//! Such a record has the columns `updated_at` and `sequence`, both from the [`Tick`] of its last change, and an index
//! (`tenant_id`, `updated_at`, `sequence`, its own key). A later write has a higher sequence, so no later change can
//! appear before a position that a reader has reached, even if thousands share a millisecond. The records changed by one
//! write share a sequence and are ordered by the key; they become visible together.
//!
//! A deleted record stays as a tombstone: deleting is a change, which also sets the time of the deletion. Only the list of
//! changes shows it; every other list leaves it out.

use super::fill::ListStep;
use super::walk::{INLINE_ROWS_MAX, merge_arms};
use super::{ChangeKey, Compare, CursorKey, Db, FromRow, Select, SortDirection, Tick, Value};
use crate::args;
use crate::base::{Code, Error, Result, Timestamp};

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
}

/// Refuses a cursor that is in the future because the tenant's clock was set back. Its reader would wait until then.
pub fn check_cursor(at: Timestamp, last: Tick) -> Result<()> {
    if at <= last.at {
        return Ok(());
    }
    let detail = "The cursor is behind all changes: the tenant's clock was set back. Start again without a cursor.";
    Err(Error::new(Code::InvalidCursor, detail))
}

/// The least rows of a step for each arm.
const ARM_ROWS_MIN: usize = 8;

/// A list of changes, read along an index.
#[derive(Clone, Debug)]
pub struct ChangeWalk {
    pub delta: Delta,
    /// Along the index of the list.
    pub select: Select,
    pub since: Timestamp,
    pub until: Tick,
    /// Only records with these values of a column, with which the index starts.
    pub with_values: Option<(&'static str, Vec<Option<String>>)>,
}

impl ChangeWalk {
    /// About so many next changes, unfiltered.
    pub async fn read_step<T: FromRow + 'static, K: CursorKey + Copy + Ord>(
        &self,
        db: &Db,
        after: Option<ChangeKey<K>>,
        rows: usize,
        sort_key: impl Fn(&T) -> ChangeKey<K>,
    ) -> Result<ListStep<T, ChangeKey<K>>> {
        if let Some(after) = after {
            check_cursor(after.at, self.until)?;
        }
        let from = after.map_or(DeltaStart::Since(self.since), |key| DeltaStart::Behind(key.to_position()));
        let parts = self.with_values.as_ref().map_or(1, |(_, values)| values.len().max(1));
        let step = (rows / parts).max(ARM_ROWS_MIN.min(rows));
        let select = self.delta.select_changes(self.select.clone(), from, self.until).limit(step);
        let arms = match &self.with_values {
            None => vec![select],
            Some((column, values)) => select.split_by(column, values),
        };
        let inline = arms.len() * step <= INLINE_ROWS_MAX;
        let count = arms.len();
        let seen = db.select_or_scan(&Select::union_selects(arms), inline).await?;
        let examined = seen.len();
        let (matches, next) = merge_arms(seen, (count, step), sort_key, Ord::cmp);
        Ok(ListStep { matches, examined, next })
    }
}
