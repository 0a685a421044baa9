//! Errors of expressions, when they are saved and when they are evaluated, and their messages.

use serde_json::json;

use super::{CostMeter, Expression, ExpressionError, eval_source, eval_source_in, test_meter, test_values};

#[track_caller]
fn assert_refused(source: &str, at: Option<(u32, u32)>, part: &str) {
    match Expression::parse(source) {
        Err(ExpressionError::Invalid { detail, at: found }) => {
            assert!(detail.contains(part), "{source}: {detail}");
            assert_eq!(found, at, "{source}: {detail}");
        }
        other => panic!("{source}: {other:?}"),
    }
}

#[track_caller]
fn assert_fails(source: &str, part: &str) {
    match eval_source(source) {
        Err(ExpressionError::Failed { detail }) => assert!(detail.contains(part), "{source}: {detail}"),
        other => panic!("{source}: {other:?}"),
    }
}

#[test]
fn what_cannot_be_saved_says_where() {
    assert_refused("", None, "empty");
    assert_refused("  // nothing", None, "empty");
    assert_refused("1 +", Some((1, 4)), "expecting expression");
    assert_refused("input.n == ", Some((1, 12)), "expecting expression");
    assert_refused("(1", Some((1, 3)), "Expected ')'");
    assert_refused("1 2", Some((1, 3)), "'2'");
    assert_refused("input.\nn @ 1", Some((2, 3)), "Unexpected character");
    assert_refused("'abc", Some((1, 1)), "");
    assert_refused("a = 1", Some((1, 3)), "'='");
    assert_refused("foo.bar", Some((1, 1)), "There is no foo");
    assert_refused("input.n + env.SECRET", Some((1, 11)), "There is no env");
    assert_refused("input.x.frob()", Some((1, 9)), "There is no function frob");
    assert_refused("input.x.startWith('a')", Some((1, 9)), "Did you mean startsWith?");
    assert_refused("size()", Some((1, 1)), "another number of arguments");
    assert_refused("size(1, 2)", Some((1, 1)), "another number of arguments");
    assert_refused("contains('a', 'b')", Some((1, 1)), "called on something");
    assert_refused("'1'.int()", Some((1, 5)), "not called on anything");
    assert_refused("steps", Some((1, 1)), "by its id");
    assert_refused("steps[input.x]", Some((1, 1)), "by its id");
    assert_refused("size(steps)", Some((1, 6)), "by its id");
    assert_refused("input.x.matches(input.pattern)", Some((1, 9)), "written out");
    assert_refused("input.x.matches('(')", Some((1, 9)), "The pattern is wrong");
    assert_refused("input.x.matches('(?=a)')", Some((1, 9)), "The pattern is wrong");
    assert_refused("google.protobuf.Timestamp{seconds: 1}", None, "no messages");
    assert_refused("Thing{a: 1}", Some((1, 1)), "no messages");
    assert_refused("has(input)", Some((1, 5)), "has()");
    assert_refused("input.list.map(x.y, 1)", Some((1, 17)), "simple name");
    assert_refused("input.list.all(x)", Some((1, 12)), "");
    assert_refused("has(input.?a)", Some((1, 5)), "has()");
    assert_refused("if", Some((1, 1)), "Reserved");
    assert_refused("timestamp('yesterday')", Some((1, 1)), "RFC 3339");
    assert_refused("now > timestamp('10000-01-01T00:00:00Z')", Some((1, 7)), "years 1 to 9999");
    assert_refused("duration('1x')", Some((1, 1)), "a duration");
    assert_refused("duration('99999999999h')", Some((1, 1)), "292 years");
    assert_refused("ip('10.0.0.256')", Some((1, 1)), "not an IPv4 or IPv6 address");
    assert_refused("cidr('10.0.0.0')", Some((1, 1)), "not a range");
    assert_refused("base64.decode('a b')", Some((1, 8)), "not base64");
    assert_refused("now.getHours('Mars/Olympus')", Some((1, 5)), "time zone");
    assert_refused("cidr(input.text).containsIP('10.0.0')", Some((1, 18)), "not an IPv4 or IPv6 address");
    assert_refused("cidr(input.text).containsCIDR('10.0.0.0/33')", Some((1, 18)), "not a range");
    assert_refused("'%s %d'.format([1])", Some((1, 9)), "more than the 1 values");
    assert_refused("'%s'.format([1, 2])", Some((1, 6)), "places for 1 values, and is given 2");
    assert_refused("'%q'.format([1])", Some((1, 6)), "no %q in a format");
    assert_refused("'%.1000f'.format(input.list)", Some((1, 11)), "at most 100");
    assert_refused("'%d'.format(['a'])", Some((1, 6)), "%d of a format cannot take string");
    assert_refused("'100%'.format([])", Some((1, 8)), "a percent sign is written %%");
    assert_refused("math.abss(1)", Some((1, 6)), "Did you mean math.abs?");
    assert_refused("greatest(1, 2)", Some((1, 1)), "Did you mean math.greatest?");
    assert_refused("input.list.transformlist(i, x, x)", Some((1, 12)), "Did you mean transformList?");
    assert_refused("math.pi", Some((1, 1)), "There is no math");
    assert_refused("input.list.transformList(x, x)", Some((1, 12)), "takes two names and an expression");
    assert_refused("cel.bind(x, 1)", Some((1, 14)), "Expected ','");
    assert_refused("cel.bind(x, 1, x, x)", Some((1, 1)), "takes a name and two expressions");
    assert_refused("has()", Some((1, 1)), "has takes one field");
    assert_refused("b'\\u00e9'", Some((1, 1)), "escape");
    assert_refused("input.`a$b`", Some((1, 7)), "Between backticks");
    assert_refused("input.x.matches('[a-z&&[^b]]')", Some((1, 9)), "RE2");
    assert_refused(".input", None, "There is no .input");
    assert_refused("9223372036854775808", Some((1, 1)), "");
    assert_refused("-", Some((1, 2)), "");
}

