//! Each operation lists the refusals that it can answer, by status and code, and no others.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use serde_json::Value;

use super::document;
use crate::support::contract::Contract;

/// The codes of an operation, and the status under which each is listed.
fn codes(contract: &Contract, operation: &Value) -> BTreeMap<String, u16> {
    let mut codes = BTreeMap::new();
    for (status, response) in operation["responses"].as_object().unwrap() {
        let status: u16 = status.parse().unwrap();
        let response = contract.resolve(response);
        let listed = response["x-error-codes"].as_array();
        assert_eq!(listed.is_some(), status >= 400, "{status} of {operation}");
        for code in listed.into_iter().flatten().filter_map(Value::as_str) {
            assert!(response["description"].as_str().unwrap().contains(&format!("`{code}`: ")), "{code}");
            codes.insert(code.to_owned(), status);
        }
    }
    codes
}

#[tokio::test(flavor = "multi_thread")]
async fn a_code_is_listed_under_its_status_and_by_an_operation_that_has_it() {
    let (_server, contract) = document().await;
    let known: BTreeMap<&str, u16> =
        tenant_control::features::install().error_codes.iter().map(|code| (code.name(), code.status())).collect();
    let mut listed = BTreeSet::new();
    for (path, method, operation) in contract.operations() {
        for (code, status) in codes(&contract, operation) {
            assert_eq!(known.get(code.as_str()), Some(&status), "{code} of {method} {path}");
            listed.insert(code);
        }
    }
    let missing: Vec<&str> = known.keys().copied().filter(|code| !listed.contains(*code)).collect();
    // The first is of agents, whose routes are not in the document; the second of methods that are no operation.
    assert_eq!(missing, ["malformed_report", "method_not_allowed"]);
}

/// Codes that an operation lists exactly if it takes what they are about.
#[tokio::test(flavor = "multi_thread")]
async fn the_refusals_of_an_operation_follow_from_what_it_takes() {
    let (_server, contract) = document().await;
    for (path, method, operation) in contract.operations() {
        let parameters: Vec<&Value> = operation["parameters"].as_array().into_iter().flatten().collect();
        let takes = |name: &str| parameters.iter().any(|parameter| parameter["name"] == name);
        let schemes: HashSet<&str> = operation["security"]
            .as_array()
            .unwrap()
            .iter()
            .flat_map(|any| any.as_object().unwrap().keys().map(String::as_str))
            .collect();
        let scoped = operation["security"]
            .as_array()
            .unwrap()
            .iter()
            .any(|any| any.as_object().unwrap().values().any(|scopes| !scopes.as_array().unwrap().is_empty()));
        let (guarded, body) = (!schemes.is_empty(), operation["requestBody"].is_object());
        let expected = [
            ("unknown_parameter", true),
            ("invalid_parameter", true),
            ("invalid_header", true),
            ("rate_limited", true),
            ("internal", true),
            ("unavailable", true),
            ("ambiguous_credentials", guarded),
            ("unauthenticated", guarded),
            ("key_expired", guarded),
            ("session_expired", guarded),
            ("address_not_allowed", guarded),
            ("insufficient_scope", guarded && (scoped || !schemes.contains("api_key"))),
            ("csrf_rejected", method != "get"),
            ("malformed_json", body),
            ("request_timeout", body),
            ("payload_too_large", body),
            ("unsupported_media_type", body),
            ("invalid_fields", body),
            ("invalid_cursor", takes("cursor")),
            ("version_mismatch", takes("If-Match")),
            ("idempotency_in_progress", takes("Idempotency-Key")),
            ("idempotency_key_reused", takes("Idempotency-Key")),
        ];
        let listed = codes(&contract, operation);
        for (code, is_listed) in expected {
            assert_eq!(listed.contains_key(code), is_listed, "{code} of {method} {path}");
        }
        if takes("id") {
            assert!(listed.contains_key("not_found"), "{method} {path}");
        }
        if parameters.iter().any(|parameter| parameter["required"] == true) {
            assert!(listed.contains_key("missing_parameter"), "{method} {path}");
        }
    }
}
