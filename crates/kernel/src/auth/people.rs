//! Tenants and their users, as the operator makes them at the command line.

use serde::Serialize;

use super::principal::Tenant;
use super::role::Role;
use crate::audit::{self, Changes, Entry};
use crate::base::{
    Actor, Error, Label, OnDuplicate, RecordId, Result, SessionId, TenantId, Timestamp, UserId, check_slug, is_email,
};
use crate::store::refer::Referable;
use crate::store::{Db, FromRow, Purpose, Row, Store, Tx, Value};

crate::statements! {
    INSERT_TENANT = "INSERT INTO tenants (id, slug, name, version, created_at, updated_at) VALUES ($1, $2, $3, 1, $4, $4)";
    INSERT_CLOCK = "INSERT INTO tenant_clocks (tenant_id, last_at, sequence) VALUES ($1, $2, 0)";
    INSERT_USER = "INSERT INTO users (tenant_id, id, email, name, role, platform_operator, version, created_at, updated_at)
        VALUES ($1, $2, $3, $4, $5, $6, 1, $7, $7)";
    FIND_TENANT = "SELECT id, slug, name FROM tenants WHERE slug = $1";
    LIST_TENANTS = "SELECT id, slug, name FROM tenants WHERE slug > $1 ORDER BY slug LIMIT $2";
    FIND_USER = "SELECT id, email, name, role, platform_operator, created_at FROM users WHERE tenant_id = $1 AND email = $2";
    GET_USER = "SELECT id, email, name, role, platform_operator, created_at FROM users WHERE tenant_id = $1 AND id = $2";
    LIST_USERS = "SELECT id, email, name, role, platform_operator, created_at FROM users
        WHERE tenant_id = $1 AND email > $2 ORDER BY email LIMIT $3";
    UPDATE_USER = "UPDATE users SET role = $3, platform_operator = $4, version = version + 1, updated_at = $5
        WHERE tenant_id = $1 AND id = $2";
    LIST_USER_SESSIONS = "SELECT id FROM sessions WHERE tenant_id = $1 AND user_id = $2 ORDER BY id";
    DELETE_USER_SESSION = "DELETE FROM sessions WHERE tenant_id = $1 AND id = $2";
    DELETE_USER_LINKS = "DELETE FROM signin_links WHERE tenant_id = $1 AND user_id = $2";
    DELETE_USER = "DELETE FROM users WHERE tenant_id = $1 AND id = $2";
    HAS_USER = "SELECT id FROM users WHERE tenant_id = $1 AND id = $2";
    COUNT_TENANTS = "SELECT COUNT(*) FROM (SELECT id FROM tenants LIMIT 1) AS any_tenant";
}

impl FromRow for Tenant {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        Ok(Tenant { id: row.get(0)?, slug: row.get(1)?, name: row.get(2)? })
    }
}

/// Someone who can sign in.
#[derive(Clone, Debug, Serialize)]
pub struct User {
    pub id: UserId,
    pub email: String,
    pub name: String,
    pub role: Role,
    pub platform_operator: bool,
    pub created_at: Timestamp,
}

impl FromRow for User {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        let role: String = row.get(3)?;
        Ok(User {
            id: row.get(0)?,
            email: row.get(1)?,
            name: row.get(2)?,
            role: Role::parse(&role).ok_or_else(|| Error::internal(format!("unknown role {role:?}")))?,
            platform_operator: row.get(4)?,
            created_at: row.get(5)?,
        })
    }
}

/// What the operator says about a new user.
#[derive(Clone, Debug)]
pub struct NewUser {
    pub email: String,
    pub name: Option<String>,
    pub role: Role,
    pub platform_operator: bool,
}

/// Rows of one step when the command line lists everything.
const LIST_ROWS: i64 = 500;

pub async fn create_tenant(store: &Store, name: &str, slug: &str) -> Result<Tenant> {
    let name = Label::parse(name).map_err(|detail| Error::invalid("/name", "invalid_name", detail))?.into_string();
    check_slug(slug)?;
    let tenant = Tenant { id: TenantId::new(store.world()), slug: slug.to_owned(), name };
    let made = tenant.clone();
    store
        .tenant(tenant.id, Actor::operator())
        .write(async move |tx| insert_tenant(tx, &tenant).await)
        .await
        .on_duplicate(|| Error::conflict(format!("A tenant with the slug {slug:?} exists already.")))?;
    Ok(made)
}

async fn insert_tenant(tx: &mut Tx, tenant: &Tenant) -> Result<()> {
    let now = tx.world().now();
    tx.exec(INSERT_TENANT, crate::args![tenant.slug, tenant.name, now]).await?;
    tx.exec(INSERT_CLOCK, crate::args![now]).await?;
    audit::record(tx, Entry::new("tenant.create", "tenant", tenant.id)).await
}

/// The operator's handle to the records of a tenant: the command line's own door.
pub fn operate(store: &Store, tenant: &Tenant) -> Db {
    store.tenant(tenant.id, Actor::operator())
}

pub async fn create_user(store: &Store, tenant: &Tenant, new: NewUser) -> Result<User> {
    let new = check_user(new)?;
    let email = new.email.clone();
    operate(store, tenant)
        .write(async move |tx| insert_user(tx, new).await)
        .await
        .on_duplicate(|| Error::conflict(format!("A user with the e-mail {email:?} exists already in this tenant.")))
}

async fn insert_user(tx: &mut Tx, new: NewUser) -> Result<User> {
    let id = UserId::new(tx.world());
    let name = new.name.unwrap_or_else(|| new.email.split('@').next().unwrap_or_default().to_owned());
    let at = tx.tick().await?.at;
    tx.exec(INSERT_USER, crate::args![id, new.email, name, new.role.as_str(), new.platform_operator, at]).await?;
    tx.changed("user", id).await?;
    audit::record(tx, Entry::new("user.create", "user", id)).await?;
    Ok(User { id, email: new.email, name, role: new.role, platform_operator: new.platform_operator, created_at: at })
}

