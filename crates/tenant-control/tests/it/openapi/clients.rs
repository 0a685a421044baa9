//! What generators of clients need of the document: names that do not collide, and nothing that they would send by
//! themselves. scripts/clients generates two clients and uses them.

use std::collections::HashMap;

use serde_json::Value;

use super::document;

#[tokio::test(flavor = "multi_thread")]
async fn no_two_schemas_get_the_same_name_in_a_generated_client() {
    let (_server, contract) = document().await;
    let mut names = Names::default();
    for (name, schema) in contract.document["components"]["schemas"].as_object().unwrap() {
        let is_pascal =
            name.starts_with(|c: char| c.is_ascii_uppercase()) && name.chars().all(|c| c.is_ascii_alphanumeric());
        assert!(is_pascal, "{name} is no name of a class");
        names.add(name.clone(), format!("the schema {name}"));
        names.add_inline(name, schema);
    }
    for (path, method, operation) in contract.operations() {
        let id = to_pascal(operation["operationId"].as_str().unwrap());
        for (kind, media) in operation["requestBody"]["content"].as_object().into_iter().flatten() {
            assert_eq!(
                media["schema"]["$ref"].as_str().map(|_| kind.as_str()),
                Some("application/json"),
                "{method} {path}"
            );
        }
        for parameter in operation["parameters"].as_array().into_iter().flatten().filter(|one| is_class(&one["schema"]))
        {
            let name = parameter["name"].as_str().unwrap();
            names.add(format!("{id}{}", to_pascal(name)), format!("{name} of {method} {path}"));
        }
        for (status, response) in operation["responses"].as_object().unwrap() {
            let name = format!("{id}Response{status}");
            names.add(name.clone(), format!("the answer {status} of {method} {path}"));
            for media in contract.resolve(response)["content"].as_object().into_iter().flatten().map(|(_, media)| media)
            {
                names.add_inline(&name, &media["schema"]);
            }
        }
    }
}

/// The names of classes in a generated client, and what each stands for. Case does not count: a class is often a file, too.
#[derive(Default)]
struct Names(HashMap<String, String>);

impl Names {
    #[track_caller]
    fn add(&mut self, name: String, of: String) {
        let before = self.0.insert(name.to_lowercase(), of.clone());
        assert_eq!(before, None, "{name} is also the name of {of} in a generated client");
    }

    /// Adds what generators make of the schemas inside a schema: its own name and that of the field.
    fn add_inline(&mut self, name: &str, schema: &Value) {
        for part in ["allOf", "oneOf", "anyOf"].iter().flat_map(|kind| schema[*kind].as_array().into_iter().flatten()) {
            self.add_inline(name, part);
        }
        for (field, of_field) in schema["properties"].as_object().into_iter().flatten() {
            let own = format!("{name}{}", to_pascal(field));
            for (own, inner) in [(own.clone(), of_field), (format!("{own}Item"), &of_field["items"])] {
                if is_class(inner) {
                    self.add(own.clone(), format!("{field} of {name}"));
                    self.add_inline(&own, inner);
                }
            }
        }
    }
}

/// Whether a generator makes a class of an inline schema: of objects, of enums and of choices between several.
fn is_class(schema: &Value) -> bool {
    let kind = &schema["type"];
    let is_object = kind == "object" || kind.as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind == "object"));
    let choices = ["oneOf", "anyOf"].iter().flat_map(|choice| schema[*choice].as_array().into_iter().flatten());
    is_object || schema["enum"].is_array() || choices.filter(|choice| choice["type"] != "null").count() > 1
}

fn to_pascal(words: &str) -> String {
    let capital = |word: &str| word[..1].to_uppercase() + &word[1..];
    words.split('_').filter(|word| !word.is_empty()).map(capital).collect()
}

/// Generated clients send defaults by themselves: beside parameters where they have no meaning, and in changes that would
/// keep what is left out. Or they demand the field of everybody. A description says what an omitted value means.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_has_a_default() {
    let (_server, contract) = document().await;
    assert_eq!(defaults(&contract.document, "#"), [""; 0]);
}

/// Where schemas have a `default`. Examples are data, and a property may have any name.
fn defaults(value: &Value, at: &str) -> Vec<String> {
    let below = |(name, inner): (&String, &Value)| defaults(inner, &format!("{at}/{name}"));
    match value {
        Value::Object(fields) if at.ends_with("/properties") => fields.iter().flat_map(below).collect(),
        Value::Object(fields) => {
            let own = fields.contains_key("default").then(|| at.to_owned());
            let inner = fields.iter().filter(|(name, _)| !["example", "examples"].contains(&name.as_str()));
            own.into_iter().chain(inner.flat_map(below)).collect()
        }
        Value::Array(items) => items.iter().flat_map(|item| defaults(item, at)).collect(),
        _ => Vec::new(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_says_how_it_is_written() {
    let (_server, contract) = document().await;
    for (path, method, operation) in contract.operations() {
        for parameter in operation["parameters"].as_array().into_iter().flatten() {
            let is_list = parameter["schema"]["type"] == "array";
            let written = (parameter["style"].as_str(), parameter["explode"].as_bool());
            let expected = if is_list { (Some("form"), Some(false)) } else { (None, None) };
            assert_eq!(written, expected, "{} of {method} {path}", parameter["name"]);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn json_comes_before_other_media_types() {
    let (_server, contract) = document().await;
    let mut with_files = 0;
    for (path, method, operation) in contract.operations() {
        for (status, response) in operation["responses"].as_object().unwrap() {
            let content = contract.resolve(response)["content"].as_object();
            let kinds: Vec<&String> = content.into_iter().flat_map(|content| content.keys()).collect();
            let is_json = |first: &&String| ["application/json", "application/problem+json"].contains(&first.as_str());
            assert!(kinds.first().is_none_or(is_json), "{status} of {method} {path}: {kinds:?}");
            with_files += usize::from(kinds.len() > 1);
        }
    }
    assert!(with_files > 0, "lists can be files");
}

/// A generated client takes the first form of an answer that fits.
#[tokio::test(flavor = "multi_thread")]
async fn the_first_form_of_an_answer_that_fits_is_the_right_one() {
    let (_server, contract) = document().await;
    let mut compared = 0;
    for (path, method, operation) in contract.operations() {
        for (status, response) in operation["responses"].as_object().unwrap() {
            let schema = &contract.resolve(response)["content"]["application/json"]["schema"];
            let forms: Vec<&Value> =
                ["oneOf", "anyOf"].iter().flat_map(|kind| schema[*kind].as_array().into_iter().flatten()).collect();
            for (at, form) in forms.iter().enumerate() {
                for (_, example) in super::of_schema(&contract, form) {
                    for earlier in &forms[..at] {
                        compared += 1;
                        let fits = contract.errors(earlier, example).is_empty();
                        assert!(
                            !fits,
                            "{status} of {method} {path}: {earlier} comes before {form} and fits its example, too"
                        );
                    }
                }
            }
        }
    }
    assert!(compared > 10, "{compared}");
}
