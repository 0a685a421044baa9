//! Credentials of another kind than keys and cookies, for routes that are not in the document: an agent's ingest key, say.
//!
//! A feature says how its kind is presented and whose one is ([`Pass`]); the rest is the same for every request: 401 and the
//! guesser's budget, 429 of the holder's own, turns, and the name in the log.

use std::marker::PhantomData;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::app::{App, Shared};
use super::caller::admit_look_up;
use super::context::Context;
use super::limiter::Policy;
use super::rules::{Route, Rules};
use crate::auth::unauthenticated;
use crate::base::{Actor, ActorRef, Chain, Error, Result, TenantId};
use crate::store::{Db, Purpose};

/// A kind of credential.
pub trait Pass: Sized + Send + Sync + 'static {
    /// What a client without one is told to present, in `WWW-Authenticate`.
    const CHALLENGE: &'static str;

    /// What a request presents, before any database is asked: nothing, or what could be one. 400 for more than one.
    fn presented(headers: &HeaderMap) -> Result<Option<Self>>;

    /// A hash of the secret. Once it was good here, it is looked up whatever others at the same address do.
    fn hash(&self) -> [u8; 32];

    /// Whose it is, if anybody's. `all` reads the records of all tenants: whose it is, is what the read finds out.
    fn find(&self, all: &Db, app: &App) -> impl Future<Output = Result<Option<PassOwner>>> + Send;
}

/// Whom a pass was made out to.
pub struct PassOwner {
    pub tenant: TenantId,
    /// The pass's own id, for the log; it has a budget of its own.
    pub id: Arc<str>,
    /// Who did what is done with it.
    pub who: ActorRef,
}

/// Whoever presents a good pass, let in by the rules `R`. The first argument of such a route's handler.
pub struct Holder<P, R> {
    pass: P,
    owner: PassOwner,
    app: Shared,
    context: Arc<Context>,
    route: PhantomData<fn() -> R>,
}

impl<P, R> Holder<P, R> {
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

    pub fn tenant_id(&self) -> TenantId {
        self.owner.tenant
    }
}

impl<P: Pass, R: Route> FromRequestParts<Shared> for Holder<P, R> {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, app: &Shared) -> Result<Self, Response> {
        const {
            assert!(R::RULES.is_by_caller(), "a caller does not pay with the budget of an address");
            assert!(R::RULES.scopes.is_empty() && R::RULES.sessions_only.is_none(), "a pass has neither");
        };
        let refused = |error: Error| {
            let mut response = error.into_response();
            if response.status() == StatusCode::UNAUTHORIZED {
                let challenge = HeaderValue::from_static(P::CHALLENGE);
                response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
            }
            response
        };
        let context = Context::of(parts).map_err(refused)?;
        let (pass, owner) = enter::<P>(parts, app, &context, &R::RULES).await.map_err(refused)?;
        Ok(Holder { pass, owner, app: app.clone(), context, route: PhantomData })
    }
}

async fn enter<P: Pass>(
    parts: &mut Parts,
    app: &Shared,
    context: &Arc<Context>,
    rules: &Rules,
) -> Result<(P, PassOwner)> {
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

async fn authenticate<P: Pass>(app: &Shared, context: &Arc<Context>, headers: &HeaderMap) -> Result<(P, PassOwner)> {
    let pass = P::presented(headers)?.ok_or_else(unauthenticated)?;
    let hash = pass.hash();
    if !app.credentials.knows(&hash) {
        admit_look_up(app, context)?;
    }
    let found = pass.find(&app.store.system(Purpose::Credentials), app).await;
    let owner = app.credentials.note_pass(hash, found.and_then(|owner| owner.ok_or_else(unauthenticated)))?;
    Ok((pass, owner))
}
