use expressions::{CostMeter, ExpressionError, ExpressionScope};
use kernel::base::Timestamp;
use serde_json::{Value, json};

use super::Template;

fn test_input() -> Value {
    json!({"n": 2, "half": 0.5, "text": "a\"b", "none": null, "list": [1, "x"], "map": {"k": true}, "evil": "${{ input.n }}"})
}

fn eval_template(template: &Value) -> Result<Value, (String, ExpressionError)> {
    let (input, nothing) = (test_input(), json!({}));
    let now = Timestamp::from_millis(0);
    let scope = ExpressionScope { input: &input, event: &Value::Null, steps: &nothing, run: &nothing, now, item: None };
    Template::parse(template).unwrap().eval_to_json(&scope, &mut CostMeter::new(10_000, 64 << 10))
}

#[test]
fn a_whole_expression_keeps_its_type() {
    for (text, expected) in [
        ("${{ input.n }}", json!(2)),
        ("${{input.list}}", json!([1, "x"])),
        ("${{ input.map }}", json!({"k": true})),
        ("${{ input.none }}", json!(null)),
        ("${{ input.n == 2 }}", json!(true)),
        ("${{ now }}", json!("1970-01-01T00:00:00.000Z")),
        ("${{ {'a': {'b': 1}} }}", json!({"a": {"b": 1}})),
        ("${{{'a': {'b': 1}}}}", json!({"a": {"b": 1}})),
        ("${{ '}}' }}", json!("}}")),
        ("${{ '${{' }}", json!("${{")),
        ("${{\n  input.n\n}}", json!(2)),
    ] {
        assert_eq!(eval_template(&json!(text)), Ok(expected), "{text}");
    }
}

#[test]
fn in_a_longer_text_everything_becomes_text() {
    for (text, expected) in [
        ("n=${{ input.n }}", "n=2"),
        (" ${{ input.n }}", " 2"),
        ("${{ input.n }}${{ input.n }}", "22"),
        ("[${{ input.none }}]", "[]"),
        ("${{ input.half }}/${{ 1.0 }}/${{ input.n == 2 }}", "0.5/1/true"),
        ("${{ input.list }} ${{ input.map }}", "[1,\"x\"] {\"k\":true}"),
        ("<${{ input.text }}>", "<a\"b>"),
        ("${{ duration('90s') }} at ${{ now }}", "90s at 1970-01-01T00:00:00.000Z"),
        ("$ {{ 1 }} }} {{ $", "$ {{ 1 }} }} {{ $"),
        ("a $${{ 1 }} b", "a $1 b"),
    ] {
        assert_eq!(eval_template(&json!(text)), Ok(json!(expected)), "{text}");
    }
}

#[test]
fn what_comes_out_is_never_looked_at_again() {
    assert_eq!(eval_template(&json!("${{ input.evil }}")), Ok(json!("${{ input.n }}")));
    assert_eq!(eval_template(&json!("x ${{ input.evil }}")), Ok(json!("x ${{ input.n }}")));
    assert_eq!(eval_template(&json!("${{ '$' }}{{ input.n }}")), Ok(json!("${{ input.n }}")));
}

#[test]
fn keys_and_other_values_stay_as_they_are() {
    let template =
        json!({"${{ input.n }}": 1, "a/b~c": [true, null, 1.5, {"d": "${{ input.n }}"}], "e": {"f": "plain"}});
    let expected = json!({"${{ input.n }}": 1, "a/b~c": [true, null, 1.5, {"d": 2}], "e": {"f": "plain"}});
    assert_eq!(eval_template(&template), Ok(expected));
    let parsed = Template::parse(&template).unwrap();
    assert_eq!(parsed.templated_pointers().collect::<Vec<_>>(), ["/a~1b~0c/3/d"]);
    assert!(!parsed.is_constant());
    assert!(Template::parse(&json!({"a": ["b"]})).unwrap().is_constant());
}

#[test]
fn every_expression_is_known_with_its_pointer() {
    let template = json!({"a": "${{ steps.x.output }} ${{ steps.y.output }}", "b": ["${{ input.n }}"]});
    let parsed = Template::parse(&template).unwrap();
    let found: Vec<(&str, Vec<&str>)> =
        parsed.expressions().map(|(pointer, expression)| (pointer, expression.referenced_steps().collect())).collect();
    assert_eq!(found, [("/a", vec!["x"]), ("/a", vec!["y"]), ("/b/0", vec![])]);
    assert_eq!(parsed.templated_pointers().collect::<Vec<_>>(), ["/a", "/b/0"]);
}

#[test]
fn each_bad_text_is_named() {
    let template = json!({
        "a": "${{ input. }}", "b": "${{ 1", "c": "fine ${{ 1 }}", "d": ["${{ nope }}", "${{ }}"], "e": "${{ 'x }}", "f": "${{ 1 }",
        "g": "${{ 1 } }",
    });
    let faults = Template::parse(&template).unwrap_err();
    let pointers: Vec<&str> = faults.iter().map(|(pointer, _)| pointer.as_str()).collect();
    assert_eq!(pointers, ["/a", "/b", "/d/0", "/d/1", "/e", "/f", "/g"]);
    assert!(faults.iter().all(|(_, fault)| fault.code() == "bad_expression"));
    let said: Vec<String> = faults.iter().map(|(_, fault)| fault.to_string()).collect();
    assert!(said[1].contains("has no end"), "{said:?}");
    assert!(said[2].contains("There is no nope"), "{said:?}");
}

#[test]
fn a_fault_comes_with_the_pointer_of_its_text() {
    let (pointer, fault) = eval_template(&json!({"a": [1, "x ${{ input.missing }}"]})).unwrap_err();
    assert_eq!((pointer.as_str(), fault.code()), ("/a/1", "expression_failed"));
}

#[test]
fn one_budget_is_for_the_whole() {
    let texts: Vec<String> =
        (0..400).map(|_| "${{ input.list.map(x, input.list.map(y, [y, y, y])) }}".to_owned()).collect();
    let (_, fault) = eval_template(&json!(texts)).unwrap_err();
    assert_eq!(fault, ExpressionError::BudgetExceeded);
}

#[test]
fn there_is_an_end_to_expressions_and_their_length() {
    let many: Vec<&str> = vec!["${{ 1 }}"; 501];
    assert!(Template::parse(&json!(many)).unwrap_err()[0].1.to_string().contains("at most 500"));
    let long = format!("${{{{ {}", " ".repeat(1 << 20));
    assert!(Template::parse(&json!(long)).is_err());
    let opened = "${{".repeat(100_000);
    assert!(Template::parse(&json!(opened)).is_err());
    // A large text without expressions is a constant.
    assert!(Template::parse(&json!("x".repeat(1 << 20))).unwrap().is_constant());
}

#[test]
fn deep_values_fit_a_small_stack() {
    let mut deep = json!("${{ input.n }}");
    for _ in 0..120 {
        deep = json!({"a": [deep]})["a"].clone();
    }
    let run = move || eval_template(&deep).map(|_| ());
    let thread = std::thread::Builder::new().stack_size(512 << 10).spawn(run).unwrap();
    assert_eq!(thread.join().unwrap(), Ok(()));
    let mut deeper = json!(1);
    for _ in 0..200 {
        deeper = json!([deeper]);
    }
    assert!(Template::parse(&deeper).unwrap_err()[0].1.to_string().contains("deep"));
}
