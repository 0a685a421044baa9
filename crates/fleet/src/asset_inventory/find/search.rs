//! The search for the devices of a page.
//!
//! The smallest candidate set is read whole if it is small. Otherwise one set is walked in the order of the list, and each
//! device is filtered; once the row budget is used up the page ends, short or empty, with the key where to continue.

use kernel::base::Result;
use kernel::store::delta::ChangeWalk;
use kernel::store::{ChangeKey, Db, ListKey, ListStep, RowBudget, fill_page, find_smallest_set};

use super::store;
use super::{DeviceSet, DeviceSortKey, Filter, change_key};
use crate::devices::{StoredDevice, software};

/// Least cost of a step that filters by version: it may skip thousands of entries with other versions.
const VERSION_STEP_COST_MIN: usize = 300;
/// The largest set that is read whole.
const SMALL_SET_MAX: usize = 500;

/// The search for the devices of one page. Its plan is chosen once and used for every step.
pub struct DeviceSearch<'a> {
    db: &'a Db,
    filter: &'a Filter,
    plan: DeviceQueryPlan,
    budget: RowBudget,
}

/// How a search reads devices.
enum DeviceQueryPlan {
    /// Along the changes up to a tick: a device that changes later must not appear twice on one page.
    Changes(ChangeWalk),
    /// The members of a small set, newest first.
    Members(Vec<i64>),
    /// Along the index of a set, newest first.
    IndexWalk(DeviceSet),
    /// All devices, newest first: there is no filter, or none that an index supports.
    FullScan,
}

impl<'a> DeviceSearch<'a> {
    pub async fn for_filter(db: &'a Db, filter: &'a Filter) -> Result<Self> {
        Ok(DeviceSearch { db, filter, plan: choose_plan(db, filter).await?, budget: RowBudget::default() })
    }

    /// Whether the row budget of the request allows another step.
    pub fn has_row_budget(&self) -> bool {
        self.budget.has_rows()
    }

    /// At most `limit` matching devices after a sort key, and the key after which the list continues, if it may.
    pub async fn load_devices(
        &mut self,
        after: Option<DeviceSortKey>,
        limit: usize,
    ) -> Result<(Vec<StoredDevice>, Option<DeviceSortKey>)> {
        let (db, filter, budget) = (self.db, self.filter, &mut self.budget);
        if let DeviceQueryPlan::Changes(walk) = &self.plan {
            let start = (after.and_then(ListKey::change), limit, limit + 1);
            let (found, next) = fill_page(budget, start, change_key, |after, rows| async move {
                let ListStep { matches: keys, examined, next } =
                    walk.read_step(db, after, rows, |key: &ChangeKey<i64>| *key).await?;
                Ok(ListStep { matches: store::load_matching_changes(db, filter, &keys).await?, examined, next })
            })
            .await?;
            return Ok((found, next.map(ListKey::Change)));
        }
        let start = (after.and_then(ListKey::newest), limit, limit + 1);
        let plan = &self.plan;
        let (found, next) = fill_page(
            budget,
            start,
            |stored: &StoredDevice| stored.number,
            |after, rows| async move {
                let below = after.unwrap_or(i64::MAX);
                match plan {
                    DeviceQueryPlan::Members(members) => {
                        let passed = members.partition_point(|number| *number >= below);
                        let (some, rest) = members[passed..].split_at(rows.min(members.len() - passed));
                        let next = some.last().copied().filter(|_| !rest.is_empty());
                        let matches = store::load_matching(db, filter, some).await?;
                        // The set is small: it is always read to its end.
                        Ok(ListStep { matches, examined: 0, next })
                    }
                    DeviceQueryPlan::IndexWalk(set) => {
                        let (numbers, next) = store::walk_set(db, filter, set, below, rows).await?;
                        let least = if filter.has_software_version() { VERSION_STEP_COST_MIN } else { 0 };
                        let matches = store::load_matching(db, filter, &numbers).await?;
                        Ok(ListStep { matches, examined: numbers.len().max(least), next })
                    }
                    DeviceQueryPlan::FullScan | DeviceQueryPlan::Changes(_) => {
                        let devices = store::list_all(db, below, rows).await?;
                        let examined = devices.len();
                        let next = devices.last().filter(|_| examined == rows).map(|stored| stored.number);
                        let step = ListStep { matches: devices, examined, next };
                        Ok(step.retain_matches(|stored| filter.matches_device(&stored.device)))
                    }
                }
            },
        )
        .await?;
        Ok((found, next.map(ListKey::Newest)))
    }
}

async fn choose_plan(db: &Db, filter: &Filter) -> Result<DeviceQueryPlan> {
    if let Some(since) = filter.updated_since {
        return Ok(DeviceQueryPlan::Changes(store::walk_changes(filter, since, db.last_tick().await?)));
    }
    if filter.software.is_some() {
        software::store::index_all(db).await?;
    }
    let mut sets = Vec::new();
    for set in filter.candidate_sets() {
        sets.extend(store::expand_set(db, set).await?);
    }
    Ok(match find_smallest_set(&sets, SMALL_SET_MAX, |set, most| store::list_members(db, set, most)).await? {
        Some(mut members) => {
            members.sort_unstable_by(|a, b| b.cmp(a));
            members.dedup();
            DeviceQueryPlan::Members(members)
        }
        None => sets.into_iter().next().map_or(DeviceQueryPlan::FullScan, DeviceQueryPlan::IndexWalk),
    })
}
