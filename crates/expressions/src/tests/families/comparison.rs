//! `==`, order and `in` across types; `&&` and `||` with errors.

use super::{Fails, assert_rows, assert_true};

#[test]
fn numbers_are_equal_by_value_whatever_their_types() {
    assert_true(&[
        "1 == 1.0 && 1.0 == 1u && 1u == 1",
        "[1, 2.0, {'a': 3u}] == [1u, 2, {'a': 3.0}]",
        "{1: 'a'} == {1u: 'a'} && {1u: 'a'} == {1: 'a'}",
        "1 != 1.5 && -1 != 18446744073709551615u",
        "3 in [1.0, 3.0] && 3.0 in {3: ''} && !(3.5 in {3: ''})",
        "dyn(2) < 2.5 && 2.5 < dyn(3u) && -1 < 0u && 0u > -1",
        "1u <= 1.0 && 1.0 >= 1u",
        "9007199254740993 == 9007199254740992.0",
        "18446744073709551615u > 9223372036854775807",
        "0.0 == -0.0",
    ]);
}

#[test]
fn other_types_are_never_equal_and_have_no_order() {
    assert_true(&[
        "'1' != 1 && null != false && [] != {} && b'a' != 'a' && true != 1",
        "null == null && type(1) == type(2) && int != uint",
        "optional.of(1) != 1",
        "timestamp(0) != 0 && duration('0') != 0",
        "!('a' in [1, true, null])",
    ]);
    assert_rows(&[
        Fails("1 < '1'", "< cannot take int and string"),
        Fails("null < null", "< cannot take null and null"),
        Fails("[1] < [2]", "cannot take list and list"),
        Fails("b'a' < 'b'", "cannot take bytes and string"),
        Fails("{} > {}", "cannot take map and map"),
        Fails("double('NaN') < 1.0", "not a number"),
        Fails("1 in 1", "in cannot take int and int"),
    ]);
}

#[test]
fn texts_bytes_bools_and_times_have_an_order() {
    assert_true(&[
        "'a' < 'ab' && 'Z' < 'a' && 'é' > 'z'",
        r"b'\x01' < b'\xff' && b'a' < b'aa' && b'' < b'\x00'",
        "false < true && !(true < true)",
        "timestamp('2026-01-02T00:00:00.000000001Z') > timestamp('2026-01-02T00:00:00Z')",
        "duration('1ns') > duration('0') && duration('-1h') < duration('1ns')",
        "[1, 2].exists(x, x == 2) == ([1, 2].filter(x, x == 2) != [])",
    ]);
}

#[test]
fn not_a_number_equals_nothing() {
    assert_true(&[
        "double('NaN') != double('NaN')",
        "!(double('NaN') == 1) && !(double('NaN') in [double('NaN')])",
        "[double('NaN')] != [double('NaN')]",
    ]);
}

#[test]
fn what_decides_absorbs_errors_on_either_side() {
    assert_true(&[
        "1 / 0 > 0 || true",
        "true || 1 / 0 > 0",
        "!(1 / 0 > 0 && false)",
        "!(false && input.missing)",
        "!('a' && false) && (1 || true)",
        "(input.missing || false || true)",
    ]);
    assert_rows(&[
        Fails("input.missing || false", "no `missing`"),
        Fails("true && 1 / 0 > 0", "divided by zero"),
        Fails("1 / 0 > 0 || input.missing", "divided by zero"),
        Fails("'a' || false", "needs true or false"),
        Fails("1 ? 2 : 3", "needs true or false"),
    ]);
}
