//! `/signout`: ends the session, by a form that needs no script. The session at the provider, if one was used, is left as it is.

use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use kernel::base::{Error, Result};
use kernel::http::{Access, Policy, Rules, Shared};
use kernel::rules;

use super::page::REFERRER_POLICY;
use crate::cookie;

rules! {
    SigningOut = Rules::new(Policy::Write, &[])
        .sessions_only("Only a session can sign out; revoke a key with DELETE /api/admin/api-keys.");
}

/// Whoever is not signed in any more gets there too: they asked to be signed out, and they are.
pub async fn signout(State(app): State<Shared>, caller: Result<Access<SigningOut>>) -> Result<Response> {
    match caller {
        Ok(caller) => caller.sign_out().await?,
        Err(error) if error.code().status() == 401 => {}
        Err(error) => return Err(error),
    }
    let base_url = &app.settings.base_url;
    let cookie = cookie::clearing(base_url.cookie_name(), base_url.is_https());
    let headers = [
        (header::LOCATION, HeaderValue::from_static("/signin")),
        (header::SET_COOKIE, HeaderValue::try_from(cookie).map_err(Error::internal)?),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (header::REFERRER_POLICY, REFERRER_POLICY),
    ];
    Ok((StatusCode::SEE_OTHER, headers).into_response())
}
