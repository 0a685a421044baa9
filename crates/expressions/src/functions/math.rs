//! Functions on numbers.

use std::cmp::Ordering;

use super::super::operators::compare_numbers;
use super::super::value::CelValue;
use super::super::{CostMeter, ExpressionError};
use super::CallResult;

pub fn greatest<'a>(arguments: &[CelValue<'a>], meter: &mut CostMeter) -> CallResult<'a> {
    find_extreme(arguments, Ordering::Greater, meter)
}

pub fn least<'a>(arguments: &[CelValue<'a>], meter: &mut CostMeter) -> CallResult<'a> {
    find_extreme(arguments, Ordering::Less, meter)
}

/// The first of the numbers that is greater, or less, than all before it. A single argument can be a list of them.
fn find_extreme<'a>(arguments: &[CelValue<'a>], wanted: Ordering, meter: &mut CostMeter) -> CallResult<'a> {
    let list = arguments.first().filter(|list| list.is_list() && arguments.len() == 1);
    let numbers: Vec<CelValue<'a>> = match list {
        Some(list) => {
            meter.charge_bytes(list.element_count() * super::super::value::SLOT_BYTES)?;
            list.elements().collect()
        }
        None => arguments.to_vec(),
    };
    if !numbers.iter().all(CelValue::is_number) {
        return Ok(None);
    }
    let mut numbers = numbers.into_iter();
    let mut best = numbers.next().ok_or_else(|| ExpressionError::failed("An empty list has no greatest or least."))?;
    for number in numbers {
        let order = compare_numbers(&number, &best)
            .ok_or_else(|| ExpressionError::failed("What is not a number is neither less nor more."))?;
        if order == wanted {
            best = number;
        }
    }
    Ok(Some(best))
}

pub fn abs<'a>(arguments: &[CelValue<'a>], _: &mut CostMeter) -> CallResult<'a> {
    Ok(match arguments {
        [CelValue::Int(int)] => Some(CelValue::Int(
            int.checked_abs().ok_or_else(|| ExpressionError::failed("The result of math.abs is out of range."))?,
        )),
        [CelValue::Uint(uint)] => Some(CelValue::Uint(*uint)),
        [CelValue::Double(double)] => Some(CelValue::Double(double.abs())),
        _ => None,
    })
}

pub fn sign<'a>(arguments: &[CelValue<'a>]) -> Option<CelValue<'a>> {
    match arguments {
        [CelValue::Int(int)] => Some(CelValue::Int(int.signum())),
        [CelValue::Uint(uint)] => Some(CelValue::Uint((*uint).min(1))),
        [CelValue::Double(double)] if *double == 0.0 => Some(CelValue::Double(0.0)),
        [CelValue::Double(double)] => Some(CelValue::Double(double.signum())),
        _ => None,
    }
}

fn on_double<'a>(arguments: &[CelValue<'a>], apply: fn(f64) -> f64) -> Option<CelValue<'a>> {
    let [CelValue::Double(double)] = arguments else { return None };
    Some(CelValue::Double(apply(*double)))
}

pub fn round<'a>(arguments: &[CelValue<'a>]) -> Option<CelValue<'a>> {
    on_double(arguments, f64::round)
}

pub fn ceil<'a>(arguments: &[CelValue<'a>]) -> Option<CelValue<'a>> {
    on_double(arguments, f64::ceil)
}

pub fn floor<'a>(arguments: &[CelValue<'a>]) -> Option<CelValue<'a>> {
    on_double(arguments, f64::floor)
}

pub fn trunc<'a>(arguments: &[CelValue<'a>]) -> Option<CelValue<'a>> {
    on_double(arguments, f64::trunc)
}

#[expect(clippy::cast_precision_loss, reason = "the nearest is what is asked for")]
pub fn sqrt<'a>(arguments: &[CelValue<'a>]) -> Option<CelValue<'a>> {
    match arguments {
        [CelValue::Double(double)] => Some(CelValue::Double(double.sqrt())),
        [CelValue::Int(int)] => Some(CelValue::Double((*int as f64).sqrt())),
        [CelValue::Uint(uint)] => Some(CelValue::Double((*uint as f64).sqrt())),
        _ => None,
    }
}

fn ask_double<'a>(arguments: &[CelValue<'a>], ask: fn(f64) -> bool) -> Option<CelValue<'a>> {
    let [CelValue::Double(double)] = arguments else { return None };
    Some(CelValue::Bool(ask(*double)))
}

pub fn is_nan<'a>(arguments: &[CelValue<'a>]) -> Option<CelValue<'a>> {
    ask_double(arguments, f64::is_nan)
}

pub fn is_inf<'a>(arguments: &[CelValue<'a>]) -> Option<CelValue<'a>> {
    ask_double(arguments, f64::is_infinite)
}

pub fn is_finite<'a>(arguments: &[CelValue<'a>]) -> Option<CelValue<'a>> {
    ask_double(arguments, f64::is_finite)
}

fn on_bits<'a>(arguments: &[CelValue<'a>], apply: fn(u64, u64) -> u64) -> Option<CelValue<'a>> {
    match arguments {
        [CelValue::Int(one), CelValue::Int(two)] => Some(CelValue::Int(apply(*one as u64, *two as u64) as i64)),
        [CelValue::Uint(one), CelValue::Uint(two)] => Some(CelValue::Uint(apply(*one, *two))),
        _ => None,
    }
}

pub fn bit_and<'a>(arguments: &[CelValue<'a>]) -> Option<CelValue<'a>> {
    on_bits(arguments, |one, two| one & two)
}

pub fn bit_or<'a>(arguments: &[CelValue<'a>]) -> Option<CelValue<'a>> {
    on_bits(arguments, |one, two| one | two)
}

pub fn bit_xor<'a>(arguments: &[CelValue<'a>]) -> Option<CelValue<'a>> {
    on_bits(arguments, |one, two| one ^ two)
}

pub fn bit_not<'a>(arguments: &[CelValue<'a>]) -> Option<CelValue<'a>> {
    match arguments {
        [CelValue::Int(int)] => Some(CelValue::Int(!int)),
        [CelValue::Uint(uint)] => Some(CelValue::Uint(!uint)),
        _ => None,
    }
}

/// Bits that are moved out are lost: 64 and more leave none.
fn shift_bits<'a>(arguments: &[CelValue<'a>], shift: fn(u64, u32) -> Option<u64>) -> CallResult<'a> {
    let [number, CelValue::Int(count)] = arguments else { return Ok(None) };
    let count = u64::try_from(*count).map_err(|_| ExpressionError::failed("Bits cannot be moved by less than 0."))?;
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    Ok(match number {
        CelValue::Int(int) => Some(CelValue::Int(shift(*int as u64, count).unwrap_or(0) as i64)),
        CelValue::Uint(uint) => Some(CelValue::Uint(shift(*uint, count).unwrap_or(0))),
        _ => None,
    })
}

pub fn bit_shift_left<'a>(arguments: &[CelValue<'a>], _: &mut CostMeter) -> CallResult<'a> {
    shift_bits(arguments, u64::checked_shl)
}

pub fn bit_shift_right<'a>(arguments: &[CelValue<'a>], _: &mut CostMeter) -> CallResult<'a> {
    shift_bits(arguments, u64::checked_shr)
}
