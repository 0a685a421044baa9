//! `/api/auth/session`

use axum::http::HeaderValue;
use axum::http::header::SET_COOKIE;
use axum::response::{IntoResponse, Response};
use kernel::base::Result;
use kernel::http::{Access, Api, Idempotency, NoContent, Ok200, QueryString, RatePolicy, ResponseDocs, Rules};
use kernel::operations;
use kernel::rules;
use utoipa::IntoResponses;

use super::CurrentSession;
use crate::cookie;

/// The operations of this feature, and the schemas that their answers refer to.
pub fn mount(api: Api) -> Api {
    api.add_tenant_routes(operations!(get_session, delete_session)).add_schema::<super::CurrentSession>()
}

const PATH: &str = "/api/auth/session";

rules! {
    Asking = Rules::new(RatePolicy::Read, &[]);
    SigningOut = Rules::new(RatePolicy::Write, &[])
        .sessions_only("Only a session can sign out; revoke a key with DELETE /api/admin/api-keys.");
}

/// Who am I
///
/// The tenant, the actor and the scopes of the credential that asks; any valid credential may.
#[utoipa::path(get, path = PATH, tag = "Session", operation_id = "get_session")]
pub async fn get_session(caller: Access<Asking>, query: QueryString<()>) -> Result<Ok200<CurrentSession>> {
    query.parse()?;
    Ok(Ok200(CurrentSession::for_caller(&caller)))
}

/// 204 with a `Set-Cookie` that deletes the session cookie.
pub struct SignedOut(&'static str, bool);

impl IntoResponse for SignedOut {
    fn into_response(self) -> Response {
        let mut response = NoContent.into_response();
        if let Ok(cookie) = HeaderValue::try_from(cookie::clear_cookie_header(self.0, self.1)) {
            response.headers_mut().insert(SET_COOKIE, cookie);
        }
        response
    }
}

impl IntoResponses for SignedOut {
    fn responses() -> ResponseDocs {
        NoContent::responses()
    }
}

/// Sign out
///
/// Ends the session at once. For cookies only: a key is revoked with `DELETE /api/admin/api-keys`.
#[utoipa::path(delete, path = PATH, tag = "Session", operation_id = "delete_session")]
pub async fn delete_session(
    caller: Access<SigningOut>,
    idempotency: Idempotency,
    query: QueryString<()>,
) -> Result<SignedOut> {
    query.parse()?;
    idempotency.check_key()?;
    caller.sign_out().await?;
    let base_url = &caller.app().settings.base_url;
    Ok(SignedOut(base_url.cookie_name(), base_url.is_https()))
}
