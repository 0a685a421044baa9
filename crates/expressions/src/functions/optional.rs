//! Optional values. What `or` and `orValue` evaluate depends on the value, so they are not here.

use std::rc::Rc;

use super::super::value::{CelValue, SLOT_BYTES};
use super::super::{CostMeter, ExpressionError};
use super::CallResult;

pub fn of<'a>(arguments: &[CelValue<'a>], meter: &mut CostMeter) -> CallResult<'a> {
    meter.charge_bytes(SLOT_BYTES)?;
    Ok(arguments.first().map(|value| value.clone().present()))
}

pub fn of_non_zero_value<'a>(arguments: &[CelValue<'a>], meter: &mut CostMeter) -> CallResult<'a> {
    meter.charge_bytes(SLOT_BYTES)?;
    Ok(arguments.first().map(|value| CelValue::optional(Some(value.clone()).filter(|value| !is_zero(value)))))
}

fn is_zero(value: &CelValue<'_>) -> bool {
    match value {
        CelValue::Null | CelValue::Bool(false) | CelValue::Int(0) | CelValue::Uint(0) | CelValue::Span(0) => true,
        CelValue::Double(double) => *double == 0.0,
        CelValue::Text(text) => text.is_empty(),
        CelValue::Bytes(bytes) => bytes.is_empty(),
        CelValue::Optional(value) => value.is_none(),
        other => (other.is_list() || other.is_map()) && other.element_count() == 0,
    }
}

pub fn has_value<'a>(arguments: &[CelValue<'a>]) -> Option<CelValue<'a>> {
    let [CelValue::Optional(value)] = arguments else { return None };
    Some(CelValue::Bool(value.is_some()))
}

pub fn value<'a>(arguments: &[CelValue<'a>], _: &mut CostMeter) -> CallResult<'a> {
    let [CelValue::Optional(value)] = arguments else { return Ok(None) };
    let value = value.as_ref().ok_or_else(|| ExpressionError::failed("The optional value has no value."))?;
    Ok(Some(Rc::unwrap_or_clone(value.clone())))
}

pub fn unwrap<'a>(arguments: &[CelValue<'a>], meter: &mut CostMeter) -> CallResult<'a> {
    let [list] = arguments else { return Ok(None) };
    if !list.is_list() {
        return Ok(None);
    }
    meter.charge_bytes(list.element_count() * SLOT_BYTES)?;
    let mut values = Vec::new();
    for element in list.elements() {
        match element {
            CelValue::Optional(Some(value)) => values.push(Rc::unwrap_or_clone(value)),
            CelValue::Optional(None) => {}
            _ => return Err(ExpressionError::failed("The elements of the list are not optional values.")),
        }
    }
    Ok(Some(CelValue::from_items(values)))
}
