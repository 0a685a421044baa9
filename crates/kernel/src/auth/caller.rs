//! The caller of a request: found once, before anything else is looked at, and the only door to its tenant's data.

use std::sync::Arc;

use axum::http::request::Parts;
use axum::http::{HeaderMap, Method};
use ipnet::IpNet;

use super::credentials::{StoredKey, StoredSession, Tenant, unauthenticated};
use super::csrf;
use super::key_format::PublicId;
use super::presented::Presented;
use super::role::Role;
use super::scope::{Scope, Scopes};
use crate::base::{
    Actor, ActorKind, ActorRef, ApiKeyId, Code, Credential, CredentialKind, Error, Result, SessionId, TenantId,
    Timestamp, UserId, sha256,
};
use crate::http::{Context, Policy, Rules, Shared};
use crate::store::Db;

/// Who is calling, with what they may do.
pub struct Caller {
    app: Shared,
    context: Arc<Context>,
    identity: Identity,
    scopes: Scopes,
    tenant: Tenant,
    expires_at: Timestamp,
}

pub enum Identity {
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

impl Caller {
    /// The tenant's data, for a caller that holds the scope, where the request decides which is needed. What a route
    /// always needs, its rules say.
    pub fn require(&self, scope: Scope) -> Result<Db> {
        if self.scopes.holds(scope) { Ok(self.own()) } else { Err(lacks(scope)) }
    }

    /// The tenant's data, for whoever has checked what the caller may do.
    pub(super) fn own(&self) -> Db {
        self.app.store.tenant(self.tenant.id, self.actor())
    }

    pub fn app(&self) -> &Shared {
        &self.app
    }

    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    pub fn scopes(&self) -> &Scopes {
        &self.scopes
    }

    pub fn tenant(&self) -> &Tenant {
        &self.tenant
    }

    pub fn tenant_id(&self) -> TenantId {
        self.tenant.id
    }

    pub fn expires_at(&self) -> Timestamp {
        self.expires_at
    }

    pub fn actor_id(&self) -> String {
        match &self.identity {
            Identity::User(user) => user.id.to_string(),
            Identity::Key(key) => key.id.to_string(),
        }
    }

    /// Waits for something to happen without a place among the requests under way. Each credential and each tenant may
    /// have so many such waits; one more is 503.
    pub async fn wait<T>(&self, wait: impl Future<Output = T>) -> Result<T> {
        self.context.wait_for_news(&self.app, wait).await
    }

    fn credential(&self) -> Credential {
        match &self.identity {
            Identity::User(user) => Credential { kind: CredentialKind::Session, id: user.session.to_string() },
            Identity::Key(key) => Credential { kind: CredentialKind::ApiKey, id: key.id.to_string() },
        }
    }

    fn actor(&self) -> Actor {
        let (kind, name) = match &self.identity {
            Identity::User(user) => (ActorKind::User, &user.name),
            Identity::Key(key) => (ActorKind::ApiKey, &key.name),
        };
        Actor {
            who: ActorRef { kind, id: Some(self.actor_id()), name: name.clone() },
            credential: Some(self.credential()),
            address: Some(self.context.address.0),
            request_id: Some(self.context.request_id.clone()),
        }
    }

    fn from_session(app: Shared, context: Arc<Context>, session: &StoredSession, expires_at: Timestamp) -> Self {
        let user = UserIdentity {
            id: session.user_id,
            session: session.id,
            name: session.user_name.clone(),
            email: session.email.clone(),
            role: session.role,
            platform_operator: session.platform_operator,
        };
        let scopes = session.role.scopes(session.platform_operator);
        Caller { app, context, identity: Identity::User(user), scopes, tenant: session.tenant.clone(), expires_at }
    }

    fn from_key(app: Shared, context: Arc<Context>, key: &StoredKey, secret: PublicId) -> Self {
        let (name, allowed_cidrs) = (key.name.clone(), key.allowed_cidrs.clone());
        let identity = KeyIdentity { id: key.id, secret, name, allowed_cidrs };
        let mut scopes = key.scopes.clone();
        if !key.made_by_operator {
            scopes = scopes.without(Scope::PlatformRead);
        }
        Caller {
            app,
            context,
            identity: Identity::Key(identity),
            scopes,
            tenant: key.tenant.clone(),
            expires_at: key.expires_at,
        }
    }