#[test]
fn what_fails_names_the_key_and_no_value() {
    assert_fails("input.missing", "`input` has no `missing`");
    assert_fails("input.map.b.d", "`input.map.b` has no `d`");
    assert_fails("input['map']['z']", "`input[\"map\"]` has no `z`");
    assert_fails("steps.other.output", "`steps` has no `other`");
    assert_fails("steps.fetch.output.body.items[2].id", "`steps.fetch.output.body.items` has no such element");
    assert_fails("input.map[input.text]", "`input.map` has no such element or key");
    assert_fails("input.list[-1]", "no such element");
    assert_fails("input.list['a']", "has no `a`");
    assert_fails("input.text.x", "`input.text` is string and has no `x`");
    assert_fails("input.none.x", "`input.none` is null and has no `x`");
    assert_fails("has(input.text.x)", "is string");
    assert_fails("input.people.map(p, p.age)", "`p` has no `age`");
    assert_fails("input.n.map(x, x)", "`input.n` is int and has no elements");
    assert_fails("{'a': 1}.b", "This has no `b`");
    assert_fails("1 / 0", "divided by zero");
    assert_fails("1 % 0", "divided by zero");
    assert_fails("1u / 0u", "divided by zero");
    assert_fails("9223372036854775807 + 1", "out of range");
    assert_fails("-9223372036854775808 / -1", "out of range");
    assert_fails("-(-9223372036854775808)", "out of range");
    assert_fails("0u - 1u", "out of range");
    assert_fails("1 + 1.0", "+ cannot take int and double");
    assert_fails("'a' + 1", "+ cannot take string and int");
    assert_fails("0.0 / 0.0 < 1.0 || 0.0 / 0.0 >= 1", "neither less nor more");
    assert_fails("1 < 'a'", "< cannot take int and string");
    assert_fails("[1] < [2]", "< cannot take list and list");
    assert_fails("1 in 'a'", "in cannot take int and string");
    assert_fails("1.0 / 0.0", "infinite");
    assert_fails("5.0 % 2.0", "integers");
    assert_fails("!1", "! needs true or false");
    assert_fails("1 && true", "&& needs true or false");
    assert_fails("input.missing || false", "`input` has no `missing`");
    assert_fails("1 ? 2 : 3", "?: needs true or false");
    assert_fails("[1].filter(x, x)", "A filter needs true or false");
    assert_fails("[0, 2].exists(x, 1 / x == 5)", "divided by zero");
    assert_fails("[1, 0].exists_one(x, 1 / x == 1)", "divided by zero");
    assert_fails("{'a': 1, 'a': 2}", "same key twice");
    assert_fails("{1: 1, 1u: 2}", "same key twice");
    assert_fails("{1.5: 1}", "cannot be the key");
    assert_fails("{[1]: 1}", "cannot be the key");
    assert_fails("int('x')", "not an integer");
    assert_fails("int(1e19)", "out of range");
    assert_fails("uint(-1)", "out of range");
    assert_fails("bool('maybe')", "not true or false");
    assert_fails("size(1)", "size cannot take (int)");
    assert_fails("input.n.contains('a')", "contains cannot take (int, string)");
    assert_fails("'abc'.substring(4)", "beyond the text");
    assert_fails("'abc'.substring(2, 1)", "beyond the text");
    assert_fails("'abc'.indexOf('a', 9)", "beyond the text");
    assert_fails("[1].join()", "a list of texts");
    assert_fails("timestamp(input.text)", "RFC 3339");
    assert_fails("timestamp('9999-12-31T23:59:59Z') + duration('1s')", "years 1 to 9999");
    assert_fails("timestamp(9223372036854775807)", "years 1 to 9999");
    assert_fails("duration(input.text)", "a duration");
    assert_fails("now.getHours(input.text)", "time zone");
    assert_fails("now + now", "+ cannot take timestamp and timestamp");
    assert_fails("input.big + 1u", "out of range");
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
        let fault = eval_source_in(source, &secret, &mut test_meter()).unwrap_err();
        assert!(!fault.to_string().contains("hunter2"), "{source}: {fault}");
        assert_eq!(fault.code(), "expression_failed", "{source}");
    }
}

