//! The examples of functions, and those on the page for users, are evaluated.

use serde_json::{Value, json};

use super::super::FUNCTIONS;
use super::{eval_source_in, test_meter, test_values};

const PAGE: &str = include_str!("../../../../docs/workflows.md");

fn documented_values() -> Value {
    let mut values = test_values();
    for (name, value) in [
        ("subject", json!("The disk is full")),
        ("host", json!("db-1.local")),
        ("hosts", json!(["db-1", "web-1"])),
        ("sizes", json!([1, 2.5])),
        ("address", json!("10.1.2.3")),
        ("text", json!("10.1.2.3")),
    ] {
        values["input"][name] = value;
    }
    values["event"]["data"]["cost-center"] = json!(7);
    values
}

#[track_caller]
fn assert_right(example: &str) {
    let result = eval_source_in(example, &documented_values(), &mut test_meter());
    assert!(result.is_ok(), "{example}: {result:?}");
}

#[test]
fn every_example_of_a_function_is_right() {
    for row in FUNCTIONS {
        assert!(row.example.contains(&format!("{}(", row.name)), "{}", row.example);
        assert_right(row.example);
    }
}

#[test]
fn every_example_on_the_page_is_right() {
    let section = PAGE.split("\n## Expressions").nth(1).and_then(|rest| rest.split("\n## ").next()).unwrap();
    // The last cell of each row of the table of functions.
    let rows = section.split("| for example |\n").nth(1).and_then(|rest| rest.split("\n\n").next()).unwrap();
    let examples: Vec<&str> = rows.lines().skip(1).filter_map(|row| row.rsplit('|').nth(1)).collect();
    assert!(examples.len() >= 10, "{examples:?}");
    for example in examples {
        assert_right(example.trim().trim_matches('`'));
    }
    for example in ["event.data.`cost-center`", "event.data['cost-center']"] {
        assert!(section.contains(example), "{example}");
        assert_right(example);
    }
    for refused in
        ["x || true", "'a'.matches(r'\\<')", "'a'.matches('[a-z&&[^c]]')", "'a'.matches('(?x)')", "{1: 'a', '1': 'b'}"]
    {
        let shown = refused.strip_prefix("'a'.matches(").map_or(refused, |rest| rest.trim_matches(['r', '\'', ')']));
        assert!(section.contains(shown), "{shown}");
        assert!(eval_source_in(refused, &documented_values(), &mut test_meter()).is_err(), "{refused}");
    }
}
