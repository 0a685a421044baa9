//! SQL of the user lists.

use kernel::base::{RecordId, Result, Timestamp, UserId};
use kernel::store::delta::{ChangeWalk, Delta};
use kernel::store::{ArmSql, ChangeKey, Db, IndexWalk, ListKey, RowBudget, Select, fill_page};

use super::super::User;
use super::super::store::{FIND_BY_EMAIL, FULL, StoredUser, UserColumns, with_identities};
use super::{Filter, UserListKey};

const USERS: ArmSql = ArmSql::new(UserColumns::LIST, "users", &["created_at", "id"]);

kernel::statements! {
    BY_CREATION = kernel::arm!(USERS.use_index("users_by_creation"));
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
    let below = after.and_then(ListKey::newest).unwrap_or((Timestamp::from_millis(i64::MAX), UserId::NONE));
    let least = (Timestamp::from_millis(0), UserId::NONE);
    let walk = IndexWalk::new(BY_CREATION, vec![Vec::new()], least..below, filter.is_all());
    let creation = |stored: &StoredUser| (stored.user.created_at, stored.user.id);
    let (found, next) = walk.load_page(db, limit, creation, |stored| filter.matches_user(&stored.user)).await?;
    Ok((found, next.map(ListKey::Newest)))
}

/// Changed users in the order of changes.
async fn list_changes(
    db: &Db,
    filter: &Filter,
    since: Timestamp,
    after: Option<UserListKey>,
    limit: usize,
) -> Result<UserRowPage> {
    let select = Select::new(FULL).use_index("users_by_change");
    let walk =
        &ChangeWalk { delta: Delta { key: "id" }, select, since, until: db.last_tick().await?, with_values: None };
    let start = (after.and_then(ListKey::change), limit, limit + 1);
    let (found, next) = fill_page(&mut RowBudget::default(), start, change_key, |after, rows| async move {
        let step = walk.read_step(db, after, rows, change_key).await?;
        Ok(step.retain_matches(|stored| filter.matches_user(&stored.user)))
    })
    .await?;
    Ok((found, next.map(ListKey::Change)))
}

fn change_key(stored: &StoredUser) -> ChangeKey<UserId> {
    ChangeKey { at: stored.user.updated_at, sequence: stored.sequence, key: stored.user.id }
}
