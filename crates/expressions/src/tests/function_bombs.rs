//! Calls built to exhaust time, memory or stack. Each must end, in a debug build, on a small stack.

use serde_json::{Value, json};

use super::super::{CostMeter, Expression, ExpressionError};
use super::bombs::eval_bounded;
use super::{eval_source_in, on_a_small_stack, test_values};

#[track_caller]
fn assert_too_costly(sources: &[String], values: &Value) {
    for source in sources {
        let shown: String = source.chars().take(80).collect();
        assert_eq!(eval_bounded(source.clone(), values.clone()), Err(ExpressionError::BudgetExceeded), "{shown}");
    }
}

/// Binds a name to the first value, and further names, as many as an expression can have, to what makes of the one before.
fn bind_chain(first: &str, next: &str, body: &str) -> String {
    let with_count = |count: usize| {
        let link = |at: usize| format!("cel.bind(a{at},{},", next.replace('@', &format!("a{}", at - 1)));
        let links: String = (1..=count).map(link).collect();
        format!("cel.bind(a0,{first},{links}{}{}", body.replace('@', &format!("a{count}")), ")".repeat(count + 1))
    };
    (1..32).rev().map(with_count).find(|source| Expression::parse(source).is_ok()).unwrap()
}

#[test]
fn names_that_double_what_they_name_end() {
    assert_too_costly(
        &[
            bind_chain("'x'", "@+@", "@.size()"),
            bind_chain("[0]", "@+@", "@.size()"),
            bind_chain("b'x'", "@+@", "@.size()"),
            bind_chain("[0]", "[@,@]", "@"),
            bind_chain("[0]", "[@,@]", "'%s'.format([@])"),
            bind_chain("[0]", "[@,@]", "@.flatten(99)"),
            bind_chain("[0]", "[@,@]", "@==@&&@==@&&@==@"),
            bind_chain("optional.of(0)", "optional.of([@,@,@,@])", "@"),
            bind_chain("{'a':0}", "{'a':@,1:@,2:@,3:@}", "'%s'.format([@])"),
            bind_chain("'%s'", "@.replace('s','s%s')+@", "@"),
            bind_chain("b'x'", "bytes(base64.encode(@+@+@+@))", "@"),
            bind_chain("'é'", "(@+@+@).urlEncode()", "@"),
            bind_chain("'\"'", "strings.quote(@+@)", "@"),
            bind_chain("'x'", "'%s%s%s%s%s'.format([@,@,@,@,@])", "@"),
            bind_chain("'x'", "'%x%x'.format([@,@])", "@"),
        ],
        &test_values(),
    );
}

#[test]
fn lists_from_nothing_end() {
    assert_too_costly(
        &[
            "lists.range(1000000000)".to_owned(),
            "lists.range(9223372036854775807)".to_owned(),
            "lists.range(30000).map(x, lists.range(x))".to_owned(),
            "lists.range(20000).transformMap(i, x, string(x))".to_owned(),
            "lists.range(2000).transformMap(i, x, lists.range(i)).transformList(k, v, v)".to_owned(),
            "lists.range(300).transformMapEntry(i, x, lists.range(300).transformMapEntry(j, y, {i * 1000 + y: y}))"
                .to_owned(),
            "lists.range(2000).distinct()".to_owned(),
            "lists.range(300).map(x, lists.range(100).map(y, [x, y])).flatten().distinct()".to_owned(),
            "lists.range(30000).sort()".to_owned(),
            "lists.range(30000).sortBy(x, -x)".to_owned(),
            "lists.range(1000).map(x, lists.range(1000).reverse())".to_owned(),
            "lists.range(1000).map(x, lists.range(1000).slice(0, 999))".to_owned(),
            "lists.range(1000).exists(x, math.greatest(lists.range(1000)) < 0)".to_owned(),
            "lists.range(5000).map(x, '%.100f'.format([1e308]))".to_owned(),
            "lists.range(20000).map(x, optional.of(x)).unwrapOpt()".to_owned(),
            "lists.range(30000).map(x, ip('10.0.0.1')).size()".to_owned(),
        ],
        &test_values(),
    );
}

#[test]
fn long_texts_are_charged_by_every_function() {
    let values = json!({
        "input": {"text": "a,é ".repeat(10_000), "many": (0..200).collect::<Vec<_>>()},
        "event": null, "steps": {}, "run": {},
    });
    let calls = [
        "input.text.reverse()",
        "input.text.lastIndexOf('z')",
        "input.text.charAt(1)",
        "input.text.urlEncode()",
        "strings.quote(input.text)",
        "bytes(input.text)",
        "string(bytes(input.text))",
        "base64.encode(bytes(input.text))",
        "input.text.format([])",
        "'%s'.format([input.text])",
        "'%x'.format([input.text])",
        "[input.text, input.text].sort()",
        "[input.text, input.text].distinct()",
        "{input.text: 1}.transformMap(k, v, k)",
        "input.text.matches('z$')",
        "optional.of(input.text) == optional.of(input.text)",
        "bytes(input.text) < bytes(input.text)",
    ];
    let sources: Vec<String> = calls.iter().map(|call| format!("input.many.map(i, {call}).size()")).collect();
    assert_too_costly(&sources, &values);
}

