//! The caller of a request, authenticated before anything else is read. It is the only way to its tenant's data.

use std::sync::Arc;

use axum::http::request::Parts;
use axum::http::{HeaderMap, Method};

use super::app::SharedApp;
use super::context::RequestContext;
use super::csrf;
use super::rate_policy::RatePolicy;
use super::rules::Rules;
use crate::auth::{
    CredentialRef, PresentedCredential, Principal, PrincipalIdentity, Rights, Scope, Scopes, Tenant, ValidPrincipal,
    end_session, unauthenticated_error,
};
use crate::base::{
    Actor, ActorCredential, ActorKind, ActorRef, Code, CredentialKind, Error, Result, TenantId, Timestamp,
    run_blocking, sha256,
};
use crate::store::Db;

/// The authenticated principal of a request, with its rights.
pub struct Caller {
    app: SharedApp,
    context: Arc<RequestContext>,
    principal: Arc<Principal>,
    expires_at: Timestamp,
}

impl Caller {
    /// The tenant's handle, if the caller holds the scope. For routes whose scope depends on the request; a fixed scope is
    /// in the route's rules.
    pub fn require(&self, scope: Scope) -> Result<Db> {
        if self.scopes().has_scope(scope) { Ok(self.tenant_db()) } else { Err(missing_scope_error(scope)) }
    }

    /// The tenant's handle. The caller's rights must have been checked before.
    pub(super) fn tenant_db(&self) -> Db {
        self.app.store.tenant(self.tenant_id(), self.to_actor())
    }

    pub fn app(&self) -> &SharedApp {
        &self.app
    }

    pub fn identity(&self) -> &PrincipalIdentity {
        &self.principal.identity
    }

    pub fn scopes(&self) -> &Scopes {
        &self.principal.scopes
    }

    pub fn tenant(&self) -> &Tenant {
        &self.principal.tenant
    }

    pub fn tenant_id(&self) -> TenantId {
        self.principal.tenant.id
    }

    pub fn expires_at(&self) -> Timestamp {
        self.expires_at
    }

    pub fn actor_id(&self) -> &str {
        &self.principal.actor_id
    }

