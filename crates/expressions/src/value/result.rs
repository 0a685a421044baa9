//! Results of expressions: as JSON, and as a part of a longer text.

use std::rc::Rc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Number, Value};

use super::super::{CostMeter, ExpressionError};
use super::{CelValue, ENTRY_BYTES, MapEntries, MapKey, double_text, span_text};

const LEAF_BYTES: usize = 8;

impl CelValue<'_> {
    /// The result of an expression. Shared values are copied here, so they are charged once more.
    ///
    /// What JSON does not have: bytes become base64, times RFC 3339 with milliseconds or more, durations seconds (`1.5s`),
    /// types and addresses their names, and an optional value its value or null.
    pub fn into_json(self, meter: &mut CostMeter) -> Result<Value, ExpressionError> {
        meter.charge_bytes(LEAF_BYTES)?;
        Ok(match self {
            CelValue::Null | CelValue::Optional(None) => Value::Null,
            CelValue::Bool(yes) => Value::Bool(yes),
            CelValue::Int(int) => Value::from(int),
            CelValue::Uint(uint) => Value::from(uint),
            CelValue::Double(double) => double_into_json(double)?,
            CelValue::Text(text) => {
                meter.charge_bytes(text.len())?;
                Value::String(text.to_string())
            }
            CelValue::Json(value) => copy_json(value, meter)?,
            CelValue::List(items) => list_into_json(&items, meter)?,
            CelValue::Map(entries) => map_into_json(&entries, meter)?,
            CelValue::Optional(Some(value)) => Rc::unwrap_or_clone(value).into_json(meter)?,
            other => Value::String(other.into_rendered_text(meter)?),
        })
    }

    /// The text in JSON of a value that JSON has no type for.
    fn into_rendered_text(self, meter: &mut CostMeter) -> Result<String, ExpressionError> {
        Ok(match self {
            CelValue::Bytes(bytes) => {
                meter.charge_bytes(bytes.len().saturating_mul(2))?;
                STANDARD.encode(&*bytes)
            }
            CelValue::Time(time) => time.to_text(3),
            CelValue::Span(nanoseconds) => span_text(nanoseconds),
            CelValue::Ip(address) => address.to_string(),
            CelValue::Cidr(range) => range.to_string(),
            CelValue::Type(name) => name.to_owned(),
            other => other.type_name().to_owned(),
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
            CelValue::Optional(value) => match value {
                Some(value) => Rc::unwrap_or_clone(value).into_text(meter),
                None => Ok(String::new()),
            },
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

fn double_into_json(double: f64) -> Result<Value, ExpressionError> {
    Number::from_f64(double)
        .map(Value::Number)
        .ok_or_else(|| ExpressionError::failed("The result of an expression cannot be infinite or NaN."))
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

fn map_into_json(entries: &MapEntries<'_>, meter: &mut CostMeter) -> Result<Value, ExpressionError> {
    let mut map = Map::new();
    for (key, value) in entries {
        meter.charge_bytes(ENTRY_BYTES)?;
        if let MapKey::Text(text) = key {
            meter.charge_bytes(text.len())?;
        }
        if map.insert(key.to_name(), value.clone().into_json(meter)?).is_some() {
            return Err(ExpressionError::failed(
                "Two keys of a map are the same text in JSON, as 1 and '1' are: string() makes them one type.",
            ));
        }
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
