//! Optional values.

use serde_json::json;

use super::{Fails, Gives, Refused, assert_rows, assert_true};

#[test]
fn a_field_or_element_that_may_be_missing_is_optional() {
    assert_rows(&[
        Gives("input.?n.orValue(0)", json!(2)),
        Gives("input.?missing.orValue('none')", json!("none")),
        Gives("input.?missing.a.b.orValue('none')", json!("none")),
        Gives("input.?map.b.c.orValue([])", json!([true, "x"])),
        Gives("input.map[?'odd key'].orValue(0) + input.list[?1].orValue(0)", json!(9)),
        Gives("input.list[?9].orValue(-1)", json!(-1)),
        Gives("input.?map['b']['c'][0].orValue(false)", json!(true)),
        Gives("{1: 'a'}[?1.0].orValue('') + {2u: 'b'}[?2].orValue('')", json!("ab")),
        Gives("input.?none.hasValue()", json!(true)),
        Gives("steps.fetch.?output.?status.orValue(0)", json!(200)),
        Fails("input.n.?a", "is int and has no `a`"),
        Fails("input.n[?0]", "is int and has no elements"),
        // Null has no fields, as the error of a step that succeeded.
        Gives("input.none.?a.?b.orValue('none')", json!("none")),
        Gives("input.?none.?a.orValue('none')", json!("none")),
        Gives("input.none[?0].hasValue() || has(input.none.x)", json!(false)),
        Fails("input.?n.a", "is optional and has no `a`"),
        Fails("input.?missing.value()", "has no value"),
    ]);
}

#[test]
fn optional_values_are_made_asked_and_combined() {
    assert_true(&[
        "optional.of(1).hasValue() && !optional.none().hasValue()",
        "optional.of(1).value() == 1 && optional.of(null).hasValue()",
        "['', b'', 0, 0u, 0.0, false, null, [], {}, duration('0')].all(x, !optional.ofNonZeroValue(x).hasValue())",
        "['a', b'a', 1, 1u, 0.5, true, [0], {'': 0}, timestamp(0)].all(x, optional.ofNonZeroValue(x).hasValue())",
        "optional.none().or(optional.of(2)).value() == 2 && optional.of(1).or(optional.of(2)).value() == 1",
        "optional.of(1) == optional.of(1.0) && optional.of(1) != optional.of(2) && optional.none() == optional.none()",
        "optional.none() != optional.of(null)",
        "type(optional.none()) == optional_type",
        "optional.of({'a': 1}).a.value() == 1 && !optional.of({}).a.hasValue() && !optional.none().a.hasValue()",
        "optional.of([5])[0].value() == 5 && !optional.of([])[0].hasValue() && !optional.none()[0].hasValue()",
        "has(optional.of({'a': 1}).a) && !has(optional.of({}).a) && !has(optional.none().a) && has({'a': optional.none()}.a)",
    ]);
    assert_rows(&[
        Fails("optional.none().value()", "has no value"),
        Fails("optional.none().or(1)", "or cannot take (optional, int)"),
        Fails("input.n.orValue(1)", "orValue cannot take (int)"),
        Fails("input.n.hasValue()", "hasValue cannot take (int)"),
        Refused("has(input.?n)", "The argument of has() is a field"),
    ]);
}

#[test]
fn what_is_not_needed_is_not_evaluated() {
    assert_rows(&[
        Gives("optional.of(1).orValue(1 / 0)", json!(1)),
        Gives("optional.of(1).or(input.missing).value()", json!(1)),
        Gives("optional.none().optMap(x, 1 / 0).hasValue()", json!(false)),
        Fails("optional.none().orValue(1 / 0)", "divided by zero"),
    ]);
}

#[test]
fn macros_go_on_with_a_value_that_is_there() {
    assert_rows(&[
        Gives("input.?n.optMap(x, x + 1).orValue(0)", json!(3)),
        Gives("input.?missing.optMap(x, x + 1).orValue(0)", json!(0)),
        Gives("input.?map.optFlatMap(m, m.?b).optFlatMap(b, b.?c).value()", json!([true, "x"])),
        Gives("input.?map.optFlatMap(m, m.?z).hasValue()", json!(false)),
        Gives("[1].map(x, optional.of(x).optMap(y, x + y).value())", json!([2])),
        Fails("input.?map.optFlatMap(m, 1)", "An optional value is needed here, and this is int"),
        Fails("input.n.optMap(x, x)", "An optional value is needed here, and this is int"),
    ]);
}

#[test]
fn lists_and_maps_leave_out_what_is_missing() {
    assert_rows(&[
        Gives("[1, ?optional.none(), ?input.?n, ?input.?missing]", json!([1, 2])),
        Gives("{?'a': input.?n, ?'b': input.?missing, 'c': 3}", json!({"a": 2, "c": 3})),
        Gives("{?'m': optional.ofNonZeroValue({?'x': input.?missing})}", json!({})),
        Gives("[input.?n, input.?missing].unwrapOpt() + optional.unwrap([optional.of(7)])", json!([2, 7])),
        Gives("input.list.first().value() + input.list.last().value()", json!(4)),
        Gives("input.nothing.first().orValue('none') + input.nothing.last().orValue('!')", json!("none!")),
        Fails("[?1]", "An optional value is needed here"),
        Fails("{?'a': 1}", "An optional value is needed here"),
        Fails("[1].unwrapOpt()", "not optional values"),
    ]);
}
