//! `/signin`: a one-time link signs a browser in, and without one the page says how to get it.

use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use kernel::auth::{SIGNIN_LINK_MS, Token};
use kernel::base::{Error, Result};
use kernel::http::{Context, Settings, Shared};

use super::page::{Page, REFERRER_POLICY, words};
use crate::cookie;

#[derive(Template)]
#[template(path = "signin.html")]
struct SignIn {
    here: &'static str,
    /// A link was followed that is unknown, used or too old.
    is_refused: bool,
    link_lifetime: String,
    idle_limit: String,
    absolute_limit: String,
}

impl SignIn {
    fn page(settings: &Settings, is_refused: bool) -> Result<Page> {
        Page::new(&SignIn {
            here: "/signin",
            is_refused,
            link_lifetime: words(SIGNIN_LINK_MS),
            idle_limit: words(settings.session_idle_ms),
            absolute_limit: words(settings.session_absolute_ms),
        })
    }
}

pub async fn signin(
    State(app): State<Shared>,
    Extension(context): Extension<Arc<Context>>,
    method: Method,
    uri: Uri,
) -> Result<Response> {
    // Only following the link uses it up: programs that look at links before people do ask with HEAD.
    let token = token(&uri).filter(|_| method == Method::GET);
    let Some(token) = token else { return SignIn::page(&app.settings, false).map(Page::into_response) };
    match app.redeem_signin_link(token, &context).await? {
        Some(session) => welcome(&app.settings, &session),
        None => Ok(SignIn::page(&app.settings, true)?.status(StatusCode::GONE).into_response()),
    }
}

/// As the link was printed: the token's alphabet needs no decoding.
fn token(uri: &Uri) -> Option<&str> {
    uri.query()?.split('&').find_map(|pair| pair.strip_prefix("token="))
}

/// Signed in, and on to an address without the token.
fn welcome(settings: &Settings, session: &Token) -> Result<Response> {
    let base_url = &settings.base_url;
    let cookie = cookie::setting(base_url.cookie_name(), session.reveal(), base_url.is_https());
    let headers = [
        (header::LOCATION, HeaderValue::from_static("/overview")),
        (header::SET_COOKIE, HeaderValue::try_from(cookie).map_err(Error::internal)?),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (header::REFERRER_POLICY, REFERRER_POLICY),
    ];
    Ok((StatusCode::SEE_OTHER, headers).into_response())
}
