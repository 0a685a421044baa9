//! Functions on numbers.

use serde_json::json;

use super::{Fails, Gives, Refused, assert_rows, assert_true};

#[test]
fn the_greatest_and_the_least_keep_their_type() {
    assert_rows(&[
        Gives("math.greatest(1, 2.5, 2u)", json!(2.5)),
        Gives("math.least(3, 2.5, 2u)", json!(2)),
        Gives("math.greatest([1, 7, 3]) - math.least([4, -2])", json!(9)),
        Gives("math.greatest(5) + math.least(input.list)", json!(6)),
        Fails("math.greatest([])", "An empty list"),
        Fails("math.greatest('a')", "math.greatest cannot take (string)"),
        Fails("math.least(1, null)", "math.least cannot take (int, null)"),
        Fails("math.least([1, 'a'])", "math.least cannot take (list)"),
        Fails("math.greatest(1.0, double('NaN'))", "not a number"),
        Refused("math.greatest()", "another number of arguments"),
    ]);
    assert_true(&["type(math.greatest(1, 1.0)) == int", "type(math.least(1u, 1)) == uint"]);
}

#[test]
fn numbers_are_rounded_and_asked() {
    assert_rows(&[
        Gives("[math.round(1.5), math.round(-1.5), math.round(1.4), math.round(2.5)]", json!([2.0, -2.0, 1.0, 3.0])),
        Gives("[math.ceil(1.1), math.floor(-1.1), math.trunc(-1.9)]", json!([2.0, -2.0, -1.0])),
        Gives("[math.abs(-3), math.abs(-2.5), math.abs(4u)]", json!([3, 2.5, 4])),
        Gives("[math.sign(-3), math.sign(0.0), math.sign(9u), math.sign(-0.5)]", json!([-1, 0.0, 1, -1.0])),
        Gives("[math.sqrt(9), math.sqrt(2.25), math.sqrt(16u)]", json!([3.0, 1.5, 4.0])),
        Fails("math.round(1)", "math.round cannot take (int)"),
        Fails("math.abs(-9223372036854775808)", "out of range"),
        Fails("math.sign('a')", "math.sign cannot take (string)"),
        Fails("math.isNaN(1)", "math.isNaN cannot take (int)"),
    ]);
    assert_true(&[
        "math.isNaN(0.0 / 0.0) && !math.isNaN(1.0) && math.isNaN(math.sqrt(-1))",
        "math.isInf(1.0 / 0.0) && math.isInf(-1.0 / 0.0) && !math.isInf(0.0 / 0.0)",
        "math.isFinite(1.5) && !math.isFinite(1.0 / 0.0) && !math.isFinite(0.0 / 0.0)",
    ]);
}

#[test]
fn bits_are_combined_and_moved() {
    assert_rows(&[
        Gives("[math.bitAnd(6, 3), math.bitOr(4, 1), math.bitXor(6, 3), math.bitAnd(-1, 5)]", json!([2, 5, 5, 5])),
        Gives("[math.bitAnd(6u, 3u), math.bitOr(4u, 1u), math.bitXor(6u, 3u)]", json!([2, 5, 5])),
        Gives("[math.bitNot(0), math.bitNot(0u)]", json!([-1, u64::MAX])),
        Gives(
            "[math.bitShiftLeft(1, 4), math.bitShiftLeft(1u, 63), math.bitShiftLeft(-1, 64)]",
            json!([16, 1_u64 << 63, 0]),
        ),
        Gives("[math.bitShiftRight(16, 2), math.bitShiftRight(-1, 60), math.bitShiftRight(1u, 99)]", json!([4, 15, 0])),
        Fails("math.bitShiftLeft(1, -1)", "less than 0"),
        Fails("math.bitShiftRight(1u, -1)", "less than 0"),
        Fails("math.bitAnd(1, 1u)", "math.bitAnd cannot take (int, uint)"),
        Fails("math.bitOr(1.0, 1.0)", "math.bitOr cannot take (double, double)"),
    ]);
}
