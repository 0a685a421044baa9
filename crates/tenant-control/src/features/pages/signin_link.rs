//! The page of a sign-in link: it says whom the link signs in, and has a button for it. Chat programs and mail scanners
//! open links before people do, and an attacker can send a link for their own account. So only the button on this page
//! redeems the link.

use askama::Template;
use axum::response::{IntoResponse, Response};
use kernel::auth::SigninLink;
use kernel::base::Result;
use kernel::http::SharedApp;

use super::page::{HtmlPage, minute_words};

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

/// `None` if the link is unknown, used or expired.
pub async fn find_link_page(app: &SharedApp, token: &str) -> Result<Option<Response>> {
    let Some(link) = app.find_signin_link(token).await? else { return Ok(None) };
    let shown = SigninLinkPage { here: "/signin", redeem_path: REDEEM_PATH, token, link };
    Ok(Some(HtmlPage::with_token(&shown)?.into_response()))
}
