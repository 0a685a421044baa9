//! Arithmetic, comparison and membership.

use std::cmp::Ordering;

use serde_json::Value;

use super::functions::{span, time};
use super::node::Operator;
use super::value::{CelText, CelValue, SLOT_BYTES};
use super::{CostMeter, ExpressionError};

pub fn apply_operator<'a>(
    operator: Operator,
    one: &CelValue<'a>,
    two: &CelValue<'a>,
    meter: &mut CostMeter,
) -> Result<CelValue<'a>, ExpressionError> {
    match operator {
        Operator::Equal => values_equal(one, two, meter).map(CelValue::Bool),
        Operator::Unequal => values_equal(one, two, meter).map(|same| CelValue::Bool(!same)),
        Operator::Less => compare_values(operator, one, two, meter).map(|order| CelValue::Bool(order.is_lt())),
        Operator::AtMost => compare_values(operator, one, two, meter).map(|order| CelValue::Bool(order.is_le())),
        Operator::Greater => compare_values(operator, one, two, meter).map(|order| CelValue::Bool(order.is_gt())),
        Operator::AtLeast => compare_values(operator, one, two, meter).map(|order| CelValue::Bool(order.is_ge())),
        Operator::In => apply_in(one, two, meter),
        Operator::Add if is_list(one) && is_list(two) => concat_lists(one, two, meter),
        _ => apply_arithmetic(operator, one, two, meter),
    }
}

fn operand_mismatch(operator: Operator, one: &CelValue<'_>, two: &CelValue<'_>) -> ExpressionError {
    ExpressionError::failed(format!("{} cannot take {} and {}.", operator.symbol(), one.kind_name(), two.kind_name()))
}

fn apply_arithmetic<'a>(
    operator: Operator,
    one: &CelValue<'a>,
    two: &CelValue<'a>,
    meter: &mut CostMeter,
) -> Result<CelValue<'a>, ExpressionError> {
    let range = || ExpressionError::failed(format!("The result of {} is out of range.", operator.symbol()));
    match (one, two) {
        (CelValue::Int(one), CelValue::Int(two)) => {
            int_arithmetic(operator, *one, *two)?.map(CelValue::Int).ok_or_else(range)
        }
        (CelValue::Uint(one), CelValue::Uint(two)) => {
            uint_arithmetic(operator, *one, *two)?.map(CelValue::Uint).ok_or_else(range)
        }
        (CelValue::Double(one), CelValue::Double(two)) => double_arithmetic(operator, *one, *two).map(CelValue::Double),
        (CelValue::Text(one), CelValue::Text(two)) if operator == Operator::Add => {
            meter.charge_bytes(one.len().saturating_add(two.len()))?;
            Ok(CelValue::shared_text([&**one, &**two].concat()))
        }
        (CelValue::Time(at), CelValue::Span(ms)) if operator == Operator::Add => {
            time::checked_time(at.as_millis().checked_add(*ms))
        }
        (CelValue::Span(ms), CelValue::Time(at)) if operator == Operator::Add => {
            time::checked_time(at.as_millis().checked_add(*ms))
        }
        (CelValue::Time(at), CelValue::Span(ms)) if operator == Operator::Subtract => {
            time::checked_time(at.as_millis().checked_sub(*ms))
        }
        (CelValue::Time(one), CelValue::Time(two)) if operator == Operator::Subtract => {
            checked_span(one.as_millis().checked_sub(two.as_millis())).ok_or_else(range)
        }
        (CelValue::Span(one), CelValue::Span(two)) if operator == Operator::Add => {
            checked_span(one.checked_add(*two)).ok_or_else(range)
        }
        (CelValue::Span(one), CelValue::Span(two)) if operator == Operator::Subtract => {
            checked_span(one.checked_sub(*two)).ok_or_else(range)
        }
        _ => Err(operand_mismatch(operator, one, two)),
    }
}

fn checked_span<'a>(ms: Option<i64>) -> Option<CelValue<'a>> {
    ms.filter(|ms| ms.unsigned_abs() <= span::SPAN_MS_MAX.unsigned_abs()).map(CelValue::Span)
}

fn division_by_zero() -> ExpressionError {
    ExpressionError::failed("A number cannot be divided by zero.")
}

fn int_arithmetic(operator: Operator, one: i64, two: i64) -> Result<Option<i64>, ExpressionError> {
    Ok(match operator {
        Operator::Add => one.checked_add(two),
        Operator::Subtract => one.checked_sub(two),
        Operator::Multiply => one.checked_mul(two),
        Operator::Divide | Operator::Modulo if two == 0 => return Err(division_by_zero()),
        Operator::Divide => one.checked_div(two),
        Operator::Modulo => one.checked_rem(two),
        _ => None,
    })
}

fn uint_arithmetic(operator: Operator, one: u64, two: u64) -> Result<Option<u64>, ExpressionError> {
    Ok(match operator {
        Operator::Add => one.checked_add(two),
        Operator::Subtract => one.checked_sub(two),
        Operator::Multiply => one.checked_mul(two),
        Operator::Divide | Operator::Modulo if two == 0 => return Err(division_by_zero()),
        Operator::Divide => one.checked_div(two),
        Operator::Modulo => one.checked_rem(two),
        _ => None,
    })
}

fn double_arithmetic(operator: Operator, one: f64, two: f64) -> Result<f64, ExpressionError> {
    match operator {
        Operator::Add => Ok(one + two),
        Operator::Subtract => Ok(one - two),
        Operator::Multiply => Ok(one * two),
        Operator::Divide => Ok(one / two),
        _ => Err(ExpressionError::failed("% takes integers.")),
    }
}

