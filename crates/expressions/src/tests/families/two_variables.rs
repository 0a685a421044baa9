//! The macros of two variables: index and element of a list, key and value of a map.

use serde_json::json;

use super::{Fails, Gives, Refused, assert_rows, assert_true};

#[test]
fn quantifiers_see_both() {
    assert_true(&[
        "[5, 6].exists(i, x, i == 1 && x == 6)",
        "[5, 6].all(i, x, x == i + 5)",
        "!{'a': 1, 'b': 2}.all(k, v, k == 'a' || v == 1)",
        "{'a': 1, 2: 'b'}.exists(k, v, k == 2 && v == 'b')",
        "input.map.exists(k, v, k == 'a' && v == 1)",
        "[7, 8, 7].existsOne(i, x, i > 0 && x == 7) && ![7, 7].exists_one(i, x, x == 7)",
        "[1, 0].exists(i, x, 1 / x == 1) && ![].exists(i, x, true) && [].all(i, x, false)",
    ]);
    assert_rows(&[
        Fails("[0].all(i, x, 1 / x == 1)", "divided by zero"),
        Fails("[1, 0].existsOne(i, x, 1 / x == 1)", "divided by zero"),
    ]);
}

#[test]
fn transform_list_makes_a_list_of_a_list_or_map() {
    assert_rows(&[
        Gives("[5, 6].transformList(i, x, i * 10 + x)", json!([5, 16])),
        Gives("[5, 6, 7].transformList(i, x, i != 1, x)", json!([5, 7])),
        Gives("{'b': 1, 'a': 2}.transformList(k, v, k + string(v))", json!(["a2", "b1"])),
        Gives("input.names.transformList(i, _, i)", json!([0, 1, 2])),
        Gives("[].transformList(i, x, 1 / 0)", json!([])),
        Fails("[0].transformList(i, x, 1 / x)", "divided by zero"),
        Fails("[0].transformList(i, x, x, x)", "needs true or false"),
    ]);
}

#[test]
fn transform_map_keeps_the_keys() {
    assert_rows(&[
        Gives("{'a': 1, 'b': 2}.transformMap(k, v, v * 10)", json!({"a": 10, "b": 20})),
        Gives("{'a': 1, 'b': 2}.transformMap(k, v, v > 1, k + '!')", json!({"b": "b!"})),
        Gives("['x', 'y'].transformMap(i, v, v)", json!({"0": "x", "1": "y"})),
        Gives("input.map.b.transformMap(k, v, v.size())", json!({"c": 2})),
        Gives("{1u: 'a', 'b': 'c'}.transformMap(k, v, type(k) == uint)", json!({"1": true, "b": false})),
        Fails("{'a': 0}.transformMap(k, v, 1 / v)", "divided by zero"),
    ]);
}

#[test]
fn transform_map_entry_makes_new_keys() {
    assert_rows(&[
        Gives("{'a': 'b'}.transformMapEntry(k, v, {v: k})", json!({"b": "a"})),
        Gives("['x', 'y'].transformMapEntry(i, v, i > 0, {v: i})", json!({"y": 1})),
        Gives("input.people.transformMapEntry(i, p, {p.name: i})", json!({"ada": 0, "bob": 1})),
        Gives("['x'].transformMapEntry(i, v, {})", json!({})),
        Fails("{'a': 1, 'b': 1}.transformMapEntry(k, v, {v: k})", "same key twice"),
        Fails("['x'].transformMapEntry(i, v, v)", "needs a map, and this is string"),
    ]);
}

#[test]
fn they_nest_and_hide_names_as_others_do() {
    assert_rows(&[
        Gives(
            "[[1], [2, 3]].transformList(i, x, x.transformList(j, y, i * 100 + j * 10 + y))",
            json!([[1], [102, 113]]),
        ),
        Gives("[1].transformList(input, x, input + x)", json!([1])),
        Gives("[[4]].map(x, x.transformList(i, x, x + i)[0])", json!([4])),
        Refused("[1].transformList(i, x, y)", "There is no y"),
        Refused("[1].transformList(i, 1, 2)", "simple name"),
        Refused("[1].transformMap(k, k)", "takes two names and an expression"),
    ]);
}
