//! Values during evaluation. Values from JSON or from the expression's source are borrowed; new values are shared, so that
//! `[a, a]` does not hold `a` twice.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::rc::Rc;

use kernel::base::Timestamp;
use serde_json::{Map, Number, Value};

use super::{CostMeter, ExpressionError};

/// The cost of an element of a list, of an entry of a map, and of a value in the result: about their size in memory.
pub const SLOT_BYTES: usize = 32;
pub const ENTRY_BYTES: usize = 64;
const LEAF_BYTES: usize = 8;

#[derive(Clone, Debug)]
pub enum CelValue<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Text(CelText<'a>),
    Time(Timestamp),
    /// In milliseconds.
    Span(i64),
    Type(&'static str),
    /// An array or an object, nothing else.
    Json(&'a Value),
    List(Rc<Vec<CelValue<'a>>>),
    Map(Rc<BTreeMap<MapKey<'a>, CelValue<'a>>>),
}

#[derive(Clone, Debug)]
pub enum CelText<'a> {
    Borrowed(&'a str),
    Shared(Rc<str>),
}

impl Deref for CelText<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            CelText::Borrowed(text) => text,
            CelText::Shared(text) => text,
        }
    }
}

/// A key of a map that an expression creates. Numbers are compared by value: `1`, `1u` and `1.0` are the same key.
#[derive(Clone, Debug)]
pub enum MapKey<'a> {
    Bool(bool),
    Number(i128),
    Text(CelText<'a>),
}

impl<'a> MapKey<'a> {
    pub fn to_value(&self) -> CelValue<'a> {
        match self {
            MapKey::Bool(yes) => CelValue::Bool(*yes),
            MapKey::Number(number) => match (i64::try_from(*number), u64::try_from(*number)) {
                (Ok(int), _) => CelValue::Int(int),
                (_, Ok(uint)) => CelValue::Uint(uint),
                _ => CelValue::Null,
            },
            MapKey::Text(text) => CelValue::Text(text.clone()),
        }
    }

    fn into_name(self) -> String {
        match self {
            MapKey::Bool(yes) => yes.to_string(),
            MapKey::Number(number) => number.to_string(),
            MapKey::Text(text) => text.to_string(),
        }
    }
}

impl Ord for MapKey<'_> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let rank = |key: &Self| match key {
            MapKey::Bool(_) => 0,
            MapKey::Number(_) => 1,
            MapKey::Text(_) => 2,
        };
        match (self, other) {
            (MapKey::Bool(one), MapKey::Bool(two)) => one.cmp(two),
            (MapKey::Number(one), MapKey::Number(two)) => one.cmp(two),
            (MapKey::Text(one), MapKey::Text(two)) => str::cmp(one, two),
            _ => rank(self).cmp(&rank(other)),
        }
    }
}

impl PartialOrd for MapKey<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for MapKey<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for MapKey<'_> {}

impl<'a> CelValue<'a> {
    pub fn from_json(value: &'a Value) -> CelValue<'a> {
        match value {
            Value::Null => CelValue::Null,
            Value::Bool(yes) => CelValue::Bool(*yes),
            Value::Number(number) => CelValue::from_json_number(number),
            Value::String(text) => CelValue::Text(CelText::Borrowed(text)),
            Value::Array(_) | Value::Object(_) => CelValue::Json(value),
        }
    }

    /// An integer becomes an `int`, one too large for that a `uint`, and every other number a `double`.
    fn from_json_number(number: &Number) -> CelValue<'a> {
        if let Some(int) = number.as_i64() {
            CelValue::Int(int)
        } else if let Some(uint) = number.as_u64() {
            CelValue::Uint(uint)
        } else {
            CelValue::Double(number.as_f64().unwrap_or(f64::NAN))
        }
    }

