//! Compiles a schema, and says where it is none.

use std::cmp::Ordering;
use std::collections::HashSet;

use serde_json::{Map, Number, Value};

use super::SchemaError;
use super::keywords::{Bound, Keyword, Measure, Properties, Schema};
use super::numbers::{canonical_text, compare_numbers, is_integer};
use super::patterns::build_pattern;
use crate::pointer::join_pointer;

const TYPES: [&str; 7] = ["array", "boolean", "integer", "null", "number", "object", "string"];

/// The keywords that limit something: what, which side of the limit it must be on, and how that is said.
type BoundRule = (&'static str, Measure, fn(Ordering) -> bool, &'static str);
const BOUNDS: [BoundRule; 10] = [
    ("minimum", Measure::Number, Ordering::is_ge, "at least"),
    ("maximum", Measure::Number, Ordering::is_le, "at most"),
    ("exclusiveMinimum", Measure::Number, Ordering::is_gt, "greater than"),
    ("exclusiveMaximum", Measure::Number, Ordering::is_lt, "less than"),
    ("minLength", Measure::Characters, Ordering::is_ge, "at least"),
    ("maxLength", Measure::Characters, Ordering::is_le, "at most"),
    ("minItems", Measure::Items, Ordering::is_ge, "at least"),
    ("maxItems", Measure::Items, Ordering::is_le, "at most"),
    ("minProperties", Measure::Properties, Ordering::is_ge, "at least"),
    ("maxProperties", Measure::Properties, Ordering::is_le, "at most"),
];

const TEXTS: [&str; 5] = ["$comment", "title", "description", "contentEncoding", "contentMediaType"];
const FLAGS: [&str; 3] = ["deprecated", "readOnly", "writeOnly"];

type Compiled<T> = Result<T, SchemaError>;

/// `is_used` is false for a schema that applies to no value: it must be one, but its patterns need not be built.
pub fn compile_schema(schema: &Value, pointer: &str, is_used: bool) -> Compiled<Schema> {
    let entries = match schema {
        Value::Bool(true) => return Ok(Schema::default()),
        Value::Bool(false) => return Ok(Schema { keywords: vec![Keyword::Nothing] }),
        Value::Object(entries) => entries,
        _ => return refuse(pointer, "must be an object or a boolean"),
    };
    let source = SchemaSource { entries, pointer, is_used };
    source.check_annotations()?;
    let mut keywords = Vec::new();
    source.compile_values(&mut keywords)?;
    source.compile_texts(&mut keywords)?;
    source.compile_objects(&mut keywords)?;
    source.compile_arrays(&mut keywords)?;
    source.compile_dependencies(&mut keywords)?;
    source.compile_combinations(&mut keywords)?;
    Ok(Schema { keywords })
}

fn refuse<T>(pointer: &str, detail: &str) -> Compiled<T> {
    Err((pointer.to_owned(), "invalid", detail.to_owned()))
}

struct SchemaSource<'a> {
    entries: &'a Map<String, Value>,
    pointer: &'a str,
    is_used: bool,
}

impl<'a> SchemaSource<'a> {
    fn check_annotations(&self) -> Compiled<()> {
        for name in TEXTS {
            self.read(name, "must be a string", Value::as_str)?;
        }
        for name in FLAGS {
            self.read(name, "must be a boolean", Value::as_bool)?;
        }
        self.read("examples", "must be a list", Value::as_array)?;
        self.read("$recursiveAnchor", "must be the name of an anchor", as_anchor)?;
        for name in ["$defs", "definitions"] {
            self.read_entries(name, |schema, pointer| compile_schema(schema, pointer, false))?;
        }
        self.read_schema("contentSchema", false)?;
        Ok(())
    }