    /// 429, then the refusals that need no scope, in the contract's order.
    async fn admit(&self, policy: Policy, method: &Method, headers: &HeaderMap) -> Result<()> {
        let (state, verdict) = self.app.limiter.charge_caller(policy, &self.credential().id, self.tenant.id);
        self.context.note_rate(state);
        verdict?;
        self.context.enter(&self.app, method).await?;
        match &self.identity {
            Identity::User(_) => csrf::check(method, headers, &self.app.settings.base_url),
            Identity::Key(key) => {
                let address = self.context.address.0;
                if key.allowed_cidrs.is_empty() || key.allowed_cidrs.iter().any(|network| network.contains(&address)) {
                    return Ok(());
                }
                Err(Error::new(Code::AddressNotAllowed, format!("The key may not be used from {address}.")))
            }
        }
    }
}

impl Caller {
    /// Finds the caller and lets it in by the rules of a route, in the contract's order.
    pub(super) async fn enter(parts: &mut Parts, app: &Shared, rules: &Rules) -> Result<Self> {
        let context = Context::of(parts)?;
        let caller = match authenticate(app, &context, &parts.headers).await {
            Ok(caller) => caller,
            Err(error) if error.code().status() >= 500 => return Err(error),
            // Guessing is charged to the address, and past its budget it is not even told that it was wrong.
            Err(error) => return Err(context.charge_address(app, Policy::Public).err().unwrap_or(error)),
        };
        context.note_who(caller.actor_id());
        caller.admit(rules.policy(parts.uri.query()), &parts.method, &parts.headers).await?;
        let now = app.world.now();
        match &caller.identity {
            Identity::User(user) => app.credentials.note_session_use(user.session, now),
            Identity::Key(key) => app.credentials.note_key_use(key.id, caller.tenant.id, now, context.address.0),
        }
        caller.check(rules)?;
        rules.body.note(parts);
        Ok(caller)
    }

    /// What the route asks of whoever calls it.
    fn check(&self, rules: &Rules) -> Result<()> {
        if let (Identity::Key(_), Some(told)) = (&self.identity, rules.sessions_only) {
            return Err(Error::insufficient_scope("session", told));
        }
        match rules.scopes {
            [] => Ok(()),
            any if any.iter().any(|scope| self.scopes.holds(*scope)) => Ok(()),
            [first, ..] => Err(lacks(*first)),
        }
    }
}

fn lacks(scope: Scope) -> Error {
    Error::insufficient_scope(scope.name(), format!("This needs the scope {}.", scope.name()))
}

async fn authenticate(app: &Shared, context: &Arc<Context>, headers: &HeaderMap) -> Result<Caller> {
    let now = app.world.now();
    match Presented::find(headers, app.settings.base_url.cookie_name())? {
        Presented::Nothing | Presented::Key(None) => Err(unauthenticated()),
        Presented::Key(Some(plain)) => {
            let hash = plain.hash(&app.secrets);
            admit_look_up(app, context, &hash)?;
            let key = app.credentials.find_key(&app.store, plain.public_id(), hash, now).await?;
            Ok(Caller::from_key(app.clone(), context.clone(), &key, plain.secret_id()))
        }
        Presented::Cookie(token) => {
            let (hash, idle_ms) = (sha256(token.as_bytes()), app.settings.session_idle_ms);
            admit_look_up(app, context, &hash)?;
            let (session, expires_at) = app.credentials.find_session(&app.store, hash, now, idle_ms).await?;
            Ok(Caller::from_session(app.clone(), context.clone(), &session, expires_at))
        }
    }
}

/// An address that has used up its budget by guessing buys only so many look-ups more. A credential that is known to be
/// stored is looked up whatever others at the same address do.
pub(super) fn admit_look_up(app: &Shared, context: &Arc<Context>, hash: &[u8; 32]) -> Result<()> {
    if app.credentials.knows(hash) || app.limiter.may_look_up(context.address) {
        return Ok(());
    }
    // Past the budget this is the refusal; if the minute has just turned, it is none.
    context.charge_address(app, Policy::Public)
}
