//! `/api/openapi.json`: the document that describes every route, public and cacheable.

use std::sync::Arc;

use axum::Extension;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use feature_kit::Feature;
use kernel::base::Result;
use kernel::http::{DocumentOnce, OpenApiDocument, QueryString, RatePolicy, ResponseDocs};
use utoipa::IntoResponses;
use utoipa::openapi::schema::{AdditionalProperties, Type};
use utoipa::openapi::{ContentBuilder, ObjectBuilder, RefOr, ResponseBuilder};

pub const FEATURE: Feature = Feature {
    name: "openapi",
    operations: |api| api.add_public_routes(RatePolicy::Public, utoipa_axum::routes!(get_openapi_document)),
    ..Feature::NEW
};

const PATH: &str = "/api/openapi.json";

/// The document, or 304 if the client has it already.
pub struct DocumentResponse {
    document: Arc<OpenApiDocument>,
    unchanged: bool,
}

impl IntoResponse for DocumentResponse {
    fn into_response(self) -> Response {
        let mut response = if self.unchanged {
            StatusCode::NOT_MODIFIED.into_response()
        } else {
            ([(header::CONTENT_TYPE, "application/json")], self.document.json.clone()).into_response()
        };
        let headers = response.headers_mut();
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public, no-cache"));
        // Set on 304 too, although it has no body: a cache updates the headers of its stored response from it.
        headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
        if let Ok(etag) = HeaderValue::try_from(&self.document.etag) {
            headers.insert(header::ETAG, etag);
        }
        response
    }
}

impl IntoResponses for DocumentResponse {
    fn responses() -> ResponseDocs {
        let object = || ObjectBuilder::new().additional_properties(Some(AdditionalProperties::FreeForm(true)));
        let schema = object()
            .description(Some("An OpenAPI 3.1 document."))
            .property("openapi", ObjectBuilder::new().schema_type(Type::String))
            .property("info", object())
            .property("paths", object())
            .required("openapi")
            .required("info")
            .required("paths");
        let content = ContentBuilder::new()
            .schema(Some(schema))
            .example(Some(serde_json::json!({"openapi": "3.1.0", "info": {"title": "Tenant Control API", "version": "0.1.0"}, "paths": {}})))
            .build();
        let document = ResponseBuilder::new().description("The document.").content("application/json", content).build();
        let unchanged = ResponseBuilder::new().description("The caller has it already.").build();
        [("200", document), ("304", unchanged)]
            .into_iter()
            .map(|(status, response)| (status.to_owned(), RefOr::T(response)))
            .collect()
    }
}

/// Read the OpenAPI document
///
/// The machine-readable source of truth for this API. `If-None-Match` is honoured.
#[utoipa::path(get, path = PATH, tag = "Schema", operation_id = "get_openapi_document")]
pub async fn get_openapi_document(
    Extension(document): Extension<DocumentOnce>,
    headers: HeaderMap,
    query: QueryString<()>,
) -> Result<DocumentResponse> {
    query.parse()?;
    let document = document.get()?;
    let client_tags = headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    // RFC 9110 prescribes the weak comparison here: a weak tag equals a strong one.
    let opaque = |tag: &str| tag.strip_prefix("W/").unwrap_or(tag).to_owned();
    let unchanged = client_tags.flat_map(|line| line.split(',')).any(|tag| {
        let tag = tag.trim();
        tag == "*" || opaque(tag) == opaque(&document.etag)
    });
    Ok(DocumentResponse { document, unchanged })
}
