//! Principals as read from the store. One read serves many requests, so derived values are computed once.

use std::sync::Arc;

use ipnet::IpNet;
use serde::Serialize;

use super::key_format::PublicId;
use super::role::Role;
use super::scope::Scopes;
use crate::base::{ApiKeyId, RecordId, SessionId, TenantId, UserId};
use crate::store::references::Referable;

/// Users as other records refer to them: only active users, because nobody else can be assigned work.
pub const USERS: Referable = Referable { prefix: UserId::PREFIX, table: "users", only: Some("status = 'active'") };

/// A tenant, as answers name it.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct Tenant {
    #[schema(value_type = String, example = "ten_01jd8z6v2mfkpb7h3q9xw5t4ra")]
    pub id: TenantId,
    #[schema(example = "acme")]
    pub slug: String,
    #[schema(example = "Acme")]
    pub name: String,
}

pub struct Principal {
    pub tenant: Tenant,
    pub identity: PrincipalIdentity,
    pub scopes: Scopes,
    /// The id of the user or key that acts.
    pub actor_id: Arc<str>,
    /// The id of the session, or of the same key.
    pub credential_id: Arc<str>,
}

pub enum PrincipalIdentity {
    User(UserIdentity),
    Key(KeyIdentity),
}

pub struct UserIdentity {
    pub id: UserId,
    pub session: SessionId,
    pub name: String,
    pub email: String,
    pub role: Role,
    pub platform_operator: bool,
}

pub struct KeyIdentity {
    pub id: ApiKeyId,
    /// The secret that was presented.
    pub secret: PublicId,
    pub name: String,
    pub allowed_cidrs: Vec<IpNet>,
}

impl Principal {
    pub fn from_user(tenant: Tenant, user: UserIdentity) -> Self {
        let scopes = user.role.granted_scopes(user.platform_operator);
        let (actor_id, credential_id) = (user.id.to_string().into(), user.session.to_string().into());
        Principal { tenant, identity: PrincipalIdentity::User(user), scopes, actor_id, credential_id }
    }

    pub fn from_key(tenant: Tenant, key: KeyIdentity, scopes: Scopes) -> Self {
        let id: Arc<str> = key.id.to_string().into();
        Principal { tenant, identity: PrincipalIdentity::Key(key), scopes, actor_id: id.clone(), credential_id: id }
    }
}
