//! SQL of users. Every change, its audit entry and its event commit together, and every rule is asked under the tenant's clock:
//! of two changes at once, the second sees the first.

use std::collections::HashMap;

use kernel::args;
use kernel::audit::{self, Entry};
use kernel::auth::{Rights, Role, end_sign_ins};
use kernel::base::{Error, Result, Timestamp, UserId, Word};
use kernel::events;
use kernel::http::IfMatch;
use kernel::store::{Db, Direction, FromRow, Row, STEP_ROWS, Select, Tick, Tx, Value};

use super::input::Input;
use super::{
    Changes, Identity, Status, USER_CREATED, USER_DISABLED, USER_UPDATED, UpdatedUser, User, changes, check_admin_left,
    check_grant, check_reach, check_self, loses_admin,
};
use crate::sso::ProviderId;

kernel::columns! {
    /// All of a user but their identities, which stand in a table of their own.
    pub struct UserColumns in "users" by id {
        id, email, name, role, status, platform_operator, last_signed_in_at, version, created_at, updated_at, sequence,
    }
}

kernel::statements! {
    FULL = UserColumns::SELECT;
    GET = kernel::sql![FULL, " AND id = $2"];
    FIND_BY_EMAIL = kernel::sql![FULL, " AND email = $2"];
    /// For the command line, which lists everybody.
    LIST_BY_EMAIL = kernel::sql![FULL, " AND email > $2 ORDER BY email LIMIT $3"];
    INSERT = UserColumns::INSERT;
    UPDATE = UserColumns::UPDATE;
    OTHER_ADMIN = "SELECT id FROM users WHERE tenant_id = $1 AND role = 'admin' AND status = 'active' AND id <> $2 LIMIT 1";
    /// Those of some users; the list adds their ids.
    IDENTITIES = "SELECT user_id, provider_id, subject FROM user_identities WHERE tenant_id = $1";
    INSERT_IDENTITY = "INSERT INTO user_identities (tenant_id, provider_id, subject, user_id, created_at)
        VALUES ($1, $2, $3, $4, $5)";
    DELETE_IDENTITY = "DELETE FROM user_identities WHERE tenant_id = $1 AND provider_id = $2 AND subject = $3";
    /// Made or changed while the tenant's clock was ahead.
    IN_FUTURE = "SELECT id FROM users WHERE tenant_id = $1 AND updated_at > $2 ORDER BY updated_at, sequence, id LIMIT $3";
    BRING_BACK = "UPDATE users SET updated_at = $3, created_at = CASE WHEN created_at > $3 THEN $3 ELSE created_at END
        WHERE tenant_id = $1 AND id = $2";
}

/// More than anybody has: who has signed on somewhere is refused elsewhere.
const IDENTITIES_MAX: usize = 10;

/// A user as stored, with their place in the order of changes.
pub struct StoredUser {
    pub user: User,
    pub sequence: i64,
}

impl FromRow for StoredUser {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        const AT: UserColumns<usize> = UserColumns::AT;
        let user = User {
            id: row.get(AT.id)?,
            email: row.get(AT.email)?,
            name: row.get(AT.name)?,
            role: <Role as Word>::stored(&row.get::<String>(AT.role)?)?,
            status: Status::stored(&row.get::<String>(AT.status)?)?,
            platform_operator: row.get(AT.platform_operator)?,
            last_signed_in_at: row.get(AT.last_signed_in_at)?,
            identities: Vec::new(),
            version: row.get(AT.version)?,
            created_at: row.get(AT.created_at)?,
            updated_at: row.get(AT.updated_at)?,
        };
        Ok(StoredUser { user, sequence: row.get(AT.sequence)? })
    }
}