    fn compile_values(&self, keywords: &mut Vec<Keyword>) -> Compiled<()> {
        keywords
            .extend(self.read("type", "must be a type, or a list of different types", as_types)?.map(Keyword::Type));
        if let Some(value) = self.entries.get("const") {
            keywords.push(Keyword::Enum { values: HashSet::from([canonical_text(value)]), list: value.to_string() });
        }
        if let Some(options) = self.read("enum", "must be a list", Value::as_array)? {
            let list: Vec<String> = options.iter().map(Value::to_string).collect();
            let values = options.iter().map(canonical_text).collect();
            keywords.push(Keyword::Enum { values, list: format!("one of {}", list.join(", ")) });
        }
        for (name, measure, accepts, words) in BOUNDS {
            let limit = match measure {
                Measure::Number => self.read(name, "must be a number", Value::as_number)?.cloned(),
                _ => self.read_size(name)?,
            };
            keywords.extend(limit.map(|limit| Keyword::Bound(Bound { measure, limit, accepts, words })));
        }
        let divisor = self.read("multipleOf", "must be a number greater than 0", as_divisor)?;
        keywords.extend(divisor.cloned().map(Keyword::MultipleOf));
        Ok(())
    }

    fn compile_texts(&self, keywords: &mut Vec<Keyword>) -> Compiled<()> {
        if let Some(pattern) = self.read("pattern", "must be a string", Value::as_str)?
            && self.is_used
        {
            let Some(built) = build_pattern(pattern) else {
                return refuse(&join_pointer(self.pointer, "pattern"), BAD_PATTERN);
            };
            keywords.push(Keyword::Pattern(built, pattern.to_owned()));
        }
        let format = self.read("format", "must be a string", Value::as_str)?;
        keywords.extend(format.map(|format| Keyword::Format(format.to_owned())));
        Ok(())
    }

    fn compile_objects(&self, keywords: &mut Vec<Keyword>) -> Compiled<()> {
        keywords.extend(self.read("required", NOT_NAMES, as_names)?.map(Keyword::Required));
        let compile = |schema: &Value, pointer: &str| compile_schema(schema, pointer, self.is_used);
        let named = self.read_entries("properties", compile)?.into_iter().collect();
        let mut patterns = Vec::new();
        for (pattern, schema) in self.read_entries("patternProperties", compile)? {
            if self.is_used {
                let Some(built) = build_pattern(&pattern) else {
                    let pointer = join_pointer(self.pointer, "patternProperties");
                    return refuse(&join_pointer(&pointer, &pattern), BAD_PATTERN);
                };
                patterns.push((built, schema));
            }
        }
        let additional = self.read_schema("additionalProperties", self.is_used)?.unwrap_or_default();
        keywords.push(Keyword::Properties(Properties { named, patterns, additional }));
        keywords.extend(self.read_schema("propertyNames", self.is_used)?.map(Keyword::PropertyNames));
        Ok(())
    }

    fn compile_arrays(&self, keywords: &mut Vec<Keyword>) -> Compiled<()> {
        if self.read("uniqueItems", "must be a boolean", Value::as_bool)? == Some(true) {
            keywords.push(Keyword::UniqueItems);
        }
        let prefix = self.read_schemas("prefixItems")?.unwrap_or_default();
        let rest = self.read_schema("items", self.is_used)?.unwrap_or_default();
        keywords.push(Keyword::Items { prefix, rest });
        let min = self.read_size("minContains")?.unwrap_or(Number::from(1));
        let max = self.read_size("maxContains")?;
        let contains = self.read_schema("contains", self.is_used)?;
        keywords.extend(contains.map(|schema| Keyword::Contains { schema, min, max }));
        Ok(())
    }

    /// `dependencies` of earlier drafts is what became `dependentRequired` and `dependentSchemas`.
    fn compile_dependencies(&self, keywords: &mut Vec<Keyword>) -> Compiled<()> {
        let read_names = |names: &Value, pointer: &str| as_names(names).map_or_else(|| refuse(pointer, NOT_NAMES), Ok);
        for (property, names) in self.read_entries("dependentRequired", read_names)? {
            keywords.push(Keyword::DependentRequired(property, names));
        }
        for name in ["dependencies", "dependentSchemas"] {
            let compiled = self.read_entries(name, |dependency, pointer| match dependency {
                Value::Array(_) if name == "dependencies" => {
                    Ok(Schema { keywords: vec![Keyword::Required(read_names(dependency, pointer)?)] })
                }
                _ => compile_schema(dependency, pointer, self.is_used),
            });
            keywords.extend(compiled?.into_iter().map(|(property, schema)| Keyword::DependentSchema(property, schema)));
        }
        Ok(())
    }

