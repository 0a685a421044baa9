//! SQL of users. A change, its audit entry and its event commit together. Rules are checked while the tenant's clock is
//! locked: of two concurrent changes, the second sees the first.

use std::collections::HashMap;

use kernel::args;
use kernel::audit::{self, NewAuditEntry};
use kernel::auth::{Rights, Role, end_sign_ins};
use kernel::base::{Error, Result, StringEnum, Timestamp, UserId};
use kernel::events;
use kernel::http::IfMatch;
use kernel::store::{Db, FromRow, Row, Select, SortDirection, Tick, Tx, Value};

use super::input::UserInput;
use super::{
    ProviderIdentity, USER_CREATED, USER_DISABLED, USER_UPDATED, UpdatedUser, User, UserChanges, UserStatus,
    check_admin_left, check_grant, check_reach, check_self, diff_users, loses_admin,
};
use crate::identity_providers::ProviderId;

kernel::columns! {
    /// Every column of a user; identities are in another table.
    pub struct UserColumns in "users" by id {
        id, email, name, role, status, platform_operator, last_signed_in_at, version, created_at, updated_at, sequence,
    }
}

kernel::statements! {
    FULL = UserColumns::SELECT;
    GET = kernel::sql![FULL, " AND id = $2"];
    FIND_BY_EMAIL = kernel::sql![FULL, " AND email = $2"];
    /// For the command line, which lists all users.
    LIST_BY_EMAIL = kernel::sql![FULL, " AND email > $2 ORDER BY email LIMIT $3"];
    INSERT = UserColumns::INSERT;
    UPDATE = UserColumns::UPDATE;
    OTHER_ADMIN = "SELECT id FROM users WHERE tenant_id = $1 AND role = 'admin' AND status = 'active' AND id <> $2 LIMIT 1";
    /// The identities of some users; the query adds their ids.
    IDENTITIES = "SELECT user_id, provider_id, subject FROM user_identities WHERE tenant_id = $1";
    INSERT_IDENTITY = "INSERT INTO user_identities (tenant_id, provider_id, subject, user_id, created_at)
        VALUES ($1, $2, $3, $4, $5)";
    DELETE_IDENTITY = "DELETE FROM user_identities WHERE tenant_id = $1 AND provider_id = $2 AND subject = $3";
    /// Users that were created or changed while the tenant's clock was ahead.
    IN_FUTURE = "SELECT id FROM users WHERE tenant_id = $1 AND updated_at > $2 ORDER BY updated_at, sequence, id LIMIT $3";
    CLAMP_FUTURE = "UPDATE users SET updated_at = $3, created_at = CASE WHEN created_at > $3 THEN $3 ELSE created_at END
        WHERE tenant_id = $1 AND id = $2";
}

/// More than a user has: a user with an identity is refused at other providers.
const IDENTITIES_MAX: usize = 10;

/// A stored user, with the sequence of their last change.
pub struct StoredUser {
    pub user: User,
    pub sequence: i64,
}

impl FromRow for StoredUser {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        const AT: UserColumns<usize> = UserColumns::AT;
        let user = kernel::read_record!(row, UserColumns => User {
            id, email, name, platform_operator, last_signed_in_at, version, created_at, updated_at;
            role: <Role as StringEnum>::from_stored(&row.get::<String>(AT.role)?)?,
            status: UserStatus::from_stored(&row.get::<String>(AT.status)?)?,
            identities: Vec::new(),
        });
        Ok(StoredUser { user, sequence: row.get(AT.sequence)? })
    }
}

fn to_row_values(user: &User, sequence: i64) -> Vec<Value> {
    let row = UserColumns {
        id: user.id.into(),
        email: user.email.as_str().into(),
        name: user.name.as_str().into(),
        role: user.role.as_str().into(),
        status: user.status.as_str().into(),
        platform_operator: user.platform_operator.into(),
        last_signed_in_at: user.last_signed_in_at.into(),
        version: user.version.into(),
        created_at: user.created_at.into(),
        updated_at: user.updated_at.into(),
        sequence: sequence.into(),
    };
    row.into_vec()
}

/// A user with one of their identities.
type IdentityRow = (UserId, ProviderId, String);

/// One statement for the identities of all these users.
fn identities_select(ids: &[UserId]) -> Select {
    let select = Select::new(IDENTITIES).use_index("user_identities_by_user").where_in("user_id", ids.iter().copied());
    select.order_by(&["user_id", "provider_id", "subject"], SortDirection::Ascending).limit(IDENTITIES_MAX * ids.len())
}

fn attach_identities(users: &mut [User], rows: Vec<IdentityRow>) {
    let mut of: HashMap<UserId, Vec<ProviderIdentity>> = HashMap::new();
    for (user, provider, subject) in rows {
        of.entry(user).or_default().push(ProviderIdentity { provider, subject });
    }
    for user in users {
        user.identities = of.remove(&user.id).unwrap_or_default();
    }
}

