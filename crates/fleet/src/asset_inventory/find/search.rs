//! The search for the devices of a page.
//!
//! The smallest candidate set is read whole if it is small. Otherwise one set is walked in the order of the list, and each
//! device is filtered; once the row budget is used up the page ends, short or empty, with the key where to continue.

use kernel::base::Result;
use kernel::store::delta::DeltaStart;
use kernel::store::{CursorKey, Db, Tick};

use super::store::{self, DeviceChangeKeys};
use super::{DeviceSet, DeviceSortKey, Filter};
use crate::devices::{StoredDevice, software};

/// Devices that one request may examine.
const ROW_BUDGET: usize = 3_000;
/// Least cost of a step that filters by version: it may skip thousands of entries with other versions.
const VERSION_STEP_COST_MIN: usize = 300;
/// The largest set that is read whole.
const SMALL_SET_MAX: usize = 500;
/// Devices read in one step: some are large, and all matches are in memory together.
const STEP_ROWS_MAX: usize = 500;

/// Matching devices in the order of the list.
pub struct DeviceBatch {
    pub devices: Vec<StoredDevice>,
    /// The sort key after which the list continues, if it may.
    pub next: Option<DeviceSortKey>,
}

/// The search for the devices of one page. Its plan is chosen once and used for every step.
pub struct DeviceSearch<'a> {
    db: &'a Db,
    filter: &'a Filter,
    plan: DeviceQueryPlan,
    examined: usize,
}

/// How a search reads devices.
enum DeviceQueryPlan {
    /// Along the changes up to a tick: a device that changes later must not appear twice on one page.
    Changes(Tick),
    /// The members of a small set, newest first.
    Members(Vec<i64>),
    /// Along the index of a set, newest first.
    IndexWalk(DeviceSet),
    /// All devices, newest first: there is no filter, or none that an index supports.
    FullScan,
}

impl<'a> DeviceSearch<'a> {
    pub async fn for_filter(db: &'a Db, filter: &'a Filter) -> Result<Self> {
        Ok(DeviceSearch { db, filter, plan: choose_plan(db, filter).await?, examined: 0 })
    }

    /// Whether the row budget of the request allows another step.
    pub fn has_row_budget(&self) -> bool {
        self.examined < ROW_BUDGET
    }

    /// At most `limit` devices after a sort key.
    pub async fn load_devices(&mut self, after: Option<DeviceSortKey>, limit: usize) -> Result<DeviceBatch> {
        let below = after.map_or(i64::MAX, |key| key.number);
        match &self.plan {
            DeviceQueryPlan::Changes(until) => {
                let until = *until;
                self.follow_changes(after, until, limit).await
            }
            DeviceQueryPlan::Members(members) => load_members(self.db, self.filter, members, below, limit).await,
            DeviceQueryPlan::IndexWalk(set) => {
                let set = set.clone();
                self.walk_index(&set, below, limit).await
            }
            DeviceQueryPlan::FullScan => self.scan_all(below, limit).await,
        }
    }

    async fn scan_all(&mut self, mut below: i64, limit: usize) -> Result<DeviceBatch> {
        let (mut found, mut step) = (Vec::new(), limit + 1);
        loop {
            let devices = store::list_all(self.db, below, step).await?;
            self.examined += devices.len();
            let end = devices.last().filter(|_| devices.len() == step).map(|stored| stored.number);
            found.extend(devices.into_iter().filter(|stored| self.filter.matches_device(&stored.device)));
            let position = end.map(|number| DeviceSortKey { changed: None, number });
            let (Some(number), true) = (end, found.len() <= limit && self.has_row_budget()) else {
                return Ok(cut_batch(found, limit, position, |stored| DeviceSortKey {
                    changed: None,
                    number: stored.number,
                }));
            };
            below = number;
            step = widen_step(step);
        }
    }

