//! What came back, and what every problem must look like.

use reqwest::Method;
use reqwest::header::HeaderMap;
use serde_json::Value;

#[derive(Clone, Debug)]
pub struct Answer {
    pub method: Method,
    /// Without the query.
    pub path: String,
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
    pub base_url: String,
}

/// Every code of the contract and the status it comes with.
const CODES: &[(&str, u16)] = &[
    ("malformed_json", 400),
    ("malformed_report", 400),
    ("missing_parameter", 400),
    ("unknown_parameter", 400),
    ("invalid_parameter", 400),
    ("invalid_cursor", 400),
    ("query_too_broad", 400),
    ("invalid_query", 400),
    ("invalid_header", 400),
    ("ambiguous_credentials", 400),
    ("unauthenticated", 401),
    ("key_expired", 401),
    ("session_expired", 401),
    ("insufficient_scope", 403),
    ("csrf_rejected", 403),
    ("address_not_allowed", 403),
    ("not_found", 404),
    ("sso_not_available", 404),
    ("method_not_allowed", 405),
    ("request_timeout", 408),
    ("conflict", 409),
    ("limit_reached", 409),
    ("invalid_transition", 409),
    ("idempotency_in_progress", 409),
    ("version_mismatch", 412),
    ("payload_too_large", 413),
    ("unsupported_media_type", 415),
    ("invalid_fields", 422),
    ("idempotency_key_reused", 422),
    ("rate_limited", 429),
    ("unavailable", 503),
];

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&self.body)))
    }

    /// The header's value, or nothing.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().expect("a header of visible characters"))
    }

    #[track_caller]
    pub fn is(&self, status: u16) -> &Self {
        let body = String::from_utf8_lossy(&self.body);
        assert_eq!(self.status, status, "{} {}: {body}", self.method, self.path);
        self
    }

    /// The JSON of an answer with this status.
    #[track_caller]
    pub fn ok(&self, status: u16) -> Value {
        self.is(status).json()
    }

    /// Asserts that this is a problem as RFC 9457 and the contract want it, with this code, and returns it.
    #[track_caller]
    pub fn problem(&self, code: &str) -> Value {
        let Some((_, status)) = CODES.iter().find(|(known, _)| *known == code) else { panic!("{code} is not a code") };
        self.is(*status);
        assert_eq!(self.header("content-type"), "application/problem+json");
        let problem = self.json();
        assert_eq!(problem["code"], code, "{problem}");
        assert_eq!(problem["type"], format!("{}/documentation/errors/#{code}", self.base_url));
        assert_eq!(problem["status"], *status);
        assert_eq!(problem["instance"], self.path, "the path without the query");
        for text in ["title", "detail"] {
            assert!(problem[text].as_str().is_some_and(|text| !text.is_empty()), "{text} in {problem}");
        }
        assert_eq!(problem["request_id"], self.header("x-request-id"));
        assert_eq!(problem.get("errors").is_some(), code == "invalid_fields", "{problem}");
        let names_scope = problem.get("required_scope").is_some();
        assert!(!names_scope || code == "insufficient_scope", "{problem}");
        assert_eq!(self.headers.contains_key("www-authenticate"), *status == 401);
        assert_eq!(self.headers.contains_key("retry-after"), [429, 503].contains(status));
        problem
    }

    /// The pointers that a 422 names, in its order.
    #[track_caller]
    pub fn pointers(&self) -> Vec<String> {
        let problem = self.problem("invalid_fields");
        let errors = problem["errors"].as_array().expect("errors");
        errors.iter().map(|error| error["pointer"].as_str().expect("a pointer").to_owned()).collect()
    }

    /// The body with the request id taken out: what must be equal where nothing may be told.
    pub fn body_but_request_id(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap().replace(self.header("x-request-id"), "")
    }

    /// `r` of the `RateLimit` header and its policy.
    #[track_caller]
    pub fn remaining(&self) -> (String, u64) {
        let header = self.header("ratelimit");
        let parsed = header.split_once("\";r=").and_then(|(name, rest)| {
            Some((name.trim_start_matches('"').to_owned(), rest.split(';').next()?.parse().ok()?))
        });
        parsed.unwrap_or_else(|| panic!("RateLimit: {header:?} on {} {}", self.method, self.path))
    }
}
