//! The doors for whoever is about to sign in and is nobody yet. Single sign-on alone uses those to records; a test sees to it.

use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderMap;
use tokio::time::timeout;

use super::app::App;
use super::context::Context;
use crate::auth::{EndedSession, SigninLink, cookies, end_presented_session, find_signin_link};
use crate::base::{Actor, Result, TenantId};
use crate::store::{Db, Purpose};

/// How long somebody waits for the session that they had before to end.
const REPLACING_MAX: Duration = Duration::from_secs(2);

/// Sessions of one browser that are looked for: it has one, and what others have set beside it.
const PRESENTED_MAX: usize = 24;

impl App {
    /// The records of all tenants: whose a domain or a sign-on is, is what the read finds out.
    pub fn signing_on(&self) -> Db {
        self.store.system(Purpose::SignIn)
    }

    /// Those of the tenant that such a read has found.
    pub fn signing_on_to(&self, tenant: TenantId, actor: Actor) -> Db {
        self.store.tenant(tenant, actor)
    }

    /// Whom a sign-in link would sign in. None when it is unknown, used or too old. It stays as it is.
    pub async fn find_signin_link(&self, token: &str) -> Result<Option<SigninLink>> {
        find_signin_link(&self.store, token).await
    }

    /// Ends the sessions that a browser presents, be it too old to act with. Returns the last of those that a provider had begun.
    pub async fn end_presented_sessions(&self, headers: &HeaderMap, context: &Context) -> Result<Option<EndedSession>> {
        let from = (context.address.0, &*context.request_id);
        let mut last = None;
        let mut tokens = cookies(headers, self.settings.base_url.cookie_name());
        // Those that others have set for a part of the host come first.
        tokens.drain(..tokens.len().saturating_sub(PRESENTED_MAX));
        for token in tokens {
            let parts = (&self.store, &self.credentials, &self.secrets);
            last = end_presented_session(parts, &token, from).await?.or(last);
        }
        Ok(last)
    }

    /// The same for a browser that has just got another session: whoever used it before does not stay signed in behind its back.
    /// The new one is on disk by now, and does not wait for what the tenant of the old one may be busy with.
    pub async fn end_replaced_sessions(self: Arc<Self>, headers: HeaderMap, context: Arc<Context>) {
        let ending = tokio::spawn(async move {
            if let Err(error) = self.end_presented_sessions(&headers, &context).await {
                tracing::warn!(%error, request_id = &*context.request_id, "a session that was replaced has not ended");
            }
        });
        // Later is late, and not never: it goes on by itself.
        drop(timeout(REPLACING_MAX, ending).await);
    }
}
