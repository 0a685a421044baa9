//! The macros of one variable.

use serde_json::json;

use super::{Fails, Gives, Refused, assert_rows, assert_true};

#[test]
fn quantifiers_absorb_errors_as_or_and_and_do() {
    assert_true(&[
        "[0, 2].exists(x, 4 / x == 2)",
        "![0, 2].all(x, 4 / x == 3)",
        "[].all(x, 1 / 0 > x) && ![].exists(x, 1 / 0 > x)",
        "{'a': 1, 2: 3}.exists(k, k == 2)",
        "!{'a': 1}.all(k, k == 'b')",
    ]);
    assert_rows(&[
        Fails("[0, 2].exists(x, 4 / x == 3)", "divided by zero"),
        Fails("[0, 2].all(x, 4 / x == 2)", "divided by zero"),
        Fails("[1].all(x, x)", "needs true or false"),
        Fails("input.n.all(x, true)", "no elements"),
    ]);
}

#[test]
fn exactly_one_asks_every_element() {
    assert_true(&[
        "[1, 2, 3].exists_one(x, x > 2) && ![1, 2, 3].existsOne(x, x > 1) && ![].exists_one(x, true)",
        "{'a': 1, 'b': 2}.exists_one(k, k == 'a')",
    ]);
    assert_rows(&[Fails("[1, 0].exists_one(x, 1 / x == 1)", "divided by zero")]);
}

#[test]
fn lists_are_mapped_and_filtered() {
    assert_rows(&[
        Gives("[1, 2, 3].map(x, x * x)", json!([1, 4, 9])),
        Gives("[1, 2, 3].map(x, x % 2 == 1, [x])", json!([[1], [3]])),
        Gives("[1, 2, 3].filter(x, x != 2)", json!([1, 3])),
        Gives("{'b': 1, 'a': 2}.filter(k, k == 'a')", json!(["a"])),
        Gives("{'b': 1, 'a': 2}.map(k, k + '!')", json!(["a!", "b!"])),
        Fails("[1, 0].map(x, 1 / x)", "divided by zero"),
        Fails("[1].filter(x, x)", "needs true or false"),
    ]);
}

#[test]
fn a_variable_hides_what_is_outside() {
    assert_rows(&[
        Gives("[1].map(input, input + 1)", json!([2])),
        Gives("[[1, 2], [3]].map(x, x.map(x, x * 10))", json!([[10, 20], [30]])),
        Gives("[1].map(math, math + 1)", json!([2])),
        Gives("['a'].filter(a, ['b'].all(b, a != b))", json!(["a"])),
        Refused("[1].map(x, x)[0] + x", "There is no x"),
        Refused("[1].map(input.x, 1)", "simple name"),
        Refused("[1].map(x)", "takes a name and an expression"),
        Refused("[1].all(x, true, x, x)", ""),
    ]);
}
