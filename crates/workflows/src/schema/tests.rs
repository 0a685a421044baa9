mod oracle;

use serde_json::{Value, json};

use super::InputSchema;

#[track_caller]
fn assert_refused(schema: &Value, pointer: &str, code: &str) {
    let faults = InputSchema::parse(schema).expect_err(&schema.to_string());
    assert_eq!((faults[0].0.as_str(), faults[0].1), (pointer, code), "{faults:?}");
}

#[test]
fn an_input_is_held_against_its_schema() {
    let schema = InputSchema::parse(&json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "required": ["id"],
        "additionalProperties": false,
        "properties": {
            "id": {"type": "string", "pattern": "^tkt_[a-z0-9]{4}$"},
            "at": {"type": "string", "format": "date-time"},
            "many": {"type": "array", "items": {"type": "integer", "minimum": 1}, "maxItems": 3},
            // A property can have any name.
            "$ref": {"const": {"$ref": "#"}},
        },
    }));
    let schema = schema.unwrap();
    assert_eq!(schema.validate_input(&json!({"id": "tkt_ab12", "at": "2026-01-02T03:04:05Z", "many": [1, 2]})), []);
    assert_eq!(schema.validate_input(&json!({"id": "tkt_ab12", "$ref": {"$ref": "#"}})), []);
    let pointers =
        |input: Value| schema.validate_input(&input).into_iter().map(|(pointer, _)| pointer).collect::<Vec<_>>();
    assert_eq!(pointers(json!({})), [""]);
    assert_eq!(pointers(json!([])), [""]);
    assert_eq!(pointers(json!({"id": "x"})), ["/id"]);
    assert_eq!(pointers(json!({"id": "tkt_ab12", "at": "yesterday"})), ["/at"]);
    assert_eq!(pointers(json!({"id": "tkt_ab12", "many": [1, 0, "x"]})), ["/many/1"]);
    assert_eq!(pointers(json!({"id": "tkt_ab12", "other": 1})), [""]);
}

#[test]
fn no_value_is_repeated() {
    let rules = [
        json!({"type": "integer"}),
        json!({"const": 1}),
        json!({"enum": [1, 2]}),
        json!({"pattern": "^a$"}),
        json!({"maxLength": 1}),
        json!({"format": "email"}),
        json!({"not": {"type": "string"}}),
        json!({"anyOf": [{"const": 1}]}),
        json!({"oneOf": [{"const": 1}, {"const": 2}]}),
    ];
    for rule in rules {
        let found = InputSchema::parse(&rule).unwrap().validate_input(&json!("hunter2"));
        assert_eq!(found.len(), 1, "{rule}");
        assert!(!found[0].1.contains("hunter2"), "{rule}: {found:?}");
    }
}

#[test]
fn patterns_are_those_of_ecma() {
    for pattern in [r"^[^[\]]+$", r"^[a-z&&b]+$", r"^[\w-]+$"] {
        InputSchema::parse(&json!({ "pattern": pattern })).unwrap();
    }
}

#[test]
fn what_refers_elsewhere_is_refused_with_its_pointer() {
    assert_refused(&json!({"properties": {"a": {"$ref": "#"}}}), "/properties/a/$ref", "unsupported");
    assert_refused(&json!({"allOf": [{"$ref": "http://127.0.0.1/x"}]}), "/allOf/0/$ref", "unsupported");
    assert_refused(&json!({"$dynamicRef": "#x"}), "/$dynamicRef", "unsupported");
    assert_refused(&json!({"$recursiveRef": "#"}), "/$recursiveRef", "unsupported");
    assert_refused(&json!({"$id": "http://a/b"}), "/$id", "unsupported");
    assert_refused(&json!({"$defs": {"x": {"$anchor": "x"}}}), "/$defs/x/$anchor", "unsupported");
    assert_refused(
        &json!({"properties": {"properties": {"properties": {"a": {"$ref": "#"}}}}}),
        "/properties/properties/properties/a/$ref",
        "unsupported",
    );
    assert_refused(&json!({"unevaluatedProperties": false}), "/unevaluatedProperties", "unsupported");
    assert_refused(&json!({"$schema": "http://json-schema.org/draft-07/schema#"}), "/$schema", "unsupported");
    assert_refused(&json!({"format": "regex"}), "/format", "unsupported");
    assert_refused(&json!({"dependentSchemas": {"a/b": {"$ref": "#"}}}), "/dependentSchemas/a~1b/$ref", "unsupported");
    assert_refused(&json!({"dependencies": {"a": {"$ref": "#"}}}), "/dependencies/a/$ref", "unsupported");
    // Properties that are named like keywords.
    assert_refused(&json!({"dependencies": {"const": {"$ref": "#"}}}), "/dependencies/const/$ref", "unsupported");
    assert_refused(&json!({"dependencies": {"enum": {"pattern": "("}}}), "/dependencies/enum/pattern", "invalid");
    assert!(
        InputSchema::parse(&json!({"dependentRequired": {"$id": ["x"]}, "dependencies": {"$schema": ["x"]}})).is_ok()
    );
}

