//! `/documentation/errors/`: every error code, under the anchor that a problem's `type` points to.

use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use feature_kit::registry;
use kernel::base::{Code, Error, Result};
use kernel::http::SharedApp;
use serde::Serialize;

use super::page::HtmlPage;

#[derive(Template)]
#[template(path = "errors.html")]
struct Errors {
    here: &'static str,
    groups: Vec<ErrorGroup>,
}

/// The codes of one status.
struct ErrorGroup {
    status: u16,
    reason: &'static str,
    entries: Vec<ErrorEntry>,
}

struct ErrorEntry {
    code: Code,
    header: Option<&'static str>,
    example: String,
}

pub async fn show_errors(State(app): State<SharedApp>) -> Result<HtmlPage> {
    let base_url = app.settings.base_url.as_str();
    let mut groups: Vec<ErrorGroup> = Vec::new();
    for code in registry().error_codes.clone() {
        let entry =
            ErrorEntry { code, header: example_header(code), example: ExampleProblem::render_example(base_url, code)? };
        match groups.iter_mut().find(|group| group.status == code.status()) {
            Some(group) => group.entries.push(entry),
            None => groups.push(ErrorGroup {
                status: code.status(),
                reason: status_reason(code.status()),
                entries: vec![entry],
            }),
        }
    }
    HtmlPage::new(&Errors { here: "/documentation/errors/", groups })
}

pub fn status_reason(status: u16) -> &'static str {
    StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason()).unwrap_or_default()
}

/// The response header that a client should read with this code.
fn example_header(code: Code) -> Option<&'static str> {
    match code.status() {
        401 => Some("WWW-Authenticate: Bearer"),
        405 => Some("Allow: GET, HEAD"),
        429 => Some("Retry-After: 23"),
        503 => Some("Retry-After: 2"),
        _ => None,
    }
}

/// A problem as the API returns it; a test compares its members with those of a real one.
#[derive(Serialize)]
struct ExampleProblem<'a> {
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

impl ExampleProblem<'_> {
    fn render_example(base_url: &str, code: Code) -> Result<String> {
        let bad_field =
            BadField { pointer: "/expires_days", code: "out_of_range", detail: "must be between 1 and 365" };
        let problem = ExampleProblem {
            r#type: format!("{base_url}/documentation/errors/#{}", code.name()),
            title: code.title(),
            status: code.status(),
            detail: code.example(),
            instance: "/api/admin/api-keys",
            code: code.name(),
            request_id: "req_4fK2mXq8Zr1TnB6sWd0a",
            required_scope: (code == Code::InsufficientScope).then_some("api_keys:write"),
            errors: if code == Code::InvalidFields { vec![bad_field] } else { Vec::new() },
        };
        serde_json::to_string_pretty(&problem).map_err(Error::internal)
    }
}
