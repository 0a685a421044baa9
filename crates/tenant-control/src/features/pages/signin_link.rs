//! The page of a sign-in link, which says whom it signs in, and its button, which does so. Chat programs and mail scanners
//! open links before people do, and an attacker can send a link for their own account. So only the button on this page
//! redeems the link.

use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use kernel::auth::SigninLink;
use kernel::base::Result;
use kernel::http::{Context, Form, Policy, Shared};

use super::page::{Page, minute_words};
use super::signin::{redirect, refuse_link};
use people::cookie;
use people::sso;

/// Where the button sends the token, in the body and not in the URL.
pub const REDEEM_PATH: &str = "/signin/link";

#[derive(Template)]
#[template(path = "signin_link.html")]
struct ShownLink<'a> {
    here: &'static str,
    redeem_path: &'static str,
    token: &'a str,
    link: SigninLink,
}

impl ShownLink<'_> {
    /// To the minute: `2026-11-15 09:30 UTC`.
    fn expires_at_words(&self) -> String {
        minute_words(self.link.expires_at)
    }
}

pub async fn show(app: &Shared, context: &Context, token: &str) -> Result<Response> {
    let Some(link) = app.find_signin_link(token).await? else { return refuse_link(app, context) };
    let shown = ShownLink { here: "/signin", redeem_path: REDEEM_PATH, token, link };
    Ok(Page::with_token(&shown)?.into_response())
}

/// Handles the button. A valid link is neither charged to the address nor refused because its rate limit is used up.
pub async fn redeem_link(
    State(app): State<Shared>,
    Extension(context): Extension<Arc<Context>>,
    headers: HeaderMap,
    form: Form,
) -> Result<Response> {
    let fields = match form.read().await {
        Ok(fields) => fields,
        Err(error) => return Err(context.charge_address(&app, Policy::AuthFailures).err().unwrap_or(error)),
    };
    redeem(app, context, headers, fields.get("token").unwrap_or_default()).await
}

pub async fn redeem(app: Shared, context: Arc<Context>, headers: HeaderMap, token: &str) -> Result<Response> {
    let Some(session) = app.redeem_signin_link(token, &context).await? else { return refuse_link(&app, &context) };
    app.clone().end_replaced_sessions(headers, context).await;
    let base_url = &app.settings.base_url;
    let cookie = cookie::setting(base_url.cookie_name(), session.reveal(), base_url.is_https());
    redirect(sso::DEFAULT_REDIRECT, &[cookie])
}
