//! Functions on lists, and `size` and `reverse`, which also take other values.

use std::cmp::Ordering;

use super::super::operators::{compare_exactly, compare_values, values_equal};
use super::super::value::{CelValue, SLOT_BYTES};
use super::super::{CostMeter, ExpressionError};
use super::CallResult;

pub fn size<'a>(arguments: &[CelValue<'a>], meter: &mut CostMeter) -> CallResult<'a> {
    Ok(match arguments {
        [CelValue::Text(text)] => {
            meter.charge_bytes(text.len())?;
            Some(CelValue::from_count(text.chars().count()))
        }
        [CelValue::Bytes(bytes)] => Some(CelValue::from_count(bytes.len())),
        [value] if value.is_list() || value.is_map() => Some(CelValue::from_count(value.element_count())),
        _ => None,
    })
}

pub fn reverse<'a>(arguments: &[CelValue<'a>], meter: &mut CostMeter) -> CallResult<'a> {
    match arguments {
        [CelValue::Text(text)] => {
            meter.charge_bytes(text.len())?;
            Ok(Some(CelValue::shared_text(text.chars().rev().collect::<String>())))
        }
        [list] if list.is_list() => {
            let mut items = charged_elements(list, meter)?;
            items.reverse();
            Ok(Some(CelValue::from_items(items)))
        }
        _ => Ok(None),
    }
}

/// The elements of a list, charged for.
fn charged_elements<'a>(list: &CelValue<'a>, meter: &mut CostMeter) -> Result<Vec<CelValue<'a>>, ExpressionError> {
    meter.charge_bytes(list.element_count().saturating_mul(SLOT_BYTES))?;
    Ok(list.elements().collect())
}

/// The integers from 0 up to the argument, which is not included.
pub fn range<'a>(arguments: &[CelValue<'a>], meter: &mut CostMeter) -> CallResult<'a> {
    let [CelValue::Int(count)] = arguments else { return Ok(None) };
    let size = usize::try_from(*count).map_err(|_| ExpressionError::failed("lists.range takes no negative number."))?;
    meter.charge_bytes(size.saturating_mul(SLOT_BYTES))?;
    Ok(Some(CelValue::from_items((0..*count).map(CelValue::Int).collect())))
}

pub fn first<'a>(arguments: &[CelValue<'a>], meter: &mut CostMeter) -> CallResult<'a> {
    let [list] = arguments else { return Ok(None) };
    meter.charge_bytes(SLOT_BYTES)?;
    Ok(list.is_list().then(|| CelValue::optional(list.element_at(0))))
}

pub fn last<'a>(arguments: &[CelValue<'a>], meter: &mut CostMeter) -> CallResult<'a> {
    let [list] = arguments else { return Ok(None) };
    meter.charge_bytes(SLOT_BYTES)?;
    let at = list.element_count().checked_sub(1);
    Ok(list.is_list().then(|| CelValue::optional(at.and_then(|at| list.element_at(at)))))
}

pub fn slice<'a>(arguments: &[CelValue<'a>], meter: &mut CostMeter) -> CallResult<'a> {
    let [list, CelValue::Int(from), CelValue::Int(to)] = arguments else { return Ok(None) };
    if !list.is_list() {
        return Ok(None);
    }
    let bounds = (usize::try_from(*from), usize::try_from(*to));
    let (Ok(from), Ok(to)) = bounds else { return Err(beyond_the_list()) };
    if from > to || to > list.element_count() {
        return Err(beyond_the_list());
    }
    meter.charge_bytes((to - from).saturating_mul(SLOT_BYTES))?;
    Ok(Some(CelValue::from_items((from..to).filter_map(|at| list.element_at(at)).collect())))
}

fn beyond_the_list() -> ExpressionError {
    ExpressionError::failed("slice reaches beyond the list.")
}

/// The elements of lists within the list, one level of them or so many.
pub fn flatten<'a>(arguments: &[CelValue<'a>], meter: &mut CostMeter) -> CallResult<'a> {
    let (list, levels) = match arguments {
        [list] if list.is_list() => (list, 1),
        [list, CelValue::Int(levels)] if list.is_list() => (list, *levels),
        _ => return Ok(None),
    };
    if levels < 0 {
        return Err(ExpressionError::failed("flatten takes no negative number."));
    }
    let mut items = Vec::new();
    push_flattened(list, levels, &mut items, meter)?;
    Ok(Some(CelValue::from_items(items)))
}

