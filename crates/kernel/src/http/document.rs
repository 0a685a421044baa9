//! The OpenAPI document: generated from the handlers' types, completed with the headers and refusals of each operation.

use std::sync::{Arc, OnceLock};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use utoipa::openapi::path::{
    HttpMethod, Operation, OperationBuilder, Parameter, ParameterBuilder, ParameterIn, PathItem, Paths, PathsBuilder,
};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::schema::{Components, ObjectBuilder, Type};
use utoipa::openapi::security::{
    ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme,
};
use utoipa::openapi::{
    ContentBuilder, Info, LicenseBuilder, OpenApi, RefOr, Required, ResponseBuilder, Schema, Server, Tag,
};
use utoipa::{PartialSchema, ToSchema};

use super::operation::operations_of;
use super::params::ID;
use super::problem::{ProblemDetails, ProblemField};
use super::refusals::{self, IDEMPOTENCY_KEY, IF_MATCH, RefusalCodes};
use super::rules::Rules;
use crate::base::{Code, Error, Result, sha256};
use crate::events::EventKindDescription;

/// The finished document, as it is served.
pub struct OpenApiDocument {
    pub json: String,
    /// The `ETag` of the text. It is weak because the compressed answer has the same one and different bytes.
    pub etag: String,
}

/// The document, for handlers that are mounted before it is finished. Cheap to clone.
#[derive(Clone, Default)]
pub struct DocumentOnce(Arc<OnceLock<Arc<OpenApiDocument>>>);

impl DocumentOnce {
    pub(super) fn set(&self, document: Arc<OpenApiDocument>) {
        let _ = self.0.set(document);
    }

    pub fn get(&self) -> Result<Arc<OpenApiDocument>> {
        self.0.get().cloned().ok_or_else(|| Error::internal("the document is not finished"))
    }
}

/// The product's own parts of the document.
pub struct DocumentInfo {
    pub title: &'static str,
    pub version: &'static str,
    pub description: &'static str,
    pub tags: Vec<(&'static str, &'static str)>,
    /// The kinds of events, for the `webhooks` section.
    pub webhooks: Vec<EventKindDescription>,
    /// Every error code of the API, in the order of their status.
    pub codes: Vec<Code>,
}

pub(super) fn finish_document(
    mut openapi: OpenApi,
    info: &DocumentInfo,
    declared: &RefusalCodes,
) -> Result<OpenApiDocument> {
    openapi.info = Info::new(info.title, info.version);
    openapi.info.description = Some(info.description.to_owned());
    openapi.info.license =
        Some(LicenseBuilder::new().name("Apache License 2.0").identifier(Some("Apache-2.0")).build());
    openapi.servers = Some(vec![Server::new("/")]);
    let tag = |(name, description): &(&str, &str)| {
        let mut tag = Tag::new(*name);
        tag.description = Some((*description).to_owned());
        tag
    };
    openapi.tags = Some(info.tags.iter().map(tag).collect());
    add_components(openapi.components.get_or_insert_default());
    declared.check_operations(&openapi.paths)?;
    for item in openapi.paths.paths.values_mut() {
        for (method, operation) in operations_of(item) {
            let guarded = operation.security.as_ref().is_some_and(|needed| *needed != no_security());
            add_headers(method, operation, guarded);
            refusals::add_refusals(method, operation, declared, &info.codes)?;
            put_json_first(operation);
        }
    }
    openapi.webhooks = Some(webhook_paths(&info.webhooks)?);
    let mut json = openapi.to_pretty_json().map_err(Error::internal)?;
    json.push('\n');
    let etag = format!("W/\"{}\"", BASE64.encode(&sha256(json.as_bytes())[..16]));
    Ok(OpenApiDocument { json, etag })
}

