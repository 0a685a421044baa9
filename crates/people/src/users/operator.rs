//! Users as the operator manages them at the command line, with all rights and by the same rules: a tenant keeps one active
//! admin. Only here can a user become a platform operator.

use kernel::auth::{Role, Tenant, insert_tenant, open_as_operator, plan_first_tenant};
use kernel::base::{Error, Label, Result, UserId};
use kernel::store::Store;

use super::store::{self, UserDraft};
use super::{User, UserStatus, fold_email, name_from_email};
use crate::identity_providers::ProviderId;

/// The operator's description of a new user.
#[derive(Clone, Debug)]
pub struct NewUser {
    pub email: String,
    /// The local part of the address if omitted.
    pub name: Option<String>,
    pub role: Role,
    pub platform_operator: bool,
}

/// The operator's changes to a user; `None` stays.
#[derive(Clone, Debug, Default)]
pub struct UserUpdate {
    pub name: Option<String>,
    pub role: Option<Role>,
    pub platform_operator: Option<bool>,
    pub status: Option<UserStatus>,
}

/// Rows of one read when the command line lists all users.
const LIST_ROWS: i64 = 500;

pub async fn create_user(store: &Store, tenant: &Tenant, new: NewUser) -> Result<User> {
    let draft = draft_user(new)?;
    open_as_operator(store, tenant).write(async move |tx| store::insert_user(tx, draft).await).await
}

fn draft_user(new: NewUser) -> Result<UserDraft> {
    let NewUser { email, name, role, platform_operator } = new;
    let email = fold_email(&email).map_err(|detail| Error::invalid("/email", "invalid_email", detail))?;
    let name = name.map(|name| parse_name(&name)).transpose()?.unwrap_or_else(|| name_from_email(&email));
    Ok(UserDraft { email, name, role, status: UserStatus::Active, platform_operator, identity: None })
}

fn parse_name(name: &str) -> Result<String> {
    let label = Label::parse(name).map_err(|detail| Error::invalid("/name", "invalid_name", detail))?;
    Ok(label.into_string())
}

/// In force at once, because a session's rights are read with the session. Unchanged fields keep their current values, not
/// those the caller has seen.
pub async fn update_user(store: &Store, tenant: &Tenant, id: UserId, change: UserUpdate) -> Result<User> {
    let name = change.name.as_deref().map(parse_name).transpose()?;
    open_as_operator(store, tenant)
        .write(async move |tx| {
            tx.tick().await?;
            let old = store::get_user_in_tx(tx, id).await?;
            let new = User {
                name: name.unwrap_or_else(|| old.name.clone()),
                role: change.role.unwrap_or(old.role),
                platform_operator: change.platform_operator.unwrap_or(old.platform_operator),
                status: change.status.unwrap_or(old.status),
                ..old.clone()
            };
            store::change_user(tx, &old, new).await
        })
        .await
}

/// Disables the user and ends their sessions. Keys they made belong to the tenant and stay.
pub async fn delete_user(store: &Store, tenant: &Tenant, user: &User) -> Result<()> {
    let change = UserUpdate { status: Some(UserStatus::Disabled), ..UserUpdate::default() };
    update_user(store, tenant, user.id, change).await.map(drop)
}

/// Deletes the identities of a user, or the one at this provider, and ends their sessions. The next sign-on with the user's
/// verified address is linked to them. `None` if there is no such identity.
pub async fn unlink_user(
    store: &Store,
    tenant: &Tenant,
    id: UserId,
    provider: Option<ProviderId>,
) -> Result<Option<User>> {
    open_as_operator(store, tenant)
        .write(async move |tx| {
            tx.tick().await?;
            store::unlink_identities(tx, id, provider).await
        })
        .await
}

/// `email` may be in upper or lower case.
pub async fn find_user(store: &Store, tenant: &Tenant, email: &str) -> Result<Option<User>> {
    // A stored address may be one that today's rules refuse.
    let email = fold_email(email).unwrap_or_else(|_| email.trim().to_owned());
    store::find_by_email(&open_as_operator(store, tenant), &email).await
}

pub async fn list_users(store: &Store, tenant: &Tenant) -> Result<Vec<User>> {
    let db = open_as_operator(store, tenant);
    let mut all: Vec<User> = Vec::new();
    loop {
        let after = all.last().map(|user| user.email.clone()).unwrap_or_default();
        let rows = store::list_by_email(&db, &after, LIST_ROWS).await?;
        if rows.is_empty() {
            return Ok(all);
        }
        all.extend(rows);
    }
}

/// Creates the first tenant and its admin in an empty store. `None` if there is a tenant, or another node was first.
pub async fn create_first_admin(store: &Store) -> Result<Option<(Tenant, User)>> {
    let Some((tenant, db)) = plan_first_tenant(store).await? else { return Ok(None) };
    let admin = UserDraft {
        email: "admin@localhost".to_owned(),
        name: "Admin".to_owned(),
        role: Role::Admin,
        status: UserStatus::Active,
        platform_operator: true,
        identity: None,
    };
    let first = tenant.clone();
    let made = db
        .write(async move |tx| {
            insert_tenant(tx, &tenant).await?;
            store::insert_user(tx, admin).await
        })
        .await;
    match made {
        Ok(user) => Ok(Some((first, user))),
        Err(error) if error.is_duplicate() => Ok(None),
        Err(error) => Err(error),
    }
}