    /// Matching devices along the index of a set.
    async fn walk_index(&mut self, set: &DeviceSet, mut below: i64, limit: usize) -> Result<DeviceBatch> {
        let (mut found, mut step) = (Vec::new(), limit + 1);
        loop {
            let (numbers, next) = store::walk_set(self.db, self.filter, set, below, step).await?;
            self.examined += if self.filter.has_software_version() {
                numbers.len().max(VERSION_STEP_COST_MIN)
            } else {
                numbers.len()
            };
            found.extend(store::load_matching(self.db, self.filter, &numbers).await?);
            let end = next.map(|number| DeviceSortKey { changed: None, number });
            let (Some(number), true) = (next, found.len() <= limit && self.has_row_budget()) else {
                return Ok(cut_batch(found, limit, end, |stored| DeviceSortKey {
                    changed: None,
                    number: stored.number,
                }));
            };
            below = number;
            step = widen_step(step);
        }
    }

    /// Changed devices in the order of changes, with tombstones.
    async fn follow_changes(&mut self, after: Option<DeviceSortKey>, until: Tick, limit: usize) -> Result<DeviceBatch> {
        let (mut position, mut found, mut step) = (after, Vec::new(), limit + 1);
        loop {
            let since = self.filter.updated_since.unwrap_or(kernel::base::Timestamp::from_millis(0));
            let from = position.map_or(DeltaStart::Since(since), |key| DeltaStart::Behind(key.to_position()));
            let DeviceChangeKeys { keys, next: end } =
                store::list_changes(self.db, self.filter, from, until, step).await?;
            self.examined += keys.len();
            found.extend(store::load_matching_changes(self.db, self.filter, &keys).await?);
            if end.is_none() || found.len() > limit || !self.has_row_budget() {
                return Ok(cut_batch(found, limit, end, DeviceSortKey::for_change));
            }
            position = end;
            step = widen_step(step);
        }
    }
}

async fn choose_plan(db: &Db, filter: &Filter) -> Result<DeviceQueryPlan> {
    if filter.updated_since.is_some() {
        return db.last_tick().await.map(DeviceQueryPlan::Changes);
    }
    if filter.software.is_some() {
        software::store::index_all(db).await?;
    }
    let (mut driver, mut smallest): (Option<DeviceSet>, Option<Vec<i64>>) = (None, None);
    for set in filter.candidate_sets() {
        let Some(set) = store::expand_set(db, set).await? else { continue };
        let members = store::list_members(db, &set, SMALL_SET_MAX + 1).await?;
        if members.len() <= SMALL_SET_MAX && smallest.as_ref().is_none_or(|least| members.len() < least.len()) {
            smallest = Some(members);
        }
        driver.get_or_insert(set);
    }
    let Some(mut members) = smallest else {
        return Ok(driver.map_or(DeviceQueryPlan::FullScan, DeviceQueryPlan::IndexWalk));
    };
    members.sort_unstable_by(|a, b| b.cmp(a));
    members.dedup();
    Ok(DeviceQueryPlan::Members(members))
}

/// Matching members of a small set, which is sorted.
async fn load_members(db: &Db, filter: &Filter, members: &[i64], below: i64, limit: usize) -> Result<DeviceBatch> {
    let mut found = Vec::new();
    let passed = members.partition_point(|number| *number >= below);
    for some in members.get(passed..).unwrap_or_default().chunks(limit + 1) {
        found.extend(store::load_matching(db, filter, some).await?);
        if found.len() > limit {
            break;
        }
    }
    Ok(cut_batch(found, limit, None, |stored| DeviceSortKey { changed: None, number: stored.number }))
}

/// The size of the next step, if the last one found too few.
fn widen_step(step: usize) -> usize {
    (2 * step).min(STEP_ROWS_MAX)
}

/// Cuts the devices to the limit; `end` is the key after the last examined device, if there may be more.
fn cut_batch(
    mut devices: Vec<StoredDevice>,
    limit: usize,
    end: Option<DeviceSortKey>,
    key: impl Fn(&StoredDevice) -> DeviceSortKey,
) -> DeviceBatch {
    let more = devices.len() > limit;
    devices.truncate(limit);
    let next = if more { devices.last().map(key) } else { end };
    DeviceBatch { devices, next }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_step_of_a_search_is_large() {
        assert_eq!((widen_step(2), widen_step(51), widen_step(201), widen_step(250)), (4, 102, 402, STEP_ROWS_MAX));
        assert_eq!((widen_step(STEP_ROWS_MAX), widen_step(STEP_ROWS_MAX + 1)), (STEP_ROWS_MAX, STEP_ROWS_MAX));
    }
}
