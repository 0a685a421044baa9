//! The session of the caller: who it is, and signing out.

pub mod feature;
pub mod routes;

use kernel::auth::{PrincipalIdentity, Role, Tenant};
use kernel::base::{ActorKind, Timestamp};
use kernel::http::Caller;
use serde::Serialize;
use utoipa::ToSchema;

/// The caller, as the service sees it. Fields that do not apply are `null`.
#[derive(Serialize, ToSchema)]
#[schema(as = Session, example = json!({
    "tenant": {"id": "ten_01jd8z6v2mfkpb7h3q9xw5t4ra", "slug": "acme", "name": "Acme"},
    "actor": {"type": "user", "id": "usr_01jd8z6v2mfkpb7h3q9xw5t4rb", "name": "Admin", "email": "admin@acme.test"},
    "role": "admin",
    "platform_operator": false,
    "scopes": ["*"],
    "expires_at": "2026-11-15T09:30:00.000Z"
}))]
pub struct CurrentSession {
    pub tenant: Tenant,
    pub actor: SessionActor,
    /// Of a user; a key has scopes alone.
    #[schema(required)]
    pub role: Option<Role>,
    #[schema(required)]
    pub platform_operator: Option<bool>,
    pub scopes: Vec<String>,
    /// When the credential stops working: for a session, if it is not used again.
    #[schema(value_type = String, format = DateTime)]
    pub expires_at: Timestamp,
}

#[derive(Serialize, ToSchema)]
pub struct SessionActor {
    #[serde(rename = "type")]
    pub kind: ActorKind,
    pub id: String,
    pub name: String,
    #[schema(required)]
    pub email: Option<String>,
}

impl CurrentSession {
    pub fn for_caller(caller: &Caller) -> Self {
        let (kind, name, email, role, platform_operator) = match caller.identity() {
            PrincipalIdentity::User(user) => {
                (ActorKind::User, &user.name, Some(user.email.clone()), Some(user.role), Some(user.platform_operator))
            }
            PrincipalIdentity::Key(key) => (ActorKind::ApiKey, &key.name, None, None, None),
        };
        CurrentSession {
            tenant: caller.tenant().clone(),
            actor: SessionActor { kind, id: caller.actor_id().to_owned(), name: name.clone(), email },
            role,
            platform_operator,
            scopes: caller.scopes().granted_words().to_vec(),
            expires_at: caller.expires_at(),
        }
    }
}
