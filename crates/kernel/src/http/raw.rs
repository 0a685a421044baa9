//! Bodies and answers that are not JSON, as bytes. The route's rules bound a body: 415 and 413.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};

use super::admission::ArrivedBody;
use super::app::SharedApp;
use super::budgets::MemoryPermit;
use super::context::RequestContext;
use super::rules::BodyRules;
use crate::base::{Code, Error, Result};

/// An unread body of one of the media types in the route's rules. The handler parses the bytes.
pub struct Raw {
    pub(super) app: SharedApp,
    pub(super) context: Result<Arc<RequestContext>>,
    pub(super) headers: HeaderMap,
    pub(super) body: Body,
    pub(super) rules: BodyRules,
}

pub struct RawBody {
    /// One of the media types in the route's rules.
    pub media_type: &'static str,
    pub bytes: Vec<u8>,
    /// Held until the bytes are processed, not only until they have arrived.
    _memory: MemoryPermit,
}

impl Raw {
    pub async fn read_body(self) -> Result<RawBody> {
        let media_type = get_media_type(&self.headers, self.rules.media_types)?;
        let ArrivedBody { bytes, memory } =
            self.context?.receive_body(&self.app, self.body, self.rules.bytes_max).await?;
        Ok(RawBody { media_type, bytes, _memory: memory })
    }
}

fn get_media_type(headers: &HeaderMap, accepted: &[&'static str]) -> Result<&'static str> {
    let refused = || {
        let detail = format!("Send one Content-Type of {}, without a Content-Encoding.", accepted.join(", "));
        Error::new(Code::UnsupportedMediaType, detail)
    };
    let mut types = headers.get_all(header::CONTENT_TYPE).iter();
    let (Some(given), None) = (types.next(), types.next()) else { return Err(refused()) };
    let essence = given.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim();
    let found = accepted.iter().find(|accepted| accepted.eq_ignore_ascii_case(essence)).ok_or_else(refused)?;
    let plain = headers.get(header::CONTENT_ENCODING).is_none_or(|coding| coding == "identity");
    if plain { Ok(found) } else { Err(refused()) }
}

impl FromRequest<SharedApp> for Raw {
    type Rejection = Infallible;

    async fn from_request(request: Request, app: &SharedApp) -> Result<Self, Infallible> {
        let (parts, body) = request.into_parts();
        let (context, rules) = (RequestContext::from_parts(&parts), BodyRules::from_parts(&parts));
        Ok(Raw { app: app.clone(), context, headers: parts.headers, body, rules })
    }
}

/// 200 with a body in the client's own format.
pub struct RawAnswer {
    pub media_type: &'static str,
    pub bytes: Vec<u8>,
}

impl IntoResponse for RawAnswer {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::from(self.bytes));
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(self.media_type));
        response
    }
}
