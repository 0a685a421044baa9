//! Users of a tenant: who may sign in, with which role, and who may change that.
//!
//! Sessions and their rights are in `kernel::auth`, which every request passes through. Users are never deleted, because
//! tickets and the audit trail name them: a disabled user cannot sign in, and the address stays taken.

pub mod feature;
pub mod find;
pub mod input;
mod operator;
pub mod routes;
/// Finding or creating the user of a sign-on.
pub mod sign_on {
    pub mod store;
}
pub mod store;

use std::collections::BTreeMap;

use kernel::audit::{FieldChange, changed_fields};
use kernel::auth::{CredentialRef, Rights, Role, Scopes};
use kernel::base::{Error, Result, Timestamp, UserId, is_email};
use kernel::events::EventKind;
use kernel::http::Record;
use serde::Serialize;
use unicode_normalization::UnicodeNormalization;
use utoipa::ToSchema;

use crate::identity_providers::ProviderId;

pub use operator::{
    NewUser, UserUpdate, create_first_admin, create_user, delete_user, find_user, list_users, unlink_user, update_user,
};
pub use sign_on::store::{SignOn, SignOnOutcome, sign_on};
pub use store::clamp_future_timestamps;

pub const USER_CREATED: EventKind<User> =
    EventKind::new("user.created", "A user was made, by somebody or by signing on for the first time.");
pub const USER_UPDATED: EventKind<UpdatedUser> =
    EventKind::new("user.updated", "Fields of a user changed; `changes` says which, from what and to what.");
pub const USER_DISABLED: EventKind<User> =
    EventKind::new("user.disabled", "A user was disabled: all sessions have ended, and nobody can sign in as them.");

kernel::string_enum! {
    /// Whether somebody can sign in.
    #[schema(as = UserStatus)]
    pub enum UserStatus { Active "active", Disabled "disabled" }
}

/// A person who can sign in, unless disabled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(example = json!({
    "id": "usr_01jd8z6v2mfkpb7h3q9xw5t4ra", "email": "ann@acme.test", "name": "Ann", "role": "technician",
    "status": "active", "platform_operator": false, "last_signed_in_at": "2026-11-16T08:00:00.000Z",
    "identities": [{"provider": "sso_01jd8z6v2mfkpb7h3q9xw5t4rb", "subject": "248289761001"}], "version": 2,
    "created_at": "2026-11-15T08:00:00.000Z", "updated_at": "2026-11-16T08:00:00.000Z"
}))]
pub struct User {
    #[schema(value_type = String)]
    pub id: UserId,
    /// In small letters; unique in the tenant, also among those who are disabled.
    pub email: String,
    pub name: String,
    pub role: Role,
    pub status: UserStatus,
    /// Whether they may read the figures of all tenants; only the operator at the command line says so.
    pub platform_operator: bool,
    #[schema(value_type = Option<String>, format = DateTime, required)]
    pub last_signed_in_at: Option<Timestamp>,
    /// Their accounts at identity providers; none until they have signed on.
    pub identities: Vec<ProviderIdentity>,
    pub version: i64,
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    pub updated_at: Timestamp,
}

impl Record for User {
    fn version(&self) -> i64 {
        self.version
    }
}

/// The account of a user at an identity provider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = UserIdentity)]
pub struct ProviderIdentity {
    /// The provider's id.
    #[schema(value_type = String)]
    pub provider: ProviderId,
    /// The provider's fixed id for them, whatever their name and address.
    pub subject: String,
}

/// Fields before and after.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
#[schema(as = UserChanges)]
#[serde(transparent)]
pub struct UserChanges(pub BTreeMap<String, FieldChange>);

