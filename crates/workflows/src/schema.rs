//! Input schemas of workflows: JSON Schema, draft 2020-12, without references.
//!
//! References and `unevaluated…` keywords are left out: with them the cost of a small schema has no bound. Without them
//! a keyword costs at most one pass over the input.

mod compile;
mod formats;
mod keywords;
mod messages;
mod numbers;
mod patterns;

use serde_json::Value;

use super::pointer::join_pointer;
use formats::FORMATS;
use keywords::Schema;

const SCHEMA_BYTES_MAX: usize = 16 << 10;
/// Building and validating recurse.
const DEPTH_MAX: usize = 16;
const NODES_MAX: usize = 500;
/// Each pattern is compiled, and matched against its texts: in the worst case a position takes 20 ns per byte of input.
const PATTERNS_MAX: usize = 20;
const PATTERN_POSITIONS_MAX: usize = 150;
/// Further errors are not reported, and long details are cut: some list every unexpected property.
const ERRORS_MAX: usize = 20;
const DETAIL_CHARACTERS_MAX: usize = 300;

const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";
const REFUSED_KEYWORDS: [&str; 9] = [
    "$ref",
    "$dynamicRef",
    "$recursiveRef",
    "$id",
    "$anchor",
    "$dynamicAnchor",
    "$vocabulary",
    "unevaluatedItems",
    "unevaluatedProperties",
];

/// A schema that is ready to validate.
#[derive(Debug)]
pub struct InputSchema {
    schema: Schema,
}