    fn compile_combinations(&self, keywords: &mut Vec<Keyword>) -> Compiled<()> {
        keywords.extend(self.read_schemas("allOf")?.map(Keyword::AllOf));
        keywords.extend(self.read_schemas("anyOf")?.map(Keyword::AnyOf));
        keywords.extend(self.read_schemas("oneOf")?.map(Keyword::OneOf));
        keywords.extend(self.read_schema("not", self.is_used)?.map(Keyword::Not));
        let has_branch = self.entries.contains_key("then") || self.entries.contains_key("else");
        let is_used = self.is_used && has_branch && self.entries.contains_key("if");
        let condition = self.read_schema("if", is_used)?;
        let then = self.read_schema("then", is_used)?.unwrap_or_default();
        let otherwise = self.read_schema("else", is_used)?.unwrap_or_default();
        keywords.extend(condition.map(|condition| Keyword::If { condition, then, otherwise }));
        Ok(())
    }

    /// A keyword's value, if it is there and what it must be.
    fn read<T>(&self, name: &str, detail: &str, convert: impl Fn(&'a Value) -> Option<T>) -> Compiled<Option<T>> {
        let Some(value) = self.entries.get(name) else { return Ok(None) };
        convert(value).map_or_else(|| refuse(&join_pointer(self.pointer, name), detail), |value| Ok(Some(value)))
    }

    fn read_size(&self, name: &str) -> Compiled<Option<Number>> {
        Ok(self.read(name, "must be a whole number of at least 0", as_size)?.cloned())
    }

    fn read_schema(&self, name: &str, is_used: bool) -> Compiled<Option<Schema>> {
        let schema = self.entries.get(name);
        schema.map(|schema| compile_schema(schema, &join_pointer(self.pointer, name), is_used)).transpose()
    }

    fn read_schemas(&self, name: &str) -> Compiled<Option<Vec<Schema>>> {
        let as_list = |value: &'a Value| value.as_array().filter(|schemas| !schemas.is_empty());
        let Some(schemas) = self.read(name, "must be a list of schemas", as_list)? else { return Ok(None) };
        let pointer = join_pointer(self.pointer, name);
        let schemas = schemas.iter().enumerate();
        let compile = |(at, schema)| compile_schema(schema, &format!("{pointer}/{at}"), self.is_used);
        schemas.map(compile).collect::<Compiled<Vec<Schema>>>().map(Some)
    }

    fn read_entries<T>(&self, name: &str, compile: impl Fn(&Value, &str) -> Compiled<T>) -> Compiled<Vec<(String, T)>> {
        let entries = self.read(name, "must be an object", Value::as_object)?;
        let pointer = join_pointer(self.pointer, name);
        let entries = entries.into_iter().flatten();
        entries.map(|(key, value)| Ok((key.clone(), compile(value, &join_pointer(&pointer, key))?))).collect()
    }
}

const BAD_PATTERN: &str = "must be a pattern of ECMA-262 that is not too large";
const NOT_NAMES: &str = "must be a list of different names";

fn as_types(value: &Value) -> Option<Vec<String>> {
    let types = if value.is_string() { vec![value.as_str()?.to_owned()] } else { as_names(value)? };
    (!types.is_empty() && types.iter().all(|name| TYPES.contains(&name.as_str()))).then_some(types)
}

fn as_names(value: &Value) -> Option<Vec<String>> {
    let names = value.as_array()?;
    let mut seen = HashSet::new();
    names.iter().map(|name| name.as_str().filter(|name| seen.insert(*name)).map(str::to_owned)).collect()
}

fn as_size(value: &Value) -> Option<&Number> {
    value.as_number().filter(|size| is_integer(size) && compare_numbers(size, &Number::from(0)).is_ge())
}

fn as_divisor(value: &Value) -> Option<&Number> {
    value.as_number().filter(|divisor| compare_numbers(divisor, &Number::from(0)).is_gt())
}

fn as_anchor(value: &Value) -> Option<&str> {
    let is_start = |letter: char| letter.is_ascii_alphabetic() || letter == '_';
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || "-._".contains(letter);
    value.as_str().filter(|anchor| anchor.starts_with(is_start) && anchor.chars().all(is_part))
}
