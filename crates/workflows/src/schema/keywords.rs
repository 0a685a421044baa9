//! A compiled schema: what it demands of a value, and where a value does not fit.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};

use regex::Regex;
use serde_json::{Map, Number, Value};

use super::formats::is_of_format;
use super::numbers::{canonical_text, compare_numbers, is_integer, is_multiple};
use crate::pointer::join_pointer;

/// What a value must fulfil, the cheapest first.
#[derive(Debug, Default)]
pub struct Schema {
    pub keywords: Vec<Keyword>,
}

#[derive(Debug)]
pub enum Keyword {
    /// Of the schema `false`.
    Nothing,
    Type(Vec<String>),
    /// Also of `const`. The values are in their canonical texts.
    Enum {
        values: HashSet<String>,
        list: String,
    },
    Bound(Bound),
    MultipleOf(Number),
    Required(Vec<String>),
    /// Required if the first property is there.
    DependentRequired(String, Vec<String>),
    Pattern(Regex, String),
    Format(String),
    UniqueItems,
    Properties(Properties),
    PropertyNames(Schema),
    Items {
        prefix: Vec<Schema>,
        rest: Schema,
    },
    Contains {
        schema: Schema,
        min: Number,
        max: Option<Number>,
    },
    /// Applies if the property is there.
    DependentSchema(String, Schema),
    AllOf(Vec<Schema>),
    AnyOf(Vec<Schema>),
    OneOf(Vec<Schema>),
    Not(Schema),
    If {
        condition: Schema,
        then: Schema,
        otherwise: Schema,
    },
}

/// A limit of a number, or of how many there are of something.
#[derive(Debug)]
pub struct Bound {
    pub measure: Measure,
    pub limit: Number,
    pub accepts: fn(Ordering) -> bool,
    /// Before the limit, in a message.
    pub words: &'static str,
}

#[derive(Clone, Copy, Debug)]
pub enum Measure {
    Number,
    Characters,
    Items,
    Properties,
}

#[derive(Debug)]
pub struct Properties {
    pub named: HashMap<String, Schema>,
    pub patterns: Vec<(Regex, Schema)>,
    /// For properties that are neither named nor match a pattern.
    pub additional: Schema,
}

/// The first keyword that a value breaks, and where: the names and positions on the way, the last first.
#[derive(Debug)]
pub struct Mismatch<'s> {
    pub keyword: &'s Keyword,
    path: Vec<String>,
}

impl Mismatch<'_> {
    fn below(mut self, step: String) -> Self {
        self.path.push(step);
        self
    }

    pub fn to_pointer(&self) -> String {
        self.path.iter().rev().fold(String::new(), |pointer, step| join_pointer(&pointer, step))
    }
}

impl Schema {
    pub fn check_value(&self, value: &Value) -> Result<(), Mismatch<'_>> {
        self.keywords.iter().try_for_each(|keyword| keyword.check_value(value))
    }

    fn accepts(&self, value: &Value) -> bool {
        self.check_value(value).is_ok()
    }

    fn accepts_nothing(&self) -> bool {
        matches!(*self.keywords, [Keyword::Nothing])
    }
}

