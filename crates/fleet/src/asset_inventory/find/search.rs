//! The search for the devices of a page.
//!
//! The smallest candidate set is read whole if it is small. Otherwise one set is walked in the order of the list, and each
//! device is filtered; once the row budget is used up the page ends, short or empty, with the key where to continue.

use kernel::base::Result;
use kernel::store::delta::ChangeWalk;
use kernel::store::{ChangeKey, Db, ListStep, RowBudget, fill_page, find_smallest_set, pair_rows};

use super::store;
use super::{DeviceOrder, DeviceSet, DeviceSortKey, Filter, OrderKey, change_key};
use crate::devices::{StoredDevice, software};

/// Least cost of a step that filters by version: it may skip thousands of entries with other versions.
const VERSION_STEP_COST_MIN: usize = 300;
/// The largest set that is read whole.
const SMALL_SET_MAX: usize = 500;

/// The search for the devices of one page. Its plan is chosen once and used for every step.
pub struct DeviceSearch<'a> {
    db: &'a Db,
    filter: &'a Filter,
    order: DeviceOrder,
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

/// A matching device, with its position in the list.
pub struct FoundDevice {
    pub key: DeviceSortKey,
    pub stored: StoredDevice,
}

impl<'a> DeviceSearch<'a> {
    pub async fn for_filter(db: &'a Db, filter: &'a Filter, order: DeviceOrder) -> Result<Self> {
        let plan = choose_plan(db, filter).await?;
        Ok(DeviceSearch { db, filter, order, plan, budget: RowBudget::default() })
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
    ) -> Result<(Vec<FoundDevice>, Option<DeviceSortKey>)> {
        let (db, filter, order, budget) = (self.db, self.filter, self.order, &mut self.budget);
        let start = (after, limit, limit + 1);
        let plan = &self.plan;
        fill_page(
            budget,
            start,
            |found: &FoundDevice| found.key.clone(),
            |after, rows| async move {
                match plan {
                    DeviceQueryPlan::Changes(walk) => step_changes(db, filter, walk, after, rows).await,
                    _ if order == DeviceOrder::NEWEST => step_newest(db, filter, plan, after, rows).await,
                    _ => step_in_order(db, filter, plan, order, after.and_then(DeviceSortKey::order), rows).await,
                }
            },
        )
        .await
    }
}

type DeviceStep = ListStep<FoundDevice, DeviceSortKey>;

async fn step_changes(
    db: &Db,
    filter: &Filter,
    walk: &ChangeWalk,
    after: Option<DeviceSortKey>,
    rows: usize,
) -> Result<DeviceStep> {
    let after = after.and_then(|key| key.change());
    let ListStep { matches: keys, examined, next } =
        walk.read_step(db, after, rows, |key: &ChangeKey<i64>| *key).await?;
    let found = store::load_matching_changes(db, filter, &keys).await?;
    let matches =
        found.into_iter().map(|stored| FoundDevice { key: DeviceSortKey::Change(change_key(&stored)), stored });
    Ok(ListStep { matches: matches.collect(), examined, next: next.map(DeviceSortKey::Change) })
}

async fn step_newest(
    db: &Db,
    filter: &Filter,
    plan: &DeviceQueryPlan,
    after: Option<DeviceSortKey>,
    rows: usize,
) -> Result<DeviceStep> {
    let below = after.and_then(|key| key.newest()).unwrap_or(i64::MAX);
    let ListStep { matches, examined, next } = match plan {
        DeviceQueryPlan::Members(members) => {
            let passed = members.partition_point(|number| *number >= below);
            let (some, rest) = members[passed..].split_at(rows.min(members.len() - passed));
            let next = some.last().copied().filter(|_| !rest.is_empty());
            // The set is small: it is always read to its end.
            ListStep { matches: store::load_matching(db, filter, some).await?, examined: 0, next }
        }
        DeviceQueryPlan::IndexWalk(set) => {
            let (numbers, next) = store::walk_set(db, filter, set, below, rows).await?;
            let least = if filter.has_software_version() { VERSION_STEP_COST_MIN } else { 0 };
            let matches = store::load_matching(db, filter, &numbers).await?;
            ListStep { matches, examined: numbers.len().max(least), next }
        }
        DeviceQueryPlan::FullScan | DeviceQueryPlan::Changes(_) => {
            let devices = store::list_all(db, below, rows).await?;
            let examined = devices.len();
            let next = devices.last().filter(|_| examined == rows).map(|stored| stored.number);
            let step = ListStep { matches: devices, examined, next };
            step.retain_matches(|stored| filter.matches_device(&stored.device))
        }
    };
    let matches = matches.into_iter().map(|stored| FoundDevice { key: DeviceSortKey::Newest(stored.number), stored });
    Ok(ListStep { matches: matches.collect(), examined, next: next.map(DeviceSortKey::Newest) })
}

/// A small set is sorted in memory; otherwise the index of the order is walked, and each device is filtered.
async fn step_in_order(
    db: &Db,
    filter: &Filter,
    plan: &DeviceQueryPlan,
    order: DeviceOrder,
    after: Option<OrderKey>,
    rows: usize,
) -> Result<DeviceStep> {
    if let DeviceQueryPlan::Members(members) = plan {
        let is_behind = |key: &OrderKey| after.as_ref().is_none_or(|after| order.compare_keys(key, after).is_gt());
        let found = store::load_matching(db, filter, members).await?;
        let keyed = found.into_iter().map(|stored| (order.sort_key_of(&stored), stored));
        let mut keyed: Vec<(OrderKey, StoredDevice)> = keyed.filter(|(key, _)| is_behind(key)).collect();
        keyed.sort_by(|(a, _), (b, _)| order.compare_keys(a, b));
        let next = keyed.get(rows.wrapping_sub(1)).filter(|_| keyed.len() > rows).map(|(key, _)| key.clone());
        keyed.truncate(rows);
        let matches = keyed.into_iter().map(|(key, stored)| FoundDevice { key: DeviceSortKey::Order(key), stored });
        return Ok(ListStep { matches: matches.collect(), examined: 0, next: next.map(DeviceSortKey::Order) });
    }
    let keys = store::walk_order(db, order, after.as_ref(), rows).await?;
    let numbers: Vec<i64> = keys.iter().map(|key| key.number).collect();
    let found = store::load_matching(db, filter, &numbers).await?;
    let next = keys.last().filter(|_| keys.len() == rows).cloned();
    // The key is the one that was walked: the device may have been seen again since.
    let matches = pair_rows(&keys, |key| key.number, found, |stored| stored.number)
        .map(|(key, stored)| FoundDevice { key: DeviceSortKey::Order(key.clone()), stored })
        .collect();
    Ok(ListStep { matches, examined: keys.len(), next: next.map(DeviceSortKey::Order) })
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
