//! Fills a page of a list in steps, within a row budget.

use std::collections::HashMap;
use std::hash::Hash;

use crate::base::Result;

/// The row budget of one request, approximately: a few tens of milliseconds, off the threads that serve requests.
const EXAMINED_ROWS_MAX: usize = 3_000;
/// The most rows of a step, where all of them are in memory together.
const STEP_ROWS_MAX: usize = 500;

/// The rows that a request may still examine.
#[derive(Clone, Copy, Debug)]
pub struct RowBudget {
    rows_left: usize,
    step_max: usize,
}

impl Default for RowBudget {
    fn default() -> Self {
        RowBudget { rows_left: EXAMINED_ROWS_MAX, step_max: STEP_ROWS_MAX }
    }
}

impl RowBudget {
    /// A budget from which `cost` is spent already, but at least `least` are left, for steps of any size.
    pub(super) fn after_cost(cost: usize, least: usize) -> Self {
        RowBudget { rows_left: EXAMINED_ROWS_MAX.saturating_sub(cost).max(least), step_max: EXAMINED_ROWS_MAX }
    }

    /// Whether another step is allowed.
    pub fn has_rows(self) -> bool {
        self.rows_left > 0
    }

    /// The size of the next step, if the last one found too few.
    fn widen_step(self, step: usize) -> usize {
        (2 * step).min(self.step_max).min(self.rows_left).max(1)
    }
}

/// The matching rows of one step, in order.
#[derive(Debug)]
pub struct ListStep<T, K> {
    pub matches: Vec<T>,
    /// The cost of the step.
    pub examined: usize,
    /// The key up to which all rows were examined; none at the end of the list.
    pub next: Option<K>,
}

impl<T, K> ListStep<T, K> {
    #[must_use]
    pub fn retain_matches(mut self, matches: impl FnMut(&T) -> bool) -> Self {
        self.matches.retain(matches);
        self
    }
}

/// Reads steps until the page is full, and returns it with the key after which the next page starts, if there is one. When
/// the row budget is spent, the page may be short or even empty before the end of the list.
pub async fn fill_page<T, K: Clone, F: Future<Output = Result<ListStep<T, K>>>>(
    budget: &mut RowBudget,
    (after, limit, first_step): (Option<K>, usize, usize),
    sort_key: impl Fn(&T) -> K,
    read_step: impl Fn(Option<K>, usize) -> F,
) -> Result<(Vec<T>, Option<K>)> {
    let (mut rows, mut position, mut step) = (Vec::new(), after, first_step);
    loop {
        let ListStep { matches, examined, next } = read_step(position.clone(), step).await?;
        rows.extend(matches);
        budget.rows_left = budget.rows_left.saturating_sub(examined);
        if next.is_none() || rows.len() > limit || !budget.has_rows() {
            let more = rows.len() > limit;
            rows.truncate(limit);
            let next = if more { rows.last().map(sort_key) } else { next };
            return Ok((rows, next));
        }
        position = next;
        step = budget.widen_step(step);
    }
}

/// The members of the smallest set, if it has at most `most`. Each set is read no further than the smallest before it.
pub async fn find_smallest_set<'a, S, F: Future<Output = Result<Vec<i64>>>>(
    sets: &'a [S],
    most: usize,
    list_members: impl Fn(&'a S, usize) -> F,
) -> Result<Option<Vec<i64>>> {
    let (mut rows, mut smallest) = (most + 1, None);
    for set in sets {
        let members = list_members(set, rows).await?;
        if members.len() < rows {
            rows = members.len().max(1);
            smallest = Some(members);
        }
    }
    Ok(smallest)
}

/// The records of these rows, in the order of the rows; a record that is gone is left out.
pub fn pair_rows<R, I: Hash + Eq, T>(
    rows: &[R],
    row_id: impl Fn(&R) -> I,
    records: Vec<T>,
    record_id: impl Fn(&T) -> I,
) -> impl Iterator<Item = (&R, T)> {
    let mut records: HashMap<I, T> = records.into_iter().map(|record| (record_id(&record), record)).collect();
    rows.iter().filter_map(move |row| Some((row, records.remove(&row_id(row))?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_step_is_large_or_beyond_the_budget() {
        let budget = RowBudget::default();
        assert_eq!([2, 51, 201, 250].map(|step| budget.widen_step(step)), [4, 102, 402, STEP_ROWS_MAX]);
        let spent = RowBudget { rows_left: 30, ..budget };
        assert_eq!((spent.widen_step(200), spent.has_rows()), (30, true));
    }
}
