//! Errors of expressions, when they are saved and when they are evaluated, and their messages.

use serde_json::json;

use super::super::FUNCTIONS;
use super::{Expression, Fault, Meter, eval, eval_in, meter, world};

#[track_caller]
fn refused(source: &str, at: Option<(u32, u32)>, part: &str) {
    match Expression::parse(source) {
        Err(Fault::Bad { detail, at: found }) => {
            assert!(detail.contains(part), "{source}: {detail}");
            assert_eq!(found, at, "{source}: {detail}");
        }
        other => panic!("{source}: {other:?}"),
    }
}

#[track_caller]
fn fails(source: &str, part: &str) {
    match eval(source) {
        Err(Fault::Failed { detail }) => assert!(detail.contains(part), "{source}: {detail}"),
        other => panic!("{source}: {other:?}"),
    }
}

#[test]
fn what_cannot_be_saved_says_where() {
    refused("", None, "empty");
    refused("  // nothing", None, "empty");
    refused("1 +", Some((1, 4)), "expecting expression");
    refused("input.n == ", Some((1, 12)), "expecting expression");
    refused("(1", Some((1, 3)), "Expected ')'");
    refused("1 2", Some((1, 3)), "'2'");
    refused("input.\nn @ 1", Some((2, 3)), "Unexpected character");
    refused("'abc", Some((1, 1)), "");
    refused("a = 1", Some((1, 3)), "'='");
    refused("foo.bar", Some((1, 1)), "There is no foo");
    refused("input.n + env.SECRET", Some((1, 11)), "There is no env");
    refused("input.x.frob()", Some((1, 9)), "There is no function frob");
    refused("input.x.startWith('a')", Some((1, 9)), "Did you mean startsWith?");
    refused("size()", Some((1, 1)), "another number of arguments");
    refused("size(1, 2)", Some((1, 1)), "another number of arguments");
    refused("contains('a', 'b')", Some((1, 1)), "called on something");
    refused("'1'.int()", Some((1, 5)), "not called on anything");
    refused("steps", Some((1, 1)), "by its id");
    refused("steps[input.x]", Some((1, 1)), "by its id");
    refused("size(steps)", Some((1, 6)), "by its id");
    refused("input.x.matches(input.pattern)", Some((1, 9)), "written out");
    refused("input.x.matches('(')", Some((1, 9)), "The pattern is wrong");
    refused("input.x.matches('(?=a)')", Some((1, 9)), "The pattern is wrong");
    refused("b'bytes'", None, "no bytes");
    refused("google.protobuf.Timestamp{seconds: 1}", None, "no messages");
    refused("Thing{a: 1}", Some((1, 1)), "no messages");
    refused("has(input)", Some((1, 5)), "has()");
    refused("input.list.map(x.y, 1)", Some((1, 17)), "simple name");
    refused("input.list.all(x)", Some((1, 12)), "");
    refused("input.?a", Some((1, 6)), "Unsupported");
    refused("if", Some((1, 1)), "Reserved");
    refused(".input", None, "There is no .input");
    refused("9223372036854775808", Some((1, 1)), "");
    refused("-", Some((1, 2)), "");
}

#[test]
fn what_fails_names_the_key_and_no_value() {
    fails("input.missing", "`input` has no `missing`");
    fails("input.map.b.d", "`input.map.b` has no `d`");
    fails("input['map']['z']", "`input[\"map\"]` has no `z`");
    fails("steps.other.output", "`steps` has no `other`");
    fails("steps.fetch.output.body.items[2].id", "`steps.fetch.output.body.items` has no such element");
    fails("input.map[input.text]", "`input.map` has no such element or key");
    fails("input.list[-1]", "no such element");
    fails("input.list['a']", "has no `a`");
    fails("input.text.x", "`input.text` is string and has no `x`");
    fails("input.none.x", "`input.none` is null and has no `x`");
    fails("has(input.none.x)", "is null and has no `x`");
    fails("has(input.text.x)", "is string");
    fails("input.people.map(p, p.age)", "`p` has no `age`");
    fails("input.n.map(x, x)", "`input.n` is int and has no elements");
    fails("{'a': 1}.b", "This has no `b`");
    fails("1 / 0", "divided by zero");
    fails("1 % 0", "divided by zero");
    fails("1u / 0u", "divided by zero");
    fails("9223372036854775807 + 1", "out of range");
    fails("-9223372036854775808 / -1", "out of range");
    fails("-(-9223372036854775808)", "out of range");
    fails("0u - 1u", "out of range");
    fails("1 + 1.0", "+ cannot take int and double");
    fails("'a' + 1", "+ cannot take string and int");
    fails("0.0 / 0.0 < 1.0 || 0.0 / 0.0 >= 1", "neither less nor more");
    fails("1 < 'a'", "< cannot take int and string");
    fails("[1] < [2]", "< cannot take list and list");
    fails("1 in 'a'", "in cannot take int and string");
    fails("1.0 / 0.0", "infinite");
    fails("5.0 % 2.0", "integers");
    fails("!1", "! needs true or false");
    fails("1 && true", "&& needs true or false");
    fails("input.missing || false", "`input` has no `missing`");
    fails("1 ? 2 : 3", "?: needs true or false");
    fails("[1].filter(x, x)", "A filter needs true or false");
    fails("[0, 2].exists(x, 1 / x == 5)", "divided by zero");
    fails("[1, 0].exists_one(x, 1 / x == 1)", "divided by zero");
    fails("{'a': 1, 'a': 2}", "same key twice");
    fails("{1: 1, 1u: 2}", "same key twice");
    fails("{1.5: 1}", "cannot be the key");
    fails("{[1]: 1}", "cannot be the key");
    fails("int('x')", "not an integer");
    fails("int(1e19)", "out of range");
    fails("uint(-1)", "out of range");
    fails("bool('maybe')", "not true or false");
    fails("size(1)", "size cannot take (int)");
    fails("input.n.contains('a')", "contains cannot take (int, string)");
    fails("'abc'.substring(4)", "beyond the text");
    fails("'abc'.substring(2, 1)", "beyond the text");
    fails("'abc'.indexOf('a', 9)", "beyond the text");
    fails("[1].join()", "a list of texts");
    fails("timestamp('yesterday')", "RFC 3339");
    fails("timestamp('9999-12-31T23:59:59Z') + duration('1s')", "years 1 to 9999");
    fails("timestamp(9223372036854775807)", "years 1 to 9999");
    fails("duration('1x')", "a duration");
    fails("duration('99999999999h')", "a duration");
    fails("now.getHours('Mars/Olympus')", "time zone");
    fails("now + now", "+ cannot take timestamp and timestamp");
    fails("input.big + 1u", "out of range");
}

