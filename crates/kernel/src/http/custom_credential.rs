//! Credentials other than API keys and session cookies, for undocumented routes: for example an agent's ingest key.
//!
//! A feature implements [`CustomCredential`], which reads the credential from the headers and finds its owner. The rest is the same as
//! for every request: 401 and the budget of failed attempts, the owner's rate limit, admission, and the id in the log.

use std::marker::PhantomData;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::request::Parts;

use super::app::{App, SharedApp};
use super::budgets::WorkPermit;
use super::caller::admit_look_up;
use super::context::RequestContext;
use super::error_format::ErrorFormat;
use super::rules::{Route, Rules};
use crate::auth::PresentedCredential;
use crate::base::{ActorRef, Code, Error, Result, TenantId};
use crate::store::{Db, Purpose};

/// A kind of credential.
pub trait CustomCredential: Sized + Send + Sync + 'static {
    /// The `WWW-Authenticate` header of a 401.
    const CHALLENGE: &'static str;

    /// Which of the tenant's records the credential gives access to.
    type Reach: Send + Sync;

    /// The credential in a request's headers, checked for its syntax alone. Requests with a second credential are refused before
    /// with 400.
    fn from_headers(headers: &HeaderMap) -> Option<Self>;

    /// A hash of the secret. A credential that was valid on this node before is looked up even past the address's budget.
    fn secret_hash(&self) -> [u8; 32];

    /// The owner of the credential, if it is valid. `all` is a system door: the read finds out which tenant the credential belongs to.
    fn find_owner(
        &self,
        all: &Db,
        app: &App,
    ) -> impl Future<Output = Result<Option<CredentialOwner<Self::Reach>>>> + Send;
}

/// The tenant and the rights that a credential stands for.
pub struct CredentialOwner<Reach> {
    pub tenant: TenantId,
    /// The credential's own id, for the log and for its rate limit.
    pub id: Arc<str>,
    /// The actor of changes that are made with the credential.
    pub actor: ActorRef,
    pub reach: Reach,
}

/// The caller with a valid credential, admitted by the rules `R`. It is the first argument of such a route's handler.
pub struct CredentialHolder<C: CustomCredential, R> {
    credential: C,
    owner: CredentialOwner<C::Reach>,
    app: SharedApp,
    context: Arc<RequestContext>,
    route: PhantomData<fn() -> R>,
}

impl<C: CustomCredential, R> CredentialHolder<C, R> {
    /// The tenant's handle.
    pub fn db(&self) -> Db {
        self.app.store.tenant(self.owner.tenant, self.context.to_actor(self.owner.actor.clone(), None))
    }

    pub fn app(&self) -> &SharedApp {
        &self.app
    }

    pub fn credential(&self) -> &C {
        &self.credential
    }

    pub fn reach(&self) -> &C::Reach {
        &self.owner.reach
    }

    pub fn tenant_id(&self) -> TenantId {
        self.owner.tenant
    }

    /// Waits for a parser permit. There are few, because parsing occupies a thread and memory; a tenant may hold one.
    pub async fn acquire_parser(&self) -> Result<WorkPermit> {
        self.app.admission.acquire_parser(self.owner.tenant).await
    }

    /// Waits for a permit to process one more report of the tenant, from the parser to the disk.
    pub async fn acquire_report(&self) -> Result<WorkPermit> {
        self.app.admission.acquire_report(self.owner.tenant).await
    }
}

impl<C: CustomCredential, R: Route> FromRequestParts<SharedApp> for CredentialHolder<C, R> {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, app: &SharedApp) -> Result<Self> {
        const {
            assert!(R::RULES.is_by_caller(), "a caller does not pay with the budget of an address");
            assert!(R::RULES.scopes.is_empty() && R::RULES.sessions_only.is_none(), "a custom credential has neither");
        };
        let context = RequestContext::from_parts(parts)?;
        let renderer = R::RULES.error_renderer.map(|renderer| (renderer, parts.headers.clone()));
        context.set_error_format(ErrorFormat::CustomCredential { challenge: C::CHALLENGE, renderer });
        let (credential, owner) = admit_holder::<C>(parts, app, &context, &R::RULES).await?;
        Ok(CredentialHolder { credential, owner, app: app.clone(), context, route: PhantomData })
    }
}

async fn admit_holder<C: CustomCredential>(
    parts: &mut Parts,
    app: &SharedApp,
    context: &Arc<RequestContext>,
    rules: &Rules,
) -> Result<(C, CredentialOwner<C::Reach>)> {
    let found = find_credential_owner::<C>(app, context, &parts.headers).await;
    let (credential, owner) = found.map_err(|error| context.charge_failure(app, error))?;
    context.set_actor_id(owner.id.clone());
    let policy = rules.policy_for(parts.uri.query());
    context.charge_and_admit(app, policy, (&owner.id, owner.tenant), &parts.method).await?;
    rules.body.insert_into(parts);
    Ok((credential, owner))
}

async fn find_credential_owner<C: CustomCredential>(
    app: &SharedApp,
    context: &Arc<RequestContext>,
    headers: &HeaderMap,
) -> Result<(C, CredentialOwner<C::Reach>)> {
    // Refuses requests with two credentials of any kind.
    PresentedCredential::from_headers(headers, app.settings.base_url.cookie_name())?;
    let credential = C::from_headers(headers).ok_or_else(invalid_credential)?;
    let hash = credential.secret_hash();
    if !app.credentials.is_known(&hash) {
        admit_look_up(app, context)?;
    }
    let found = credential.find_owner(&app.store.system(Purpose::Credentials), app).await;
    let owner =
        app.credentials.update_known_custom(hash, found.and_then(|owner| owner.ok_or_else(invalid_credential)))?;
    Ok((credential, owner))
}

fn invalid_credential() -> Error {
    Error::new(Code::Unauthenticated, "Send a valid credential of the kind that WWW-Authenticate names.")
}
