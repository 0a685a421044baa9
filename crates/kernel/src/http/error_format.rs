//! Formats of refusals for clients that do not read problem JSON: clients with a protocol of their own, and browsers. Only
//! the body and its headers differ; status, other headers, log and metrics are the same for every refusal.

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;

use crate::base::{Error, Result};

/// A refusal's body in the client's own format, in place of a problem.
#[derive(Clone)]
pub struct RenderedError {
    pub media_type: &'static str,
    pub body: Bytes,
}

impl RenderedError {
    /// The answer of a handler that knows the client's format from the request body.
    pub fn into_answer(self, error: Error) -> Response {
        let mut response = error.into_response();
        response.extensions_mut().insert(self);
        response
    }

    /// A response with the body and its content type.
    pub(super) fn into_body_response(self) -> Response {
        ([(header::CONTENT_TYPE, self.media_type)], Body::from(self.body)).into_response()
    }
}

/// Renders an error for the sender of these request headers; `None` means a problem.
pub type ErrorRenderer = fn(&HeaderMap, &Error) -> Option<RenderedError>;

/// Renders the HTML page of a refusal. `page` is the page or form that the request matched, if any. Only the body and the
/// headers of the response are used.
pub type RefusalPage = fn(error: &Error, request_id: &str, page: Option<&'static str>) -> Result<Response>;

/// The format of a request's refusals, if they are not always a problem.
pub(super) enum ErrorFormat {
    /// Set when a handler extracts a [`CredentialHolder`](super::CredentialHolder): earlier refusals are problems.
    CustomCredential {
        /// The `WWW-Authenticate` header.
        challenge: &'static str,
        /// The renderer, and a copy of the request's headers for it.
        renderer: Option<(ErrorRenderer, HeaderMap)>,
    },
    /// Set when a request arrives at a page, a form or an unknown path. Only browsers get the page.
    Html { refusal_page: RefusalPage, page: Option<&'static str>, is_browser: bool },
}

impl ErrorFormat {
    /// The body in place of a problem.
    pub fn render_body(&self, error: &Error, request_id: &str) -> Option<Response> {
        match self {
            ErrorFormat::CustomCredential { renderer, .. } => {
                let (renderer, headers) = renderer.as_ref()?;
                renderer(headers, error).map(RenderedError::into_body_response)
            }
            ErrorFormat::Html { refusal_page, page, is_browser: true } => {
                let html = refusal_page(error, request_id, *page);
                html.inspect_err(|error| tracing::error!(%error, request_id, "failed to render a refusal page")).ok()
            }
            ErrorFormat::Html { is_browser: false, .. } => None,
        }
    }

    /// The `WWW-Authenticate` header, where it differs from the default.
    pub fn challenge(&self) -> Option<HeaderValue> {
        match self {
            ErrorFormat::CustomCredential { challenge, .. } => Some(HeaderValue::from_static(challenge)),
            ErrorFormat::Html { .. } => None,
        }
    }

    /// Whether the format depends on the `Accept` header.
    pub fn is_negotiated(&self) -> bool {
        matches!(self, ErrorFormat::Html { .. })
    }
}
