//! Values during evaluation. Values from JSON or from the expression's source are borrowed; new values are shared, so that
//! `[a, a]` does not hold `a` twice.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::rc::Rc;

use kernel::base::Timestamp;
use serde_json::{Map, Number, Value};

use super::{Fault, Meter};

/// The cost of an element of a list, of an entry of a map, and of a value in the result: about their size in memory.
pub const SLOT_BYTES: usize = 32;
pub const ENTRY_BYTES: usize = 64;
const LEAF_BYTES: usize = 8;

#[derive(Clone, Debug)]
pub enum V<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Text(Text<'a>),
    Time(Timestamp),
    /// In milliseconds.
    Span(i64),
    Type(&'static str),
    /// An array or an object, nothing else.
    Json(&'a Value),
    List(Rc<Vec<V<'a>>>),
    Map(Rc<BTreeMap<Key<'a>, V<'a>>>),
}

#[derive(Clone, Debug)]
pub enum Text<'a> {
    Borrowed(&'a str),
    Shared(Rc<str>),
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Text::Borrowed(text) => text,
            Text::Shared(text) => text,
        }
    }
}

/// A key of a map that an expression creates. Numbers are compared by value: `1`, `1u` and `1.0` are the same key.
#[derive(Clone, Debug)]
pub enum Key<'a> {
    Bool(bool),
    Number(i128),
    Text(Text<'a>),
}

impl<'a> Key<'a> {
    pub fn value(&self) -> V<'a> {
        match self {
            Key::Bool(yes) => V::Bool(*yes),
            Key::Number(number) => match (i64::try_from(*number), u64::try_from(*number)) {
                (Ok(int), _) => V::Int(int),
                (_, Ok(uint)) => V::Uint(uint),
                _ => V::Null,
            },
            Key::Text(text) => V::Text(text.clone()),
        }
    }

    fn into_name(self) -> String {
        match self {
            Key::Bool(yes) => yes.to_string(),
            Key::Number(number) => number.to_string(),
            Key::Text(text) => text.to_string(),
        }
    }
}

impl Ord for Key<'_> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let rank = |key: &Self| match key {
            Key::Bool(_) => 0,
            Key::Number(_) => 1,
            Key::Text(_) => 2,
        };
        match (self, other) {
            (Key::Bool(one), Key::Bool(two)) => one.cmp(two),
            (Key::Number(one), Key::Number(two)) => one.cmp(two),
            (Key::Text(one), Key::Text(two)) => str::cmp(one, two),
            _ => rank(self).cmp(&rank(other)),
        }
    }
}

impl PartialOrd for Key<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Key<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Key<'_> {}

impl<'a> V<'a> {
    pub fn of(value: &'a Value) -> V<'a> {
        match value {
            Value::Null => V::Null,
            Value::Bool(yes) => V::Bool(*yes),
            Value::Number(number) => V::of_number(number),
            Value::String(text) => V::Text(Text::Borrowed(text)),
            Value::Array(_) | Value::Object(_) => V::Json(value),
        }
    }

    /// An integer becomes an `int`, one too large for that a `uint`, and every other number a `double`.
    fn of_number(number: &Number) -> V<'a> {
        if let Some(int) = number.as_i64() {
            V::Int(int)
        } else if let Some(uint) = number.as_u64() {
            V::Uint(uint)
        } else {
            V::Double(number.as_f64().unwrap_or(f64::NAN))
        }
    }

