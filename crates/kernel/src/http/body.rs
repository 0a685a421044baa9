//! JSON bodies, read when the handler asks: 415, 413, 400 and 422 in that order.

use std::convert::Infallible;
use std::marker::PhantomData;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde_json::Value;

use super::app::Shared;
use super::fields::Fields;
use crate::base::{Code, Error, FieldError, Result, sha256};

/// The largest body of the API.
pub const BODY_BYTES_MAX: usize = 1024 * 1024;

/// A body that has not been read yet.
pub struct Json<T> {
    headers: HeaderMap,
    body: Body,
    timeout: Duration,
    kind: PhantomData<fn() -> T>,
}

/// A type made from a JSON object. Take every known field; the reader refuses the rest and reports all errors at once.
pub trait FromBody: Sized {
    fn from_fields(fields: &mut Fields) -> Option<Self>;
}

/// A body that was read.
pub struct Received<T> {
    pub value: T,
    /// Of the bytes as they came: the same body means the same bytes.
    pub digest: [u8; 32],
}

impl<T: FromBody> Json<T> {
    pub async fn read(self) -> Result<Received<T>> {
        check_type(&self.headers)?;
        let bytes = tokio::time::timeout(self.timeout, Limited::new(self.body, BODY_BYTES_MAX).collect());
        let bytes = match bytes.await {
            Err(_) => return Err(Error::new(Code::RequestTimeout, "The body did not arrive in time.")),
            Ok(Err(error)) if error.is::<LengthLimitError>() => {
                return Err(Error::new(Code::PayloadTooLarge, format!("A body is at most {BODY_BYTES_MAX} bytes.")));
            }
            Ok(Err(error)) => {
                return Err(Error::new(Code::MalformedJson, format!("The body could not be read: {error}")));
            }
            Ok(Ok(collected)) => collected.to_bytes(),
        };
        let value: Value = serde_json::from_slice(&bytes)
            .map_err(|error| Error::new(Code::MalformedJson, format!("The body is not JSON: {error}.")))?;
        let Value::Object(object) = value else {
            let field =
                FieldError { pointer: String::new(), code: "wrong_type", detail: "must be an object".to_owned() };
            return Err(Error::invalid_fields(vec![field]));
        };
        let mut fields = Fields::new(object);
        let value = T::from_fields(&mut fields);
        fields.finish()?;
        let value = value.ok_or_else(|| Error::internal("a body was refused without a reason"))?;
        Ok(Received { value, digest: sha256(&bytes) })
    }
}

fn check_type(headers: &HeaderMap) -> Result<()> {
    let refused = |detail: &str| Err(Error::new(Code::UnsupportedMediaType, detail));
    let mut types = headers.get_all(header::CONTENT_TYPE).iter();
    let (Some(kind), None) = (types.next(), types.next()) else {
        return refused("Send one Content-Type: application/json.");
    };
    let mut parts = kind.to_str().unwrap_or_default().split(';').map(str::trim);
    if !parts.next().is_some_and(|essence| essence.eq_ignore_ascii_case("application/json")) {
        return refused("Send Content-Type: application/json.");
    }
    let charset =
        parts.find_map(|part| part.split_once('=').filter(|(name, _)| name.trim().eq_ignore_ascii_case("charset")));
    if charset.is_some_and(|(_, value)| !value.trim().trim_matches('"').eq_ignore_ascii_case("utf-8")) {
        return refused("JSON is UTF-8; send no other charset.");
    }
    if headers.get(header::CONTENT_ENCODING).is_some_and(|coding| coding != "identity") {
        return refused("Send the body without a Content-Encoding.");
    }
    Ok(())
}

impl<T> FromRequest<Shared> for Json<T> {
    type Rejection = Infallible;

    async fn from_request(request: Request, app: &Shared) -> Result<Self, Infallible> {
        let (parts, body) = request.into_parts();
        Ok(Json { headers: parts.headers, body, timeout: app.settings.body_timeout, kind: PhantomData })
    }
}