fn values(user: &User, sequence: i64) -> Vec<Value> {
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

/// An identity, and whose it is.
type IdentityRow = (UserId, ProviderId, String);

/// The identities of these users, all in one statement.
fn identities_of(ids: &[UserId]) -> Select {
    let select = Select::new(IDENTITIES).along("user_identities_by_user").any("user_id", ids.iter().copied());
    select.order(&["user_id", "provider_id", "subject"], Direction::Ascending).limit(IDENTITIES_MAX * ids.len())
}

fn put_identities(users: &mut [User], rows: Vec<IdentityRow>) {
    let mut of: HashMap<UserId, Vec<Identity>> = HashMap::new();
    for (user, provider, subject) in rows {
        of.entry(user).or_default().push(Identity { provider, subject });
    }
    for user in users {
        user.identities = of.remove(&user.id).unwrap_or_default();
    }
}

/// These users with their identities.
pub async fn complete(db: &Db, found: Vec<StoredUser>) -> Result<Vec<User>> {
    let mut users: Vec<User> = found.into_iter().map(|stored| stored.user).collect();
    let ids: Vec<UserId> = users.iter().map(|user| user.id).collect();
    if !ids.is_empty() {
        put_identities(&mut users, db.select(&identities_of(&ids)).await?);
    }
    Ok(users)
}

pub async fn get(db: &Db, id: UserId) -> Result<User> {
    let found: Option<StoredUser> = db.find(GET, args![id]).await?;
    complete(db, found.into_iter().collect()).await?.pop().ok_or_else(Error::not_found)
}

/// By an address that is folded.
pub async fn find_by_email(db: &Db, email: &str) -> Result<Option<User>> {
    let found: Option<StoredUser> = db.find(FIND_BY_EMAIL, args![email]).await?;
    Ok(complete(db, found.into_iter().collect()).await?.pop())
}

/// Users in the order of their addresses, behind one of them.
pub async fn list_by_email(db: &Db, after: &str, rows: i64) -> Result<Vec<User>> {
    let found: Vec<StoredUser> = db.list(LIST_BY_EMAIL, args![after, rows]).await?;
    complete(db, found).await
}

async fn completed(tx: &mut Tx, found: Option<StoredUser>) -> Result<Option<User>> {
    let Some(StoredUser { user, .. }) = found else { return Ok(None) };
    let mut users = [user];
    let rows: Vec<IdentityRow> = tx.select(&identities_of(&[users[0].id])).await?;
    put_identities(&mut users, rows);
    let [user] = users;
    Ok(Some(user))
}

/// The user as they are in a transaction; 404 if there is none.
pub async fn read(tx: &mut Tx, id: UserId) -> Result<User> {
    let found = tx.find(GET, args![id]).await?;
    completed(tx, found).await?.ok_or_else(Error::not_found)
}

/// The same by an address that is folded, if there is one.
pub async fn read_by_email(tx: &mut Tx, email: &str) -> Result<Option<User>> {
    let found = tx.find(FIND_BY_EMAIL, args![email]).await?;
    completed(tx, found).await
}

/// Who shall be made.
pub struct Draft {
    /// Folded.
    pub email: String,
    pub name: String,
    pub role: Role,
    pub status: Status,
    pub platform_operator: bool,
    /// Of somebody who has signed on just now.
    pub identity: Option<Identity>,
}

/// Makes a user, for whoever may.
pub async fn insert(tx: &mut Tx, draft: Draft) -> Result<User> {
    let Tick { at, sequence } = tx.tick().await?;
    check_email(tx, &draft.email).await?;
    let now = tx.world().now();
    let user = User {
        id: UserId::new_numbered(tx.world(), at, sequence),
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
    tx.later(INSERT, values(&user, sequence)).await?;
    for identity in &user.identities {
        insert_identity(tx, user.id, identity).await?;
    }
    tx.changed("user", user.id).await?;
    audit::record(tx, Entry::new("user.create", "user", user.id)).await?;
    events::publish(tx, &USER_CREATED, user.id, &user).await?;
    Ok(user)
}

pub async fn insert_identity(tx: &mut Tx, user: UserId, identity: &Identity) -> Result<()> {
    let at = tx.tick().await?.at;
    let row = vec![identity.provider.into(), identity.subject.as_str().into(), user.into(), at.into()];
    tx.later(INSERT_IDENTITY, row).await
}

/// Unique in the tenant; the index keeps it so, and this says so.
async fn check_email(tx: &mut Tx, email: &str) -> Result<()> {
    match tx.find::<StoredUser>(FIND_BY_EMAIL, args![email]).await? {
        None => Ok(()),
        Some(_) => Err(Error::conflict(format!("A user with the e-mail {email:?} exists already in this tenant."))),
    }
}

/// Makes a user with the rights of whoever asks.
pub async fn create(tx: &mut Tx, rights: &Rights, input: Input) -> Result<User> {
    check_grant(rights, input.role)?;
    let draft = Draft {
        email: input.email,
        name: input.name.into_string(),
        role: input.role,
        status: input.status.unwrap_or(Status::Active),
        platform_operator: false,
        identity: None,
    };
    insert(tx, draft).await
}

/// The user a change is about: 404, then 403 if they hold more than the caller, then 412.
async fn read_to_change(tx: &mut Tx, rights: &Rights, id: UserId, if_match: &IfMatch) -> Result<User> {
    let user = read(tx, id).await?;
    check_reach(rights, &user)?;
    if_match.check(user.version)?;
    Ok(user)
}

pub async fn replace(tx: &mut Tx, rights: &Rights, id: UserId, if_match: &IfMatch, input: Input) -> Result<User> {
    check_grant(rights, input.role)?;
    let old = read_to_change(tx, rights, id, if_match).await?;
    let new = User {
        email: input.email,
        name: input.name.into_string(),
        role: input.role,
        status: input.status.unwrap_or(old.status),
        ..old.clone()
    };
    check_self(rights, &old, &new)?;
    change(tx, &old, new).await
}

/// Disables a user. Whoever is disabled already stays as they are.
pub async fn disable(tx: &mut Tx, rights: &Rights, id: UserId, if_match: &IfMatch) -> Result<()> {
    let old = read_to_change(tx, rights, id, if_match).await?;
    let new = User { status: Status::Disabled, ..old.clone() };
    check_self(rights, &old, &new)?;
    change(tx, &old, new).await.map(drop)
}

/// Forgets who a user is at every provider, or at this one. What they were linked to may have been somebody else, so whatever they
/// are signed in by ends. `None` if there is nothing to forget. The clock has been moved already.
pub async fn unlink(tx: &mut Tx, id: UserId, provider: Option<ProviderId>) -> Result<Option<User>> {
    let old = read(tx, id).await?;
    let is_meant = |identity: &Identity| provider.is_none_or(|provider| identity.provider == provider);
    let (forgotten, identities): (Vec<Identity>, Vec<Identity>) = old.identities.iter().cloned().partition(is_meant);
    if forgotten.is_empty() {
        return Ok(None);
    }
    for identity in &forgotten {
        tx.exec(DELETE_IDENTITY, args![identity.provider, identity.subject]).await?;
    }
    end_sign_ins(tx, id).await?;
    let new = User { identities, ..old.clone() };
    save(tx, &old, new).await.map(Some)
}

/// Whether the tenant has another active admin than this user.
pub async fn has_other_admin(tx: &mut Tx, id: UserId) -> Result<bool> {
    Ok(tx.find::<UserId>(OTHER_ADMIN, args![id]).await?.is_some())
}

/// Makes one state of a user the other, by the rules that hold for everybody. The clock has been moved when the old one was
/// read.
pub async fn change(tx: &mut Tx, old: &User, new: User) -> Result<User> {
    if loses_admin(old, &new) {
        let has_other = has_other_admin(tx, old.id).await?;
        check_admin_left(old, &new, has_other)?;
    }
    if new.email != old.email {
        check_email(tx, &new.email).await?;
    }
    save(tx, old, new).await
}

/// Writes what is different, and tells of it. What changes nothing writes nothing.
pub async fn save(tx: &mut Tx, old: &User, mut new: User) -> Result<User> {
    let different = changes(old, &new)?;
    if different.0.is_empty() {
        return Ok(new);
    }
    let Tick { at, sequence } = tx.tick().await?;
    (new.version, new.updated_at) = (old.version + 1, at);
    tx.later(UPDATE, values(&new, sequence)).await?;
    tx.changed("user", new.id).await?;
    let is_disabled = old.status == Status::Active && new.status == Status::Disabled;
    if is_disabled {
        end_sign_ins(tx, new.id).await?;
    }
    tell(tx, &new, different, is_disabled).await?;
    Ok(new)
}

/// That somebody is disabled is told by itself; whatever else is different, before that.
async fn tell(tx: &mut Tx, user: &User, different: Changes, is_disabled: bool) -> Result<()> {
    let (mut updated, mut disabled) = (audit::Changes::default(), audit::Changes::default());
    for (field, change) in &different.0 {
        let entry = if is_disabled && field == "status" { &mut disabled } else { &mut updated };
        entry.tell(field, &change.from, &change.to);
    }
    if !updated.is_empty() {
        audit::record(tx, Entry::new("user.update", "user", user.id).changes(updated)).await?;
        let data = UpdatedUser { user: user.clone(), changes: different };
        events::publish(tx, &USER_UPDATED, user.id, &data).await?;
    }
    if is_disabled {
        audit::record(tx, Entry::new("user.disable", "user", user.id).changes(disabled)).await?;
        events::publish(tx, &USER_DISABLED, user.id, user).await?;
    }
    Ok(())
}

/// Takes users out of the future, before the tenant's clock is set back: otherwise whoever asks for what changed since then would
/// miss all that changes until then. Tells how many there were.
pub async fn bring_back(db: &Db, now: Timestamp) -> Result<u64> {
    let mut all = 0;
    loop {
        let brought = db.write(async move |tx| {
            let found: Vec<UserId> = tx.list(IN_FUTURE, args![now, STEP_ROWS]).await?;
            let mut rows: Vec<Vec<Value>> = Vec::with_capacity(found.len());
            for id in found {
                tx.changed("user", id).await?;
                rows.push(vec![id.into(), now.into()]);
            }
            tx.exec_each(BRING_BACK, &rows).await
        });
        let brought = brought.await?;
        all += brought;
        if brought < STEP_ROWS.unsigned_abs() {
            return Ok(all);
        }
    }
}