    /// Computes an answer of thousands of rows: off the threads that serve requests, and in its turn. A tenant has one such
    /// answer under way.
    pub async fn calculate<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let permit = self.app.admission.acquire_calculation(self.tenant_id()).await?;
        let runtime = tokio::runtime::Handle::current();
        run_blocking(move || {
            let _permit = permit;
            runtime.block_on(work)
        })
        .await
    }

    /// Waits for news without counting as a request under way. The number of waits is bounded for each user or key and for
    /// each tenant; one more is 503.
    pub async fn wait_for_news<T>(&self, wait: impl Future<Output = T>) -> Result<T> {
        self.context.wait_for_news(&self.app, wait).await
    }

    pub fn credential_ref(&self) -> CredentialRef {
        match self.identity() {
            PrincipalIdentity::User(user) => CredentialRef::Session { user: user.id, session: user.session },
            PrincipalIdentity::Key(key) => CredentialRef::Key { id: key.id, secret: key.secret },
        }
    }

    /// Reads the caller's rights again after a wait; fails if the credential or the scope was revoked meanwhile.
    pub async fn confirm_scope_now(&self, scope: Scope) -> Result<Rights> {
        self.credential_ref().confirm_rights_now(&self.tenant_db(), scope).await
    }

    /// Ends the caller's own session; this node refuses it from now on. A key has none.
    pub async fn sign_out(&self) -> Result<()> {
        let PrincipalIdentity::User(user) = self.identity() else {
            return Err(Error::internal("a key has no session to end"));
        };
        end_session(&self.tenant_db(), user.session).await?;
        self.app.credentials.invalidate_tenant(self.tenant_id());
        Ok(())
    }

    fn to_actor(&self) -> Actor {
        let (kind, name, credential) = match self.identity() {
            PrincipalIdentity::User(user) => (ActorKind::User, &user.name, CredentialKind::Session),
            PrincipalIdentity::Key(key) => (ActorKind::ApiKey, &key.name, CredentialKind::ApiKey),
        };
        let who = ActorRef { kind, id: Some(self.actor_id().to_owned()), name: name.clone() };
        let credential_id = self.principal.credential_id.as_ref().to_owned();
        self.context.to_actor(who, Some(ActorCredential { kind: credential, id: credential_id }))
    }

    /// Charges and admits the request: 429, then the refusals that do not depend on scopes, in the contract's order.
    async fn charge_and_admit(&self, policy: RatePolicy, method: &Method, headers: &HeaderMap) -> Result<()> {
        let payer = (&self.principal.credential_id, self.tenant_id());
        self.context.charge_and_admit(&self.app, policy, payer, method).await?;
        match self.identity() {
            PrincipalIdentity::User(_) => csrf::check_origin(method, headers, &self.app.settings.base_url),
            PrincipalIdentity::Key(key) => {
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
    /// Authenticates the caller and checks the route's rules, in the contract's order.
    pub(super) async fn authorize_request(parts: &mut Parts, app: &SharedApp, rules: &Rules) -> Result<Self> {
        let context = RequestContext::from_parts(parts)?;
        let found = authenticate_caller(app, &context, &parts.headers).await;
        let (principal, expires_at) = found.map_err(|error| context.charge_failure(app, error))?;
        context.set_actor_id(principal.actor_id.clone());
        let key = match &principal.identity {
            PrincipalIdentity::Key(key) => Some(key.id),
            PrincipalIdentity::User(_) => None,
        };
        context.set_metered(principal.tenant.id, key);
        let caller = Caller { app: app.clone(), context, principal, expires_at };
        caller.charge_and_admit(rules.policy_for(parts.uri.query()), &parts.method, &parts.headers).await?;
        let now = app.env.now();
        match caller.identity() {
            PrincipalIdentity::User(user) => app.credentials.record_session_use(user.session, now),
            PrincipalIdentity::Key(key) => {
                app.credentials.record_key_use(key.id, caller.tenant_id(), now, caller.context.address.0);
            }
        }
        caller.check_rules(rules)?;
        rules.body.insert_into(parts);
        Ok(caller)
    }

    /// Checks the kind of credential and the scope that the route requires.
    fn check_rules(&self, rules: &Rules) -> Result<()> {
        if let (PrincipalIdentity::Key(_), Some(detail)) = (self.identity(), rules.sessions_only) {
            return Err(Error::insufficient_scope("session", detail));
        }
        match rules.scopes {
            [] => Ok(()),
            any if any.iter().any(|scope| self.scopes().has_scope(*scope)) => Ok(()),
            [first, ..] => Err(missing_scope_error(*first)),
        }
    }
}

fn missing_scope_error(scope: Scope) -> Error {
    Error::insufficient_scope(scope.name(), format!("This needs the scope {}.", scope.name()))
}

async fn authenticate_caller(app: &SharedApp, context: &RequestContext, headers: &HeaderMap) -> Result<ValidPrincipal> {
    let now = app.env.now();
    let admit = || admit_look_up(app, context);
    match PresentedCredential::from_headers(headers, app.settings.base_url.cookie_name())? {
        PresentedCredential::Nothing | PresentedCredential::Key(None) => Err(unauthenticated_error()),
        PresentedCredential::Key(Some(plain)) => {
            let secret = (plain.public_id(), plain.hash(&app.secrets));
            app.credentials.find_key(&app.store, secret, now, admit).await
        }
        PresentedCredential::Cookie(token) => {
            let (hash, idle_ms) = (sha256(token.as_bytes()), app.settings.session_idle_ms);
            app.credentials.find_session(&app.store, hash, (now, idle_ms), admit).await
        }
    }
}

/// Bounds look-ups of unknown credentials from an address that has used up its budget. A credential that is known to be
/// stored is looked up regardless.
pub(super) fn admit_look_up(app: &SharedApp, context: &RequestContext) -> Result<()> {
    if app.limiter.may_look_up(context.address) {
        return Ok(());
    }
    // This refuses past the budget, and succeeds if a new window has just begun.
    context.charge_address(app, RatePolicy::Public)
}
