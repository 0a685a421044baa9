//! The refusals of each operation in the document: the codes that follow from its callers, parameters and body, and those
//! that its feature declares with `Api::add_refusals`. The tests hold every answer against them.

use std::collections::{BTreeMap, BTreeSet};

use utoipa::ToSchema;
use utoipa::openapi::extensions::Extensions;
use utoipa::openapi::path::{Operation, Paths};
use utoipa::openapi::schema::Components;
use utoipa::openapi::{ContentBuilder, Ref, RefOr, Required, Response, ResponseBuilder};

use super::params::{CURSOR, ID, RUN_ID};
use super::problem::ProblemDetails;
use super::rules::Rules;
use crate::base::{Code, Error, Result};

/// Headers that operations take.
pub(super) const IDEMPOTENCY_KEY: &str = "Idempotency-Key";
pub(super) const IF_MATCH: &str = "If-Match";

/// The codes of a response, for programs; its description is for people.
const CODES: &str = "x-error-codes";

/// Codes by the id of their operation.
#[derive(Default)]
pub struct RefusalCodes(BTreeMap<String, Vec<Code>>);

impl RefusalCodes {
    pub(super) fn add_codes(&mut self, operation_id: &str, codes: &[Code]) {
        self.0.entry(operation_id.to_owned()).or_default().extend(codes);
    }

    /// The codes of callers that these rules admit or refuse.
    pub(super) fn add_caller_codes(&mut self, operation_id: &str, rules: &Rules) {
        let credentials = [Code::AmbiguousCredentials, Code::Unauthenticated, Code::KeyExpired, Code::SessionExpired];
        self.add_codes(operation_id, &credentials);
        self.add_codes(operation_id, &[Code::AddressNotAllowed]);
        if !rules.scopes.is_empty() || rules.sessions_only.is_some() {
            self.add_codes(operation_id, &[Code::InsufficientScope]);
        }
    }

    /// Fails if codes are declared for an operation that is not in the document.
    pub(super) fn check_operations(&self, paths: &Paths) -> Result<()> {
        let items = paths.paths.values();
        let operations = items.flat_map(|item| [&item.get, &item.post, &item.put, &item.patch, &item.delete]).flatten();
        let known: BTreeSet<&str> = operations.filter_map(|operation| operation.operation_id.as_deref()).collect();
        match self.0.keys().find(|id| !known.contains(id.as_str())) {
            Some(id) => Err(Error::internal(format!("refusals are declared for the unknown operation {id}"))),
            None => Ok(()),
        }
    }

    fn of_operation(&self, operation: &Operation) -> &[Code] {
        operation.operation_id.as_ref().and_then(|id| self.0.get(id)).map(Vec::as_slice).unwrap_or_default()
    }
}

/// Responses that many operations share. Others are written out in their operation.
const SHARED: &[(&str, &[Code])] = &[
    ("Unauthenticated", &[Code::Unauthenticated, Code::KeyExpired, Code::SessionExpired]),
    ("ReadForbidden", &[Code::InsufficientScope, Code::AddressNotAllowed]),
    ("ChangeForbidden", &[Code::InsufficientScope, Code::CsrfRejected, Code::AddressNotAllowed]),
    ("NotFound", &[Code::NotFound]),
    ("RequestTimeout", &[Code::RequestTimeout]),
    ("Conflict", &[Code::Conflict]),
    ("VersionMismatch", &[Code::VersionMismatch]),
    ("PayloadTooLarge", &[Code::PayloadTooLarge]),
    ("UnsupportedMediaType", &[Code::UnsupportedMediaType]),
    ("InvalidFields", &[Code::InvalidFields]),
    ("RateLimited", &[Code::RateLimited]),
    ("Internal", &[Code::Internal]),
    ("Unavailable", &[Code::Unavailable]),
];

pub(super) fn add_shared_responses(components: &mut Components) {
    for (name, codes) in SHARED {
        components.responses.insert((*name).to_owned(), RefOr::T(refusal_response(codes)));
    }
}

fn refusal_response(codes: &[Code]) -> Response {
    let texts: Vec<String> = codes.iter().map(|code| format!("`{}`: {}", code.name(), code.help())).collect();
    let names: Vec<&str> = codes.iter().map(|code| code.name()).collect();
    let content = ContentBuilder::new().schema(Some(Ref::from_schema_name(ProblemDetails::name()))).build();
    ResponseBuilder::new()
        .description(texts.join("\n\n"))
        .content("application/problem+json", content)
        .extensions(Some(Extensions::from_iter([(CODES, names)])))
        .build()
}

/// Adds the refusals of an operation to its answers. `codes` are all codes of the API, in the order of the document.
pub(super) fn add_refusals(
    method: &str,
    operation: &mut Operation,
    declared: &RefusalCodes,
    codes: &[Code],
) -> Result<()> {
    let mut own = implied_codes(method, operation);
    own.extend(declared.of_operation(operation));
    if let Some(unknown) = own.iter().find(|code| !codes.contains(code)) {
        return Err(Error::internal(format!("the code {} is not among those of the API", unknown.name())));
    }
    let mut by_status: BTreeMap<u16, Vec<Code>> = BTreeMap::new();
    for code in codes.iter().filter(|code| own.contains(code)) {
        by_status.entry(code.status()).or_default().push(*code);
    }
    for (status, codes) in by_status {
        let shared = SHARED.iter().find(|(_, shared)| *shared == codes);
        let response = match shared {
            Some((name, _)) => RefOr::Ref(Ref::from_response_name(*name)),
            None => RefOr::T(refusal_response(&codes)),
        };
        operation.responses.responses.insert(status.to_string(), response);
    }
    Ok(())
}

/// The codes that follow from the method, the parameters and the body.
fn implied_codes(method: &str, operation: &Operation) -> Vec<Code> {
    let parameters = || {
        operation.parameters.iter().flatten().filter_map(|parameter| match parameter {
            RefOr::T(parameter) => Some(parameter),
            RefOr::Ref(_) => None,
        })
    };
    let takes = |name: &str| parameters().any(|parameter| parameter.name == name);
    // Every route refuses unknown parameters, unreadable ones, and a request without a proper Host.
    let mut codes = vec![Code::UnknownParameter, Code::InvalidParameter, Code::InvalidHeader];
    codes.extend([Code::RateLimited, Code::Internal, Code::Unavailable]);
    if method != "get" {
        codes.push(Code::CsrfRejected);
    }
    if parameters().any(|parameter| parameter.required == Required::True) {
        codes.push(Code::MissingParameter);
    }
    if takes(CURSOR) {
        codes.push(Code::InvalidCursor);
    }
    if takes(ID) || takes(RUN_ID) {
        codes.push(Code::NotFound);
    }
    if takes(IF_MATCH) {
        codes.push(Code::VersionMismatch);
    }
    if takes(IDEMPOTENCY_KEY) {
        codes.extend([Code::IdempotencyInProgress, Code::IdempotencyKeyReused]);
    }
    if operation.request_body.is_some() {
        codes.extend([Code::MalformedJson, Code::RequestTimeout, Code::PayloadTooLarge]);
        codes.extend([Code::UnsupportedMediaType, Code::InvalidFields]);
    }
    codes
}
