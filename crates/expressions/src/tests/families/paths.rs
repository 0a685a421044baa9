//! What an expression reads is known when it is saved, and about how much it holds.

use super::super::Expression;

/// Each path with the number of its keys that must be there.
fn paths_of(source: &str) -> Vec<String> {
    let expression = Expression::parse(source).unwrap();
    let paths = expression.referenced_paths().iter();
    paths.map(|path| format!("{path} {}/{}", path.required_keys(), path.keys().len())).collect()
}

#[test]
fn chains_of_constant_fields_are_paths() {
    assert_eq!(
        paths_of("steps.a.output.b + event.data['x y'].`c-d`"),
        ["steps.a.output.b 3/3", "event.data[\"x y\"][\"c-d\"] 3/3"]
    );
    assert_eq!(paths_of("run.id == run.id && now > timestamp(0)"), ["run.id 1/1", "now 0/0"]);
    assert_eq!(paths_of("input.list[0].name + input[input.key]"), ["input.list 1/1", "input 0/0", "input.key 1/1"]);
    assert_eq!(paths_of("input.list.filter(x, x.name == item.name)"), ["input.list 1/1", "item.name 1/1"]);
    assert_eq!(paths_of("[event].map(event, event.dta)"), ["event 0/0"]);
    let expression = Expression::parse("steps.a.output['1b']").unwrap();
    let path = &expression.referenced_paths()[0];
    assert_eq!((path.root(), path.keys().collect::<Vec<_>>()), ("steps", vec!["a", "output", "1b"]));
    assert_eq!(path.to_string(), "steps.a.output[\"1b\"]");
    assert!(paths_of("1 + 2").is_empty());
}

#[test]
fn keys_that_are_asked_for_need_not_be_there() {
    assert_eq!(paths_of("has(event.data.changes)"), ["event.data.changes 1/2"]);
    assert_eq!(paths_of("event.data.?changes.priority.orValue('')"), ["event.data.changes.priority 1/3"]);
    assert_eq!(paths_of("event.data[?'changes'].orValue({})"), ["event.data.changes 1/2"]);
    assert_eq!(paths_of("event.?data.?changes"), ["event.data.changes 0/2"]);
    assert_eq!(
        paths_of("has(event.data.changes) && event.data.changes.priority == 'high' || event.data.title == ''"),
        ["event.data.changes 1/2", "event.data.changes.priority 1/3", "event.data.title 2/2"]
    );
}

#[test]
fn what_an_expression_holds_grows_with_it() {
    let bytes = |source: &str| Expression::parse(source).unwrap().heap_bytes();
    let long = format!("'{}'", "x".repeat(1_000));
    assert!((1_000..2_000).contains(&bytes(&long)));
    assert!(bytes("1 + 2 + 3") > bytes("1 + 2") && bytes("1") < 100);
    let (small, large) = (bytes("input.x.matches('^a')"), bytes(r"input.x.matches(r'\pL{4}')"));
    assert!(small < 4 << 10 && large > 32 << 10, "{small} {large}");
    assert!(bytes("steps.fetch.output.a") > bytes("input.a"));
}
