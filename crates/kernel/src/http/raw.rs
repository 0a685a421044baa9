//! Bodies that are not JSON, as they came: 415 and 413 by the rules of the route. And answers that are not, as they are.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};

use super::answer::AnswerBytes;
use super::app::Shared;
use super::body::arrive;
use super::context::{Context, Room};
use super::rules::{BODY_BYTES_MAX, BodyRules};
use crate::base::{Code, Error, Result};

/// A body of one of the media types that the route's rules name, not read yet. The handler makes sense of the bytes.
pub struct Raw {
    app: Shared,
    context: Result<Arc<Context>>,
    headers: HeaderMap,
    body: Body,
    rules: BodyRules,
}

pub struct RawBody {
    /// Of those that the rules name.
    pub media_type: &'static str,
    pub bytes: Vec<u8>,
    /// Of a large one, until it is dropped.
    _room: Option<Room>,
}

impl Raw {
    pub async fn read(self) -> Result<RawBody> {
        let media_type = find_type(&self.headers, self.rules.media_types)?;
        let (context, places) = (self.context?, places(&self.headers, self.rules));
        let arrived = arrive(self.body, self.rules.bytes_max, self.app.settings.body_timeout);
        if places == 1 {
            let bytes = context.wait_for_body(&self.app, places, arrived).await??;
            return Ok(RawBody { media_type, bytes, _room: None });
        }
        let room = context.make_room(&self.app, places)?;
        let bytes = context.wait_for_body(&self.app, 0, arrived).await??;
        Ok(RawBody { media_type, bytes, _room: Some(room) })
    }
}

/// What it counts for: by what its client says, which the connection holds it to.
fn places(headers: &HeaderMap, rules: BodyRules) -> usize {
    let declared = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    declared.map_or(rules.places(), |bytes| bytes.div_ceil(BODY_BYTES_MAX).clamp(1, rules.places()))
}

fn find_type(headers: &HeaderMap, known: &[&'static str]) -> Result<&'static str> {
    let refused = || {
        let detail = format!("Send one Content-Type of {}, without a Content-Encoding.", known.join(", "));
        Error::new(Code::UnsupportedMediaType, detail)
    };
    let mut types = headers.get_all(header::CONTENT_TYPE).iter();
    let (Some(given), None) = (types.next(), types.next()) else { return Err(refused()) };
    let essence = given.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim();
    let found = known.iter().find(|known| known.eq_ignore_ascii_case(essence)).ok_or_else(refused)?;
    let plain = headers.get(header::CONTENT_ENCODING).is_none_or(|coding| coding == "identity");
    if plain { Ok(found) } else { Err(refused()) }
}

impl FromRequest<Shared> for Raw {
    type Rejection = Infallible;

    async fn from_request(request: Request, app: &Shared) -> Result<Self, Infallible> {
        let (parts, body) = request.into_parts();
        let (context, rules) = (Context::of(&parts), BodyRules::noted(&parts));
        Ok(Raw { app: app.clone(), context, headers: parts.headers, body, rules })
    }
}

/// 200 with a body in whatever language the client speaks.
pub struct RawAnswer {
    pub media_type: &'static str,
    pub bytes: Vec<u8>,
}

impl IntoResponse for RawAnswer {
    fn into_response(self) -> Response {
        let counted = AnswerBytes::of(&self.bytes);
        let mut response = Response::new(Body::from(self.bytes));
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(self.media_type));
        if let Some(bytes) = counted {
            response.extensions_mut().insert(bytes);
        }
        response
    }
}
