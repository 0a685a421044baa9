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
use kernel::http::{Form, RatePolicy, RequestContext, SharedApp};
use people::cookie;
use people::sso;

use super::page::{HtmlPage, minute_words};
use super::signin::{redirect_with_cookies, refuse_link};

/// Where the button sends the token, in the body and not in the URL.
pub const REDEEM_PATH: &str = "/signin/link";

#[derive(Template)]
#[template(path = "signin_link.html")]
struct SigninLinkPage<'a> {
    here: &'static str,
    redeem_path: &'static str,
    token: &'a str,
    link: SigninLink,
}

impl SigninLinkPage<'_> {
    /// To the minute: `2026-11-15 09:30 UTC`.
    fn expires_at_words(&self) -> String {
        minute_words(self.link.expires_at)
    }
}

pub async fn show_link(app: &SharedApp, context: &RequestContext, token: &str) -> Result<Response> {
    let Some(link) = app.find_signin_link(token).await? else { return refuse_link(app, context) };
    let shown = SigninLinkPage { here: "/signin", redeem_path: REDEEM_PATH, token, link };
    Ok(HtmlPage::with_token(&shown)?.into_response())
}

/// Handles the button. A valid link is neither charged to the address nor refused because its rate limit is used up.
pub async fn redeem_link(
    State(app): State<SharedApp>,
    Extension(context): Extension<Arc<RequestContext>>,
    headers: HeaderMap,
    form: Form,
) -> Result<Response> {
    let fields = match form.read_fields().await {
        Ok(fields) => fields,
        Err(error) => return Err(context.charge_address(&app, RatePolicy::AuthFailures).err().unwrap_or(error)),
    };
    redeem_token(app, context, headers, fields.get("token").unwrap_or_default()).await
}

pub async fn redeem_token(
    app: SharedApp,
    context: Arc<RequestContext>,
    headers: HeaderMap,
    token: &str,
) -> Result<Response> {
    let session = app.redeem_signin_link(token, context.address, &context.request_id).await?;
    let Some(session) = session else { return refuse_link(&app, &context) };
    app.clone().end_replaced_sessions(headers, context).await;
    let base_url = &app.settings.base_url;
    let cookie = cookie::set_cookie_header(base_url.cookie_name(), session.expose_secret(), base_url.is_https());
    redirect_with_cookies(sso::DEFAULT_REDIRECT, &[cookie])
}
