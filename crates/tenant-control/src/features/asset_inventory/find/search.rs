//! How the devices of a page are found.
//!
//! The smallest of the sets that everything wanted is in is read whole, if it is small. Else one of them is followed in the
//! order of the list, judging what comes by; after so many devices the page ends, short or empty, and says where to go on.

use kernel::base::Result;
use kernel::store::delta::From;
use kernel::store::{CursorKey, Db, Walk};

use super::store::{self, Changed, Number};
use super::{Filter, Key, Set};
use crate::features::devices::StoredDevice;

/// Devices that one request looks at.
const LOOKED_MAX: usize = 3_000;
/// A set of at most so many is read whole.
const SMALL: usize = 500;

/// What was found, in order.
pub struct Found {
    pub devices: Vec<StoredDevice>,
    /// Behind which place the list goes on, if it may.
    pub next: Option<Key>,
}

/// At most `limit` devices behind a place.
pub async fn find(db: &Db, filter: &Filter, after: Option<Key>, limit: usize) -> Result<Found> {
    if filter.updated_since.is_some() {
        return follow(db, filter, after, limit).await;
    }
    let below = after.map_or(i64::MAX, |key| key.number);
    let (mut driver, mut smallest): (Option<Set>, Option<Vec<i64>>) = (None, None);
    for set in filter.sets() {
        let Some(set) = store::expanded(db, set).await? else { continue };
        let members = store::members(db, &set, SMALL + 1).await?;
        if members.len() <= SMALL && smallest.as_ref().is_none_or(|least| members.len() < least.len()) {
            smallest = Some(members);
        }
        driver.get_or_insert(set);
    }
    match smallest {
        Some(members) => among(db, filter, members, below, limit).await,
        None => match driver {
            Some(set) => walk(db, filter, &store::walk(&set, below), limit).await,
            None => pass(db, filter, below, limit).await,
        },
    }
}

/// Those among all devices, newest first: nothing is wanted in particular, or nothing that an index could be asked for.
async fn pass(db: &Db, filter: &Filter, mut below: i64, limit: usize) -> Result<Found> {
    let (mut found, mut looked, mut step) = (Vec::new(), 0, limit + 1);
    loop {
        let devices = store::all(db, below, step).await?;
        looked += devices.len();
        let end = devices.last().filter(|_| devices.len() == step).map(|stored| stored.number);
        found.extend(devices.into_iter().filter(|stored| filter.matches(&stored.device)));
        let place = end.map(|number| Key { changed: None, number });
        let (Some(number), true) = (end, found.len() <= limit && looked < LOOKED_MAX) else {
            return Ok(cut(found, limit, place, |stored| Key { changed: None, number: stored.number }));
        };
        below = number;
        step = (2 * step).min(FEW);
    }
}

/// Whole devices that are read at once.
const FEW: usize = 500;

/// Those of a small set.
async fn among(db: &Db, filter: &Filter, mut members: Vec<i64>, below: i64, limit: usize) -> Result<Found> {
    members.sort_unstable_by(|a, b| b.cmp(a));
    members.dedup();
    members.retain(|number| *number < below);
    let mut found = Vec::new();
    for some in members.chunks(limit + 1) {
        found.extend(store::judge(db, filter, some).await?);
        if found.len() > limit {
            break;
        }
    }
    Ok(cut(found, limit, None, |stored| Key { changed: None, number: stored.number }))
}

/// Those that come by along an index, newest first.
async fn walk(db: &Db, filter: &Filter, walk: &Walk<i64>, limit: usize) -> Result<Found> {
    let (mut walk, mut found, mut looked, mut step) = (walk.clone(), Vec::new(), 0, limit + 1);
    loop {
        let (numbers, next) = walk.page::<Number>(db, step, |_| true).await?;
        let mut numbers: Vec<i64> = numbers.into_iter().map(|Number(number)| number).collect();
        numbers.dedup();
        looked += numbers.len();
        found.extend(store::judge(db, filter, &numbers).await?);
        let end = next.map(|number| Key { changed: None, number });
        if end.is_none() || found.len() > limit || looked >= LOOKED_MAX {
            return Ok(cut(found, limit, end, |stored| Key { changed: None, number: stored.number }));
        }
        for arm in &mut walk.arms {
            arm.below = next.unwrap_or_default();
        }
        step = (2 * step).min(LOOKED_MAX);
    }
}

/// Changes in their order, with the tombstones of what is deleted.
async fn follow(db: &Db, filter: &Filter, after: Option<Key>, limit: usize) -> Result<Found> {
    let until = db.last_tick().await?;
    let (mut place, mut found, mut looked, mut step) = (after, Vec::new(), 0, limit + 1);
    loop {
        let since = filter.updated_since.unwrap_or(kernel::base::Timestamp::from_millis(0));
        let from = place.map_or(From::Since(since), |key| From::Behind(key.to_position()));
        let Changed { keys, next: end } = store::changes(db, filter, from, until, step).await?;
        looked += keys.len();
        found.extend(store::judge_changes(db, filter, &keys).await?);
        if end.is_none() || found.len() > limit || looked >= LOOKED_MAX {
            return Ok(cut(found, limit, end, Key::of_change));
        }
        place = end;
        step = (2 * step).min(LOOKED_MAX);
    }
}

/// A page of what was found; `end` is behind what was looked at, if there may be more.
fn cut(mut devices: Vec<StoredDevice>, limit: usize, end: Option<Key>, key: impl Fn(&StoredDevice) -> Key) -> Found {
    let more = devices.len() > limit;
    devices.truncate(limit);
    let next = if more { devices.last().map(key) } else { end };
    Found { devices, next }
}