/// These users with their identities.
pub async fn with_identities(db: &Db, found: Vec<StoredUser>) -> Result<Vec<User>> {
    let mut users: Vec<User> = found.into_iter().map(|stored| stored.user).collect();
    let ids: Vec<UserId> = users.iter().map(|user| user.id).collect();
    if !ids.is_empty() {
        attach_identities(&mut users, db.select(&identities_select(&ids)).await?);
    }
    Ok(users)
}

pub async fn get_user(db: &Db, id: UserId) -> Result<User> {
    let found: Option<StoredUser> = db.find(GET, args![id]).await?;
    with_identities(db, found.into_iter().collect()).await?.pop().ok_or_else(Error::not_found)
}

/// `email` is folded.
pub async fn find_by_email(db: &Db, email: &str) -> Result<Option<User>> {
    let found: Option<StoredUser> = db.find(FIND_BY_EMAIL, args![email]).await?;
    Ok(with_identities(db, found.into_iter().collect()).await?.pop())
}

/// Users in the order of their addresses, after one of them.
pub async fn list_by_email(db: &Db, after: &str, rows: i64) -> Result<Vec<User>> {
    let found: Vec<StoredUser> = db.list(LIST_BY_EMAIL, args![after, rows]).await?;
    with_identities(db, found).await
}

async fn with_identities_in_tx(tx: &mut Tx, found: Option<StoredUser>) -> Result<Option<User>> {
    let Some(StoredUser { user, .. }) = found else { return Ok(None) };
    let mut users = [user];
    let rows: Vec<IdentityRow> = tx.select(&identities_select(&[users[0].id])).await?;
    attach_identities(&mut users, rows);
    let [user] = users;
    Ok(Some(user))
}

/// The user; 404 if there is none.
pub async fn get_user_in_tx(tx: &mut Tx, id: UserId) -> Result<User> {
    let found = tx.find(GET, args![id]).await?;
    with_identities_in_tx(tx, found).await?.ok_or_else(Error::not_found)
}

/// The user with a folded address.
pub async fn find_user_by_email_in_tx(tx: &mut Tx, email: &str) -> Result<Option<User>> {
    let found = tx.find(FIND_BY_EMAIL, args![email]).await?;
    with_identities_in_tx(tx, found).await
}

/// A user to be created.
pub struct UserDraft {
    /// The folded address.
    pub email: String,
    pub name: String,
    pub role: Role,
    pub status: UserStatus,
    pub platform_operator: bool,
    /// The identity of a user who is created by signing on.
    pub identity: Option<ProviderIdentity>,
}

/// Creates a user. The caller has checked the rights.
pub async fn insert_user(tx: &mut Tx, draft: UserDraft) -> Result<User> {
    let Tick { at, sequence } = tx.tick().await?;
    check_email_is_free(tx, &draft.email).await?;
    let now = tx.env().now();
    let user = User {
        id: UserId::new_numbered(tx.env(), at, sequence),
        email: draft.email,
        name: draft.name,
        role: draft.role,
        status: draft.status,
        platform_operator: draft.platform_operator,
        last_signed_in_at: draft.identity.is_some().then_some(now),
        identities: draft.identity.into_iter().collect(),
        version: 1,
        created_at: at,
        updated_at: at,
    };
    tx.defer_exec(INSERT, to_row_values(&user, sequence)).await?;
    for identity in &user.identities {
        insert_identity(tx, user.id, identity).await?;
    }
    tx.record_change("user", user.id).await?;
    audit::record_entry(tx, NewAuditEntry::new("user.create", "user", user.id)).await?;
    events::publish(tx, &USER_CREATED, user.id, &user).await?;
    Ok(user)
}

pub async fn insert_identity(tx: &mut Tx, user: UserId, identity: &ProviderIdentity) -> Result<()> {
    let at = tx.tick().await?.at;
    let row = vec![identity.provider.into(), identity.subject.as_str().into(), user.into(), at.into()];
    tx.defer_exec(INSERT_IDENTITY, row).await
}

/// The unique index enforces this too; the check gives the answer its detail.
async fn check_email_is_free(tx: &mut Tx, email: &str) -> Result<()> {
    match tx.find::<StoredUser>(FIND_BY_EMAIL, args![email]).await? {
        None => Ok(()),
        Some(_) => Err(Error::conflict(format!("A user with the e-mail {email:?} exists already in this tenant."))),
    }
}

/// Creates a user within the rights of the caller.
pub async fn create_user_with_rights(tx: &mut Tx, rights: &Rights, input: UserInput) -> Result<User> {
    check_grant(rights, input.role)?;
    let draft = UserDraft {
        email: input.email,
        name: input.name.into_string(),
        role: input.role,
        status: input.status.unwrap_or(UserStatus::Active),
        platform_operator: false,
        identity: None,
    };
    insert_user(tx, draft).await
}

/// The user to change: 404, then 403 if they hold more than the caller, then 412.
async fn get_user_to_change(tx: &mut Tx, rights: &Rights, id: UserId, if_match: &IfMatch) -> Result<User> {
    let user = get_user_in_tx(tx, id).await?;
    check_reach(rights, &user)?;
    if_match.check_version(user.version)?;
    Ok(user)
}

