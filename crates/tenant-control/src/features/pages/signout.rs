//! `/signout`: ends the session, by a form that needs no script. A user who signed in by an identity provider that supports
//! sign-out is redirected to it; other sessions at the provider are not touched.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use kernel::base::{Error, Result};
use kernel::http::{RequestContext, SharedApp};
use people::cookie;
use people::sso;

use super::page::REFERRER_POLICY;

/// Also succeeds without a session: the user asked to be signed out, and is. If the session has only expired, the user may
/// still be signed in at the provider.
pub async fn sign_out(
    State(app): State<SharedApp>,
    Extension(context): Extension<Arc<RequestContext>>,
    headers: HeaderMap,
) -> Result<Response> {
    let provider_url = match app.end_presented_sessions(&headers, &context).await? {
        Some(ended) => sso::sign_out_url(&app, &ended).await,
        None => None,
    };
    // A URL that is no valid header value is ignored, because the session has already ended.
    let provider_url = provider_url.and_then(|url| HeaderValue::try_from(url).ok());
    let base_url = &app.settings.base_url;
    let cookie = cookie::clear_cookie_header(base_url.cookie_name(), base_url.is_https());
    let headers = [
        (header::LOCATION, provider_url.unwrap_or(HeaderValue::from_static(sso::SIGNED_OUT_PATH))),
        (header::SET_COOKIE, HeaderValue::try_from(cookie).map_err(Error::internal)?),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (header::REFERRER_POLICY, REFERRER_POLICY),
    ];
    Ok((StatusCode::SEE_OTHER, headers).into_response())
}
