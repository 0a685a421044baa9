//! Arithmetic, comparison and membership.

mod arithmetic;
mod equality;

use std::cmp::Ordering;

use serde_json::Value;

pub use self::arithmetic::negate_value;
pub use self::equality::{compare_exactly, compare_numbers, values_equal};

use super::node::Operator;
use super::value::{CelValue, SLOT_BYTES};
use super::{CostMeter, ExpressionError};

pub fn apply_operator<'a>(
    operator: Operator,
    one: &CelValue<'a>,
    two: &CelValue<'a>,
    meter: &mut CostMeter,
) -> Result<CelValue<'a>, ExpressionError> {
    let compare =
        |meter: &mut CostMeter| compare_values(one, two, meter)?.ok_or_else(|| operand_mismatch(operator, one, two));
    match operator {
        Operator::Equal => values_equal(one, two, meter).map(CelValue::Bool),
        Operator::Unequal => values_equal(one, two, meter).map(|same| CelValue::Bool(!same)),
        Operator::Less => compare(meter).map(|order| CelValue::Bool(order.is_lt())),
        Operator::AtMost => compare(meter).map(|order| CelValue::Bool(order.is_le())),
        Operator::Greater => compare(meter).map(|order| CelValue::Bool(order.is_gt())),
        Operator::AtLeast => compare(meter).map(|order| CelValue::Bool(order.is_ge())),
        Operator::In => apply_in(one, two, meter),
        Operator::Add if one.is_list() && two.is_list() => concat_lists(one, two, meter),
        _ => arithmetic::apply_arithmetic(operator, one, two, meter),
    }
}

fn operand_mismatch(operator: Operator, one: &CelValue<'_>, two: &CelValue<'_>) -> ExpressionError {
    ExpressionError::failed(format!("{} cannot take {} and {}.", operator.symbol(), one.kind_name(), two.kind_name()))
}

fn concat_lists<'a>(
    one: &CelValue<'a>,
    two: &CelValue<'a>,
    meter: &mut CostMeter,
) -> Result<CelValue<'a>, ExpressionError> {
    meter.charge_bytes((one.element_count() + two.element_count()) * SLOT_BYTES)?;
    Ok(CelValue::from_items(one.elements().chain(two.elements()).collect()))
}

/// The order of two values; `None` if values of these types have none.
pub fn compare_values(
    one: &CelValue<'_>,
    two: &CelValue<'_>,
    meter: &mut CostMeter,
) -> Result<Option<Ordering>, ExpressionError> {
    Ok(Some(match (one, two) {
        (CelValue::Text(one), CelValue::Text(two)) => {
            meter.charge_bytes(one.len().min(two.len()))?;
            str::cmp(one, two)
        }
        (CelValue::Bytes(one), CelValue::Bytes(two)) => {
            meter.charge_bytes(one.len().min(two.len()))?;
            one.cmp(two)
        }
        (CelValue::Bool(one), CelValue::Bool(two)) => one.cmp(two),
        (CelValue::Time(one), CelValue::Time(two)) => one.cmp(two),
        (CelValue::Span(one), CelValue::Span(two)) => one.cmp(two),
        _ if one.is_number() && two.is_number() => compare_numbers(one, two)
            .ok_or_else(|| ExpressionError::failed("What is not a number is neither less nor more."))?,
        _ => return Ok(None),
    }))
}

/// `container[key]`.
pub fn find_element<'a>(container: &CelValue<'a>, key: &CelValue<'a>) -> Option<CelValue<'a>> {
    match container {
        CelValue::Json(Value::Object(entries)) => match key {
            CelValue::Text(text) => entries.get(&**text).map(CelValue::from_json),
            _ => None,
        },
        CelValue::Map(entries) => entries.get(&key.to_key()?).cloned(),
        list => list.element_at(usize::try_from(key.to_integer()?).ok()?),
    }
}

fn apply_in<'a>(
    one: &CelValue<'a>,
    two: &CelValue<'a>,
    meter: &mut CostMeter,
) -> Result<CelValue<'a>, ExpressionError> {
    if two.is_list() {
        for item in two.elements() {
            if values_equal(one, &item, meter)? {
                return Ok(CelValue::Bool(true));
            }
        }
        return Ok(CelValue::Bool(false));
    }
    if two.is_map() {
        if let CelValue::Text(text) = one {
            meter.charge_bytes(text.len())?;
        }
        if one.is_number() || one.to_key().is_some() {
            return Ok(CelValue::Bool(find_element(two, one).is_some()));
        }
    }
    Err(operand_mismatch(Operator::In, one, two))
}