#[test]
fn what_is_named_or_asked_for_deeply_fits_the_stack() {
    for source in [
        bind_chain("1", "@+1", "@"),
        // The values of names are evaluated within each other, beside the nesting of the expression itself.
        bind_chain("1", &("!-".repeat(8) + "@"), "@"),
        bind_chain("1", &("!-".repeat(25) + "@"), &("!-".repeat(25) + "@")),
        bind_chain("1", &("[".repeat(8) + "@" + &"]".repeat(8)), "@"),
        bind_chain("1", "[1].map(x,@)", "[1].map(x,@)"),
        bind_chain("1", "[1].map(x,[1].map(y,[1].map(z,@)))", "@"),
        bind_chain("[1]", "@.map(x,x+1)", "@"),
        bind_chain("input.?n", "@.optMap(x,x+1)", "@"),
        bind_chain("{'a':1}", "{'a':@}", "@"),
        "optional.of(".repeat(31) + "1" + &")".repeat(31),
        "optional.of(".repeat(31) + "1" + &")".repeat(31) + " == optional.of(1)",
        "[".repeat(31) + "1" + &"]".repeat(31) + ".flatten(99)",
        "'%s'.format([".repeat(15) + "1" + &"])".repeat(15),
        "input".to_owned() + &".?a".repeat(60) + ".hasValue()",
        "optional.none()".to_owned() + &".or(optional.none())".repeat(24),
        "[1]".to_owned() + &".sortBy(x,x)".repeat(24),
        "{'a': 1}".to_owned() + &".transformMap(k,v,v)".repeat(18),
    ] {
        let result = eval_bounded(source.clone(), test_values());
        assert!(!matches!(result, Err(ExpressionError::Invalid { .. })), "{source}: {result:?}");
    }
}

#[test]
fn deep_values_are_flattened_and_written_on_a_small_stack() {
    let mut deep = json!(1);
    for _ in 0..126 {
        deep = json!([deep]);
    }
    let values = json!({"input": {"deep": deep}, "event": {}, "steps": {}, "run": {}});
    for source in [
        "input.deep.flatten(9223372036854775807)",
        "'%s'.format([input.deep])",
        "[input.deep, input.deep].distinct()",
        "optional.of(input.deep) == optional.of(input.deep)",
        "cel.bind(x, input.deep, [x, x].flatten())",
    ] {
        assert!(eval_bounded(source.to_owned(), values.clone()).is_ok(), "{source}");
    }
}

/// Whatever the budget is, an evaluation ends with its value or with the budget exceeded.
#[test]
fn every_budget_ends_the_same_way() {
    on_a_small_stack(|| {
        let values = test_values();
        for source in [
            "cel.bind(x, lists.range(20), x.transformMap(i, v, v * v).transformList(k, v, v).sortBy(y, -y).slice(0, 3))",
            "'%s %x %.2f'.format([input.names.sort(), input.text, 1.5]).reverse().urlEncode()",
            "[input.?n, input.?missing].unwrapOpt().map(x, base64.encode(bytes(string(x)))).distinct().join()",
            "['10.0.0.1', '::1'].filter(x, isIP(x)).exists(x, cidr('10.0.0.0/8').containsIP(x)) || input.text.matches('x')",
        ] {
            let full = eval_source_in(source, &values, &mut CostMeter::new(100_000, 1 << 20)).unwrap();
            for steps in (0..400).step_by(7) {
                for bytes in [0, 100, 1_000, 10_000] {
                    match eval_source_in(source, &values, &mut CostMeter::new(steps, bytes)) {
                        Ok(value) => assert_eq!(value, full, "{source}"),
                        Err(error) => assert_eq!(error, ExpressionError::BudgetExceeded, "{source}"),
                    }
                }
            }
        }
    });
}

#[test]
fn literals_are_checked_within_a_budget() {
    let long = "9".repeat(1_900);
    for source in [
        format!("'%s'.format(['{long}'])"),
        format!("timestamp('{long}')"),
        format!("duration('{long}h')"),
        format!("ip('{long}')"),
        format!("base64.decode('{long}')"),
        "'%100f'.format([1])".to_owned(),
        "'%.99999999999999999999f'.format([1])".to_owned(),
        format!("{long}(1)"),
        format!("{}(1)", "x".repeat(2_000)),
    ] {
        let _ = on_a_small_stack(move || Expression::parse(&source).map(drop));
    }
}
