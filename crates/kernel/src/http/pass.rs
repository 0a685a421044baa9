//! Credentials of another kind than keys and cookies, for routes that are not in the document: an agent's ingest key, say.
//!
//! A feature says how its kind is presented and whose one is ([`Pass`]); the rest is the same for every request: 401 and the
//! guesser's budget, 429 of the holder's own, turns, and the name in the log.

use std::marker::PhantomData;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::request::Parts;

use super::admission::WorkPermit;
use super::app::{App, Shared};
use super::caller::admit_look_up;
use super::context::Context;
use super::limiter::Policy;
use super::manner::Manner;
use super::rules::{Route, Rules};
use crate::auth::Presented;
use crate::base::{Actor, ActorRef, Chain, Code, Error, Result, TenantId};
use crate::store::{Db, Purpose};

/// A kind of credential.
pub trait Pass: Sized + Send + Sync + 'static {
    /// What a client without one is told to present, in `WWW-Authenticate`.
    const CHALLENGE: &'static str;

    /// What of the tenant's its holder reaches.
    type Reach: Send + Sync;

    /// What a request presents, before any database is asked: nothing, or what could be one. It presents no other
    /// credential beside it: that is 400 already.
    fn presented(headers: &HeaderMap) -> Option<Self>;

    /// A hash of the secret. Once it was good here, it is looked up whatever others at the same address do.
    fn hash(&self) -> [u8; 32];

    /// Whose it is, if anybody's. `all` reads the records of all tenants: whose it is, is what the read finds out.
    fn find(&self, all: &Db, app: &App) -> impl Future<Output = Result<Option<PassOwner<Self::Reach>>>> + Send;
}

/// Whom a pass was made out to.
pub struct PassOwner<Reach> {
    pub tenant: TenantId,
    /// The pass's own id, for the log; it has a budget of its own.
    pub id: Arc<str>,
    /// Who did what is done with it.
    pub who: ActorRef,
    pub reach: Reach,
}

/// Whoever presents a good pass, let in by the rules `R`. The first argument of such a route's handler.
pub struct Holder<P: Pass, R> {
    pass: P,
    owner: PassOwner<P::Reach>,
    app: Shared,
    context: Arc<Context>,
    route: PhantomData<fn() -> R>,
}

impl<P: Pass, R> Holder<P, R> {
    /// The tenant's data.
    pub fn db(&self) -> Db {
        let actor = Actor {
            who: self.owner.who.clone(),
            credential: None,
            address: Some(self.context.address.0),
            request_id: Some(self.context.request_id.clone()),
            chain: Chain::default(),
        };
        self.app.store.tenant(self.owner.tenant, actor)
    }

    pub fn app(&self) -> &Shared {
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

    /// Waits for one of the few parsers, which take a thread and memory for a while: one of all, and the one that its tenant
    /// may have.
    pub async fn acquire_parser(&self) -> Result<WorkPermit> {
        self.app.admission.acquire_parser(self.owner.tenant).await
    }

    /// Waits until one more report of its tenant may be under way, from the parser to the disk.
    pub async fn acquire_report(&self) -> Result<WorkPermit> {
        self.app.admission.acquire_report(self.owner.tenant).await
    }
}

impl<P: Pass, R: Route> FromRequestParts<Shared> for Holder<P, R> {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, app: &Shared) -> Result<Self> {
        const {
            assert!(R::RULES.is_by_caller(), "a caller does not pay with the budget of an address");
            assert!(R::RULES.scopes.is_empty() && R::RULES.sessions_only.is_none(), "a pass has neither");
        };
        let context = Context::of(parts)?;
        let speak = R::RULES.speak.map(|speak| (speak, parts.headers.clone()));
        context.note_manner(Manner::Pass { challenge: P::CHALLENGE, speak });
        let (pass, owner) = enter::<P>(parts, app, &context, &R::RULES).await?;
        Ok(Holder { pass, owner, app: app.clone(), context, route: PhantomData })
    }
}

async fn enter<P: Pass>(
    parts: &mut Parts,
    app: &Shared,
    context: &Arc<Context>,
    rules: &Rules,
) -> Result<(P, PassOwner<P::Reach>)> {
    let (pass, owner) = match authenticate::<P>(app, context, &parts.headers).await {
        Ok(found) => found,
        Err(error) if error.code().status() >= 500 => return Err(error),
        Err(error) => return Err(context.charge_address(app, Policy::Public).err().unwrap_or(error)),
    };
    context.note_who(owner.id.clone());
    let (state, verdict) = app.limiter.charge_caller(rules.policy(parts.uri.query()), &owner.id, owner.tenant);
    context.note_rate(state);
    verdict?;
    context.enter(app, &parts.method).await?;
    rules.body.note(parts);
    Ok((pass, owner))
}

async fn authenticate<P: Pass>(
    app: &Shared,
    context: &Arc<Context>,
    headers: &HeaderMap,
) -> Result<(P, PassOwner<P::Reach>)> {
    // Whatever else it may be, two of them are one too many.
    Presented::find(headers, app.settings.base_url.cookie_name())?;
    let pass = P::presented(headers).ok_or_else(unauthenticated)?;
    let hash = pass.hash();
    if !app.credentials.knows(&hash) {
        admit_look_up(app, context)?;
    }
    let found = pass.find(&app.store.system(Purpose::Credentials), app).await;
    let owner = app.credentials.note_pass(hash, found.and_then(|owner| owner.ok_or_else(unauthenticated)))?;
    Ok((pass, owner))
}

fn unauthenticated() -> Error {
    Error::new(Code::Unauthenticated, "Send a valid credential of the kind that WWW-Authenticate names.")
}
