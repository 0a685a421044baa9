//! Each operation lists the refusals that it can answer, by status and code. Every test checks that its answers have no other
//! code: see support/contract.rs.

use std::collections::{BTreeMap, BTreeSet};

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
