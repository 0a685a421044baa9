//! Expressions built to exhaust time, memory or stack. Each must end, in a debug build, on a small stack.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::super::{CostMeter, Expression, ExpressionError};
use super::{eval_source_in, on_a_small_stack, test_meter, test_values};

/// An unbounded evaluation takes hours: this limit is so generous that a busy machine makes no difference.
const DURATION_MAX: Duration = Duration::from_mins(1);

#[track_caller]
pub fn eval_bounded(source: String, values: Value) -> Result<Value, ExpressionError> {
    let shown: String = source.chars().take(60).collect();
    let (result, took) = on_a_small_stack(move || {
        let at = Instant::now();
        let result = eval_source_in(&source, &values, &mut test_meter());
        (result, at.elapsed())
    });
    assert!(took < DURATION_MAX, "{shown}… took {took:?}");
    result
}

#[test]
fn what_doubles_itself_ends() {
    for source in [
        "['x']".to_owned() + &".map(a,a+a)".repeat(24) + "[0].size()",
        "[0]".to_owned() + &".map(a,[a,a])".repeat(20),
        "[0]".to_owned() + &".map(a,[a,a])".repeat(20) + " == [1]",
        "[[0]".to_owned() + &".map(a,[a,a])".repeat(18) + "].map(a, a == a)[0]",
        "[0]".to_owned() + &".map(a,{'x':a,'y':a})".repeat(14),
        "['xxxxxxxxxxxxxxxx']".to_owned() + &".map(a,a.replace('x','xxxxxxxx'))".repeat(10),
        "['x,x,x,x']".to_owned() + &".map(a,a.split(',').join(a+','))".repeat(12),
    ] {
        let shown = source.clone();
        match eval_bounded(source, test_values()) {
            Err(ExpressionError::BudgetExceeded) => {}
            // Comparing lists that differ in their first elements ends at once.
            Ok(value) => assert!(value.is_boolean() || shown.contains("=="), "{shown}: {value}"),
            Err(fault) => panic!("{shown}: {fault}"),
        }
    }
}

#[test]
fn loops_within_loops_end() {
    let many: Vec<Value> = (0..1_000).map(Value::from).collect();
    let values = json!({"input": {"many": many}, "event": {}, "steps": {}, "run": {}});
    for source in [
        "input.many.map(a, input.many.map(b, input.many.map(c, input.many.map(d, a))))",
        "input.many.all(a, input.many.all(b, input.many.all(c, true)))",
        "input.many.filter(a, input.many.exists(b, b < 0))",
        "input.many.exists_one(a, input.many.exists(b, a + b < 0))",
        "input.many.all(a, input.many in [input.many] && input.many == input.many)",
    ] {
        assert_eq!(eval_bounded(source.to_owned(), values.clone()), Err(ExpressionError::BudgetExceeded), "{source}");
    }
}

#[test]
fn an_event_that_is_copied_many_times_ends() {
    let event = json!({"data": "x".repeat(200_000), "items": (0..1_000).collect::<Vec<_>>()});
    let values = json!({"input": {}, "event": event, "steps": {}, "run": {}});
    // The event is shared, and copied only into the result.
    assert_eq!(eval_bounded("event.items.map(i, event).size()".to_owned(), values.clone()), Ok(json!(1_000)));
    for source in [
        "event.items.map(i, event)",
        "event.items.map(i, event.data + 'x')",
        "event.items.filter(i, event.data.contains('y'))",
        "event.items.filter(i, event.data.matches('y$'))",
        "event.items.filter(i, event.data.size() == 0)",
        "event.items.filter(i, event.data == event.data + 'x')",
        "event.items.map(i, event.data.upperAscii())",
    ] {
        assert_eq!(eval_bounded(source.to_owned(), values.clone()), Err(ExpressionError::BudgetExceeded), "{source}");
    }
}

#[test]
fn what_is_deep_or_long_is_refused_before_it_is_read() {
    for (open, close) in [
        ("(", ")"),
        ("[", "]"),
        ("-", ""),
        ("!-", ""),
        ("!", ""),
        ("true?1:", "1"),
        ("1+", ""),
        ("{'a':", "}"),
        ("size(", ")"),
        ("[1].map(x,", ")"),
        ("1?", ":1"),
        ("a.", ""),
        ("'a'+", ""),
        ("[", ""),
        ("(", ""),
        ("{", ""),
    ] {
        for length in [1_000, 2_000] {
            let source = open.repeat(length / open.len()) + "1" + &close.repeat(length / open.len());
            assert!(matches!(eval_bounded(source, test_values()), Err(ExpressionError::Invalid { .. })), "{open}");
        }
    }
    for chain in [".a", ".size()", "[0]", ".map(x,x)", ".all(x,x)", "+1", "?1:1", "&&1", "==1", " in 1"] {
        let source = "input".to_owned() + &chain.repeat(2_000 / chain.len());
        assert!(matches!(eval_bounded(source, test_values()), Err(ExpressionError::Invalid { .. })), "{chain}");
    }
    let long = format!("'{}'", "x".repeat(3_000));
    assert!(matches!(eval_bounded(long, test_values()), Err(ExpressionError::Invalid { .. })));
}

