//! The search for the devices of a page.
//!
//! The smallest candidate set is read whole if it is small. Otherwise one set is walked in the order of the list, and each
//! device is filtered; once the row budget is used up the page ends, short or empty, with the key where to continue.

use kernel::base::Result;
use kernel::store::delta::From;
use kernel::store::{CursorKey, Db, Tick};

use super::store::{self, Changed};
use super::{Filter, Key, Set};
use crate::devices::{StoredDevice, software};

/// Devices that one request may examine.
const LOOKED_MAX: usize = 3_000;
/// Least cost of a step that filters by version: it may skip thousands of entries with other versions.
const WALKED: usize = 300;
/// The largest set that is read whole.
const SMALL: usize = 500;
/// Devices read in one step: some are large, and all matches are in memory together.
const FEW: usize = 500;

/// Matching devices in the order of the list.
pub struct Found {
    pub devices: Vec<StoredDevice>,
    /// The sort key after which the list continues, if it may.
    pub next: Option<Key>,
}

/// The search for the devices of one page. Its plan is chosen once and used for every step.
pub struct Search<'a> {
    db: &'a Db,
    filter: &'a Filter,
    way: Way,
    looked: usize,
}

/// How a search reads devices.
enum Way {
    /// Along the changes up to a tick: a device that changes later must not appear twice on one page.
    Changes(Tick),
    /// The members of a small set, newest first.
    Among(Vec<i64>),
    /// Along the index of a set, newest first.
    Along(Set),
    /// All devices, newest first: there is no filter, or none that an index supports.
    All,
}

impl<'a> Search<'a> {
    pub async fn begin(db: &'a Db, filter: &'a Filter) -> Result<Self> {
        Ok(Search { db, filter, way: choose(db, filter).await?, looked: 0 })
    }

    /// Whether the row budget of the request allows another step.
    pub fn may_go_on(&self) -> bool {
        self.looked < LOOKED_MAX
    }

    /// At most `limit` devices after a sort key.
    pub async fn find(&mut self, after: Option<Key>, limit: usize) -> Result<Found> {
        let below = after.map_or(i64::MAX, |key| key.number);
        match &self.way {
            Way::Changes(until) => {
                let until = *until;
                self.follow(after, until, limit).await
            }
            Way::Among(members) => among(self.db, self.filter, members, below, limit).await,
            Way::Along(set) => {
                let set = set.clone();
                self.walk(&set, below, limit).await
            }
            Way::All => self.pass(below, limit).await,
        }
    }

    async fn pass(&mut self, mut below: i64, limit: usize) -> Result<Found> {
        let (mut found, mut step) = (Vec::new(), limit + 1);
        loop {
            let devices = store::all(self.db, below, step).await?;
            self.looked += devices.len();
            let end = devices.last().filter(|_| devices.len() == step).map(|stored| stored.number);
            found.extend(devices.into_iter().filter(|stored| self.filter.matches(&stored.device)));
            let place = end.map(|number| Key { changed: None, number });
            let (Some(number), true) = (end, found.len() <= limit && self.may_go_on()) else {
                return Ok(cut(found, limit, place, |stored| Key { changed: None, number: stored.number }));
            };
            below = number;
            step = wider(step);
        }
    }

    /// Matching devices along the index of a set.
    async fn walk(&mut self, set: &Set, mut below: i64, limit: usize) -> Result<Found> {
        let (mut found, mut step) = (Vec::new(), limit + 1);
        loop {
            let (numbers, next) = store::next(self.db, self.filter, set, below, step).await?;
            self.looked += if self.filter.has_version() { numbers.len().max(WALKED) } else { numbers.len() };
            found.extend(store::judge(self.db, self.filter, &numbers).await?);
            let end = next.map(|number| Key { changed: None, number });
            let (Some(number), true) = (next, found.len() <= limit && self.may_go_on()) else {
                return Ok(cut(found, limit, end, |stored| Key { changed: None, number: stored.number }));
            };
            below = number;
            step = wider(step);
        }
    }

    /// Changed devices in the order of changes, with tombstones.
    async fn follow(&mut self, after: Option<Key>, until: Tick, limit: usize) -> Result<Found> {
        let (mut place, mut found, mut step) = (after, Vec::new(), limit + 1);
        loop {
            let since = self.filter.updated_since.unwrap_or(kernel::base::Timestamp::from_millis(0));
            let from = place.map_or(From::Since(since), |key| From::Behind(key.to_position()));
            let Changed { keys, next: end } = store::changes(self.db, self.filter, from, until, step).await?;
            self.looked += keys.len();
            found.extend(store::judge_changes(self.db, self.filter, &keys).await?);
            if end.is_none() || found.len() > limit || !self.may_go_on() {
                return Ok(cut(found, limit, end, Key::of_change));
            }
            place = end;
            step = wider(step);
        }
    }
}

async fn choose(db: &Db, filter: &Filter) -> Result<Way> {
    if filter.updated_since.is_some() {
        return db.last_tick().await.map(Way::Changes);
    }
    if filter.software.is_some() {
        software::store::index_all(db).await?;
    }
    let (mut driver, mut smallest): (Option<Set>, Option<Vec<i64>>) = (None, None);
    for set in filter.sets() {
        let Some(set) = store::expanded(db, set).await? else { continue };
        let members = store::members(db, &set, SMALL + 1).await?;
        if members.len() <= SMALL && smallest.as_ref().is_none_or(|least| members.len() < least.len()) {
            smallest = Some(members);
        }
        driver.get_or_insert(set);
    }
    let Some(mut members) = smallest else { return Ok(driver.map_or(Way::All, Way::Along)) };
    members.sort_unstable_by(|a, b| b.cmp(a));
    members.dedup();
    Ok(Way::Among(members))
}

/// Matching members of a small set, which is sorted.
async fn among(db: &Db, filter: &Filter, members: &[i64], below: i64, limit: usize) -> Result<Found> {
    let mut found = Vec::new();
    let passed = members.partition_point(|number| *number >= below);
    for some in members.get(passed..).unwrap_or_default().chunks(limit + 1) {
        found.extend(store::judge(db, filter, some).await?);
        if found.len() > limit {
            break;
        }
    }
    Ok(cut(found, limit, None, |stored| Key { changed: None, number: stored.number }))
}

/// The size of the next step, if the last one found too few.
fn wider(step: usize) -> usize {
    (2 * step).min(FEW)
}

/// Cuts the devices to the limit; `end` is the key after the last examined device, if there may be more.
fn cut(mut devices: Vec<StoredDevice>, limit: usize, end: Option<Key>, key: impl Fn(&StoredDevice) -> Key) -> Found {
    let more = devices.len() > limit;
    devices.truncate(limit);
    let next = if more { devices.last().map(key) } else { end };
    Found { devices, next }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_step_of_a_search_is_large() {
        assert_eq!((wider(2), wider(51), wider(201), wider(250)), (4, 102, 402, FEW));
        assert_eq!((wider(FEW), wider(FEW + 1)), (FEW, FEW));
    }
}