/// A pointer into the schema, an error code and a detail.
pub type SchemaError = (String, &'static str, String);

impl InputSchema {
    pub fn parse(schema: &Value) -> Result<InputSchema, Vec<SchemaError>> {
        check_limits(schema)?;
        let schema = compile::compile_schema(schema, "", true).map_err(|error| vec![error])?;
        Ok(InputSchema { schema })
    }

    /// The first error of an input as a pointer into it and a detail, or nothing. Details repeat no value. Further errors
    /// are left out: a small schema has millions on a list.
    pub fn validate_input(&self, input: &Value) -> Vec<(String, String)> {
        let Err(mismatch) = self.schema.check_value(input) else { return Vec::new() };
        let pointer = mismatch.to_pointer();
        let value = input.pointer(&pointer).unwrap_or(input);
        let detail = truncate_detail(&messages::describe_keyword(mismatch.keyword, value));
        vec![(pointer, detail)]
    }
}

/// What is known before the schema is compiled: its size, and that it has no refused keyword.
fn check_limits(schema: &Value) -> Result<(), Vec<SchemaError>> {
    let mut walk = SchemaWalk { errors: Vec::new(), nodes: 0, patterns: 0, positions: 0 };
    if !matches!(schema, Value::Object(_) | Value::Bool(_)) {
        walk.add_error("", "invalid", "must be an object".to_owned());
    }
    walk.visit_schema(schema, "", 1);
    if walk.errors.is_empty() && schema.to_string().len() > SCHEMA_BYTES_MAX {
        walk.add_error("", "too_large", format!("must have at most {SCHEMA_BYTES_MAX} bytes"));
    }
    if walk.errors.is_empty() { Ok(()) } else { Err(walk.errors) }
}

fn truncate_detail(text: &str) -> String {
    match text.char_indices().nth(DETAIL_CHARACTERS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Finds refused keywords before anything is built. Every object is taken for a schema, but the names of properties are
/// skipped: a property can have the name of a keyword.
struct SchemaWalk {
    errors: Vec<SchemaError>,
    nodes: usize,
    patterns: usize,
    positions: usize,
}

impl SchemaWalk {
    fn add_error(&mut self, pointer: &str, code: &'static str, detail: String) {
        if self.errors.len() < ERRORS_MAX {
            self.errors.push((pointer.to_owned(), code, detail));
        }
    }

    fn visit_schema(&mut self, value: &Value, pointer: &str, depth: usize) {
        self.nodes += 1;
        if self.nodes == NODES_MAX + 1 {
            self.add_error("", "too_large", format!("must have at most {NODES_MAX} values"));
        }
        if depth > DEPTH_MAX {
            return self.add_error(pointer, "too_large", format!("must be at most {DEPTH_MAX} deep"));
        }
        if self.nodes > NODES_MAX {
            return;
        }
        match value {
            Value::Object(entries) => {
                for (key, value) in entries {
                    let pointer = join_pointer(pointer, key);
                    self.check_keyword(key, value, &pointer);
                    match key.as_str() {
                        // These keywords have values, not schemas.
                        "const" | "enum" | "default" | "examples" => self.visit_value(value, &pointer, depth + 1),
                        "properties" | "patternProperties" | "dependentSchemas" | "dependentRequired"
                        | "dependencies" | "$defs" | "definitions" => {
                            self.visit_named_schemas(key, value, &pointer, depth + 1);
                        }
                        _ => self.visit_schema(value, &pointer, depth + 1),
                    }
                }
            }
            Value::Array(items) => {
                for (at, item) in items.iter().enumerate() {
                    self.visit_schema(item, &format!("{pointer}/{at}"), depth + 1);
                }
            }
            _ => {}
        }
    }

    /// Visits schemas whose names the author chose.
    fn visit_named_schemas(&mut self, keyword: &str, value: &Value, pointer: &str, depth: usize) {
        let Value::Object(entries) = value else { return };
        for (key, value) in entries {
            let pointer = join_pointer(pointer, key);
            if keyword == "patternProperties" {
                self.check_pattern(key, &pointer);
            }
            self.visit_schema(value, &pointer, depth + 1);
        }
    }

    fn visit_value(&mut self, value: &Value, pointer: &str, depth: usize) {
        self.nodes += 1;
        if self.nodes == NODES_MAX + 1 {
            self.add_error("", "too_large", format!("must have at most {NODES_MAX} values"));
        }
        if depth > DEPTH_MAX {
            return self.add_error(pointer, "too_large", format!("must be at most {DEPTH_MAX} deep"));
        }
        match value {
            Value::Object(entries) => entries.values().for_each(|value| self.visit_value(value, pointer, depth + 1)),
            Value::Array(items) => items.iter().for_each(|value| self.visit_value(value, pointer, depth + 1)),
            _ => {}
        }
    }

    fn check_pattern(&mut self, pattern: &str, pointer: &str) {
        self.patterns += 1;
        match patterns::count_positions(pattern) {
            Ok(positions) => self.positions = self.positions.saturating_add(positions),
            Err(detail) => return self.add_error(pointer, "invalid", detail),
        }
        if self.patterns > PATTERNS_MAX || self.positions > PATTERN_POSITIONS_MAX {
            let detail = format!(
                "there can be at most {PATTERNS_MAX} patterns, with {PATTERN_POSITIONS_MAX} places once repetitions are written out"
            );
            self.add_error(pointer, "too_large", detail);
        }
    }

    fn check_keyword(&mut self, key: &str, value: &Value, pointer: &str) {
        match (key, value) {
            ("$schema", Value::String(dialect)) if dialect.trim_end_matches('#') == DIALECT => {}
            ("$schema", _) => self.add_error(pointer, "unsupported", format!("must be {DIALECT}")),
            ("pattern", Value::String(pattern)) => self.check_pattern(pattern, pointer),
            ("format", Value::String(format)) if !FORMATS.contains(&format.as_str()) => {
                self.add_error(pointer, "unsupported", format!("must be one of {}", FORMATS.join(", ")));
            }
            (key, _) if REFUSED_KEYWORDS.contains(&key) => {
                self.add_error(pointer, "unsupported", format!("{key} is not supported: write the schema out"));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::expect_used, reason = "tests")]
mod tests;
