//! What results become in JSON and in texts.

use serde_json::{Value, json};

use super::super::{Expression, ExpressionScope, test_meter, test_values};
use super::{Fails, Gives, assert_rows};

#[test]
fn what_json_does_not_have_becomes_text_or_null() {
    assert_rows(&[
        Gives("b'\\xff\\x00'", json!("/wA=")),
        Gives("timestamp(0)", json!("1970-01-01T00:00:00.000Z")),
        Gives("timestamp('2026-01-02T03:04:05.1234Z')", json!("2026-01-02T03:04:05.123400Z")),
        Gives("duration('-90.5s')", json!("-90.5s")),
        Gives("ip('::1')", json!("::1")),
        Gives("cidr('10.0.0.0/8')", json!("10.0.0.0/8")),
        Gives("type(1)", json!("int")),
        Gives("18446744073709551615u", json!(u64::MAX)),
        Gives("input.?missing", json!(null)),
        Gives("[input.?n, input.?missing, optional.of(optional.of(1))]", json!([2, null, 1])),
        Gives("{1: 'a', true: 'b', 2u: 'c'}", json!({"1": "a", "true": "b", "2": "c"})),
        Fails("1.0 / 0.0", "infinite or NaN"),
        Fails("[0.0 / 0.0]", "infinite or NaN"),
    ]);
}

#[test]
fn keys_that_become_the_same_text_fail() {
    assert_rows(&[
        Fails("{1: 'a', '1': 'b'}", "the same text in JSON"),
        Fails("[{true: 'a', 'true': 'b'}]", "the same text in JSON"),
        Fails("{-1: 0, '-1': 1}", "the same text in JSON"),
        Gives("{1: 'a', '1': 'b'}[1] + {1: 'a', '1': 'b'}['1']", json!("ab")),
    ]);
}

#[test]
fn a_value_is_a_part_of_a_text() {
    let values = test_values();
    let scope = ExpressionScope {
        input: &values["input"],
        event: &Value::Null,
        steps: &values["steps"],
        run: &values["run"],
        now: kernel::base::Timestamp::from_millis(0),
        item: None,
    };
    for (source, expected) in [
        ("input.?missing", ""),
        ("input.?n", "2"),
        ("optional.of('a\"b')", "a\"b"),
        ("b'hi'", "aGk="),
        ("duration('1h')", "3600s"),
        ("now", "1970-01-01T00:00:00.000Z"),
        ("[ip('::1'), null]", "[\"::1\",null]"),
        ("{'a': b'hi'}", "{\"a\":\"aGk=\"}"),
    ] {
        let text = Expression::parse(source).unwrap().eval_to_text(&scope, &mut test_meter());
        assert_eq!(text.as_deref(), Ok(expected), "{source}");
    }
}

#[test]
fn an_item_and_its_index_are_there_within_a_loop_alone() {
    let values = test_values();
    let nothing = Value::Null;
    let within = |item| ExpressionScope {
        input: &nothing,
        event: &nothing,
        steps: &nothing,
        run: &nothing,
        now: kernel::base::Timestamp::from_millis(0),
        item,
    };
    let expression = Expression::parse("item.name + string(index) + [1].map(item, string(item))[0]").unwrap();
    assert_eq!(expression.referenced_roots().collect::<Vec<_>>(), ["item", "index"]);
    let first = within(Some((&values["input"]["people"][1], 1)));
    assert_eq!(expression.eval_to_json(&first, &mut test_meter()), Ok(json!("bob11")));
    let error = expression.eval_to_json(&within(None), &mut test_meter()).unwrap_err();
    assert_eq!(error.to_string(), "There is no item outside of a foreach.");
}
