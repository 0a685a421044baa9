//! Functions on lists.

use serde_json::json;

use super::{Fails, Gives, assert_rows, assert_true};

#[test]
fn lists_are_sorted_by_values_that_have_an_order() {
    assert_rows(&[
        Gives("[3, 1, 2].sort()", json!([1, 2, 3])),
        Gives("['b', 'é', 'a'].sort()", json!(["a", "b", "é"])),
        Gives("[2.5, 1, 2u].sort()", json!([1, 2, 2.5])),
        Gives("[true, false].sort() + [].sort()", json!([false, true])),
        Gives("[duration('2s'), duration('1s')].sort()", json!(["1s", "2s"])),
        Gives("input.people.sortBy(p, p.name).map(p, p.name)", json!(["ada", "bob"])),
        Gives("[1, 2, 3, 4].sortBy(x, x % 2)", json!([2, 4, 1, 3])),
        Gives("['bb', 'a', 'cc'].sortBy(x, -x.size())", json!(["bb", "cc", "a"])),
        Fails("[1, 'a'].sort()", "not by int and string"),
        Fails("[[1]].sort()", "not by list and list"),
        Fails("[null].sort()", "not by null and null"),
        Fails("[double('NaN'), 1.0].sort()", "not by double and double"),
        Fails("[1].sortBy(x, [x])", "not by list"),
        Fails("input.map.sortBy(k, k)", "sortBy takes a list"),
        Fails("'ab'.sort()", "sort cannot take (string)"),
    ]);
    assert_true(&["[9223372036854775807, 9223372036854775806.0].sort()[1] == 9223372036854775806.0"]);
}

#[test]
fn lists_are_cut_flattened_and_turned() {
    assert_rows(&[
        Gives("[1, 2, 3, 4].slice(1, 3) + [1].slice(1, 1)", json!([2, 3])),
        Gives("[1, [2, [3]], [], 'a'].flatten()", json!([1, 2, [3], "a"])),
        Gives("[1, [2, [3, [4]]]].flatten(2)", json!([1, 2, 3, [4]])),
        Gives("[1, [2]].flatten(0)", json!([1, [2]])),
        Gives("[[[[1]]]].flatten(9223372036854775807)", json!([1])),
        Gives("[1, 'a', 3].reverse()", json!([3, "a", 1])),
        Gives("[1, 1.0, 'a', 1u, 'a', [2], [2.0]].distinct()", json!([1, "a", [2]])),
        Gives("lists.range(3) + lists.range(0)", json!([0, 1, 2])),
        Gives("input.list.reverse() + input.names.slice(0, 1)", json!([3, 2, 1, "ada"])),
        Fails("[1].slice(0, 2)", "beyond the list"),
        Fails("[1].slice(-1, 1)", "beyond the list"),
        Fails("[1, 2].slice(1, 0)", "beyond the list"),
        Fails("[1].flatten(-1)", "no negative number"),
        Fails("lists.range(-1)", "no negative number"),
        Fails("lists.range(2.0)", "lists.range cannot take (double)"),
        Fails("{}.flatten()", "flatten cannot take (map)"),
        Fails("1.reverse()", "reverse cannot take (int)"),
    ]);
}
