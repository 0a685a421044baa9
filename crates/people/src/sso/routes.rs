//! `/api/auth/sso`

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::header::SET_COOKIE;
use axum::http::{HeaderMap, HeaderValue, Method};
use axum::response::{IntoResponse, Response};
use kernel::base::{Code, Error, Result, Timestamp};
use kernel::http::{Api, Context, Documented, Fields, FromBody, Json, Ok200, Policy, Query, Shared, check_csrf};
use serde::Serialize;
use utoipa::openapi::{Ref, RefOr};
use utoipa::{IntoResponses, ToSchema};

use super::flow::{self, Asked, Begun};
use super::{DEFAULT_REDIRECT, SSO_NOT_AVAILABLE, parse_domain, parse_redirect};

/// The operations of this feature, and the schemas that their answers refer to.
pub fn mount(api: Api) -> Api {
    api.public(Policy::Auth, utoipa_axum::routes!(begin)).schema::<SignOnBegun>()
}

const PATH: &str = "/api/auth/sso";

/// Whose people sign on, and where they go on afterwards.
#[derive(Debug, ToSchema)]
#[schema(as = SsoInput, example = json!({"domain": "acme.example", "redirect_to": "/overview"}))]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// The domain of a work e-mail address: what stands behind its `@`.
    #[schema(min_length = 3, max_length = 253, pattern = "^[A-Za-z0-9-]+(\\.[A-Za-z0-9-]+)+$")]
    pub domain: String,
    /// A path on this server that starts with a single `/`, and not the sign-in or sign-out page; `/overview` when omitted.
    #[schema(value_type = Option<String>, nullable = false, min_length = 1, max_length = 2048, pattern = "^/([^/\\\\]|$)")]
    pub redirect_to: String,
}

impl FromBody for Input {
    fn from_fields(fields: &mut Fields) -> Option<Self> {
        let domain = fields.required("domain", |field| field.parsed("invalid_domain", parse_domain));
        let redirect_to = fields.optional("redirect_to", |field| field.parsed("invalid_path", parse_redirect));
        let redirect_to = redirect_to?.unwrap_or_else(|| DEFAULT_REDIRECT.to_owned());
        Some(Input { domain: domain?, redirect_to })
    }
}

/// Where to send the browser.
#[derive(Serialize, ToSchema)]
#[schema(example = json!({
    "url": "https://login.acme.example/authorize?response_type=code&client_id=tenant-control",
    "provider": {"name": "Acme login", "protocol": "oidc"},
    "expires_at": "2026-11-15T08:10:00.000Z"
}))]
pub struct SignOnBegun {
    /// At the provider, which sends the browser back when somebody has signed in there.
    pub url: String,
    pub provider: SignOnProvider,
    /// Until when the browser has to be back.
    #[schema(value_type = String, format = DateTime)]
    pub expires_at: Timestamp,
}

#[derive(Serialize, ToSchema)]
pub struct SignOnProvider {
    pub name: String,
    /// `oidc`: OpenID Connect.
    pub protocol: String,
}

/// 200, with the cookie that binds the sign-on to this browser.
pub struct Answer {
    cookies: Vec<HeaderValue>,
    begun: SignOnBegun,
}

impl IntoResponse for Answer {
    fn into_response(self) -> Response {
        let mut response = Ok200(self.begun).into_response();
        for cookie in self.cookies {
            response.headers_mut().append(SET_COOKIE, cookie);
        }
        response
    }
}

impl IntoResponses for Answer {
    fn responses() -> Documented {
        let refusal = |(status, name): (&str, &str)| (status.to_owned(), RefOr::Ref(Ref::from_response_name(name)));
        let mut documented = Ok200::<SignOnBegun>::responses();
        documented.extend([("403", "Forbidden"), ("404", "NotFound")].map(refusal));
        documented
    }
}

/// Begin single sign-on
///
/// Send the browser to `url`: the provider of the domain signs people in, and sends them back here. The answer sets a cookie
/// that the same browser has to bring back within ten minutes: all of the sign-on is sealed in it, and nothing is stored. Needs no
/// credential, and takes no `Idempotency-Key`. Charged to the address as `auth`; an unknown domain also as `auth_failures`.
#[utoipa::path(post, path = PATH, tag = "Session", operation_id = "begin_sso", request_body = Input)]
pub async fn begin(
    State(app): State<Shared>,
    Extension(context): Extension<Arc<Context>>,
    method: Method,
    headers: HeaderMap,
    query: Query<()>,
    body: Json<Input>,
) -> Result<Answer> {
    check_csrf(&method, &headers, &app.settings.base_url)?;
    query.parse()?;
    if headers.contains_key("idempotency-key") {
        let detail = "Idempotency-Key is not taken here: each request begins a sign-on.";
        return Err(Error::new(Code::InvalidHeader, detail));
    }
    let input = body.read().await?.value;
    let asked = Asked { domain: &input.domain, redirect_to: &input.redirect_to, login_hint: None, headers: &headers };
    let begun = flow::begin(&app, asked).await;
    if begun.as_ref().is_err_and(|error| error.code() == SSO_NOT_AVAILABLE) {
        context.charge_address(&app, Policy::AuthFailures)?;
    }
    let Begun { url, cookies, provider_name, protocol, expires_at } = begun?;
    let cookies: Result<Vec<_>, _> = cookies.into_iter().map(HeaderValue::try_from).collect();
    Ok(Answer {
        cookies: cookies.map_err(Error::internal)?,
        begun: SignOnBegun { url, provider: SignOnProvider { name: provider_name, protocol }, expires_at },
    })
}
