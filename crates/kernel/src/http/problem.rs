//! RFC 9457: an `Error` as problem details.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use super::base_url::BaseUrl;
use super::error_format::{ErrorFormat, RenderedError};
use crate::base::{Code, Error};

/// What went wrong, for people (`title`, `detail`) and for programs (`code`).
#[derive(Serialize, ToSchema)]
#[schema(as = Problem)]
pub struct ProblemDetails<'a> {
    /// Explains the code; the address resolves.
    #[serde(rename = "type")]
    #[schema(format = "uri", example = "https://control.example/documentation/errors/#invalid_fields")]
    kind: String,
    #[schema(example = "Some fields are not valid")]
    title: &'a str,
    #[schema(example = 422)]
    status: u16,
    /// What is wrong and what would be right.
    #[schema(example = "Not valid: /scopes/1. See errors for each.")]
    detail: &'a str,
    /// The path of the request, without its query.
    #[schema(example = "/api/admin/api-keys")]
    instance: &'a str,
    /// Stable; branch on this.
    #[schema(example = "invalid_fields")]
    code: &'a str,
    /// Quote it when asking the operator.
    #[schema(example = "req_4fK2mXq8Zr1TnB6sWd0a")]
    request_id: &'a str,
    /// With `insufficient_scope`: the scope that is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    required_scope: Option<&'a str>,
    /// With status 422: every bad field at once.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    errors: Vec<ProblemField<'a>>,
}

/// One bad field of the body.
#[derive(Serialize, ToSchema)]
pub struct ProblemField<'a> {
    /// A JSON pointer into the body; empty for the body itself.
    #[schema(example = "/scopes/1")]
    pointer: &'a str,
    #[schema(example = "unknown_scope")]
    code: &'a str,
    detail: &'a str,
}

/// The error is passed on as a response extension to the outermost layer, which renders it with the request's data.
impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.code().status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = status.into_response();
        response.extensions_mut().insert(Arc::new(self));
        response
    }
}

/// The request that a problem is about.
pub(super) struct RefusedRequest<'a> {
    pub base_url: &'a BaseUrl,
    pub path: &'a str,
    pub request_id: &'a str,
    /// The error format of the route or path, if it has one.
    pub error_format: Option<&'a ErrorFormat>,
}

/// Writes the body and headers of a refusal: the problem, or the client's own format.
pub(super) fn render_error(error: &Error, refused: &RefusedRequest<'_>, response: &mut Response) {
    let error_format = refused.error_format;
    let rendered = response.extensions_mut().remove::<RenderedError>().map(RenderedError::into_body_response);
    let rendered = rendered.or_else(|| error_format.and_then(|format| format.render_body(error, refused.request_id)));
    let (parts, body) = rendered.unwrap_or_else(|| problem_response(error, refused)).into_parts();
    let headers = response.headers_mut();
    headers.extend(parts.headers);
    headers.remove(header::CONTENT_LENGTH);
    if error_format.is_some_and(ErrorFormat::is_negotiated) {
        headers.append(header::VARY, HeaderValue::from_static("accept"));
    }
    if let Some(seconds) = error.retry_after_seconds() {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    if matches!(error.code(), Code::Unauthenticated | Code::KeyExpired | Code::SessionExpired) {
        let challenge = error_format.and_then(ErrorFormat::challenge);
        headers.insert(header::WWW_AUTHENTICATE, challenge.unwrap_or(HeaderValue::from_static("Bearer")));
    }
    *response.body_mut() = body;
}

fn problem_response(error: &Error, refused: &RefusedRequest<'_>) -> Response {
    let RefusedRequest { base_url, path, request_id, .. } = *refused;
    let code = error.code();
    let problem = ProblemDetails {
        kind: format!("{}/documentation/errors/#{}", base_url.as_str(), code.name()),
        title: code.title(),
        status: code.status(),
        detail: error.detail(),
        instance: path,
        code: code.name(),
        request_id,
        required_scope: error.required_scope(),
        errors: error
            .fields()
            .iter()
            .map(|field| ProblemField { pointer: &field.pointer, code: field.code, detail: &field.detail })
            .collect(),
    };
    let json = serde_json::to_vec(&problem).unwrap_or_default();
    ([(header::CONTENT_TYPE, "application/problem+json")], Body::from(json)).into_response()
}
