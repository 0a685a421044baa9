//! `==` over all types.

use std::cmp::Ordering;

use serde_json::Value;

use super::super::value::{CelText, CelValue};
use super::super::{CostMeter, ExpressionError};
use super::find_element;

/// Compares numbers of any type. An integer becomes a double if the other is one, as in `cel-go`: beyond 2^53 the nearest.
/// `None` if one of them is not a number (NaN).
pub fn compare_numbers(one: &CelValue<'_>, two: &CelValue<'_>) -> Option<Ordering> {
    match (one, two) {
        (CelValue::Double(_), _) | (_, CelValue::Double(_)) => to_double(one)?.partial_cmp(&to_double(two)?),
        (one, two) => Some(one.to_integer()?.cmp(&two.to_integer()?)),
    }
}

#[expect(clippy::cast_precision_loss, reason = "the nearest is what is compared")]
fn to_double(number: &CelValue<'_>) -> Option<f64> {
    match number {
        CelValue::Double(double) => Some(*double),
        CelValue::Int(int) => Some(*int as f64),
        CelValue::Uint(uint) => Some(*uint as f64),
        _ => None,
    }
}

/// Compares numbers of any type by their exact value, which is an order that a sort can rely on.
pub fn compare_exactly(one: &CelValue<'_>, two: &CelValue<'_>) -> Option<Ordering> {
    match (one, two) {
        (CelValue::Double(one), CelValue::Double(two)) => one.partial_cmp(two),
        (CelValue::Double(one), two) => compare_with_double(two.to_integer()?, *one).map(Ordering::reverse),
        (one, CelValue::Double(two)) => compare_with_double(one.to_integer()?, *two),
        (one, two) => Some(one.to_integer()?.cmp(&two.to_integer()?)),
    }
}

fn compare_with_double(whole: i128, double: f64) -> Option<Ordering> {
    // Beyond the range of all integer types.
    if double.is_nan() || double.abs() >= 1e30 {
        return 0.0.partial_cmp(&double);
    }
    #[expect(clippy::cast_possible_truncation, reason = "the fraction is what is cut off, and the rest fits")]
    let cut = double.trunc() as i128;
    Some(whole.cmp(&cut).then_with(|| 0.0_f64.total_cmp(&(double.fract() + 0.0))))
}

/// Values of different types are not equal; numbers are compared by value.
pub fn values_equal(one: &CelValue<'_>, two: &CelValue<'_>, meter: &mut CostMeter) -> Result<bool, ExpressionError> {
    meter.charge_bytes(1)?;
    Ok(match (one, two) {
        (CelValue::Null, CelValue::Null) => true,
        (CelValue::Bool(one), CelValue::Bool(two)) => one == two,
        (CelValue::Text(one), CelValue::Text(two)) => {
            meter.charge_bytes(one.len().min(two.len()))?;
            **one == **two
        }
        (CelValue::Bytes(one), CelValue::Bytes(two)) => {
            meter.charge_bytes(one.len().min(two.len()))?;
            one == two
        }
        (CelValue::Time(one), CelValue::Time(two)) => one == two,
        (CelValue::Span(one), CelValue::Span(two)) => one == two,
        (CelValue::Type(one), CelValue::Type(two)) => one == two,
        (CelValue::Ip(one), CelValue::Ip(two)) => one == two,
        (CelValue::Cidr(one), CelValue::Cidr(two)) => one == two,
        (CelValue::Optional(one), CelValue::Optional(two)) => match (one, two) {
            (Some(one), Some(two)) => values_equal(one, two, meter)?,
            (one, two) => one.is_none() && two.is_none(),
        },
        _ if one.is_number() && two.is_number() => compare_numbers(one, two) == Some(Ordering::Equal),
        _ if one.is_list() && two.is_list() => lists_equal(one, two, meter)?,
        _ if one.is_map() && two.is_map() => maps_equal(one, two, meter)?,
        _ => false,
    })
}

fn lists_equal(one: &CelValue<'_>, two: &CelValue<'_>, meter: &mut CostMeter) -> Result<bool, ExpressionError> {
    if one.element_count() != two.element_count() {
        return Ok(false);
    }
    for at in 0..one.element_count() {
        let (Some(one), Some(two)) = (one.element_at(at), two.element_at(at)) else { return Ok(false) };
        if !values_equal(&one, &two, meter)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn maps_equal(one: &CelValue<'_>, two: &CelValue<'_>, meter: &mut CostMeter) -> Result<bool, ExpressionError> {
    if one.element_count() != two.element_count() {
        return Ok(false);
    }
    match one {
        CelValue::Json(Value::Object(entries)) => {
            for (key, value) in entries {
                if !entry_equals(&CelValue::Text(CelText::Borrowed(key)), &CelValue::from_json(value), two, meter)? {
                    return Ok(false);
                }
            }
        }
        CelValue::Map(entries) => {
            for (key, value) in entries.iter() {
                if !entry_equals(&key.to_value(), value, two, meter)? {
                    return Ok(false);
                }
            }
        }
        _ => {}
    }
    Ok(true)
}

fn entry_equals<'a>(
    key: &CelValue<'a>,
    value: &CelValue<'a>,
    map: &CelValue<'a>,
    meter: &mut CostMeter,
) -> Result<bool, ExpressionError> {
    if let CelValue::Text(text) = key {
        meter.charge_bytes(text.len())?;
    }
    match find_element(map, key) {
        Some(other) => values_equal(value, &other, meter),
        None => Ok(false),
    }
}
