//! What holds in CEL, by family: one file and one table each, after the meaning of CEL's conformance tests.

mod addresses;
mod bindings;
mod comparison;
mod encodings;
mod fields;
mod format;
mod lists;
mod literals;
mod macros;
mod numbers;
mod optionals;
mod paths;
mod results;
mod texts;
mod times;
mod two_variables;
mod types;

use serde_json::Value;

use super::{ExpressionError, eval_source};

/// An expression with its value, or with a part of the message it fails with.
enum FamilyRow {
    Gives(&'static str, Value),
    Fails(&'static str, &'static str),
    /// When the definition is saved.
    Refused(&'static str, &'static str),
}

use FamilyRow::{Fails, Gives, Refused};

#[track_caller]
fn assert_rows(rows: &[FamilyRow]) {
    for row in rows {
        match row {
            Gives(source, expected) => match eval_source(source) {
                Ok(found) => assert_eq!(&found, expected, "{source}"),
                Err(error) => panic!("{source}: {error}"),
            },
            Fails(source, part) => match eval_source(source) {
                Err(ExpressionError::Failed { detail }) => assert!(detail.contains(part), "{source}: {detail}"),
                other => panic!("{source}: {other:?}"),
            },
            Refused(source, part) => match eval_source(source) {
                Err(ExpressionError::Invalid { detail, .. }) => assert!(detail.contains(part), "{source}: {detail}"),
                other => panic!("{source}: {other:?}"),
            },
        }
    }
}

/// Fails unless each expression is true.
#[track_caller]
fn assert_true(sources: &[&str]) {
    for source in sources {
        match eval_source(source) {
            Ok(found) => assert_eq!(found, Value::Bool(true), "{source}"),
            Err(error) => panic!("{source}: {error}"),
        }
    }
}
