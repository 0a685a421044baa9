//! What generators of clients need of the document: names that do not collide, and nothing that they would send by
//! themselves. scripts/clients generates two clients and uses them; a name that collides in one is a warning, which fails.

use std::collections::HashSet;

use serde_json::Value;

use super::document;

/// A class is often a file, too, and its name must not differ from another by case alone.
#[tokio::test(flavor = "multi_thread")]
async fn schemas_have_names_of_classes_and_no_two_the_same() {
    let (_server, contract) = document().await;
    let mut names = HashSet::new();
    for name in contract.document["components"]["schemas"].as_object().unwrap().keys() {
        let is_pascal =
            name.starts_with(|c: char| c.is_ascii_uppercase()) && name.chars().all(|c| c.is_ascii_alphanumeric());
        assert!(is_pascal, "{name} is no name of a class");
        assert!(names.insert(name.to_lowercase()), "{name} is the name of another schema, apart from case");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_body_is_json_of_a_schema_with_a_name() {
    let (_server, contract) = document().await;
    for (path, method, operation) in contract.operations() {
        for (kind, media) in operation["requestBody"]["content"].as_object().into_iter().flatten() {
            assert_eq!(kind, "application/json", "{method} {path}");
            assert!(media["schema"]["$ref"].is_string(), "{method} {path}");
        }
    }
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
