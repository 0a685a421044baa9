//! Reads a list, newest first, from ranges of an index, and never by a table scan.
//!
//! A filter with an index selects a few ranges of that index, one for each of its values: the arms of a walk. Each arm is
//! read in the order of the list, in steps, and the arms are merged; the other filters are applied to the rows read. A walk
//! has a row budget: when it is spent, the page ends with a cursor to continue from.
//!
//! Deliberately left out: choosing the best index. The list knows its data.

use std::cmp::Ordering;
use std::ops::Range;

use super::fill::{ListStep, RowBudget, fill_page};
use super::{CursorKey, Db, FromRow, Row, Select, Value};
use crate::base::Result;

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
pub(super) const INLINE_ROWS_MAX: usize = 500;

impl Db {
    /// Runs a query on the threads that serve requests if `inline`, or else apart from them.
    pub async fn select_or_scan<T: FromRow + 'static>(&self, select: &Select, inline: bool) -> Result<Vec<T>> {
        if inline { self.select(select).await } else { self.scan(select).await }
    }
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

impl<K: CursorKey + Copy + Ord + Send + Sync> IndexWalk<K> {
    /// A walk with one arm for each of these distinct values, all with the same bounds.
    pub fn new(text: &'static str, values: Vec<Vec<Value>>, keys: Range<K>, exact: bool) -> Self {
        let (least, below) = (keys.start, keys.end);
        IndexWalk { text, arms: values.into_iter().map(|values| Arm { values, below, least }).collect(), exact }
    }

    /// Loads a page of the matching rows, and the key after which the next page starts: see [`fill_page`].
    pub async fn load_page<T: FromRow + 'static>(
        &self,
        db: &Db,
        limit: usize,
        sort_key: impl Fn(&T) -> K + Sync,
        matches: impl Fn(&T) -> bool + Sync,
    ) -> Result<(Vec<T>, Option<K>)> {
        let mut budget = RowBudget::after_cost(ARM_COST_ROWS * self.arms.len(), EXAMINED_ROWS_MIN);
        let first_step = self.first_step(limit + 1);
        let (sort_key, matches) = (&sort_key, &matches);
        fill_page(&mut budget, (None, limit, first_step), sort_key, |examined_to, rows| async move {
            let arms = self.arms_after(examined_to);
            let step = (rows / arms.len().max(1)).max(STEP_ROWS_MIN.min(rows));
            let seen = read_arms(db, self.text, &arms, step).await?;
            let examined = seen.len();
            let (rows, next) = merge_arms(seen, (arms.len(), step), sort_key, |a, b| b.cmp(a));
            Ok(ListStep { matches: rows.into_iter().filter(matches).collect(), examined, next })
        })
        .await
    }

    /// The rows of the first step over all arms: just `count` for a single arm without filters.
    fn first_step(&self, count: usize) -> usize {
        match (self.exact, self.arms.len()) {
            (true, 0 | 1) => count,
            (true, _) => 2 * count,
            (false, _) => FIRST_STEP_ROWS.max(2 * count),
        }
    }

    fn arms_after(&self, examined_to: Option<K>) -> Vec<Arm<K>> {
        let below = |arm: &Arm<K>| examined_to.map_or(arm.below, |key| key.min(arm.below));
        let remaining = |arm: &Arm<K>| Arm { below: below(arm), ..arm.clone() };
        self.arms.iter().map(remaining).filter(|arm| arm.below > arm.least).collect()
    }
}

/// A row with the index of its arm.
pub(super) struct ArmRow<T> {
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
async fn read_arms<T: FromRow + 'static, K: CursorKey + Copy>(
    db: &Db,
    text: &str,
    arms: &[Arm<K>],
    rows: usize,
) -> Result<Vec<ArmRow<T>>> {
    let Some(first) = arms.first() else { return Ok(Vec::new()) };
    let arm_values = |arm: &Arm<K>, rows: usize| -> Vec<Value> {
        let limit = Value::Int(i64::try_from(rows).unwrap_or(i64::MAX));
        let bounds = [arm.below.to_position(), arm.least.to_position(), vec![limit]];
        arm.values.iter().cloned().chain(bounds.into_iter().flatten()).collect()
    };
    let all = arms.iter().map(|arm| arm_values(arm, rows)).collect();
    let select = Select::union_arms(text, all, arm_values(first, 0));
    db.select_or_scan(&select, arms.len() * rows <= INLINE_ROWS_MAX).await
}

/// The rows whose order is certain. An arm that returned a full step may have more rows right after its last, so no row after
/// the first such key is returned, and that key with them.
pub(super) fn merge_arms<T, K: Copy>(
    mut seen: Vec<ArmRow<T>>,
    (arms, step): (usize, usize),
    sort_key: impl Fn(&T) -> K,
    compare: impl Fn(&K, &K) -> Ordering,
) -> (Vec<T>, Option<K>) {
    seen.sort_by(|a, b| compare(&sort_key(&a.row), &sort_key(&b.row)));
    let mut counts = vec![0; arms];
    let examined_to = seen.iter().find_map(|arm_row| {
        let count = counts.get_mut(arm_row.arm)?;
        *count += 1;
        (*count == step).then(|| sort_key(&arm_row.row))
    });
    let is_certain = |row: &T| examined_to.is_none_or(|key| compare(&sort_key(row), &key).is_le());
    (seen.into_iter().map(|arm_row| arm_row.row).take_while(is_certain).collect(), examined_to)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merge(arms: &[&[i64]], step: usize) -> (Vec<i64>, Option<i64>) {
        let to_arm_rows =
            |(arm, rows): (usize, &&[i64])| rows.iter().map(move |row| ArmRow { arm, row: *row }).collect();
        let seen: Vec<Vec<ArmRow<i64>>> = arms.iter().enumerate().map(to_arm_rows).collect();
        merge_arms(seen.into_iter().flatten().collect(), (arms.len(), step), |row| *row, |a, b| b.cmp(a))
    }

    #[test]
    fn nothing_is_shown_that_something_unseen_may_come_before() {
        assert_eq!(merge(&[&[9, 7, 5], &[8, 2, 1], &[6]], 3), (vec![9, 8, 7, 6, 5], Some(5)));
        assert_eq!(merge(&[&[9, 7], &[8, 2], &[6]], 3), (vec![9, 8, 7, 6, 2], None));
        assert_eq!(merge(&[&[], &[]], 3), (vec![], None));
    }

    #[test]
    fn the_first_step_reads_no_more_than_the_page_needs() {
        let walk = |arms: usize, exact: bool| IndexWalk::new("", vec![Vec::new(); arms], 0..9_i64, exact);
        assert_eq!(walk(1, true).first_step(51), 51);
        assert_eq!(walk(4, true).first_step(51), 102);
        assert_eq!(walk(1, false).first_step(51), 200);
        assert_eq!(walk(2, true).arms_after(Some(0)).len(), 0);
    }
}
