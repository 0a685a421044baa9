//! Authorization of a tenant's route: an [`Access`] value proves that the caller meets the route's rules.

use std::marker::PhantomData;
use std::ops::Deref;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;

use super::app::SharedApp;
use super::caller::Caller;
use super::rules::Route;
use crate::auth::{CredentialRef, PendingRights, Rights, RightsBatch, Scope};
use crate::base::{Error, Result};
use crate::store::{Db, Purpose, Tx};

/// A caller that was admitted by the rules `R`: 400 for two credentials, 401, 429, then 403. It is the first argument of
/// every handler of a tenant's route. No scope, no database: a route without a scope has no [`Access::db`].
///
/// ```compile_fail
/// # use kernel::http::{Access, RatePolicy, Rules};
/// kernel::rules! { Anybody = Rules::new(RatePolicy::Read, &[]); }
/// let data = Access::<Anybody>::db as fn(&_) -> _;
/// ```
///
/// ```
/// # use kernel::auth::Scope;
/// # use kernel::http::{Access, RatePolicy, Rules};
/// kernel::rules! { Reading = Rules::new(RatePolicy::Read, &[Scope::TicketsRead]); }
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
    /// Evaluated at compile time: using it for a route without exactly one scope does not compile.
    const SCOPE: Scope = match R::RULES.one_scope() {
        Some(scope) => scope,
        None => panic!("these rules do not name one scope: ask for the one that is needed with caller.require(scope)"),
    };

    /// The tenant's handle, for a caller that holds the route's scope.
    pub fn db(&self) -> Db {
        const { assert!(R::RULES.one_scope().is_some(), "no scope, no database") };
        self.caller.tenant_db()
    }

    /// A handle to the records of all tenants, to read figures of the platform. For routes of platform operators alone.
    pub fn platform_db(&self) -> Db {
        const { assert!(matches!(R::RULES.one_scope(), Some(Scope::PlatformRead)), "for platform operators alone") };
        self.caller.app().store.system(Purpose::Platform)
    }

    /// The rights of this request, to be confirmed in the transaction of a change.
    pub fn grant(&self) -> Grant {
        Grant { credential_ref: self.caller.credential_ref(), scope: Self::SCOPE }
    }

    /// Reads the caller's rights again after a wait; fails if the credential or the route's scope was revoked meanwhile.
    pub async fn confirm_rights_now(&self) -> Result<Rights> {
        self.caller.confirm_scope_now(Self::SCOPE).await
    }

    /// Like [`Access::confirm_rights_now`], from rights that were read for many credentials together. `None` if this one
    /// was not among them.
    pub fn check_rights(&self, read: &RightsBatch) -> Option<Result<Rights>> {
        read.check_rights(self.caller.credential_ref(), Self::SCOPE, &self.caller.tenant_db())
    }
}

/// A route's scope, which the caller held when the request arrived.
#[derive(Clone, Copy, Debug)]
pub struct Grant {
    credential_ref: CredentialRef,
    scope: Scope,
}

impl Grant {
    /// Ticks the tenant's clock and reads the current rights: 401 if the credential was revoked, 403 if the scope was.
    pub async fn confirm(self, tx: &mut Tx) -> Result<Rights> {
        self.credential_ref.confirm_rights(tx, self.scope).await
    }

    /// The first half of [`Grant::confirm`]: sends the tick and the query without waiting for their results. Queries that
    /// follow share the round trip.
    pub async fn start_confirm(self, tx: &mut Tx) -> Result<PendingGrant> {
        Ok(PendingGrant { pending: self.credential_ref.query_rights(tx).await?, scope: self.scope })
    }
}

/// A grant whose query is under way. No data may be returned or committed before it is confirmed.
#[must_use]
pub struct PendingGrant {
    pending: PendingRights,
    scope: Scope,
}

impl PendingGrant {
    /// The second half of [`Grant::confirm`].
    pub async fn finish_confirm(self, tx: &mut Tx) -> Result<Rights> {
        self.pending.confirm_rights(tx, self.scope).await
    }
}

impl<R: Route> FromRequestParts<SharedApp> for Access<R> {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, app: &SharedApp) -> Result<Self> {
        const { assert!(R::RULES.is_by_caller(), "a caller does not pay with the budget of an address") };
        let caller = Caller::authorize_request(parts, app, &R::RULES).await?;
        Ok(Access { caller, route: PhantomData })
    }
}
