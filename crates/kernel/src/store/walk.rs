//! Reads a list, newest first, from ranges of an index, and never by a table scan.
//!
//! A filter with an index selects a few ranges of that index, one for each of its values: the arms of a walk. Each arm is
//! read in the order of the list, in steps, and the arms are merged; the other filters are applied to the rows read. A walk
//! has a row budget: when it is spent, the page ends with a cursor to continue from.
//!
//! Deliberately left out: ascending orders, and choosing the best index. The list knows its data.

use std::ops::Range;

use super::{CursorKey, Db, FromRow, Row, Select, Value};
use crate::base::Result;

/// The row budget of one request, approximately: a few tens of milliseconds, off the threads that serve requests.
const EXAMINED_ROWS_MAX: usize = 3_000;
/// The cost of an arm in rows of the budget: every step seeks it anew.
const ARM_COST_ROWS: usize = 48;
/// The least row budget, however many arms there are.
const EXAMINED_ROWS_MIN: usize = 500;
/// The most arms of a walk: each is planned separately, and read as far as the others.
pub const ARMS_MAX: usize = 128;
/// The rows of the first step over all arms, where rows must be filtered; every step is twice the one before.
const FIRST_STEP_ROWS: usize = 200;
/// The least rows of a step for each arm.
const STEP_ROWS_MIN: usize = 8;
/// A step with more rows than this does not run on the threads that serve requests.
const INLINE_ROWS_MAX: usize = 500;

/// A row that a walk reads: enough of a record to filter and to sort it.
pub trait WalkRow: FromRow + Send + 'static {
    /// Its sort key in the list.
    type Key: CursorKey + Ord + Send + Sync;

    fn sort_key(&self) -> Self::Key;
}

/// One range of an index: the values of its columns before the sort columns, and the bounds of the sort key.
#[derive(Clone, Debug)]
pub struct Arm<K> {
    pub values: Vec<Value>,
    /// The exclusive upper bound; the newest come first.
    pub below: K,
    /// The inclusive lower bound.
    pub least: K,
}

/// A list of the rows in the arms.
#[derive(Clone, Debug)]
pub struct IndexWalk<K> {
    /// The SQL of one arm, from [`arm!`](crate::arm).
    pub text: &'static str,
    pub arms: Vec<Arm<K>>,
    /// Whether every row of the arms matches, so that no row needs filtering.
    pub exact: bool,
}

/// The matching rows of a walk, in order.
struct WalkResult<T: WalkRow> {
    rows: Vec<T>,
    /// The sort key up to which all rows were examined; none at the end of the list.
    examined_to: Option<T::Key>,
}

impl<K: CursorKey + Ord + Send + Sync> IndexWalk<K> {
    /// A walk with one arm for each of these distinct values, all with the same bounds.
    pub fn new(text: &'static str, values: Vec<Vec<Value>>, keys: Range<K>, exact: bool) -> Self {
        let (least, below) = (keys.start, keys.end);
        IndexWalk { text, arms: values.into_iter().map(|values| Arm { values, below, least }).collect(), exact }
    }

    /// Loads a page of the matching rows, and the key after which the next page starts, if there is one. When the row budget
    /// is spent, the page may be short or even empty before the end of the list.
    pub async fn load_page<T: WalkRow<Key = K>>(
        &self,
        db: &Db,
        limit: usize,
        matches: impl Fn(&T) -> bool,
    ) -> Result<(Vec<T>, Option<K>)> {
        let WalkResult { mut rows, examined_to } = self.read_newest(db, limit + 1, matches).await?;
        let more = rows.len() > limit;
        rows.truncate(limit);
        let next = if more { rows.last().map(WalkRow::sort_key) } else { examined_to };
        Ok((rows, next))
    }

    /// The first `count` matching rows, or fewer when the row budget is spent.
    async fn read_newest<T: WalkRow<Key = K>>(
        &self,
        db: &Db,
        count: usize,
        matches: impl Fn(&T) -> bool,
    ) -> Result<WalkResult<T>> {
        let (mut rows, mut examined, mut examined_to) = (Vec::new(), 0, None);
        let mut step = self.first_step(count);
        let budget = EXAMINED_ROWS_MAX.saturating_sub(ARM_COST_ROWS * self.arms.len()).max(EXAMINED_ROWS_MIN);
        loop {
            let arms = self.arms_after(examined_to);
            let seen: Vec<ArmRow<T>> = read_arms(db, self.text, &arms, step).await?;
            examined += seen.len();
            examined_to = merge_arms(seen, arms.len(), step, |row| {
                if rows.len() < count && matches(&row) {
                    rows.push(row);
                }
            });
            if examined_to.is_none() || rows.len() >= count || examined >= budget {
                return Ok(WalkResult { rows, examined_to });
            }
            step = (2 * step).min((budget - examined) / arms.len().max(1)).max(STEP_ROWS_MIN);
        }
    }