#[test]
fn no_fault_repeats_a_value() {
    let secret = json!({"input": {"s": "hunter2", "m": {"hunter2": 1}}, "event": null, "steps": {}, "run": {}});
    for source in [
        "int(input.s)",
        "input.s.x",
        "input.m[input.s + 'x']",
        "input.s + 1",
        "timestamp(input.s)",
        "duration(input.s)",
        "now.getHours(input.s)",
        "input.m.map(k, input.m[k].x)",
        "input.m < input.m",
        "bool(input.s)",
        "[input.s][7]",
        "input.s.substring(90)",
        "{input.s: 1, input.s: 2}",
        "input.s ? 1 : 2",
    ] {
        let fault = eval_in(source, &secret, &mut meter()).unwrap_err();
        assert!(!fault.to_string().contains("hunter2"), "{source}: {fault}");
        assert_eq!(fault.code(), "expression_failed", "{source}");
    }
}

#[test]
fn an_event_that_is_not_there_is_null() {
    let world = json!({"input": {}, "event": null, "steps": {}, "run": {}});
    let ask = |source: &str| eval_in(source, &world, &mut meter());
    assert_eq!(ask("event == null"), Ok(json!(true)));
    assert_eq!(ask("event != null && event.type == 'x'"), Ok(json!(false)));
    assert!(ask("event.type").unwrap_err().to_string().contains("`event` is null and has no `type`"));
}

#[test]
fn what_an_expression_looks_at_is_known() {
    let expression = Expression::parse(
        "steps.a.output + steps['b'].output + (has(steps.c) ? input.x : event.y) + [1].map(run, run)[0] + steps.a.output",
    );
    let expression = expression.unwrap();
    assert_eq!(expression.steps().collect::<Vec<_>>(), ["a", "b", "c"]);
    assert_eq!(expression.roots().collect::<Vec<_>>(), ["steps", "input", "event"]);
    let shadowed = Expression::parse("[{'x': 1}].map(steps, steps.x)").unwrap();
    assert_eq!((shadowed.steps().count(), shadowed.roots().count()), (0, 0));
}

#[test]
fn a_condition_is_true_or_false_and_nothing_else() {
    let world = world();
    let scope = super::Scope {
        input: &world["input"],
        event: &world["event"],
        steps: &world["steps"],
        run: &world["run"],
        now: kernel::base::Timestamp::from_millis(0),
    };
    let test = |source: &str| Expression::parse(source).unwrap().test(&scope, &mut meter());
    assert_eq!(test("event.data.priority == 'high'"), Ok(true));
    assert_eq!(test("false"), Ok(false));
    for source in ["1", "null", "'true'", "[]"] {
        assert_eq!(test(source).unwrap_err().code(), "expression_failed", "{source}");
    }
}

#[test]
fn a_budget_that_is_used_up_is_absorbed_by_nothing() {
    let costly = "[1,2,3].all(x, [1,2,3].all(y, [1,2,3].all(z, x + y + z > 0)))";
    for source in [
        costly.to_owned(),
        format!("{costly} || true"),
        format!("{costly} && false"),
        format!("[1].exists(x, {costly}) || true"),
        format!("true ? {costly} : 1"),
        format!("[1, 2].all(x, x == 1 && {costly})"),
    ] {
        let fault = eval_in(&source, &world(), &mut Meter::new(60, 10_000)).unwrap_err();
        assert_eq!(fault, Fault::Spent, "{source}");
        assert_eq!(fault.code(), "expression_too_costly");
    }
}

#[test]
fn every_documented_example_is_right() {
    for row in FUNCTIONS {
        assert!(row.example.contains(&format!("{}(", row.name)), "{}", row.example);
        Expression::parse(row.example).unwrap_or_else(|fault| panic!("{}: {fault}", row.example));
    }
}
