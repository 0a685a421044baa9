//! `+ - * / %`. What is out of range fails: nothing wraps around.

use super::super::node::Operator;
use super::super::value::CelValue;
use super::super::{CostMeter, ExpressionError};
use super::operand_mismatch;

pub fn apply_arithmetic<'a>(
    operator: Operator,
    one: &CelValue<'a>,
    two: &CelValue<'a>,
    meter: &mut CostMeter,
) -> Result<CelValue<'a>, ExpressionError> {
    let result = match (one, two) {
        (CelValue::Int(one), CelValue::Int(two)) => int_arithmetic(operator, *one, *two)?.map(CelValue::Int),
        (CelValue::Uint(one), CelValue::Uint(two)) => uint_arithmetic(operator, *one, *two)?.map(CelValue::Uint),
        (CelValue::Double(one), CelValue::Double(two)) => {
            Some(CelValue::Double(double_arithmetic(operator, *one, *two)?))
        }
        (CelValue::Text(one), CelValue::Text(two)) if operator == Operator::Add => {
            meter.charge_bytes(one.len().saturating_add(two.len()))?;
            Some(CelValue::shared_text([&**one, &**two].concat()))
        }
        (CelValue::Bytes(one), CelValue::Bytes(two)) if operator == Operator::Add => {
            meter.charge_bytes(one.len().saturating_add(two.len()))?;
            Some(CelValue::Bytes([&**one, &**two].concat().into()))
        }
        _ => return time_arithmetic(operator, one, two),
    };
    result.ok_or_else(|| out_of_range(operator))
}

fn out_of_range(operator: Operator) -> ExpressionError {
    ExpressionError::failed(format!("The result of {} is out of range.", operator.symbol()))
}

fn time_arithmetic<'a>(
    operator: Operator,
    one: &CelValue<'a>,
    two: &CelValue<'a>,
) -> Result<CelValue<'a>, ExpressionError> {
    let time = match (operator, one, two) {
        (Operator::Add, CelValue::Time(time), CelValue::Span(span))
        | (Operator::Add, CelValue::Span(span), CelValue::Time(time)) => time.checked_add(*span),
        (Operator::Subtract, CelValue::Time(time), CelValue::Span(span)) => time.checked_sub(*span),
        _ => {
            let span = match (operator, one, two) {
                (Operator::Subtract, CelValue::Time(one), CelValue::Time(two)) => one.span_since(*two),
                (Operator::Add, CelValue::Span(one), CelValue::Span(two)) => one.checked_add(*two),
                (Operator::Subtract, CelValue::Span(one), CelValue::Span(two)) => one.checked_sub(*two),
                _ => return Err(operand_mismatch(operator, one, two)),
            };
            return span.map(CelValue::Span).ok_or_else(|| out_of_range(operator));
        }
    };
    time.map(CelValue::Time).ok_or_else(|| ExpressionError::failed("A time must be within the years 1 to 9999."))
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
        CelValue::Int(int) => int.checked_neg().map(CelValue::Int).ok_or_else(|| out_of_range(Operator::Subtract)),
        CelValue::Double(double) => Ok(CelValue::Double(-double)),
        other => Err(ExpressionError::failed(format!("- cannot take {}.", other.kind_name()))),
    }
}