    pub fn shared_text(text: impl Into<Rc<str>>) -> CelValue<'a> {
        CelValue::Text(CelText::Shared(text.into()))
    }

    pub fn from_items(items: Vec<CelValue<'a>>) -> CelValue<'a> {
        CelValue::List(Rc::new(items))
    }

    /// The name of the value's type, as `type()` returns it.
    pub fn type_name(&self) -> &'static str {
        match self {
            CelValue::Null => "null_type",
            CelValue::Bool(_) => "bool",
            CelValue::Int(_) => "int",
            CelValue::Uint(_) => "uint",
            CelValue::Double(_) => "double",
            CelValue::Text(_) => "string",
            CelValue::Time(_) => "google.protobuf.Timestamp",
            CelValue::Span(_) => "google.protobuf.Duration",
            CelValue::Type(_) => "type",
            CelValue::Json(Value::Array(_)) | CelValue::List(_) => "list",
            CelValue::Json(_) | CelValue::Map(_) => "map",
        }
    }

    /// The name of the value's type in error messages.
    pub fn kind_name(&self) -> &'static str {
        match self {
            CelValue::Null => "null",
            CelValue::Time(_) => "timestamp",
            CelValue::Span(_) => "duration",
            other => other.type_name(),
        }
    }

    /// The value as a key of a map. Lists, fractions and other values that cannot be keys give `None`.
    pub fn to_key(&self) -> Option<MapKey<'a>> {
        match self {
            CelValue::Bool(yes) => Some(MapKey::Bool(*yes)),
            CelValue::Text(text) => Some(MapKey::Text(text.clone())),
            other => other.to_integer().map(MapKey::Number),
        }
    }

    /// The value of a number without a fraction.
    pub fn to_integer(&self) -> Option<i128> {
        match self {
            CelValue::Int(int) => Some(i128::from(*int)),
            CelValue::Uint(uint) => Some(i128::from(*uint)),
            #[expect(clippy::cast_possible_truncation, reason = "what has no fraction and is below 2^64 fits")]
            CelValue::Double(double) if double.fract() == 0.0 && double.abs() < 18_446_744_073_709_551_616.0 => {
                Some(*double as i128)
            }
            _ => None,
        }
    }

    /// The result of an expression. Shared values are copied here, so they are charged once more.
    pub fn into_json(self, meter: &mut CostMeter) -> Result<Value, ExpressionError> {
        meter.charge_bytes(LEAF_BYTES)?;
        Ok(match self {
            CelValue::Null => Value::Null,
            CelValue::Bool(yes) => Value::Bool(yes),
            CelValue::Int(int) => Value::from(int),
            CelValue::Uint(uint) => Value::from(uint),
            CelValue::Double(double) => Number::from_f64(double)
                .map(Value::Number)
                .ok_or_else(|| ExpressionError::failed("The result of an expression cannot be infinite or NaN."))?,
            CelValue::Text(text) => {
                meter.charge_bytes(text.len())?;
                Value::String(text.to_string())
            }
            CelValue::Time(time) => Value::String(time.to_string()),
            CelValue::Span(ms) => Value::String(span_text(ms)),
            CelValue::Type(name) => Value::String(name.to_owned()),
            CelValue::Json(value) => copy_json(value, meter)?,
            CelValue::List(items) => list_into_json(&items, meter)?,
            CelValue::Map(entries) => map_into_json(&entries, meter)?,
        })
    }

    /// The value as a part of a longer text.
    pub fn into_text(self, meter: &mut CostMeter) -> Result<String, ExpressionError> {
        match self {
            CelValue::Null => Ok(String::new()),
            CelValue::Text(text) => {
                meter.charge_bytes(text.len())?;
                Ok(text.to_string())
            }
            CelValue::Double(double) if double.is_finite() => Ok(double_text(double)),
            other => Ok(match other.into_json(meter)? {
                Value::String(text) => text,
                value => {
                    let text = value.to_string();
                    // Escapes were not charged with the value; their size is bounded by what was charged.
                    meter.charge_bytes(text.len())?;
                    text
                }
            }),
        }
    }
}

/// Separate from `into_json`, so that a level of nesting takes little stack.
fn list_into_json(items: &[CelValue<'_>], meter: &mut CostMeter) -> Result<Value, ExpressionError> {
    meter.charge_bytes(items.len() * LEAF_BYTES)?;
    let mut list = Vec::with_capacity(items.len());
    for item in items {
        list.push(item.clone().into_json(meter)?);
    }
    Ok(Value::Array(list))
}

fn map_into_json(
    entries: &BTreeMap<MapKey<'_>, CelValue<'_>>,
    meter: &mut CostMeter,
) -> Result<Value, ExpressionError> {
    let mut map = Map::new();
    for (key, value) in entries {
        meter.charge_bytes(ENTRY_BYTES)?;
        if let MapKey::Text(text) = key {
            meter.charge_bytes(text.len())?;
        }
        map.insert(key.clone().into_name(), value.clone().into_json(meter)?);
    }
    Ok(Value::Object(map))
}

/// Copies a value and charges for it as it goes.
fn copy_json(value: &Value, meter: &mut CostMeter) -> Result<Value, ExpressionError> {
    match value {
        Value::Array(items) => {
            meter.charge_bytes(items.len() * LEAF_BYTES)?;
            let mut list = Vec::with_capacity(items.len());
            for item in items {
                list.push(copy_json(item, meter)?);
            }
            Ok(Value::Array(list))
        }
        Value::Object(entries) => {
            let mut map = Map::new();
            for (key, value) in entries {
                meter.charge_bytes(LEAF_BYTES + key.len())?;
                map.insert(key.clone(), copy_json(value, meter)?);
            }
            Ok(Value::Object(map))
        }
        Value::String(text) => {
            meter.charge_bytes(text.len())?;
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