/// Parses and evaluates the largest expression of each shape that the limits allow.
#[test]
fn what_is_as_deep_as_allowed_fits_the_stack() {
    let shapes: &[(&str, &str, usize)] = &[
        ("(", ")", 24),
        ("[", "]", 24),
        ("{'a':", "}", 24),
        ("[1].map(x,", ")", 12),
        ("true?1:", "", 63),
        ("1+", "", 127),
        ("!-", "", 127),
        ("[1].all(x,true||", ")", 12),
        ("(1+", ")", 24),
        ("[[1][0]+", "]", 20),
        ("'a'+", "", 127),
        ("true&&", "", 127),
        ("1?2:", "", 63),
        ("[1].map(x,[x].map(y,", "))", 6),
    ];
    let mut depth = 0;
    for (open, close, most) in shapes {
        // The largest count that is accepted.
        let (count, source) = (1..=*most)
            .rev()
            .map(|count| (count, open.repeat(count) + "1" + &close.repeat(count)))
            .find(|(_, source)| {
                let source = source.clone();
                on_a_small_stack(move || Expression::parse(&source).is_ok())
            })
            .unwrap_or_else(|| panic!("no {open} is taken"));
        depth = depth.max(count);
        let _ = eval_bounded(source, test_values());
    }
    assert!(depth > 100, "{depth}");
    for chain in [".a", "[0]", ".map(x,x)", ".size()", ".trim()"] {
        let count =
            (1..128).rev().find(|count| Expression::parse(&("input".to_owned() + &chain.repeat(*count))).is_ok());
        let _ = eval_bounded("input".to_owned() + &chain.repeat(count.unwrap()), test_values());
    }
}

/// As deep as the JSON parser accepts.
#[test]
fn deep_values_fit_the_stack() {
    let mut deep = json!(1);
    for _ in 0..126 {
        deep = json!([deep]);
    }
    let values = json!({"input": deep, "event": {}, "steps": {}, "run": {}});
    assert!(eval_bounded("[input, [input]]".to_owned(), values.clone()).is_ok());
    assert_eq!(eval_bounded("input == input".to_owned(), values.clone()), Ok(json!(true)));
    assert!(eval_bounded("[input]".to_owned() + &".map(a,[a])".repeat(24), values).is_ok());
}

#[test]
fn patterns_that_explode_are_refused_or_end() {
    let bounded = |pattern: &str| Expression::parse(&format!("input.text.matches(r'{pattern}')"));
    for pattern in [
        r"(\w{1000}){1000}",
        r"((((a{100}){100}){100}){100})",
        r"\pL{500}",
        r"(a?){1000}a{1000}",
        "a{501}",
        ".{126}",
        &"(".repeat(100),
        &format!("{}a{}", "(".repeat(60), ")".repeat(60)),
        &"a".repeat(300),
        r"(a*)*{50}{50}{50}",
    ] {
        assert!(matches!(bounded(pattern), Err(ExpressionError::Invalid { .. })), "{pattern}");
    }
    let five = "input.text.matches('a') || ".repeat(5) + "true";
    assert!(matches!(Expression::parse(&five), Err(ExpressionError::Invalid { .. })));
    // An accepted pattern takes at most its positions for each byte, and is charged for them.
    let mut state = 1_u64;
    let text: String = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        if state >> 63 == 0 { 'a' } else { 'b' }
    })
    .take(60_000)
    .collect();
    let values = json!({"input": {"text": text}, "event": {}, "steps": {}, "run": {}});
    for pattern in
        ["^(a+)+$", "(a|aa)+$", "(.*a){20}$", "[ab]*a[ab]{12}c", "[ab]*a[ab]{400}c", r"(\w+\s?)*$", "(?i)(x+x+)+y"]
    {
        let result = eval_bounded(format!("input.text.matches(r'{pattern}')"), values.clone());
        assert!(matches!(result, Ok(Value::Bool(_)) | Err(ExpressionError::BudgetExceeded)), "{pattern}: {result:?}");
    }
}

#[test]
fn a_budget_holds_across_expressions() {
    let mut meter = CostMeter::new(25, 1 << 20);
    let mut count = 0;
    while eval_source_in("1 + 1", &test_values(), &mut meter).is_ok() {
        count += 1;
    }
    assert_eq!(count, 8);
}
