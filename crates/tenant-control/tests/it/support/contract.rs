//! Holds every answer against the OpenAPI document: its status is listed, its body fits the schema, and a refusal's code is
//! one of those that the operation lists for the status.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use jsonschema::Validator;
use serde_json::{Map, Value, json};

use super::answer::Answer;

pub struct Contract {
    pub document: Value,
    validators: Mutex<HashMap<String, Arc<Validator>>>,
}

/// Served under /api/ for people, and therefore not in the document; and what leads there.
const PAGES: &[&str] = &["/api/rate-limits/", "/api/rate-limits"];

/// What a route answers that no operation of the document stands for.
const OF_NO_OPERATION: &[u16] = &[404, 405, 429, 503];

pub const METHODS: [&str; 5] = ["get", "post", "put", "patch", "delete"];

impl Contract {
    pub fn new(document: &str) -> Self {
        Contract {
            document: serde_json::from_str(document).expect("the document is JSON"),
            validators: Mutex::default(),
        }
    }

    /// Every operation: path, method and what the document says of it.
    pub fn operations(&self) -> Vec<(&str, &str, &Value)> {
        let paths = self.document["paths"].as_object().expect("paths");
        let all = paths.iter().flat_map(|(path, item)| METHODS.map(|method| (path.as_str(), method, &item[method])));
        all.filter(|(_, _, operation)| operation.is_object()).collect()
    }

    /// What a `$ref` stands for.
    pub fn resolve<'a>(&'a self, value: &'a Value) -> &'a Value {
        match value["$ref"].as_str() {
            Some(reference) => {
                let target = self.document.pointer(reference.trim_start_matches('#'));
                self.resolve(target.unwrap_or_else(|| panic!("{reference} leads nowhere")))
            }
            None => value,
        }
    }

    /// A validator of a schema of the document.
    pub fn validator(&self, schema: &Value) -> Arc<Validator> {
        let mut validators = self.validators.lock().unwrap();
        let build = || {
            // References count from the root, so what they lead to stands beside the schema.
            let mut root: Map<String, Value> = schema.as_object().cloned().unwrap_or_default();
            root.insert("components".to_owned(), json!({"schemas": self.referred(schema)}));
            root.insert("$schema".to_owned(), json!("https://json-schema.org/draft/2020-12/schema"));
            let options = jsonschema::options().should_validate_formats(true);
            Arc::new(options.build(&Value::Object(root)).unwrap_or_else(|error| panic!("{error} in {schema}")))
        };
        validators.entry(schema.to_string()).or_insert_with(build).clone()
    }

    /// The components that a schema refers to, and those that they refer to themselves. All of the document would have to
    /// be copied and checked for every schema, in every test.
    fn referred(&self, schema: &Value) -> Map<String, Value> {
        let mut found = Map::new();
        let mut left = references(schema);
        while let Some(reference) = left.pop() {
            let name = reference.trim_start_matches("#/components/schemas/");
            if !found.contains_key(name) {
                let component = &self.document["components"]["schemas"][name];
                left.extend(references(component));
                found.insert(name.to_owned(), component.clone());
            }
        }
        found
    }

    /// What is wrong with a value, by its schema.
    pub fn errors(&self, schema: &Value, value: &Value) -> Vec<String> {
        let validator = self.validator(schema);
        validator.iter_errors(value).map(|error| format!("{}: {error}", error.instance_path())).collect()
    }

    #[track_caller]
    pub fn check(&self, answer: &Answer) {
        let method = match answer.method.as_str() {
            "HEAD" => "get".to_owned(),
            // A preflight is the browser's question, not an operation.
            "OPTIONS" => return,
            other => other.to_lowercase(),
        };
        if !answer.path.starts_with("/api/") || PAGES.contains(&answer.path.as_str()) {
            return;
        }
        let Some(operation) = self.document["paths"].get(&answer.path).and_then(|item| item.get(&method)) else {
            assert!(OF_NO_OPERATION.contains(&answer.status), "{} is served and not documented", describe(answer));
            return;
        };
        let documented = &operation["responses"][answer.status.to_string()];
        assert!(documented.is_object(), "the document does not list {}", describe(answer));
        self.check_body(answer, self.resolve(documented));
    }

    fn check_body(&self, answer: &Answer, documented: &Value) {
        if answer.method == "HEAD" {
            assert!(answer.body.is_empty(), "HEAD has no body");
            return;
        }
        let Some(content) = documented["content"].as_object() else {
            assert!(answer.body.is_empty(), "{} has a body that is not documented", describe(answer));
            return;
        };
        let kind = answer.header("content-type");
        let of_kind = content.get(kind).unwrap_or_else(|| panic!("{kind:?} of {} is not documented", describe(answer)));
        if kind.ends_with("json") && !kind.ends_with("ndjson") && !answer.headers.contains_key("content-encoding") {
            let body = answer.json();
            let errors = self.errors(&of_kind["schema"], &body);
            assert!(errors.is_empty(), "{} breaks its schema: {errors:#?}\n{body}", describe(answer));
            if let Some(codes) = documented["x-error-codes"].as_array() {
                let code = &body["code"];
                assert!(
                    codes.contains(code),
                    "{} is {code}, and documented are {codes:?}: see Api::add_refusals",
                    describe(answer)
                );
            }
        }
    }
}

/// Every `$ref` below a value.
pub fn references(value: &Value) -> Vec<&str> {
    match value {
        Value::Object(fields) => {
            let own = fields.get("$ref").and_then(Value::as_str);
            own.into_iter().chain(fields.values().flat_map(references)).collect()
        }
        Value::Array(items) => items.iter().flat_map(references).collect(),
        _ => Vec::new(),
    }
}

fn describe(answer: &Answer) -> String {
    format!("{} {} {}", answer.method, answer.path, answer.status)
}
