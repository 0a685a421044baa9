//! Cases from the conformance tests of CEL, for the parts that are implemented.

use serde_json::{Value, json};

use super::eval_source;

#[track_caller]
fn assert_all(rows: &[(&str, Value)]) {
    for (source, expected) in rows {
        match eval_source(source) {
            Ok(found) => assert_eq!(&found, expected, "{source}"),
            Err(fault) => panic!("{source}: {fault}"),
        }
    }
}

#[test]
fn literals_and_arithmetic() {
    assert_all(&[
        ("1", json!(1)),
        ("-1", json!(-1)),
        ("0x1F", json!(31)),
        ("7u", json!(7)),
        ("1.5e2", json!(150.0)),
        ("true", json!(true)),
        ("null", json!(null)),
        ("'a\\n\\u00e9'", json!("a\né")),
        ("r'a\\n'", json!("a\\n")),
        ("\"\"\"a\nb\"\"\"", json!("a\nb")),
        ("[1, 'a', [true]]", json!([1, "a", [true]])),
        ("{'a': 1, 2: 'b', true: null}", json!({"a": 1, "2": "b", "true": null})),
        ("1 + 2 * 3 - 4", json!(3)),
        ("(1 + 2) * 3", json!(9)),
        ("7 / 2", json!(3)),
        ("-7 / 2", json!(-3)),
        ("-7 % 3", json!(-1)),
        ("7u / 2u", json!(3)),
        ("7.0 / 2.0", json!(3.5)),
        ("'a' + 'b'", json!("ab")),
        ("[1] + [2, 3]", json!([1, 2, 3])),
        ("input.list + ['x']", json!([1, 2, 3, "x"])),
        ("--1", json!(1)),
        ("-(input.n)", json!(-2)),
        ("-9223372036854775808", json!(i64::MIN)),
        ("9223372036854775807", json!(i64::MAX)),
        ("18446744073709551615u", json!(u64::MAX)),
        ("1 // a remark", json!(1)),
    ]);
}

#[test]
fn comparison_and_equality() {
    assert_all(&[
        ("1 < 2 && 2 <= 2 && 3 > 2 && 3 >= 3", json!(true)),
        ("1 == 1.0 && 1u == 1 && 1.0 == 1u", json!(true)),
        ("1 < 1.5 && 2u > 1.5 && 1.5 < 2", json!(true)),
        ("-1 < 1u", json!(true)),
        // Beyond 2^53 an integer is compared with a double as the nearest double.
        ("9223372036854775807 == 9223372036854775808.0", json!(true)),
        ("9223372036854775807 < 9223372036854775808.0", json!(false)),
        ("1 < 1e300 && -1 > -1e300", json!(true)),
        ("0.0 == -0.0", json!(true)),
        ("0.0 / 0.0 == 0.0 / 0.0", json!(false)),
        ("0.0 / 0.0 != 0.0 / 0.0", json!(true)),
        ("'a' < 'b' && 'a' < 'aa' && 'Z' < 'a'", json!(true)),
        ("false < true", json!(true)),
        ("'1' == 1", json!(false)),
        ("null == false", json!(false)),
        ("null == input.none", json!(true)),
        ("[1, 2.0, 'a'] == [1.0, 2, 'a']", json!(true)),
        ("[1] == [1, 2]", json!(false)),
        ("{'a': 1, 'b': [2]} == {'b': [2.0], 'a': 1u}", json!(true)),
        ("{'a': 1} == {'a': 2}", json!(false)),
        ("input.map == {'a': 1, 'b': {'c': [true, 'x']}, 'odd key': 7}", json!(true)),
        ("input.map != {'a': 1}", json!(true)),
        ("input.list == [1, 2, 3]", json!(true)),
        ("input.big == 18446744073709551615u", json!(true)),
        ("2 in input.list && !(4 in input.list) && 2.0 in input.list", json!(true)),
        ("'a' in input.map && !('z' in input.map)", json!(true)),
        ("1 in {1: 2} && 1u in {1: 2} && 1.0 in {1: 2}", json!(true)),
        ("'vip' in event.data.tags", json!(true)),
    ]);
}