impl Keyword {
    fn check_value(&self, value: &Value) -> Result<(), Mismatch<'_>> {
        let is_met = match (self, value) {
            (Keyword::Properties(properties), Value::Object(entries)) => {
                return properties.check_entries(self, entries);
            }
            (Keyword::Items { prefix, rest }, Value::Array(items)) => {
                let schemas = prefix.iter().chain(std::iter::repeat(rest));
                let mut items = items.iter().zip(schemas).enumerate();
                return items.try_for_each(|(at, (item, schema))| {
                    schema.check_value(item).map_err(|mismatch| mismatch.below(at.to_string()))
                });
            }
            (Keyword::DependentSchema(property, schema), Value::Object(entries)) if entries.contains_key(property) => {
                return schema.check_value(value);
            }
            (Keyword::AllOf(schemas), _) => return schemas.iter().try_for_each(|schema| schema.check_value(value)),
            (Keyword::If { condition, then, otherwise }, _) => {
                return if condition.accepts(value) { then.check_value(value) } else { otherwise.check_value(value) };
            }
            _ => self.is_met_by(value),
        };
        if is_met { Ok(()) } else { Err(Mismatch { keyword: self, path: Vec::new() }) }
    }

    /// Of keywords whose mismatch is the value's own, not of something in it. Values of other types fulfil a keyword.
    fn is_met_by(&self, value: &Value) -> bool {
        match (self, value) {
            (Keyword::Nothing, _) => false,
            (Keyword::Type(types), _) => types.iter().any(|name| is_of_type(value, name)),
            (Keyword::Enum { values, .. }, _) => values.contains(&canonical_text(value)),
            (Keyword::Bound(bound), _) => bound.is_met_by(value),
            (Keyword::MultipleOf(divisor), Value::Number(number)) => is_multiple(number, divisor),
            (Keyword::Required(names), Value::Object(entries)) => has_all(entries, names),
            (Keyword::DependentRequired(property, names), Value::Object(entries)) => {
                !entries.contains_key(property) || has_all(entries, names)
            }
            (Keyword::Pattern(pattern, _), Value::String(text)) => pattern.is_match(text),
            (Keyword::Format(format), Value::String(text)) => is_of_format(text, format),
            (Keyword::UniqueItems, Value::Array(items)) => {
                let mut seen = HashSet::new();
                items.iter().all(|item| seen.insert(canonical_text(item)))
            }
            (Keyword::PropertyNames(schema), Value::Object(entries)) => {
                entries.keys().all(|name| schema.accepts(&Value::from(name.as_str())))
            }
            (Keyword::Contains { schema, min, max }, Value::Array(items)) => {
                let count = Number::from(items.iter().filter(|item| schema.accepts(item)).count());
                compare_numbers(&count, min).is_ge()
                    && max.as_ref().is_none_or(|max| compare_numbers(&count, max).is_le())
            }
            (Keyword::AnyOf(schemas), _) => schemas.iter().any(|schema| schema.accepts(value)),
            (Keyword::OneOf(schemas), _) => schemas.iter().filter(|schema| schema.accepts(value)).take(2).count() == 1,
            (Keyword::Not(schema), _) => !schema.accepts(value),
            _ => true,
        }
    }
}

impl Bound {
    fn is_met_by(&self, value: &Value) -> bool {
        let measured = match (self.measure, value) {
            (Measure::Number, Value::Number(number)) => number.clone(),
            (Measure::Characters, Value::String(text)) => Number::from(text.chars().count()),
            (Measure::Items, Value::Array(items)) => Number::from(items.len()),
            (Measure::Properties, Value::Object(entries)) => Number::from(entries.len()),
            _ => return true,
        };
        (self.accepts)(compare_numbers(&measured, &self.limit))
    }
}

impl Properties {
    fn check_entries<'s>(&'s self, keyword: &'s Keyword, entries: &Map<String, Value>) -> Result<(), Mismatch<'s>> {
        for (name, value) in entries {
            let below = |mismatch: Mismatch<'s>| mismatch.below(name.clone());
            for schema in self.find_schemas(name) {
                schema.check_value(value).map_err(below)?;
            }
            if self.is_additional(name) {
                if self.additional.accepts_nothing() {
                    return Err(Mismatch { keyword, path: Vec::new() });
                }
                self.additional.check_value(value).map_err(below)?;
            }
        }
        Ok(())
    }

    fn find_schemas(&self, name: &str) -> impl Iterator<Item = &Schema> {
        let patterns = self.patterns.iter().filter(move |(pattern, _)| pattern.is_match(name));
        self.named.get(name).into_iter().chain(patterns.map(|(_, schema)| schema))
    }

    pub fn is_additional(&self, name: &str) -> bool {
        self.find_schemas(name).next().is_none()
    }
}

fn has_all(entries: &Map<String, Value>, names: &[String]) -> bool {
    names.iter().all(|name| entries.contains_key(name))
}

fn is_of_type(value: &Value, name: &str) -> bool {
    match (name, value) {
        ("integer", Value::Number(number)) => is_integer(number),
        _ => {
            name == match value {
                Value::Null => "null",
                Value::Bool(_) => "boolean",
                Value::Number(_) => "number",
                Value::String(_) => "string",
                Value::Array(_) => "array",
                Value::Object(_) => "object",
            }
        }
    }
}