/// The requests that the service sends to webhook endpoints, by kind of event.
fn webhook_paths(kinds: &[EventKindDescription]) -> Result<Paths> {
    let mut paths = PathsBuilder::new();
    for kind in kinds {
        let schema: Schema = serde_json::from_value(kind.body_schema()).map_err(Error::internal)?;
        let content = ContentBuilder::new().schema(Some(schema)).example(Some(kind.example.clone())).build();
        let header = |name: &str, text: &str| header_parameter(name, text, Required::True, text_schema());
        let answer = ResponseBuilder::new()
            .description("Any 2xx within 15 seconds counts as delivered; anything else is tried again, 410 ends it.")
            .build();
        let operation = OperationBuilder::new()
            .operation_id(Some(format!("on_{}", kind.name.replace('.', "_").replace('*', "any"))))
            .summary(Some(kind.description))
            .parameter(header("webhook-id", "The event's id: the same in every retry and resend."))
            .parameter(header("webhook-timestamp", "When this attempt was made, in seconds since 1970."))
            .parameter(header(
                "webhook-signature",
                "`v1,` and a signature as Standard Webhooks says; one for each secret.",
            ))
            .request_body(Some(
                RequestBodyBuilder::new().content("application/json", content).required(Some(Required::True)).build(),
            ))
            .response("2XX", answer)
            .security(SecurityRequirement::default());
        paths = paths.path(kind.name, PathItem::new(HttpMethod::Post, operation));
    }
    Ok(paths.build())
}

fn add_components(components: &mut Components) {
    components.schemas.insert(ProblemDetails::name().into(), ProblemDetails::schema());
    components.schemas.insert(ProblemField::name().into(), ProblemField::schema());
    let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some("An API key.")).build();
    components.security_schemes.insert("api_key".to_owned(), RefOr::T(SecurityScheme::Http(bearer)));
    let header = ApiKeyValue::with_description("X-API-Key", "An API key, for tools that cannot set Authorization.");
    components
        .security_schemes
        .insert("api_key_header".to_owned(), RefOr::T(SecurityScheme::ApiKey(ApiKey::Header(header))));
    let cookie = ApiKeyValue::with_description(
        "session",
        "A signed-in user; `__Host-session` where the service is reached by https.",
    );
    components.security_schemes.insert("session".to_owned(), RefOr::T(SecurityScheme::ApiKey(ApiKey::Cookie(cookie))));
    refusals::add_shared_responses(components);
}

/// The security schemes. Any one of them is enough.
const CREDENTIALS: [&str; 3] = ["api_key", "api_key_header", "session"];

/// The route's rules as alternative security requirements.
pub(super) fn security_requirements(rules: &Rules) -> Vec<SecurityRequirement> {
    let credentials = if rules.sessions_only.is_some() { &CREDENTIALS[2..] } else { &CREDENTIALS };
    let each = |credential: &&str| match rules.scopes {
        [] => vec![SecurityRequirement::new(*credential, [""; 0])],
        any => any.iter().map(|scope| SecurityRequirement::new(*credential, [scope.name()])).collect(),
    };
    credentials.iter().flat_map(each).collect()
}

/// The requirement of an operation that needs no credential.
pub(super) fn no_security() -> Vec<SecurityRequirement> {
    vec![SecurityRequirement::default()]
}

/// JSON comes first: generated clients take the first media type that they know.
fn put_json_first(operation: &mut Operation) {
    for response in operation.responses.responses.values_mut() {
        if let RefOr::T(response) = response
            && let Some(at) = response.content.get_index_of("application/json")
        {
            response.content.move_index(at, 0);
        }
    }
}

/// Adds the headers that all operations of this kind take.
fn add_headers(method: &str, operation: &mut Operation, guarded: bool) {
    let parameters = operation.parameters.get_or_insert_default();
    let has_id = parameters.iter().any(|parameter| matches!(parameter, RefOr::T(parameter) if parameter.name == ID));
    let is_change = ["put", "patch", "delete"].contains(&method) && has_id;
    // Without a caller there is no one to store an answer for.
    if guarded && ["post", "patch"].contains(&method) {
        let text = "Makes a retry safe: the same key and request replay the first answer for 24 hours.";
        let schema = text_schema().min_length(Some(1)).max_length(Some(255));
        parameters.push(RefOr::T(header_parameter(IDEMPOTENCY_KEY, text, Required::False, schema)));
    }
    if is_change {
        // The schema has no length bounds: any value that is not the current ETag is refused with 412.
        let text = "The ETag of the version to change; another version is refused with 412.";
        parameters.push(RefOr::T(header_parameter(IF_MATCH, text, Required::False, text_schema())));
    }
}

fn text_schema() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String)
}

fn header_parameter(name: &str, description: &str, required: Required, schema: ObjectBuilder) -> Parameter {
    ParameterBuilder::new()
        .name(name)
        .parameter_in(ParameterIn::Header)
        .required(required)
        .description(Some(description))
        .schema(Some(schema))
        .build()
}