#[test]
fn logic_takes_the_side_that_decides() {
    assert_all(&[
        ("true || input.missing", json!(true)),
        ("input.missing || true", json!(true)),
        ("false && input.missing", json!(false)),
        ("input.missing && false", json!(false)),
        ("1 / 0 == 1 || true", json!(true)),
        ("1 || true", json!(true)),
        ("!true", json!(false)),
        ("true ? 1 : input.missing", json!(1)),
        ("false ? input.missing : 2", json!(2)),
        ("false ? 1 : true ? 2 : 3", json!(2)),
        ("true || false && false", json!(true)),
        ("[1, 0].exists(x, 1 / x == 1)", json!(true)),
        ("[0, 1].exists(x, 1 / x == 1)", json!(true)),
        ("[0, 1].all(x, 1 / x == 2)", json!(false)),
        ("[[0, 1], [2]].exists(x, x.exists(y, 1 / y > 5)) || true", json!(true)),
        ("[1, 2].exists(x, [0].all(y, 1 / y == x)) || [5].all(z, z == 5)", json!(true)),
    ]);
}

#[test]
fn picking_and_asking() {
    assert_all(&[
        ("input.map.b.c[1]", json!("x")),
        ("input['map']['odd key']", json!(7)),
        ("input.people[0].name", json!("ada")),
        ("steps.fetch.output.body.items[1].id", json!("b")),
        ("steps['fetch'].status", json!("succeeded")),
        ("run.id + '/' + event.type", json!("run_1/ticket.created")),
        ("has(input.map.a) && !has(input.map.z)", json!(true)),
        ("has(input.none)", json!(true)),
        ("has(steps.fetch.output.status)", json!(true)),
        ("has({'a': 1}.a) && !has({}.a)", json!(true)),
        ("{'a': {'b': 2}}.a.b", json!(2)),
        ("{1: 'x', 2u: 'y', true: 'z'}[2]", json!("y")),
        ("[1, 2, 3][1.0]", json!(2)),
        ("input.list[2u]", json!(3)),
        ("input.empty", json!({})),
        ("input.template", json!("${{ input.n }}")),
        ("input.big", json!(u64::MAX)),
    ]);
}

#[test]
fn macros_evaluate_as_in_cel() {
    assert_all(&[
        ("input.list.map(x, x * 2)", json!([2, 4, 6])),
        ("input.list.map(x, x > 1, x * 2)", json!([4, 6])),
        ("input.list.filter(x, x != 2)", json!([1, 3])),
        ("input.people.filter(p, has(p.age)).map(p, p.name)", json!(["ada"])),
        ("input.list.all(x, x > 0)", json!(true)),
        ("[].all(x, false)", json!(true)),
        ("[].exists(x, true)", json!(false)),
        ("input.list.exists_one(x, x > 2)", json!(true)),
        ("input.list.exists_one(x, x > 1)", json!(false)),
        ("input.map.exists(k, k == 'odd key')", json!(true)),
        ("{'b': 1, 'a': 2}.map(k, k)", json!(["a", "b"])),
        ("[1, 2].map(x, [3, 4].map(y, x * y))", json!([[3, 4], [6, 8]])),
        ("[1, 2].map(x, [x].map(x, x + 1)[0] + x)", json!([3, 5])),
        ("[1].map(input, input)", json!([1])),
        ("[1].map(x, input.n)", json!([2])),
    ]);
}

#[test]
fn text_functions_evaluate_as_in_cel() {
    assert_all(&[
        ("input.text.size()", json!(11)),
        ("size(input.list) + size(input.map) + size('é') + size([1]) + size({1: 2})", json!(9)),
        ("'hello'.contains('ell') && 'hello'.startsWith('he') && 'hello'.endsWith('lo')", json!(true)),
        ("input.text.matches('^h.llo w.rld$') && matches('abc', 'b')", json!(true)),
        ("'abc'.matches('^b')", json!(false)),
        ("'ada@example.com'.matches(r'^[\\w.]+@\\w+\\.com$') && !'é'.matches(r'^\\w$')", json!(true)),
        ("'AbÉ'.lowerAscii() + 'abé'.upperAscii()", json!("abÉABé")),
        ("'  a b\t'.trim()", json!("a b")),
        ("(' ' + input.text + ' ').trim()", json!("héllo wörld")),
        ("'a,b,c'.split(',')", json!(["a", "b", "c"])),
        ("'a,b,c'.split(',', 2)", json!(["a", "b,c"])),
        ("'a,b,c'.split(',', 1)", json!(["a,b,c"])),
        ("'a,b,c'.split(',', 0)", json!([])),
        ("'a,b,c'.split(',', -1)", json!(["a", "b", "c"])),
        ("'aé'.split('')", json!(["a", "é"])),
        ("''.split('')", json!([])),
        ("''.split(',')", json!([""])),
        ("(input.text + ',x').split(',')", json!(["héllo wörld", "x"])),
        ("input.names.join()", json!("adabobeve")),
        ("['a', 'b'].join('-')", json!("a-b")),
        ("[].join('-')", json!("")),
        ("'abab'.replace('a', 'xy')", json!("xybxyb")),
        ("'abab'.replace('a', '', 1)", json!("bab")),
        ("'ab'.replace('', '-')", json!("-a-b-")),
        ("'ab'.replace('a', 'x', 0)", json!("ab")),
        ("'héllo'.substring(1)", json!("éllo")),
        ("'héllo'.substring(1, 3)", json!("él")),
        ("'abc'.substring(3)", json!("")),
        ("'héllo'.indexOf('l')", json!(2)),
        ("'héllo'.indexOf('l', 3)", json!(3)),
        ("'abc'.indexOf('z')", json!(-1)),
        ("'abc'.indexOf('')", json!(0)),
        ("'a'.split(',').map(x, x + 'b')", json!(["ab"])),
    ]);
}