pub async fn replace_user(
    tx: &mut Tx,
    rights: &Rights,
    id: UserId,
    if_match: &IfMatch,
    input: UserInput,
) -> Result<User> {
    check_grant(rights, input.role)?;
    let old = get_user_to_change(tx, rights, id, if_match).await?;
    let new = User {
        email: input.email,
        name: input.name.into_string(),
        role: input.role,
        status: input.status.unwrap_or(old.status),
        ..old.clone()
    };
    check_self(rights, &old, &new)?;
    change_user(tx, &old, new).await
}

/// Disables a user. A disabled user stays unchanged.
pub async fn disable_user(tx: &mut Tx, rights: &Rights, id: UserId, if_match: &IfMatch) -> Result<()> {
    let old = get_user_to_change(tx, rights, id, if_match).await?;
    let new = User { status: UserStatus::Disabled, ..old.clone() };
    check_self(rights, &old, &new)?;
    change_user(tx, &old, new).await.map(drop)
}

/// Deletes the identities of a user, at every provider or at this one. A deleted identity may have been another person's, so
/// all sessions end. `None` if there is no such identity. The caller has ticked the clock.
pub async fn unlink_identities(tx: &mut Tx, id: UserId, provider: Option<ProviderId>) -> Result<Option<User>> {
    let old = get_user_in_tx(tx, id).await?;
    let is_unlinked = |identity: &ProviderIdentity| provider.is_none_or(|provider| identity.provider == provider);
    let (unlinked, identities): (Vec<ProviderIdentity>, Vec<ProviderIdentity>) =
        old.identities.iter().cloned().partition(is_unlinked);
    if unlinked.is_empty() {
        return Ok(None);
    }
    for identity in &unlinked {
        tx.exec(DELETE_IDENTITY, args![identity.provider, identity.subject]).await?;
    }
    end_sign_ins(tx, id).await?;
    let new = User { identities, ..old.clone() };
    save_user(tx, &old, new).await.map(Some)
}

/// Whether the tenant has an active admin besides this user.
pub async fn has_other_admin(tx: &mut Tx, id: UserId) -> Result<bool> {
    Ok(tx.find::<UserId>(OTHER_ADMIN, args![id]).await?.is_some())
}

/// Saves a new state of a user by the rules that hold for every caller. The clock was ticked before the old state was read.
pub async fn change_user(tx: &mut Tx, old: &User, new: User) -> Result<User> {
    if loses_admin(old, &new) {
        let has_other = has_other_admin(tx, old.id).await?;
        check_admin_left(old, &new, has_other)?;
    }
    if new.email != old.email {
        check_email_is_free(tx, &new.email).await?;
    }
    save_user(tx, old, new).await
}

/// Saves a change with its audit entries and events. Without a difference nothing is written.
pub async fn save_user(tx: &mut Tx, old: &User, mut new: User) -> Result<User> {
    let different = diff_users(old, &new)?;
    if different.0.is_empty() {
        return Ok(new);
    }
    let Tick { at, sequence } = tx.tick().await?;
    (new.version, new.updated_at) = (old.version + 1, at);
    tx.defer_exec(UPDATE, to_row_values(&new, sequence)).await?;
    tx.record_change("user", new.id).await?;
    let is_disabled = old.status == UserStatus::Active && new.status == UserStatus::Disabled;
    if is_disabled {
        end_sign_ins(tx, new.id).await?;
    }
    publish_changes(tx, &new, different, is_disabled).await?;
    Ok(new)
}

/// Writes audit entries and publishes events. Disabling has its own entry and event, after those of the other changes.
async fn publish_changes(tx: &mut Tx, user: &User, different: UserChanges, is_disabled: bool) -> Result<()> {
    let (mut updated, mut disabled) = (audit::AuditChanges::default(), audit::AuditChanges::default());
    for (field, change) in &different.0 {
        let entry = if is_disabled && field == "status" { &mut disabled } else { &mut updated };
        entry.add_described(field, &change.from, &change.to);
    }
    if !updated.is_empty() {
        audit::record_entry(tx, NewAuditEntry::new("user.update", "user", user.id).with_changes(updated)).await?;
        let data = UpdatedUser { user: user.clone(), changes: different };
        events::publish(tx, &USER_UPDATED, user.id, &data).await?;
    }
    if is_disabled {
        audit::record_entry(tx, NewAuditEntry::new("user.disable", "user", user.id).with_changes(disabled)).await?;
        events::publish(tx, &USER_DISABLED, user.id, user).await?;
    }
    Ok(())
}

/// Clamps future timestamps of users, before the tenant's clock is set back. Returns the number of users.
pub async fn clamp_future_timestamps(db: &Db, now: Timestamp) -> Result<u64> {
    db.clamp_future_records("user", (IN_FUTURE, CLAMP_FUTURE), now).await
}