/// What the operator changes about a user; `None` stays.
#[derive(Clone, Copy, Debug)]
pub struct UserChange {
    pub role: Option<Role>,
    pub platform_operator: Option<bool>,
}

/// In force at once: a session's rights are read with the session. What is not changed is as it is now, not as whoever asks
/// has seen it.
pub async fn update_user(store: &Store, tenant: &Tenant, id: UserId, change: UserChange) -> Result<User> {
    operate(store, tenant)
        .write(async move |tx| {
            let at = tx.tick().await?.at;
            let old: User = tx.one(GET_USER, crate::args![id]).await?;
            let role = change.role.unwrap_or(old.role);
            let platform_operator = change.platform_operator.unwrap_or(old.platform_operator);
            let mut changes = Changes::default();
            changes.add("role", old.role.as_str(), role.as_str());
            changes.add("platform_operator", old.platform_operator, platform_operator);
            if !changes.is_empty() {
                tx.exec(UPDATE_USER, crate::args![id, role.as_str(), platform_operator, at]).await?;
                tx.changed("user", id).await?;
                audit::record(tx, Entry::new("user.update", "user", id).changes(changes)).await?;
            }
            Ok(User { role, platform_operator, ..old })
        })
        .await
}

/// Ends the user's sessions too. Keys they made belong to the tenant and stay.
pub async fn delete_user(store: &Store, tenant: &Tenant, user: &User) -> Result<()> {
    let id = user.id;
    operate(store, tenant)
        .write(async move |tx| {
            tx.tick().await?;
            // In the order in which last uses are noted, so that the two never wait for each other.
            let sessions: Vec<SessionId> = tx.list(LIST_USER_SESSIONS, crate::args![id]).await?;
            let sessions: Vec<Vec<Value>> = sessions.into_iter().map(|session| vec![session.into()]).collect();
            tx.exec_each(DELETE_USER_SESSION, &sessions).await?;
            tx.exec(DELETE_USER_LINKS, crate::args![id]).await?;
            tx.exec(DELETE_USER, crate::args![id]).await?;
            tx.changed("user", id).await?;
            audit::record(tx, Entry::new("user.delete", "user", id)).await
        })
        .await
}

/// On an empty store: a first tenant and its admin. `None` when there is a tenant already, or another node was first.
pub async fn create_first_admin(store: &Store) -> Result<Option<(Tenant, User)>> {
    let tenants: i64 = store.system(Purpose::Startup).one(COUNT_TENANTS, crate::args![]).await?;
    if tenants > 0 {
        return Ok(None);
    }
    let tenant = Tenant { id: TenantId::new(store.world()), slug: "default".to_owned(), name: "Default".to_owned() };
    let admin = NewUser {
        email: "admin@localhost".to_owned(),
        name: Some("Admin".to_owned()),
        role: Role::Admin,
        platform_operator: true,
    };
    let first = tenant.clone();
    let made = store
        .tenant(tenant.id, Actor::system())
        .write(async move |tx| {
            insert_tenant(tx, &tenant).await?;
            insert_user(tx, admin).await
        })
        .await;
    match made {
        Ok(user) => Ok(Some((first, user))),
        Err(error) if error.is_duplicate() => Ok(None),
        Err(error) => Err(error),
    }
}

pub async fn find_tenant(db: &Db, slug: &str) -> Result<Option<Tenant>> {
    db.find(FIND_TENANT, crate::args![slug]).await
}

pub async fn list_tenants(db: &Db) -> Result<Vec<Tenant>> {
    let mut all: Vec<Tenant> = Vec::new();
    loop {
        let after = all.last().map(|tenant| tenant.slug.clone()).unwrap_or_default();
        let rows: Vec<Tenant> = db.list(LIST_TENANTS, crate::args![after, LIST_ROWS]).await?;
        if rows.is_empty() {
            return Ok(all);
        }
        all.extend(rows);
    }
}

/// Users as others refer to them.
pub const USERS: Referable = Referable { prefix: UserId::PREFIX, table: "users", only: None };

/// Whether the tenant has this user.
pub async fn has_user(tx: &mut Tx, id: UserId) -> Result<bool> {
    Ok(tx.find::<UserId>(HAS_USER, crate::args![id]).await?.is_some())
}

/// `email` in any case.
pub async fn find_user(store: &Store, tenant: &Tenant, email: &str) -> Result<Option<User>> {
    operate(store, tenant).find(FIND_USER, crate::args![email.to_lowercase()]).await
}

pub async fn list_users(store: &Store, tenant: &Tenant) -> Result<Vec<User>> {
    let db = operate(store, tenant);
    let mut all: Vec<User> = Vec::new();
    loop {
        let after = all.last().map(|user| user.email.clone()).unwrap_or_default();
        let rows: Vec<User> = db.list(LIST_USERS, crate::args![after, LIST_ROWS]).await?;
        if rows.is_empty() {
            return Ok(all);
        }
        all.extend(rows);
    }
}

fn check_user(mut new: NewUser) -> Result<NewUser> {
    new.email = new.email.trim().to_lowercase();
    if !is_email(&new.email) {
        return Err(Error::invalid("/email", "invalid_email", "must be an e-mail address"));
    }
    if let Some(name) = &new.name {
        let label = Label::parse(name).map_err(|detail| Error::invalid("/name", "invalid_name", detail))?;
        new.name = Some(label.into_string());
    }
    Ok(new)
}