#[test]
fn conversions_evaluate_as_in_cel() {
    assert_all(&[
        ("int('42') + int(4.9) + int(-4.9) + int(7u)", json!(49)),
        ("uint(7) + uint('3') + uint(1.9)", json!(11)),
        ("double(1) + double('0.5') + double(2u)", json!(3.5)),
        ("string(1) + string(1u) + string(1.5) + string(true) + string('x')", json!("111.5truex")),
        ("string(2.0) + ' ' + string(1e30) + ' ' + string(input.big)", json!("2 1e30 18446744073709551615")),
        ("bool('true') && !bool('0') && bool(true)", json!(true)),
        ("dyn(1) == 1.0", json!(true)),
        ("type(1) == int && type('') == string && type([]) == list && type({}) == map", json!(true)),
        ("type(1u) == uint && type(1.0) == double && type(null) == null_type && type(int) == type", json!(true)),
        ("type(input.list) == list && type(input.map) == map && type(input.half) == double", json!(true)),
        ("type(true)", json!("bool")),
    ]);
}

#[test]
fn times_and_durations() {
    assert_all(&[
        ("now", json!("2026-02-27T09:02:03.456Z")),
        ("now + duration('1h30m')", json!("2026-02-27T10:32:03.456Z")),
        ("now - duration('90s')", json!("2026-02-27T09:00:33.456Z")),
        ("now - timestamp('2026-02-27T09:00:00Z')", json!("123.456s")),
        ("duration('1.5h')", json!("5400s")),
        ("duration('-1m')", json!("-60s")),
        ("duration('-0.5s')", json!("-0.5s")),
        ("duration('100ms') + duration('1500ms')", json!("1.6s")),
        ("duration('0')", json!("0s")),
        ("timestamp('2026-02-27T09:00:00+02:00') == timestamp('2026-02-27T07:00:00Z')", json!(true)),
        ("timestamp(0)", json!("1970-01-01T00:00:00.000Z")),
        ("int(timestamp('1970-01-01T00:01:00Z'))", json!(60)),
        ("string(timestamp(60)) + string(now)", json!("1970-01-01T00:01:00Z2026-02-27T09:02:03.456Z")),
        ("string(duration('1h'))", json!("3600s")),
        ("now < now + duration('1s') && duration('1m') == duration('60s')", json!(true)),
        ("now.getFullYear() * 10000 + (now.getMonth() + 1) * 100 + now.getDate()", json!(20_260_227)),
        ("now.getDayOfMonth()", json!(26)),
        ("now.getDayOfWeek()", json!(5)),
        ("now.getDayOfYear()", json!(57)),
        ("[now.getHours(), now.getMinutes(), now.getSeconds(), now.getMilliseconds()]", json!([9, 2, 3, 456])),
        ("now.getHours('Europe/Berlin')", json!(10)),
        ("now.getHours('-08:00') + now.getHours('+02:30') + now.getHours('01:00')", json!(22)),
        ("timestamp('2026-07-01T22:30:00Z').getDate('Europe/Berlin')", json!(2)),
        ("duration('90m').getHours() * 1000 + duration('90m').getMinutes()", json!(1_090)),
        ("duration('1.25s').getSeconds() * 1000 + duration('1.25s').getMilliseconds()", json!(1_250)),
    ]);
}
