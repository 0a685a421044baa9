//! SQL of the user lists.

use kernel::base::{RecordId, Result, Timestamp, UserId};
use kernel::store::delta::{Delta, DeltaStart};
use kernel::store::{ArmSql, CursorKey, Db, IndexWalk, Select, WalkRow};

use super::super::User;
use super::super::store::{FIND_BY_EMAIL, FULL, StoredUser, UserColumns, with_identities};
use super::{Filter, UserListKey};

const USERS: ArmSql = ArmSql::new(UserColumns::LIST, "users", &["created_at", "id"]);

kernel::statements! {
    BY_CREATION = kernel::arm!(USERS.use_index("users_by_creation"));
}

impl WalkRow for StoredUser {
    type Key = (Timestamp, UserId);

    fn sort_key(&self) -> Self::Key {
        (self.user.created_at, self.user.id)
    }
}

/// A page of matching users, and the key after which the next page starts.
pub async fn list_users(
    db: &Db,
    filter: &Filter,
    after: Option<UserListKey>,
    limit: usize,
) -> Result<(Vec<User>, Option<UserListKey>)> {
    let (found, next) = match (&filter.email, filter.updated_since) {
        (Some(email), _) => {
            let found: Option<StoredUser> = db.find(FIND_BY_EMAIL, kernel::args![email]).await?;
            (found.into_iter().filter(|stored| filter.matches_user(&stored.user)).collect(), None)
        }
        (None, Some(since)) => list_changes(db, filter, since, after, limit).await?,
        (None, None) => list_newest(db, filter, after, limit).await?,
    };
    Ok((with_identities(db, found).await?, next))
}

type UserRowPage = (Vec<StoredUser>, Option<UserListKey>);

async fn list_newest(db: &Db, filter: &Filter, after: Option<UserListKey>, limit: usize) -> Result<UserRowPage> {
    let below = match after {
        Some(UserListKey::Created(at, id)) => (at, id),
        _ => (Timestamp::from_millis(i64::MAX), UserId::NONE),
    };
    let least = (Timestamp::from_millis(0), UserId::NONE);
    let walk = IndexWalk::new(BY_CREATION, vec![Vec::new()], least..below, filter.is_all());
    let (found, next) = walk.load_page(db, limit, |stored: &StoredUser| filter.matches_user(&stored.user)).await?;
    Ok((found, next.map(|(at, id)| UserListKey::Created(at, id))))
}

const DELTA: Delta = Delta { key: "id", tombstone: None };

/// Rows that one request may examine.
const EXAMINED_ROWS_MAX: usize = 3_000;
/// Rows of one step.
const STEP_MAX: usize = 500;

/// Changed users in the order of changes.
async fn list_changes(
    db: &Db,
    filter: &Filter,
    since: Timestamp,
    after: Option<UserListKey>,
    limit: usize,
) -> Result<UserRowPage> {
    let until = db.last_tick().await?;
    let (mut position, mut found, mut rows_examined, mut step) = (after, Vec::new(), 0, limit + 1);
    loop {
        let from = position.map_or(DeltaStart::Since(since), |position| DeltaStart::Behind(position.to_position()));
        let select = DELTA.select_changes(Select::new(FULL).use_index("users_by_change"), from, until).limit(step);
        let rows: Vec<StoredUser> = db.select(&select).await?;
        rows_examined += rows.len();
        let end = rows.last().filter(|_| rows.len() == step).map(UserListKey::from_change);
        found.extend(rows.into_iter().filter(|stored| filter.matches_user(&stored.user)));
        if end.is_none() || found.len() > limit || rows_examined >= EXAMINED_ROWS_MAX {
            let more = found.len() > limit;
            found.truncate(limit);
            let next = if more { found.last().map(UserListKey::from_change) } else { end };
            return Ok((found, next));
        }
        position = end;
        step = (2 * step).min(STEP_MAX);
    }
}
