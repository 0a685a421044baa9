//! Fields, elements, keys and `has`.

use serde_json::json;

use super::{Fails, Gives, assert_rows, assert_true};

#[test]
fn a_field_that_is_no_word_is_written_between_backticks() {
    assert_rows(&[
        Gives("{'content-type': 'a'}.`content-type`", json!("a")),
        Gives("{'/v1/x y': {'b.c': 1}}.`/v1/x y`.`b.c`", json!(1)),
        Gives("input.map.`odd key`", json!(7)),
        Gives("has(input.map.`odd key`) && !has(input.map.`other-key`)", json!(true)),
        Gives("input.?map.?`odd key`.orValue(0)", json!(7)),
        Fails("input.map.`other-key`", "no `other-key`"),
    ]);
}

#[test]
fn keys_are_bools_integers_and_texts() {
    assert_rows(&[
        Gives("{true: 1, 2: 2, 3u: 3, 'a': 4}[3]", json!(3)),
        Gives("{1: 'a'}[1.0] + {2u: 'b'}[2]", json!("ab")),
        Fails("{1.0: 'a'}", "double cannot be the key"),
        Fails("{null: 'a'}", "null cannot be the key"),
        Fails("{b'a': 1}", "bytes cannot be the key"),
        Fails("{1: 'a', 1u: 'b'}", "same key twice"),
        Fails("{'a': 1, 'a': 2}", "same key twice"),
        Fails("{1: 2}[1.5]", "no such element or key"),
        Fails("{1: 2}['a']", "no `a`"),
    ]);
    assert_true(&["{1u: ''}.map(k, type(k)) == [uint]", "{1: ''}.exists(k, type(k) == int)"]);
}

#[test]
fn elements_are_counted_from_0() {
    assert_rows(&[
        Gives("[7, 8, 9][dyn(2)] + [7, 8, 9][dyn(0u)] + [7, 8, 9][dyn(1.0)]", json!(24)),
        Fails("[7][1]", "no such element"),
        Fails("[7][-1]", "no such element"),
        Fails("[7][0.5]", "no such element"),
        Fails("[7]['a']", "no `a`"),
        Fails("1[0]", "no elements"),
        Fails("'abc'[0]", "no elements"),
    ]);
}

#[test]
fn has_asks_for_a_field_of_a_map() {
    assert_rows(&[
        Gives("has({'a': null}.a) && !has({}.a)", json!(true)),
        Fails("has(input.n.a)", "is int and has no `a`"),
        Fails("has(input.missing.a)", "no `missing`"),
    ]);
}