    pub fn text(text: impl Into<Rc<str>>) -> V<'a> {
        V::Text(Text::Shared(text.into()))
    }

    pub fn list(items: Vec<V<'a>>) -> V<'a> {
        V::List(Rc::new(items))
    }

    /// The name of the value's type, as `type()` returns it.
    pub fn type_name(&self) -> &'static str {
        match self {
            V::Null => "null_type",
            V::Bool(_) => "bool",
            V::Int(_) => "int",
            V::Uint(_) => "uint",
            V::Double(_) => "double",
            V::Text(_) => "string",
            V::Time(_) => "google.protobuf.Timestamp",
            V::Span(_) => "google.protobuf.Duration",
            V::Type(_) => "type",
            V::Json(Value::Array(_)) | V::List(_) => "list",
            V::Json(_) | V::Map(_) => "map",
        }
    }

    /// The name of the value's type in error messages.
    pub fn kind(&self) -> &'static str {
        match self {
            V::Null => "null",
            V::Time(_) => "timestamp",
            V::Span(_) => "duration",
            other => other.type_name(),
        }
    }

    /// The value as a key of a map. Lists, fractions and other values that cannot be keys give `None`.
    pub fn key(&self) -> Option<Key<'a>> {
        match self {
            V::Bool(yes) => Some(Key::Bool(*yes)),
            V::Text(text) => Some(Key::Text(text.clone())),
            other => other.whole().map(Key::Number),
        }
    }

    /// The value of a number without a fraction.
    pub fn whole(&self) -> Option<i128> {
        match self {
            V::Int(int) => Some(i128::from(*int)),
            V::Uint(uint) => Some(i128::from(*uint)),
            #[expect(clippy::cast_possible_truncation, reason = "what has no fraction and is below 2^64 fits")]
            V::Double(double) if double.fract() == 0.0 && double.abs() < 18_446_744_073_709_551_616.0 => {
                Some(*double as i128)
            }
            _ => None,
        }
    }

    /// The result of an expression. Shared values are copied here, so they are charged once more.
    pub fn into_json(self, meter: &mut Meter) -> Result<Value, Fault> {
        meter.bytes(LEAF_BYTES)?;
        Ok(match self {
            V::Null => Value::Null,
            V::Bool(yes) => Value::Bool(yes),
            V::Int(int) => Value::from(int),
            V::Uint(uint) => Value::from(uint),
            V::Double(double) => Number::from_f64(double)
                .map(Value::Number)
                .ok_or_else(|| Fault::failed("A number that is infinite or none cannot come out of an expression."))?,
            V::Text(text) => {
                meter.bytes(text.len())?;
                Value::String(text.to_string())
            }
            V::Time(time) => Value::String(time.to_string()),
            V::Span(ms) => Value::String(span_text(ms)),
            V::Type(name) => Value::String(name.to_owned()),
            V::Json(value) => copy(value, meter)?,
            V::List(items) => list_into_json(&items, meter)?,
            V::Map(entries) => map_into_json(&entries, meter)?,
        })
    }

    /// The value as a part of a longer text.
    pub fn into_text(self, meter: &mut Meter) -> Result<String, Fault> {
        match self {
            V::Null => Ok(String::new()),
            V::Text(text) => {
                meter.bytes(text.len())?;
                Ok(text.to_string())
            }
            V::Double(double) if double.is_finite() => Ok(double_text(double)),
            other => Ok(match other.into_json(meter)? {
                Value::String(text) => text,
                value => {
                    let text = value.to_string();
                    // Escapes were not charged with the value; their size is bounded by what was charged.
                    meter.bytes(text.len())?;
                    text
                }
            }),
        }
    }
}

/// Separate from `into_json`, so that a level of nesting takes little stack.
fn list_into_json(items: &[V<'_>], meter: &mut Meter) -> Result<Value, Fault> {
    meter.bytes(items.len() * LEAF_BYTES)?;
    let mut list = Vec::with_capacity(items.len());
    for item in items {
        list.push(item.clone().into_json(meter)?);
    }
    Ok(Value::Array(list))
}

fn map_into_json(entries: &BTreeMap<Key<'_>, V<'_>>, meter: &mut Meter) -> Result<Value, Fault> {
    let mut map = Map::new();
    for (key, value) in entries {
        meter.bytes(ENTRY_BYTES)?;
        if let Key::Text(text) = key {
            meter.bytes(text.len())?;
        }
        map.insert(key.clone().into_name(), value.clone().into_json(meter)?);
    }
    Ok(Value::Object(map))
}

/// Copies a value and charges for it as it goes.
fn copy(value: &Value, meter: &mut Meter) -> Result<Value, Fault> {
    match value {
        Value::Array(items) => {
            meter.bytes(items.len() * LEAF_BYTES)?;
            let mut list = Vec::with_capacity(items.len());
            for item in items {
                list.push(copy(item, meter)?);
            }
            Ok(Value::Array(list))
        }
        Value::Object(entries) => {
            let mut map = Map::new();
            for (key, value) in entries {
                meter.bytes(LEAF_BYTES + key.len())?;
                map.insert(key.clone(), copy(value, meter)?);
            }
            Ok(Value::Object(map))
        }
        Value::String(text) => {
            meter.bytes(text.len())?;
            Ok(Value::String(text.clone()))
        }
        leaf => Ok(leaf.clone()),
    }
}

/// Seconds, with a fraction where there is one, and `s`: the JSON form of protocol buffer durations.
pub fn span_text(ms: i64) -> String {
    let (sign, ms) = (if ms < 0 { "-" } else { "" }, ms.unsigned_abs());
    match ms % 1_000 {
        0 => format!("{sign}{}s", ms / 1_000),
        rest => format!("{sign}{}.{}s", ms / 1_000, format!("{rest:03}").trim_end_matches('0')),
    }
}

/// The shortest text that parses to the same number; whole numbers have no fraction.
pub fn double_text(double: f64) -> String {
    if double != 0.0 && (double.abs() >= 1e21 || double.abs() < 1e-6) {
        format!("{double:e}")
    } else {
        double.to_string()
    }
}
