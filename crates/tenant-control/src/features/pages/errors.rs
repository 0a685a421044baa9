//! `/documentation/errors/`: every code under the anchor that a problem's `type` points to.

use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use kernel::base::{Code, Error, Result};
use kernel::http::Shared;
use serde::Serialize;

use super::page::Page;

#[derive(Template)]
#[template(path = "errors.html")]
struct Errors {
    here: &'static str,
    groups: Vec<Group>,
}

/// The codes of one status.
struct Group {
    status: u16,
    reason: &'static str,
    entries: Vec<Entry>,
}

struct Entry {
    code: Code,
    header: Option<&'static str>,
    example: String,
}

pub async fn errors(State(app): State<Shared>) -> Result<Page> {
    let base_url = app.settings.base_url.as_str();
    let mut groups: Vec<Group> = Vec::new();
    for code in Code::ALL.iter().copied() {
        let entry = Entry { code, header: header(code), example: Problem::example(base_url, code)? };
        match groups.iter_mut().find(|group| group.status == code.status()) {
            Some(group) => group.entries.push(entry),
            None => groups.push(Group { status: code.status(), reason: reason(code.status()), entries: vec![entry] }),
        }
    }
    Page::new(&Errors { here: "/documentation/errors/", groups })
}

fn reason(status: u16) -> &'static str {
    StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason()).unwrap_or_default()
}

/// What else the answer carries that a client should read.
fn header(code: Code) -> Option<&'static str> {
    match code.status() {
        401 => Some("WWW-Authenticate: Bearer"),
        405 => Some("Allow: GET, HEAD"),
        429 => Some("Retry-After: 23"),
        503 => Some("Retry-After: 2"),
        _ => None,
    }
}

/// A problem as the API answers it; a test compares its members with a real one's.
#[derive(Serialize)]
struct Problem<'a> {
    r#type: String,
    title: &'a str,
    status: u16,
    detail: &'a str,
    instance: &'a str,
    code: &'a str,
    request_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    required_scope: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    errors: Vec<BadField<'a>>,
}

#[derive(Serialize)]
struct BadField<'a> {
    pointer: &'a str,
    code: &'a str,
    detail: &'a str,
}

impl Problem<'_> {
    fn example(base_url: &str, code: Code) -> Result<String> {
        let bad_field =
            BadField { pointer: "/expires_days", code: "out_of_range", detail: "must be between 1 and 365" };
        let problem = Problem {
            r#type: format!("{base_url}/documentation/errors/#{}", code.name()),
            title: code.title(),
            status: code.status(),
            detail: example_detail(code),
            instance: "/api/admin/api-keys",
            code: code.name(),
            request_id: "req_4fK2mXq8Zr1TnB6sWd0a",
            required_scope: (code == Code::InsufficientScope).then_some("api_keys:write"),
            errors: if code == Code::InvalidFields { vec![bad_field] } else { Vec::new() },
        };
        serde_json::to_string_pretty(&problem).map_err(Error::internal)
    }
}

/// One detail that the API gives with the code. A new code does not compile until it has one here.
fn example_detail(code: Code) -> &'static str {
    match code {
        Code::MalformedJson => "The body is not JSON: expected `,` or `}` at line 3 column 3.",
        Code::MissingParameter => "Name the record with the query parameter id.",
        Code::UnknownParameter => "The query parameter \"stauts\" is not known here.",
        Code::InvalidParameter => "The query parameter limit must be between 1 and 200.",
        Code::InvalidCursor => "The cursor was not made for this list, these filters and this tenant.",
        Code::QueryTooBroad => {
            "More than 10000 tickets would have to be looked at one by one. Add a filter: organization_id."
        }
        Code::InvalidHeader => "Idempotency-Key must be given once, with 1 to 255 visible characters.",
        Code::AmbiguousCredentials => "Send one credential: the session cookie, Authorization or X-API-Key.",
        Code::Unauthenticated => "Send a valid API key (Authorization: Bearer or X-API-Key) or a session cookie.",
        Code::KeyExpired => "The key expired at 2026-11-15T08:00:00.000Z.",
        Code::SessionExpired => "The session has expired; sign in again.",
        Code::InsufficientScope => "This needs the scope api_keys:write.",
        Code::CsrfRejected => "A change by cookie must come from this service's own pages.",
        Code::AddressNotAllowed => "The key may not be used from 192.0.2.7.",
        Code::NotFound => "There is no such record in this tenant.",
        Code::MethodNotAllowed => "The Allow header lists the methods of this route.",
        Code::RequestTimeout => "The body did not arrive in time.",
        Code::Conflict => "The key is revoked, which cannot be undone or changed.",
        Code::LimitReached => "A tenant has at most 100 active keys. Revoke one that is no longer needed.",
        Code::InvalidTransition => "A ticket that is closed cannot become pending. It can become: open.",
        Code::IdempotencyInProgress => "The first request with this Idempotency-Key is still running.",
        Code::VersionMismatch => "The record is at version 3: its ETag is \"3\".",
        Code::PayloadTooLarge => "A body is at most 1048576 bytes.",
        Code::UnsupportedMediaType => "Send Content-Type: application/json.",
        Code::InvalidFields => "Not valid: /expires_days. See errors for each.",
        Code::TargetNotAllowed => "Not valid: /url. See errors for each.",
        Code::IdempotencyKeyReused => "This Idempotency-Key was used with another body.",
        Code::RateLimited => "The budget of 1200 read requests a minute is used up.",
        Code::Internal => "The fault is on our side and has been logged under the request id.",
        Code::Unavailable => "The service cannot do this right now. Nothing was lost that was acknowledged.",
    }
}
