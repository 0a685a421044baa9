//! `/api/auth/session`

use axum::extract::State;
use axum::http::HeaderValue;
use axum::http::header::SET_COOKIE;
use axum::response::{IntoResponse, Response};
use kernel::auth::{Caller, sign_out};
use kernel::base::Result;
use kernel::http::{Documented, Idempotency, NoContent, Ok200, Query, Shared};
use utoipa::IntoResponses;

use super::Session;
use crate::cookie;

const PATH: &str = "/api/auth/session";

/// Who am I
///
/// The tenant, the actor and the scopes of the credential that asks; any valid credential may.
#[utoipa::path(
    get, path = PATH, tag = "Session", operation_id = "get_session",
    security(("api_key" = []))
)]
pub async fn get(caller: Caller, query: Query<()>) -> Result<Ok200<Session>> {
    query.parse()?;
    Ok(Ok200(Session::of(&caller)))
}

/// 204, and the browser forgets the cookie.
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
#[utoipa::path(
    delete, path = PATH, tag = "Session", operation_id = "delete_session",
    security(("session" = []))
)]
pub async fn delete(
    State(app): State<Shared>,
    caller: Caller,
    idempotency: Idempotency,
    query: Query<()>,
) -> Result<SignedOut> {
    query.parse()?;
    idempotency.check()?;
    sign_out(&caller).await?;
    Ok(SignedOut(app.settings.base_url.cookie_name(), app.settings.base_url.is_https()))
}
