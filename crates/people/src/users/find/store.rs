//! SQL of the user lists.

use kernel::base::{RecordId, Result, Timestamp, UserId};
use kernel::store::delta::{Delta, From};
use kernel::store::{Arms, CursorKey, Db, Passed, Select, Walk};

use super::super::User;
use super::super::store::{FIND_BY_EMAIL, FULL, StoredUser, UserColumns, complete};
use super::{Filter, Place};

const USERS: Arms = Arms::new(UserColumns::LIST, "users", &["created_at", "id"]);

kernel::statements! {
    BY_CREATION = kernel::arm!(USERS.along("users_by_creation"));
}

impl Passed for StoredUser {
    type Key = (Timestamp, UserId);

    fn key(&self) -> Self::Key {
        (self.user.created_at, self.user.id)
    }
}

/// A page of matching users, and the key after which the next page starts.
pub async fn list(db: &Db, filter: &Filter, after: Option<Place>, limit: usize) -> Result<(Vec<User>, Option<Place>)> {
    let (found, next) = match (&filter.email, filter.updated_since) {
        (Some(email), _) => {
            let found: Option<StoredUser> = db.find(FIND_BY_EMAIL, kernel::args![email]).await?;
            (found.into_iter().filter(|stored| filter.matches(&stored.user)).collect(), None)
        }
        (None, Some(since)) => follow(db, filter, since, after, limit).await?,
        (None, None) => newest(db, filter, after, limit).await?,
    };
    Ok((complete(db, found).await?, next))
}

type Found = (Vec<StoredUser>, Option<Place>);

async fn newest(db: &Db, filter: &Filter, after: Option<Place>, limit: usize) -> Result<Found> {
    let below = match after {
        Some(Place::Made(at, id)) => (at, id),
        _ => (Timestamp::from_millis(i64::MAX), UserId::NONE),
    };
    let least = (Timestamp::from_millis(0), UserId::NONE);
    let walk = Walk::new(BY_CREATION, vec![Vec::new()], least..below, filter.is_all());
    let (found, next) = walk.page(db, limit, |stored: &StoredUser| filter.matches(&stored.user)).await?;
    Ok((found, next.map(|(at, id)| Place::Made(at, id))))
}

const DELTA: Delta = Delta { key: "id", tombstone: None };

/// Rows that one request may examine.
const LOOKED_MAX: usize = 3_000;
/// Rows of one step.
const STEP_MAX: usize = 500;

/// Changed users in the order of changes.
async fn follow(db: &Db, filter: &Filter, since: Timestamp, after: Option<Place>, limit: usize) -> Result<Found> {
    let until = db.last_tick().await?;
    let (mut place, mut found, mut looked, mut step) = (after, Vec::new(), 0, limit + 1);
    loop {
        let from = place.map_or(From::Since(since), |place| From::Behind(place.to_position()));
        let select = DELTA.follow(Select::new(FULL).along("users_by_change"), from, until).limit(step);
        let rows: Vec<StoredUser> = db.select(&select).await?;
        looked += rows.len();
        let end = rows.last().filter(|_| rows.len() == step).map(Place::of_change);
        found.extend(rows.into_iter().filter(|stored| filter.matches(&stored.user)));
        if end.is_none() || found.len() > limit || looked >= LOOKED_MAX {
            let more = found.len() > limit;
            found.truncate(limit);
            let next = if more { found.last().map(Place::of_change) } else { end };
            return Ok((found, next));
        }
        place = end;
        step = (2 * step).min(STEP_MAX);
    }
}
