//! What is wrong with a value. It repeats the schema and names of properties, but no value: an input can hold secrets.

use serde_json::{Map, Value};

use super::keywords::{Bound, Keyword, Measure, Properties};

/// What the value that broke a keyword must be.
pub fn describe_keyword(keyword: &Keyword, value: &Value) -> String {
    match keyword {
        Keyword::Nothing => "must be left out".to_owned(),
        Keyword::Type(types) => format!("must be of type {}", types.join(" or ")),
        Keyword::Enum { list, .. } => format!("must be {list}"),
        Keyword::Bound(bound) => describe_bound(bound),
        Keyword::MultipleOf(divisor) => format!("must be a multiple of {divisor}"),
        Keyword::Required(names) => describe_missing(names, value),
        Keyword::DependentRequired(property, names) => {
            format!("{} beside {}", describe_missing(names, value), Value::from(property.as_str()))
        }
        Keyword::Pattern(_, pattern) => format!("must match {pattern}"),
        Keyword::Format(format) => format!("must be of the format {format}"),
        Keyword::UniqueItems => "must have no two equal items".to_owned(),
        Keyword::Properties(properties) => describe_additional(properties, value),
        Keyword::PropertyNames(_) => "must have only names of properties that fit propertyNames".to_owned(),
        Keyword::Contains { min, max: None, .. } => format!("must contain at least {min} items that fit contains"),
        Keyword::Contains { min, max: Some(max), .. } => {
            format!("must contain at least {min} and at most {max} items that fit contains")
        }
        Keyword::AnyOf(_) => "must fit a schema of anyOf".to_owned(),
        Keyword::OneOf(_) => "must fit exactly one schema of oneOf".to_owned(),
        Keyword::Not(_) => "must not fit the schema of not".to_owned(),
        // These have no mismatch of their own: it is one of the schemas in them.
        Keyword::Items { .. } | Keyword::DependentSchema(..) | Keyword::AllOf(_) | Keyword::If { .. } => {
            "must fit the schema".to_owned()
        }
    }
}

fn describe_bound(Bound { measure, limit, words, .. }: &Bound) -> String {
    match measure {
        Measure::Number => format!("must be {words} {limit}"),
        Measure::Characters => format!("must have {words} {limit} characters"),
        Measure::Items => format!("must have {words} {limit} items"),
        Measure::Properties => format!("must have {words} {limit} properties"),
    }
}

fn describe_missing(names: &[String], value: &Value) -> String {
    let missing = names.iter().find(|name| value.get(name.as_str()).is_none());
    format!("must have the property {}", Value::from(missing.map_or("", String::as_str)))
}

fn describe_additional(properties: &Properties, value: &Value) -> String {
    let names = value.as_object().into_iter().flat_map(Map::keys).filter(|name| properties.is_additional(name));
    let names: Vec<String> = names.map(|name| Value::from(name.as_str()).to_string()).collect();
    format!("must not have {}", names.join(", "))
}
