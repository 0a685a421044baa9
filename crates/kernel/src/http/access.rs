//! The door of a tenant's route: whoever has come through it holds what the route's rules ask for.

use std::marker::PhantomData;
use std::ops::Deref;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;

use super::app::Shared;
use super::caller::Caller;
use super::rules::Route;
use crate::auth::{AskedRights, Rights, RightsOfMany, Scope, Standing};
use crate::base::{Error, Result};
use crate::store::{Db, Tx};

/// A caller that was let in by the rules `R`: 400 for two credentials, 401, 429, then 403. The first argument of every
/// handler of a tenant's route. No scope, no database: a route that names none has no [`Access::db`].
///
/// ```compile_fail
/// # use kernel::http::{Access, Policy, Rules};
/// kernel::rules! { Anybody = Rules::new(Policy::Read, &[]); }
/// let data = Access::<Anybody>::db as fn(&_) -> _;
/// ```
///
/// ```
/// # use kernel::auth::Scope;
/// # use kernel::http::{Access, Policy, Rules};
/// kernel::rules! { Reading = Rules::new(Policy::Read, &[Scope::TicketsRead]); }
/// let data = Access::<Reading>::db as fn(&_) -> _;
/// ```
pub struct Access<R> {
    caller: Caller,
    route: PhantomData<fn() -> R>,
}

impl<R> Deref for Access<R> {
    type Target = Caller;

    fn deref(&self) -> &Caller {
        &self.caller
    }
}

impl<R: Route> Access<R> {
    /// Found out while compiling, for a route that has not exactly one.
    const SCOPE: Scope = match R::RULES.one_scope() {
        Some(scope) => scope,
        None => panic!("these rules do not name one scope: ask for the one that is needed with caller.require(scope)"),
    };

    /// The tenant's data, for a caller that holds the route's scope.
    pub fn db(&self) -> Db {
        const { assert!(R::RULES.one_scope().is_some(), "no scope, no database") };
        self.caller.own()
    }

    /// To be confirmed in the transaction of a change.
    pub fn grant(&self) -> Grant {
        Grant { standing: self.caller.standing(), scope: Self::SCOPE }
    }

    /// Asks, after a wait, whether the credential still stands and still holds the route's scope, and what else it holds.
    pub async fn still_holds(&self) -> Result<Rights> {
        self.caller.still_holds_scope(Self::SCOPE).await
    }

    /// The same by what was read of many credentials together; none if this one was not among them.
    pub fn judge(&self, read: &RightsOfMany) -> Option<Result<Rights>> {
        read.judge(self.caller.standing(), Self::SCOPE, &self.caller.own())
    }
}

/// A route's scope, held by its caller when the request came.
#[derive(Clone, Copy, Debug)]
pub struct Grant {
    standing: Standing,
    scope: Scope,
}

impl Grant {
    /// Moves the tenant's clock, then tells the rights as they are now: 401 if the credential is gone, 403 if the scope is.
    pub async fn confirm(self, tx: &mut Tx) -> Result<Rights> {
        self.standing.confirm(tx, self.scope).await
    }

    /// The first half of it: moves the clock and asks, and waits for neither. What is asked behind it goes with it.
    pub async fn ask(self, tx: &mut Tx) -> Result<AskedGrant> {
        Ok(AskedGrant { asked: self.standing.ask(tx).await?, scope: self.scope })
    }
}

/// What was asked about a grant. Nothing may be told or kept before it is confirmed.
#[must_use]
pub struct AskedGrant {
    asked: AskedRights,
    scope: Scope,
}

impl AskedGrant {
    /// The second half of [`Grant::confirm`].
    pub async fn confirm(self, tx: &mut Tx) -> Result<Rights> {
        self.asked.confirm(tx, self.scope).await
    }
}

impl<R: Route> FromRequestParts<Shared> for Access<R> {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, app: &Shared) -> Result<Self> {
        const { assert!(R::RULES.is_by_caller(), "a caller does not pay with the budget of an address") };
        let caller = Caller::enter(parts, app, &R::RULES).await?;
        Ok(Access { caller, route: PhantomData })
    }
}