pub fn negate_value<'a>(value: &CelValue<'a>) -> Result<CelValue<'a>, ExpressionError> {
    match value {
        CelValue::Int(int) => int
            .checked_neg()
            .map(CelValue::Int)
            .ok_or_else(|| ExpressionError::failed("The result of - is out of range.")),
        CelValue::Double(double) => Ok(CelValue::Double(-double)),
        other => Err(ExpressionError::failed(format!("- cannot take {}.", other.kind_name()))),
    }
}

fn is_list(value: &CelValue<'_>) -> bool {
    matches!(value, CelValue::List(_) | CelValue::Json(Value::Array(_)))
}

fn concat_lists<'a>(
    one: &CelValue<'a>,
    two: &CelValue<'a>,
    meter: &mut CostMeter,
) -> Result<CelValue<'a>, ExpressionError> {
    let mut list = Vec::new();
    for part in [one, two] {
        match part {
            CelValue::List(items) => {
                meter.charge_bytes(items.len() * SLOT_BYTES)?;
                list.extend(items.iter().cloned());
            }
            CelValue::Json(Value::Array(items)) => {
                meter.charge_bytes(items.len() * SLOT_BYTES)?;
                list.extend(items.iter().map(CelValue::from_json));
            }
            _ => {}
        }
    }
    Ok(CelValue::from_items(list))
}

fn compare_values(
    operator: Operator,
    one: &CelValue<'_>,
    two: &CelValue<'_>,
    meter: &mut CostMeter,
) -> Result<Ordering, ExpressionError> {
    match (one, two) {
        (CelValue::Text(one), CelValue::Text(two)) => {
            meter.charge_bytes(one.len().min(two.len()))?;
            Ok(str::cmp(one, two))
        }
        (CelValue::Bool(one), CelValue::Bool(two)) => Ok(one.cmp(two)),
        (CelValue::Time(one), CelValue::Time(two)) => Ok(one.cmp(two)),
        (CelValue::Span(one), CelValue::Span(two)) => Ok(one.cmp(two)),
        _ if is_number(one) && is_number(two) => compare_numbers(one, two)
            .ok_or_else(|| ExpressionError::failed("What is not a number is neither less nor more.")),
        _ => Err(operand_mismatch(operator, one, two)),
    }
}

fn is_number(value: &CelValue<'_>) -> bool {
    matches!(value, CelValue::Int(_) | CelValue::Uint(_) | CelValue::Double(_))
}

/// Compares numbers of any type by value. `None` if one of them is not a number (NaN).
fn compare_numbers(one: &CelValue<'_>, two: &CelValue<'_>) -> Option<Ordering> {
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
        (CelValue::Time(one), CelValue::Time(two)) => one == two,
        (CelValue::Span(one), CelValue::Span(two)) => one == two,
        (CelValue::Type(one), CelValue::Type(two)) => one == two,
        _ if is_number(one) && is_number(two) => compare_numbers(one, two) == Some(Ordering::Equal),
        _ if is_list(one) && is_list(two) => lists_equal(one, two, meter)?,
        _ if one.type_name() == "map" && two.type_name() == "map" => maps_equal(one, two, meter)?,
        _ => false,
    })
}

fn lists_equal(one: &CelValue<'_>, two: &CelValue<'_>, meter: &mut CostMeter) -> Result<bool, ExpressionError> {
    if element_count(one) != element_count(two) {
        return Ok(false);
    }
    for at in 0..element_count(one) {
        let (Some(one), Some(two)) = (element_at(one, at), element_at(two, at)) else { return Ok(false) };
        if !values_equal(&one, &two, meter)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn maps_equal(one: &CelValue<'_>, two: &CelValue<'_>, meter: &mut CostMeter) -> Result<bool, ExpressionError> {
    if element_count(one) != element_count(two) {
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

fn element_count(value: &CelValue<'_>) -> usize {
    match value {
        CelValue::Json(Value::Array(items)) => items.len(),
        CelValue::Json(Value::Object(entries)) => entries.len(),
        CelValue::List(items) => items.len(),
        CelValue::Map(entries) => entries.len(),
        _ => 0,
    }
}

fn element_at<'a>(list: &CelValue<'a>, at: usize) -> Option<CelValue<'a>> {
    match list {
        CelValue::Json(Value::Array(items)) => items.get(at).map(CelValue::from_json),
        CelValue::List(items) => items.get(at).cloned(),
        _ => None,
    }
}

/// `container[key]`.
pub fn find_element<'a>(container: &CelValue<'a>, key: &CelValue<'a>) -> Option<CelValue<'a>> {
    match container {
        CelValue::Json(Value::Object(entries)) => match key {
            CelValue::Text(text) => entries.get(&**text).map(CelValue::from_json),
            _ => None,
        },
        CelValue::Map(entries) => entries.get(&key.to_key()?).cloned(),
        list => element_at(list, usize::try_from(key.to_integer()?).ok()?),
    }
}

fn apply_in<'a>(
    one: &CelValue<'a>,
    two: &CelValue<'a>,
    meter: &mut CostMeter,
) -> Result<CelValue<'a>, ExpressionError> {
    if is_list(two) {
        for at in 0..element_count(two) {
            let Some(item) = element_at(two, at) else { break };
            if values_equal(one, &item, meter)? {
                return Ok(CelValue::Bool(true));
            }
        }
        return Ok(CelValue::Bool(false));
    }
    if two.type_name() == "map" {
        if let CelValue::Text(text) = one {
            meter.charge_bytes(text.len())?;
        }
        if is_number(one) || one.to_key().is_some() {
            return Ok(CelValue::Bool(find_element(two, one).is_some()));
        }
    }
    Err(operand_mismatch(Operator::In, one, two))
}
