//! `/api/auth/sso`

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::header::SET_COOKIE;
use axum::http::{HeaderMap, HeaderValue, Method};
use axum::response::{IntoResponse, Response};
use kernel::base::{Code, Error, Result, Timestamp};
use kernel::http::{
    Api, BodyFields, FromBody, Json, Ok200, QueryString, RatePolicy, RequestContext, ResponseDocs, SharedApp,
    check_csrf,
};
use serde::Serialize;
use utoipa::{IntoResponses, ToSchema};

use super::flow::{self, SignOnRedirect, SignOnRequest};
use super::{DEFAULT_REDIRECT, SSO_NOT_AVAILABLE, parse_domain, parse_redirect};

/// The operations of this feature, and the schemas that their answers refer to.
pub fn mount(api: Api) -> Api {
    api.add_public_routes(RatePolicy::Auth, utoipa_axum::routes!(begin_sso))
        .add_refusals("begin_sso", &[SSO_NOT_AVAILABLE])
        .add_schema::<SignOnBegun>()
}

const PATH: &str = "/api/auth/sso";

/// The domain that signs on, and where to go afterwards.
#[derive(Debug, ToSchema)]
#[schema(as = SsoInput, example = json!({"domain": "acme.example", "redirect_to": "/overview"}))]
#[serde(deny_unknown_fields)]
pub struct SsoInput {
    /// The domain of a work e-mail address: what stands behind its `@`.
    #[schema(min_length = 3, max_length = 253, pattern = "^[A-Za-z0-9-]+(\\.[A-Za-z0-9-]+)+$")]
    pub domain: String,
    /// A path on this server that starts with a single `/`, and not the sign-in or sign-out page; `/overview` when omitted.
    #[schema(value_type = Option<String>, nullable = false, min_length = 1, max_length = 2048, pattern = "^/([^/\\\\]|$)")]
    pub redirect_to: String,
}

impl FromBody for SsoInput {
    fn from_fields(fields: &mut BodyFields) -> Option<Self> {
        let domain = fields.read_required("domain", |field| field.read_parsed("invalid_domain", parse_domain));
        let redirect_to =
            fields.read_optional("redirect_to", |field| field.read_parsed("invalid_path", parse_redirect));
        let redirect_to = redirect_to?.unwrap_or_else(|| DEFAULT_REDIRECT.to_owned());
        Some(SsoInput { domain: domain?, redirect_to })
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
pub struct BeginSsoResponse {
    cookies: Vec<HeaderValue>,
    begun: SignOnBegun,
}

impl IntoResponse for BeginSsoResponse {
    fn into_response(self) -> Response {
        let mut response = Ok200(self.begun).into_response();
        for cookie in self.cookies {
            response.headers_mut().append(SET_COOKIE, cookie);
        }
        response
    }
}

impl IntoResponses for BeginSsoResponse {
    fn responses() -> ResponseDocs {
        Ok200::<SignOnBegun>::responses()
    }
}

/// Begin single sign-on
///
/// Send the browser to `url`: the provider of the domain signs people in, and sends them back here. The answer sets a cookie
/// that the same browser has to bring back within ten minutes: all of the sign-on is sealed in it, and nothing is stored. Needs no
/// credential, and takes no `Idempotency-Key`. Charged to the address as `auth`; an unknown domain also as `auth_failures`.
#[utoipa::path(post, path = PATH, tag = "Session", operation_id = "begin_sso", request_body = SsoInput)]
pub async fn begin_sso(
    State(app): State<SharedApp>,
    Extension(context): Extension<Arc<RequestContext>>,
    method: Method,
    headers: HeaderMap,
    query: QueryString<()>,
    body: Json<SsoInput>,
) -> Result<BeginSsoResponse> {
    check_csrf(&method, &headers, &app.settings.base_url)?;
    query.parse()?;
    if headers.contains_key("idempotency-key") {
        let detail = "Idempotency-Key is not taken here: each request begins a sign-on.";
        return Err(Error::new(Code::InvalidHeader, detail));
    }
    let input = body.read().await?.value;
    let request =
        SignOnRequest { domain: &input.domain, redirect_to: &input.redirect_to, login_hint: None, headers: &headers };
    let result = flow::begin_sign_on(&app, request).await;
    if result.as_ref().is_err_and(|error| error.code() == SSO_NOT_AVAILABLE) {
        context.charge_address(&app, RatePolicy::AuthFailures)?;
    }
    let SignOnRedirect { url, cookies, provider_name, protocol, expires_at } = result?;
    let cookies: Result<Vec<_>, _> = cookies.into_iter().map(HeaderValue::try_from).collect();
    Ok(BeginSsoResponse {
        cookies: cookies.map_err(Error::internal)?,
        begun: SignOnBegun { url, provider: SignOnProvider { name: provider_name, protocol }, expires_at },
    })
}