#[test]
fn what_is_no_schema_is_refused() {
    assert_refused(&json!([]), "", "invalid");
    assert_refused(&json!("object"), "", "invalid");
    assert_refused(&json!({"type": "strnig"}), "/type", "invalid");
    assert_refused(&json!({"properties": {"a": {"minLength": -1}}}), "/properties/a/minLength", "invalid");
    assert_refused(&json!({"properties": {"a": 1}}), "/properties/a", "invalid");
    assert_refused(&json!({"pattern": "(?=a)b"}), "/pattern", "invalid");
    assert_refused(&json!({"not": {"pattern": "("}}), "/not/pattern", "invalid");
    assert_refused(&json!({"patternProperties": {"(": {}}}), "/patternProperties/(", "invalid");
}

#[test]
fn what_is_too_large_is_refused() {
    let mut deep = json!({"type": "string"});
    for _ in 0..16 {
        deep = json!({"items": deep});
    }
    assert_eq!(InputSchema::parse(&deep).unwrap_err()[0].1, "too_large");
    let wide: serde_json::Map<String, Value> =
        (0..300).map(|at| (format!("p{at}"), json!({"type": "string"}))).collect();
    assert_refused(&json!({"properties": wide}), "", "too_large");
    assert_refused(&json!({"enum": (0..600).collect::<Vec<_>>()}), "", "too_large");
    assert_refused(&json!({"description": "x".repeat(20_000)}), "", "too_large");
    assert_refused(&json!({"pattern": "(\\w{1000}){1000}"}), "/pattern", "too_large");
    assert_refused(&json!({"anyOf": [{"pattern": "a{100}"}, {"pattern": "b{100}"}]}), "/anyOf/1/pattern", "too_large");
    let patterns: Vec<Value> = (0..21).map(|at| json!({"pattern": format!("a{at}")})).collect();
    assert_refused(&json!({"anyOf": patterns}), "/anyOf/20/pattern", "too_large");
}

/// The largest inputs against the worst schemas: validation is fast, and returns one short error.
#[test]
fn checking_takes_no_longer_than_schema_times_input() {
    let numbers: Vec<Value> = (0..12_000).map(|at| json!(at + 10_000)).collect();
    let texts: Vec<Value> = (0..4_000).map(|at| json!(format!("text {at}"))).collect();
    let any: Vec<Value> = (0..100).map(|at| json!({"const": at})).collect();
    let mut nested = json!({"const": 1});
    for _ in 0..6 {
        nested = json!({"anyOf": [nested]});
    }
    for (schema, input) in [
        (json!({"uniqueItems": true}), json!(numbers)),
        (json!({"items": {"anyOf": any}}), json!(numbers)),
        (json!({"items": {"oneOf": any}}), json!(numbers)),
        (json!({"items": {"allOf": any}}), json!(numbers)),
        (json!({"items": {"enum": (0..450).collect::<Vec<_>>()}}), json!(numbers)),
        (json!({"items": nested}), json!(numbers)),
        (json!({"items": {"pattern": "^(a+)+$"}}), json!(texts)),
        (json!({"contains": {"const": -1}, "minContains": 3}), json!(numbers)),
        (json!({"pattern": "([ab]*a[ab]{8}c)+$"}), json!("ab".repeat(30_000))),
        (
            json!({"additionalProperties": false}),
            Value::Object((0..3_000).map(|at| (format!("property {at}"), json!(1))).collect()),
        ),
    ] {
        let at = std::time::Instant::now();
        let found = InputSchema::parse(&schema).unwrap().validate_input(&input);
        assert!(found.len() <= 1 && found.iter().all(|(_, detail)| detail.chars().count() <= 301));
        assert!(
            at.elapsed().as_secs() < 60,
            "{:?} for {}",
            at.elapsed(),
            schema.to_string().chars().take(60).collect::<String>()
        );
    }
}
