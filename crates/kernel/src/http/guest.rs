//! Access for visitors who are about to sign in and have no credential yet. Only single sign-on may use the handles here;
//! a test checks that.

use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderMap;
use tokio::time::timeout;

use super::app::App;
use super::context::RequestContext;
use crate::auth::{EndedSession, SigninLink, end_presented_session, find_signin_link, read_cookies};
use crate::base::{Actor, Result, TenantId};
use crate::store::{Db, Purpose};

/// How long a sign-in waits until the browser's previous sessions have ended.
const REPLACING_MAX: Duration = Duration::from_secs(2);

/// Session cookies of one browser that are looked up. It has one of ours; other sites may have set more.
const PRESENTED_MAX: usize = 24;

impl App {
    /// A system door: the read finds out which tenant a domain or a sign-on belongs to.
    pub fn signing_on(&self) -> Db {
        self.store.system(Purpose::SignIn)
    }

    /// The handle of the tenant that such a read has found.
    pub fn signing_on_to(&self, tenant: TenantId, actor: Actor) -> Db {
        self.store.tenant(tenant, actor)
    }

    /// The user of a sign-in link, which is not redeemed. `None` when it is unknown, used or expired.
    pub async fn find_signin_link(&self, token: &str) -> Result<Option<SigninLink>> {
        find_signin_link(&self.store, token).await
    }

    /// Ends the sessions that a browser presents, expired ones too. Returns the last that an identity provider had begun.
    pub async fn end_presented_sessions(
        &self,
        headers: &HeaderMap,
        context: &RequestContext,
    ) -> Result<Option<EndedSession>> {
        let from = (context.address.0, &*context.request_id);
        let mut last = None;
        let mut tokens = read_cookies(headers, self.settings.base_url.cookie_name());
        // Cookies with a longer path, which other applications of the host may have set, come first.
        tokens.drain(..tokens.len().saturating_sub(PRESENTED_MAX));
        for token in tokens {
            let parts = (&self.store, &self.credentials, &self.secrets);
            last = end_presented_session(parts, &token, from).await?.or(last);
        }
        Ok(last)
    }

    /// Ends the previous sessions of a browser that has just signed in again, so that no earlier user stays signed in. The
    /// new session is on disk already, so this waits only briefly if the old session's tenant is busy.
    pub async fn end_replaced_sessions(self: Arc<Self>, headers: HeaderMap, context: Arc<RequestContext>) {
        let ending = tokio::spawn(async move {
            if let Err(error) = self.end_presented_sessions(&headers, &context).await {
                tracing::warn!(%error, request_id = &*context.request_id, "failed to end a replaced session");
            }
        });
        // The task goes on after the timeout.
        drop(timeout(REPLACING_MAX, ending).await);
    }
}
