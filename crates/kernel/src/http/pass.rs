//! Credentials other than API keys and session cookies, for undocumented routes: for example an agent's ingest key.
//!
//! A feature implements [`Pass`], which reads the credential from the headers and finds its owner. The rest is the same as
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
use super::rate_policy::RatePolicy;
use super::rules::{Route, Rules};
use crate::auth::PresentedCredential;
use crate::base::{Actor, ActorRef, Code, Error, Result, TenantId, WorkflowChain};
use crate::store::{Db, Purpose};

/// A kind of credential.
pub trait Pass: Sized + Send + Sync + 'static {
    /// The `WWW-Authenticate` header of a 401.
    const CHALLENGE: &'static str;

    /// Which of the tenant's records the pass gives access to.
    type Reach: Send + Sync;

    /// The pass in a request's headers, checked for its syntax alone. Requests with a second credential are refused before
    /// with 400.
    fn from_headers(headers: &HeaderMap) -> Option<Self>;

    /// A hash of the secret. A pass that was valid on this node before is looked up even past the address's budget.
    fn secret_hash(&self) -> [u8; 32];

    /// The owner of the pass, if it is valid. `all` is a system door: the read finds out which tenant the pass belongs to.
    fn find_owner(&self, all: &Db, app: &App) -> impl Future<Output = Result<Option<PassOwner<Self::Reach>>>> + Send;
}

/// The tenant and the rights that a pass stands for.
pub struct PassOwner<Reach> {
    pub tenant: TenantId,
    /// The pass's own id, for the log and for its rate limit.
    pub id: Arc<str>,
    /// The actor of changes that are made with the pass.
    pub actor: ActorRef,
    pub reach: Reach,
}

/// The caller with a valid pass, admitted by the rules `R`. It is the first argument of such a route's handler.
pub struct PassHolder<P: Pass, R> {
    pass: P,
    owner: PassOwner<P::Reach>,
    app: SharedApp,
    context: Arc<RequestContext>,
    route: PhantomData<fn() -> R>,
}

impl<P: Pass, R> PassHolder<P, R> {
    /// The tenant's handle.
    pub fn db(&self) -> Db {
        let actor = Actor {
            who: self.owner.actor.clone(),
            credential: None,
            address: Some(self.context.address.0),
            request_id: Some(self.context.request_id.clone()),
            chain: WorkflowChain::default(),
        };
        self.app.store.tenant(self.owner.tenant, actor)
    }

    pub fn app(&self) -> &SharedApp {
        &self.app
    }

    pub fn pass(&self) -> &P {
        &self.pass
    }

    pub fn reach(&self) -> &P::Reach {
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

impl<P: Pass, R: Route> FromRequestParts<SharedApp> for PassHolder<P, R> {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, app: &SharedApp) -> Result<Self> {
        const {
            assert!(R::RULES.is_by_caller(), "a caller does not pay with the budget of an address");
            assert!(R::RULES.scopes.is_empty() && R::RULES.sessions_only.is_none(), "a pass has neither");
        };
        let context = RequestContext::from_parts(parts)?;
        let renderer = R::RULES.error_renderer.map(|renderer| (renderer, parts.headers.clone()));
        context.set_error_format(ErrorFormat::Pass { challenge: P::CHALLENGE, renderer });
        let (pass, owner) = admit_holder::<P>(parts, app, &context, &R::RULES).await?;
        Ok(PassHolder { pass, owner, app: app.clone(), context, route: PhantomData })
    }
}

async fn admit_holder<P: Pass>(
    parts: &mut Parts,
    app: &SharedApp,
    context: &Arc<RequestContext>,
    rules: &Rules,
) -> Result<(P, PassOwner<P::Reach>)> {
    let (pass, owner) = match authenticate_pass::<P>(app, context, &parts.headers).await {
        Ok(found) => found,
        Err(error) if error.code().status() >= 500 => return Err(error),
        Err(error) => return Err(context.charge_address(app, RatePolicy::Public).err().unwrap_or(error)),
    };
    context.set_actor_id(owner.id.clone());
    let (state, verdict) = app.limiter.charge_caller(rules.policy_for(parts.uri.query()), &owner.id, owner.tenant);
    context.set_rate_state(state);
    verdict?;
    context.admit_request(app, &parts.method).await?;
    rules.body.insert_into(parts);
    Ok((pass, owner))
}

async fn authenticate_pass<P: Pass>(
    app: &SharedApp,
    context: &Arc<RequestContext>,
    headers: &HeaderMap,
) -> Result<(P, PassOwner<P::Reach>)> {
    // Refuses requests with two credentials of any kind.
    PresentedCredential::from_headers(headers, app.settings.base_url.cookie_name())?;
    let pass = P::from_headers(headers).ok_or_else(invalid_pass)?;
    let hash = pass.secret_hash();
    if !app.credentials.is_known(&hash) {
        admit_look_up(app, context)?;
    }
    let found = pass.find_owner(&app.store.system(Purpose::Credentials), app).await;
    let owner = app.credentials.update_known_pass(hash, found.and_then(|owner| owner.ok_or_else(invalid_pass)))?;
    Ok((pass, owner))
}

fn invalid_pass() -> Error {
    Error::new(Code::Unauthenticated, "Send a valid credential of the kind that WWW-Authenticate names.")
}
