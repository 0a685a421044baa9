//! Types, and conversions between them.

use serde_json::json;

use super::{Fails, Gives, Refused, assert_rows, assert_true};

#[test]
fn each_value_has_a_type() {
    assert_true(&[
        "type(b'') == bytes && type(null) == null_type && type(int) == type && type(type) == type",
        "type(timestamp(0)) == google.protobuf.Timestamp && type(duration('0')) == google.protobuf.Duration",
        "type(optional.of(1)) == optional_type && type(ip('::1')) == net.IP && type(cidr('::/0')) == net.CIDR",
        "type(input.list) == list && type({}) == map && type(1) != type(1u) && type([1]) == type(['a'])",
        "type(dyn(1)) == int && dyn([1])[0] == 1",
    ]);
    assert_rows(&[
        Gives("google.protobuf.Duration", json!("google.protobuf.Duration")),
        Gives("[int, bytes, net.IP]", json!(["int", "bytes", "net.IP"])),
        Refused("dyn", "There is no dyn"),
        Refused("google.protobuf.Any", "There is no google"),
        Refused("google.protobuf.Duration{seconds: 1}", "no messages"),
        Refused("net.Ip", "There is no net"),
    ]);
}

#[test]
fn numbers_are_converted_within_their_range() {
    assert_rows(&[
        Gives("[int(-2.9), int(2.9), int(7u), int('-8')]", json!([-2, 2, 7, -8])),
        Gives("[uint(2.9), uint(7), uint('8')]", json!([2, 7, 8])),
        Gives("[double('-1.5e3'), double(2), double(3u)]", json!([-1500.0, 2.0, 3.0])),
        Fails("int(18446744073709551615u)", "out of range"),
        Fails("int(9223372036854775807.0)", "out of range"),
        Fails("int(-9223372036854775808.0)", "out of range"),
        Fails("int(double('NaN'))", "out of range"),
        Fails("uint(-1)", "out of range"),
        Fails("uint(-0.5)", "out of range"),
        Fails("uint(1e20)", "out of range"),
        Fails("int('1.5')", "not an integer"),
        Fails("int('0x1')", "not an integer"),
        Fails("uint('-1')", "not an integer"),
        Fails("uint('+1')", "without a sign"),
        Fails("double('a')", "not a number"),
        Fails("int(true)", "int cannot take (bool)"),
        Fails("int(duration('1s'))", "int cannot take (duration)"),
    ]);
}

#[test]
fn numbers_do_not_wrap_around() {
    assert_rows(&[
        Fails("9223372036854775807 + 1", "out of range"),
        Fails("-9223372036854775808 - 1", "out of range"),
        Fails("9223372036854775807 * 2", "out of range"),
        Fails("-9223372036854775808 / -1", "out of range"),
        Fails("-(-9223372036854775808)", "out of range"),
        Fails("0u - 1u", "out of range"),
        Fails("1 / 0", "divided by zero"),
        Fails("1u % 0u", "divided by zero"),
        Fails("1.0 % 1.0", "takes integers"),
        Fails("1 + 1u", "+ cannot take int and uint"),
        Fails("1 + 1.0", "+ cannot take int and double"),
    ]);
    assert_true(&["1.0 / 0.0 > 1e308 && -1.0 / 0.0 < -1e308", "-7 / 2 == -3 && -7 % 2 == -1 && 7 % -2 == 1"]);
}

#[test]
fn texts_bytes_and_bools_are_converted() {
    assert_rows(&[
        Gives("bytes('é')", json!("w6k=")),
        Gives("string(b'\\xc3\\xa9') + string(1.5) + string(-3) + string(4u) + string(false)", json!("é1.5-34false")),
        Gives("string(timestamp('2026-01-02T03:04:05.120Z'))", json!("2026-01-02T03:04:05.12Z")),
        Gives("string(duration('1.5s')) + string(ip('10.0.0.1')) + string(cidr('::/8'))", json!("1.5s10.0.0.1::/8")),
        Gives("['true', 'True', 'TRUE', 't', '1'].map(x, bool(x))", json!([true, true, true, true, true])),
        Gives("['false', 'False', 'FALSE', 'f', '0'].map(x, bool(x))", json!([false, false, false, false, false])),
        Gives("[bool(true), bytes(b'a') == b'a', string('a') == 'a']", json!([true, true, true])),
        Fails("string(b'\\xff')", "not UTF-8"),
        Fails("bool('yes')", "not true or false"),
        Fails("bool('tRUE')", "not true or false"),
        Fails("bytes(1)", "bytes cannot take (int)"),
        Fails("string([])", "string cannot take (list)"),
        Fails("string(null)", "string cannot take (null)"),
    ]);
    assert_true(&["size(b'é') == 2 && b'a'.size() == 1 && b'a' + b'b' == b'ab'", r"bytes('\377') != b'\377'"]);
}