/// A user with what has just changed of them.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(example = json!({
    "id": "usr_01jd8z6v2mfkpb7h3q9xw5t4ra", "email": "ann@acme.test", "name": "Ann", "role": "admin",
    "status": "active", "platform_operator": false, "last_signed_in_at": null, "identities": [], "version": 2,
    "created_at": "2026-11-15T08:00:00.000Z", "updated_at": "2026-11-16T08:00:00.000Z",
    "changes": {"role": {"from": "technician", "to": "admin"}}
}))]
pub struct UpdatedUser {
    #[serde(flatten)]
    pub user: User,
    pub changes: UserChanges,
}

impl User {
    /// The scopes of the user's sessions.
    pub fn granted_scopes(&self) -> Scopes {
        self.role.granted_scopes(self.platform_operator)
    }

    fn is_active_admin(&self) -> bool {
        self.role == Role::Admin && self.status == UserStatus::Active
    }
}

/// Folds an e-mail address into the form that is stored and compared. Characters whose lower case belongs to another letter,
/// such as the kelvin sign, are refused, because two addresses would become one. So are compatibility characters, such as
/// ligatures. Composed and decomposed accents give the same address.
pub fn fold_email(text: &str) -> Result<String, String> {
    let text = text.trim();
    let composed: String = text.nfc().collect();
    if is_email(text) && text.chars().all(has_own_small_form) && composed.nfkc().eq(composed.chars()) {
        return Ok(composed.to_lowercase());
    }
    Err("must be an e-mail address".to_owned())
}

/// Whether the character is lower case, or is the upper case of its lower case.
fn has_own_small_form(c: char) -> bool {
    let mut folded = c.to_lowercase();
    matches!((folded.next(), folded.next()), (Some(small), None) if small == c || small.to_uppercase().eq([c]))
}

/// The longest name that is made from an address.
const NAME_CHARS_MAX: usize = 200;

/// The local part of an address, as the name of a user who has given none.
pub fn name_from_email(email: &str) -> String {
    email.split('@').next().unwrap_or_default().chars().take(NAME_CHARS_MAX).collect()
}

/// A caller cannot give a role with scopes that the caller does not hold.
pub fn check_grant(rights: &Rights, role: Role) -> Result<()> {
    rights.require_all(&role.granted_scopes(false), "Giving this role")
}

/// A caller cannot change a user with scopes that the caller does not hold. This includes the address, which is a way to
/// sign in.
pub fn check_reach(rights: &Rights, user: &User) -> Result<()> {
    rights.require_all(&user.granted_scopes(), "Changing this user")
}

/// Users cannot disable or demote themselves: it would be a mistake.
pub fn check_self(rights: &Rights, old: &User, new: &User) -> Result<()> {
    let is_self = matches!(rights.credential, Some(CredentialRef::Session { user, .. }) if user == old.id);
    if !is_self {
        return Ok(());
    }
    if old.status != new.status {
        return Err(Error::conflict("You cannot disable yourself. Ask another admin."));
    }
    if new.role.granted_scopes(false).find_missing(&old.role.granted_scopes(false)).is_some() {
        return Err(Error::conflict("You cannot take rights from yourself. Ask another admin."));
    }
    Ok(())
}

/// Whether a change takes an active admin from the tenant.
pub fn loses_admin(old: &User, new: &User) -> bool {
    old.is_active_admin() && !new.is_active_admin()
}

/// A tenant keeps one active admin: without one, nobody could create another.
pub fn check_admin_left(old: &User, new: &User, has_other: bool) -> Result<()> {
    if has_other || !loses_admin(old, new) {
        return Ok(());
    }
    Err(Error::conflict("A tenant keeps at least one active admin, and this is the last one. Make another one first."))
}

/// Fields that change with every write or by themselves, and are not reported as changes.
const UNREPORTED_FIELDS: [&str; 3] = ["version", "updated_at", "last_signed_in_at"];

/// The fields in which two states of a user differ.
pub fn diff_users(old: &User, new: &User) -> Result<UserChanges> {
    changed_fields(old, new, &UNREPORTED_FIELDS).map(UserChanges)
}

#[cfg(test)]
mod tests;