#[test]
fn an_event_that_is_not_there_is_null() {
    let values = json!({"input": {}, "event": null, "steps": {}, "run": {}});
    let eval = |source: &str| eval_source_in(source, &values, &mut test_meter());
    assert_eq!(eval("event == null"), Ok(json!(true)));
    assert_eq!(eval("event != null && event.type == 'x'"), Ok(json!(false)));
    assert!(eval("event.type").unwrap_err().to_string().contains("`event` is null and has no `type`"));
}

#[test]
fn what_an_expression_looks_at_is_known() {
    let expression = Expression::parse(
        "steps.a.output + steps['b'].output + (has(steps.c) ? input.x : event.y) + [1].map(run, run)[0] + steps.a.output",
    );
    let expression = expression.unwrap();
    assert_eq!(expression.referenced_steps().collect::<Vec<_>>(), ["a", "b", "c"]);
    assert_eq!(expression.referenced_roots().collect::<Vec<_>>(), ["steps", "input", "event"]);
    let shadowed = Expression::parse("[{'x': 1}].map(steps, steps.x)").unwrap();
    assert_eq!((shadowed.referenced_steps().count(), shadowed.referenced_roots().count()), (0, 0));
}

#[test]
fn a_condition_is_true_or_false_and_nothing_else() {
    let values = test_values();
    let scope = super::ExpressionScope {
        input: &values["input"],
        event: &values["event"],
        steps: &values["steps"],
        run: &values["run"],
        now: kernel::base::Timestamp::from_millis(0),
        item: None,
    };
    let test = |source: &str| Expression::parse(source).unwrap().eval_condition(&scope, &mut test_meter());
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
        let fault = eval_source_in(&source, &test_values(), &mut CostMeter::new(60, 10_000)).unwrap_err();
        assert_eq!(fault, ExpressionError::BudgetExceeded, "{source}");
        assert_eq!(fault.code(), "expression_too_costly");
    }
}
