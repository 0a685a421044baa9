//! `/api/auth/session`

use axum::http::HeaderValue;
use axum::http::header::SET_COOKIE;
use axum::response::{IntoResponse, Response};
use kernel::base::Result;
use kernel::http::{Access, Api, Documented, Idempotency, NoContent, Ok200, Policy, Query, Rules};
use kernel::operations;
use kernel::rules;
use utoipa::IntoResponses;

use super::Session;
use crate::cookie;

/// The operations of this feature, and the schemas that their answers refer to.
pub fn mount(api: Api) -> Api {
    api.tenant(operations!(get, delete)).schema::<super::Session>()
}

const PATH: &str = "/api/auth/session";

rules! {
    Asking = Rules::new(Policy::Read, &[]);
    SigningOut = Rules::new(Policy::Write, &[])
        .sessions_only("Only a session can sign out; revoke a key with DELETE /api/admin/api-keys.");
}

/// Who am I
///
/// The tenant, the actor and the scopes of the credential that asks; any valid credential may.
#[utoipa::path(get, path = PATH, tag = "Session", operation_id = "get_session")]
pub async fn get(caller: Access<Asking>, query: Query<()>) -> Result<Ok200<Session>> {
    query.parse()?;
    Ok(Ok200(Session::of(&caller)))
}

/// 204 with a `Set-Cookie` that deletes the session cookie.
pub struct SignedOut(&'static str, bool);

impl IntoResponse for SignedOut {
    fn into_response(self) -> Response {
        let mut response = NoContent.into_response();
        if let Ok(cookie) = HeaderValue::try_from(cookie::clearing(self.0, self.1)) {
            response.headers_mut().insert(SET_COOKIE, cookie);
        }
        response
    }
}

impl IntoResponses for SignedOut {
    fn responses() -> Documented {
        NoContent::responses()
    }
}

/// Sign out
///
/// Ends the session at once. For cookies only: a key is revoked with `DELETE /api/admin/api-keys`.
#[utoipa::path(delete, path = PATH, tag = "Session", operation_id = "delete_session")]
pub async fn delete(caller: Access<SigningOut>, idempotency: Idempotency, query: Query<()>) -> Result<SignedOut> {
    query.parse()?;
    idempotency.check()?;
    caller.sign_out().await?;
    let base_url = &caller.app().settings.base_url;
    Ok(SignedOut(base_url.cookie_name(), base_url.is_https()))
}
