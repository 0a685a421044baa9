//! Answers: one return type determines the status, the body and their documentation.

use std::collections::BTreeMap;

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::openapi::response::Response as DocumentedResponse;
use utoipa::openapi::{ContentBuilder, RefOr, ResponseBuilder};
use utoipa::{IntoResponses, PartialSchema, ToSchema};

use crate::base::{Error, RecordId, Result};

/// The number of headers that most answers have.
pub(super) const HEADERS_CAPACITY: usize = 8;

/// A record with a version, which its `ETag` shows.
pub trait Record: Serialize {
    fn version(&self) -> i64;
}

/// An answer that can be stored and replayed.
pub trait Reply {
    fn render_reply(&self) -> Result<RenderedReply>;
}

/// An answer as bytes. It has no `Debug`, because it may contain a secret.
#[derive(Clone)]
pub struct RenderedReply {
    pub status: u16,
    pub etag: Option<String>,
    pub location: Option<String>,
    pub body: Vec<u8>,
}

impl RenderedReply {
    fn new<T: Serialize>(status: StatusCode, body: &T) -> Result<Self> {
        let body = serde_json::to_vec(body).map_err(Error::internal)?;
        Ok(RenderedReply { status: status.as_u16(), etag: None, location: None, body })
    }

    pub(super) fn into_reply(self) -> Response {
        let mut response = Response::new(self.body.into());
        *response.headers_mut() = HeaderMap::with_capacity(HEADERS_CAPACITY);
        *response.status_mut() = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        for (name, value) in [(header::ETAG, self.etag), (header::LOCATION, self.location)] {
            if let Some(value) = value.and_then(|value| HeaderValue::try_from(value).ok()) {
                headers.insert(name, value);
            }
        }
        response
    }
}

fn into_response(reply: &impl Reply) -> Response {
    match reply.render_reply() {
        Ok(rendered) => rendered.into_reply(),
        Err(error) => error.into_response(),
    }
}

fn format_etag(record: &impl Record) -> String {
    format!("\"{}\"", record.version())
}

/// 200 with a body that has no version.
pub struct Ok200<T>(pub T);

/// 200 with a record and its `ETag`.
pub struct Versioned<T>(pub T);

/// 201 with the new record, its `ETag` and its address.
pub struct Created<T> {
    record: T,
    location: String,
}

impl<T> Created<T> {
    /// A new record of the collection at this path.
    pub fn in_collection(path: &str, id: impl RecordId, record: T) -> Self {
        Created { record, location: format!("{path}?id={id}") }
    }
}

/// 202 with a description of the work, which continues after the answer.
pub struct Accepted<T>(pub T);

/// 204.
pub struct NoContent;

impl<T: Serialize> Reply for Ok200<T> {
    fn render_reply(&self) -> Result<RenderedReply> {
        RenderedReply::new(StatusCode::OK, &self.0)
    }
}

impl<T: Record> Reply for Versioned<T> {
    fn render_reply(&self) -> Result<RenderedReply> {
        Ok(RenderedReply { etag: Some(format_etag(&self.0)), ..RenderedReply::new(StatusCode::OK, &self.0)? })
    }
}

impl<T: Record> Reply for Created<T> {
    fn render_reply(&self) -> Result<RenderedReply> {
        let rendered = RenderedReply::new(StatusCode::CREATED, &self.record)?;
        Ok(RenderedReply { etag: Some(format_etag(&self.record)), location: Some(self.location.clone()), ..rendered })
    }
}

impl<T: Serialize> Reply for Accepted<T> {
    fn render_reply(&self) -> Result<RenderedReply> {
        RenderedReply::new(StatusCode::ACCEPTED, &self.0)
    }
}

impl<T: Serialize> IntoResponse for Accepted<T> {
    fn into_response(self) -> Response {
        into_response(&self)
    }
}

impl<T: Serialize> IntoResponse for Ok200<T> {
    fn into_response(self) -> Response {
        into_response(&self)
    }
}

impl<T: Record> IntoResponse for Versioned<T> {
    fn into_response(self) -> Response {
        into_response(&self)
    }
}

impl<T: Record> IntoResponse for Created<T> {
    fn into_response(self) -> Response {
        into_response(&self)
    }
}

impl IntoResponse for NoContent {
    fn into_response(self) -> Response {
        StatusCode::NO_CONTENT.into_response()
    }
}

/// The documented answers of an operation, by status.
pub type ResponseDocs = BTreeMap<String, RefOr<DocumentedResponse>>;

/// One documented answer with a JSON body.
pub fn document_response<T: PartialSchema>(status: &str, description: &str) -> ResponseDocs {
    let content = ContentBuilder::new().schema(Some(T::schema())).build();
    let response = ResponseBuilder::new().description(description).content("application/json", content).build();
    BTreeMap::from([(status.to_owned(), RefOr::T(response))])
}

/// A reference to the component of a named schema.
pub(super) struct NamedSchema<T>(std::marker::PhantomData<T>);

impl<T: ToSchema> PartialSchema for NamedSchema<T> {
    fn schema() -> RefOr<utoipa::openapi::Schema> {
        utoipa::openapi::Ref::from_schema_name(T::name()).into()
    }
}

impl<T: ToSchema> IntoResponses for Ok200<T> {
    fn responses() -> ResponseDocs {
        document_response::<NamedSchema<T>>("200", "Done.")
    }
}

impl<T: ToSchema> IntoResponses for Versioned<T> {
    fn responses() -> ResponseDocs {
        document_response::<NamedSchema<T>>("200", "The record.")
    }
}

impl<T: ToSchema> IntoResponses for Created<T> {
    fn responses() -> ResponseDocs {
        document_response::<NamedSchema<T>>("201", "Created.")
    }
}

impl<T: ToSchema> IntoResponses for Accepted<T> {
    fn responses() -> ResponseDocs {
        document_response::<NamedSchema<T>>("202", "Accepted; the work continues after the answer.")
    }
}

impl IntoResponses for NoContent {
    fn responses() -> ResponseDocs {
        BTreeMap::from([("204".to_owned(), RefOr::T(ResponseBuilder::new().description("Done.").build()))])
    }
}

/// `document.rs` adds the refusals to every operation.
impl IntoResponses for Error {
    fn responses() -> ResponseDocs {
        BTreeMap::new()
    }
}