    /// Just `count` rows for a single arm without filters.
    fn first_step(&self, count: usize) -> usize {
        let rows = match (self.exact, self.arms.len()) {
            (true, 0 | 1) => return count,
            (true, _) => 2 * count,
            (false, _) => FIRST_STEP_ROWS.max(2 * count),
        };
        (rows / self.arms.len().max(1)).max(STEP_ROWS_MIN)
    }

    fn arms_after(&self, examined_to: Option<K>) -> Vec<Arm<K>> {
        let below = |arm: &Arm<K>| examined_to.map_or(arm.below, |key| key.min(arm.below));
        let remaining = |arm: &Arm<K>| Arm { below: below(arm), ..arm.clone() };
        self.arms.iter().map(remaining).filter(|arm| arm.below > arm.least).collect()
    }
}

/// A row with the index of its arm.
struct ArmRow<T> {
    arm: usize,
    row: T,
}

impl<T: FromRow> FromRow for ArmRow<T> {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        let arm: i64 = row.get_last()?;
        Ok(ArmRow { arm: usize::try_from(arm).unwrap_or_default(), row: T::from_row(row)? })
    }
}

/// Reads the next `rows` rows of each arm.
async fn read_arms<T: WalkRow>(db: &Db, text: &str, arms: &[Arm<T::Key>], rows: usize) -> Result<Vec<ArmRow<T>>> {
    let Some(first) = arms.first() else { return Ok(Vec::new()) };
    let arm_values = |arm: &Arm<T::Key>, rows: usize| -> Vec<Value> {
        let limit = Value::Int(i64::try_from(rows).unwrap_or(i64::MAX));
        let bounds = [arm.below.to_position(), arm.least.to_position(), vec![limit]];
        arm.values.iter().cloned().chain(bounds.into_iter().flatten()).collect()
    };
    let mut all: Vec<Vec<Value>> = arms.iter().map(|arm| arm_values(arm, rows)).collect();
    // Empty arms up to a power of two keep the number of different texts small.
    all.resize(arms.len().next_power_of_two(), arm_values(first, 0));
    let select = Select::union_arms(text, all);
    if arms.len() * rows <= INLINE_ROWS_MAX { db.select(&select).await } else { db.scan(&select).await }
}

/// Passes on the rows whose order is certain. An arm that returned a full step may have more rows right after its last, so
/// no row after the first such key is passed on; that key is returned.
fn merge_arms<T: WalkRow>(
    mut seen: Vec<ArmRow<T>>,
    arms: usize,
    step: usize,
    mut next: impl FnMut(T),
) -> Option<T::Key> {
    let mut counts = vec![0; arms];
    let mut examined_to: Option<T::Key> = None;
    seen.sort_by_key(|arm_row| std::cmp::Reverse(arm_row.row.sort_key()));
    for arm_row in &seen {
        let Some(count) = counts.get_mut(arm_row.arm) else { continue };
        *count += 1;
        if *count == step {
            examined_to = Some(arm_row.row.sort_key());
            break;
        }
    }
    for arm_row in seen.into_iter().take_while(|arm_row| examined_to.is_none_or(|key| arm_row.row.sort_key() >= key)) {
        next(arm_row.row);
    }
    examined_to
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Number(i64);

    impl FromRow for Number {
        fn from_row(row: &Row<'_>) -> Result<Self> {
            row.get(0).map(Number)
        }
    }

    impl WalkRow for Number {
        type Key = i64;

        fn sort_key(&self) -> i64 {
            self.0
        }
    }

    fn merge(arms: &[&[i64]], step: usize) -> (Vec<i64>, Option<i64>) {
        let to_arm_rows =
            |(arm, rows): (usize, &&[i64])| rows.iter().map(move |n| ArmRow { arm, row: Number(*n) }).collect();
        let seen: Vec<Vec<ArmRow<Number>>> = arms.iter().enumerate().map(to_arm_rows).collect();
        let mut rows = Vec::new();
        let examined_to = merge_arms(seen.into_iter().flatten().collect(), arms.len(), step, |row| rows.push(row.0));
        (rows, examined_to)
    }

    #[test]
    fn nothing_is_shown_that_something_unseen_may_come_before() {
        assert_eq!(merge(&[&[9, 7, 5], &[8, 2, 1], &[6]], 3), (vec![9, 8, 7, 6, 5], Some(5)));
        assert_eq!(merge(&[&[9, 7], &[8, 2], &[6]], 3), (vec![9, 8, 7, 6, 2], None));
        assert_eq!(merge(&[&[], &[]], 3), (vec![], None));
    }

    #[test]
    fn many_arms_are_read_in_small_steps() {
        let walk = |arms: usize, exact: bool| IndexWalk::new("", vec![Vec::new(); arms], 0..9_i64, exact);
        assert_eq!(walk(1, true).first_step(51), 51);
        assert_eq!(walk(4, true).first_step(51), 25);
        assert_eq!(walk(1, false).first_step(51), 200);
        assert_eq!(walk(ARMS_MAX, false).first_step(201), STEP_ROWS_MIN);
        assert_eq!(walk(2, true).arms_after(Some(0)).len(), 0);
    }
}