/// Recurses as deep as lists are nested, which the nesting of expressions and of JSON bounds.
fn push_flattened<'a>(
    list: &CelValue<'a>,
    levels: i64,
    items: &mut Vec<CelValue<'a>>,
    meter: &mut CostMeter,
) -> Result<(), ExpressionError> {
    for element in list.elements() {
        meter.charge_bytes(SLOT_BYTES)?;
        if levels > 0 && element.is_list() {
            push_flattened(&element, levels - 1, items, meter)?;
        } else {
            items.push(element);
        }
    }
    Ok(())
}

pub fn distinct<'a>(arguments: &[CelValue<'a>], meter: &mut CostMeter) -> CallResult<'a> {
    let [list] = arguments else { return Ok(None) };
    if !list.is_list() {
        return Ok(None);
    }
    let mut kept: Vec<CelValue<'a>> = Vec::new();
    for element in list.elements() {
        let mut is_known = false;
        for other in &kept {
            is_known = values_equal(&element, other, meter)?;
            if is_known {
                break;
            }
        }
        if !is_known {
            meter.charge_bytes(SLOT_BYTES)?;
            kept.push(element);
        }
    }
    Ok(Some(CelValue::from_items(kept)))
}

pub fn sort<'a>(arguments: &[CelValue<'a>], meter: &mut CostMeter) -> CallResult<'a> {
    let [list] = arguments else { return Ok(None) };
    if !list.is_list() {
        return Ok(None);
    }
    let elements = charged_elements(list, meter)?;
    let keyed = elements.into_iter().map(|element| (element.clone(), element)).collect();
    sort_by_keys(keyed, meter).map(Some)
}

/// Sorts values by their keys; equal keys keep their order. The keys must be all numbers, or all of one type.
pub fn sort_by_keys<'a>(
    mut keyed: Vec<(CelValue<'a>, CelValue<'a>)>,
    meter: &mut CostMeter,
) -> Result<CelValue<'a>, ExpressionError> {
    check_sort_keys(&keyed)?;
    // Each level of the sort compares each key about once.
    let bytes: usize = keyed.iter().map(|(key, _)| SLOT_BYTES + key_bytes(key)).sum();
    let levels = usize::BITS - keyed.len().leading_zeros() + 1;
    meter.charge_bytes(bytes.saturating_mul(levels as usize))?;
    // The comparison itself must not fail: a sort needs an order that is total.
    let mut paid = CostMeter::new(0, usize::MAX);
    keyed.sort_by(|(one, _), (two, _)| {
        let order = if one.is_number() {
            compare_exactly(one, two)
        } else {
            compare_values(one, two, &mut paid).ok().flatten()
        };
        order.unwrap_or(Ordering::Equal)
    });
    Ok(CelValue::from_items(keyed.into_iter().map(|(_, value)| value).collect()))
}

fn key_bytes(key: &CelValue<'_>) -> usize {
    match key {
        CelValue::Text(text) => text.len(),
        CelValue::Bytes(bytes) => bytes.len(),
        _ => 0,
    }
}

fn check_sort_keys(keyed: &[(CelValue<'_>, CelValue<'_>)]) -> Result<(), ExpressionError> {
    let Some((first, _)) = keyed.first() else { return Ok(()) };
    for (key, _) in keyed {
        let has_order = match key {
            CelValue::Double(double) => !double.is_nan(),
            CelValue::Int(_)
            | CelValue::Uint(_)
            | CelValue::Bool(_)
            | CelValue::Text(_)
            | CelValue::Bytes(_)
            | CelValue::Time(_)
            | CelValue::Span(_) => true,
            _ => false,
        };
        let fits = key.type_name() == first.type_name() || (key.is_number() && first.is_number());
        if !has_order || !fits {
            let kinds = format!("{} and {}", first.kind_name(), key.kind_name());
            return Err(ExpressionError::failed(format!(
                "A list is sorted by numbers, or by texts, bools, times, durations or bytes alone, not by {kinds}."
            )));
        }
    }
    Ok(())
}
