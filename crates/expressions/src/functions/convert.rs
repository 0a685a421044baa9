//! Conversions between types.

use kernel::base::Timestamp;

use super::super::value::{CelText, CelValue, double_text, span_text};
use super::super::{CostMeter, ExpressionError};
use super::{Function, span, time};

/// A longer text is no number, timestamp, duration or bool.
const TEXT_BYTES_MAX: usize = 100;

pub fn convert_value<'a>(
    function: Function,
    value: &CelValue<'a>,
    meter: &mut CostMeter,
) -> Result<Option<CelValue<'a>>, ExpressionError> {
    if let (CelValue::Text(text), false) = (value, function == Function::String) {
        meter.charge_bytes(text.len().min(TEXT_BYTES_MAX))?;
        return parse_text(function, text).map(Some);
    }
    match function {
        Function::Int => to_int(value),
        Function::Uint => to_uint(value),
        Function::Double => Ok(to_double(value)),
        Function::String => Ok(to_text(value)),
        Function::Bool => Ok(matches!(value, CelValue::Bool(_)).then(|| value.clone())),
        Function::Timestamp => match value {
            CelValue::Time(_) => Ok(Some(value.clone())),
            CelValue::Int(seconds) => time::checked_time(seconds.checked_mul(1_000)).map(Some),
            _ => Ok(None),
        },
        Function::Duration => Ok(matches!(value, CelValue::Span(_)).then(|| value.clone())),
        _ => Ok(None),
    }
}

fn parse_text<'a>(function: Function, text: &str) -> Result<CelValue<'a>, ExpressionError> {
    let no = |what: &str| Err(ExpressionError::failed(format!("The text is not {what}.")));
    let text = if text.len() > TEXT_BYTES_MAX { "" } else { text };
    match function {
        Function::Int => text.parse().map(CelValue::Int).or_else(|_| no("an integer")),
        Function::Uint => text.parse().map(CelValue::Uint).or_else(|_| no("an integer that is not negative")),
        Function::Double => text.parse().map(CelValue::Double).or_else(|_| no("a number")),
        Function::Bool => match text {
            "true" | "True" | "TRUE" | "t" | "1" => Ok(CelValue::Bool(true)),
            "false" | "False" | "FALSE" | "f" | "0" => Ok(CelValue::Bool(false)),
            _ => no("true or false"),
        },
        Function::Timestamp => match Timestamp::parse(text) {
            Some(at) => time::checked_time(Some(at.as_millis())),
            None => no("an RFC 3339 time such as 2026-01-02T03:04:05Z"),
        },
        Function::Duration => {
            span::parse_span(text).map(CelValue::Span).map_or_else(|| no("a duration such as 1h30m"), Ok)
        }
        _ => no("convertible"),
    }
}

/// The smallest doubles that are too large for an `int` and for a `uint`.
const INT_END: f64 = 9_223_372_036_854_775_808.0;
const UINT_END: f64 = 18_446_744_073_709_551_616.0;

fn out_of_range<T>() -> Result<T, ExpressionError> {
    Err(ExpressionError::failed("The number is out of range."))
}

fn to_int<'a>(value: &CelValue<'a>) -> Result<Option<CelValue<'a>>, ExpressionError> {
    Ok(Some(CelValue::Int(match value {
        CelValue::Int(int) => *int,
        CelValue::Uint(uint) => i64::try_from(*uint).or_else(|_| out_of_range())?,
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the fraction is what is cut off, and the range is checked"
        )]
        CelValue::Double(double) if *double > -INT_END && *double < INT_END => *double as i64,
        CelValue::Double(_) => out_of_range()?,
        CelValue::Time(time) => time.as_millis().div_euclid(1_000),
        CelValue::Span(ms) => ms / 1_000,
        _ => return Ok(None),
    })))
}

fn to_uint<'a>(value: &CelValue<'a>) -> Result<Option<CelValue<'a>>, ExpressionError> {
    Ok(Some(CelValue::Uint(match value {
        CelValue::Uint(uint) => *uint,
        CelValue::Int(int) => u64::try_from(*int).or_else(|_| out_of_range())?,
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the fraction is what is cut off, and the range is checked"
        )]
        CelValue::Double(double) if *double >= 0.0 && *double < UINT_END => *double as u64,
        CelValue::Double(_) => out_of_range()?,
        _ => return Ok(None),
    })))
}

#[expect(clippy::cast_precision_loss, reason = "the nearest is what is asked for")]
fn to_double<'a>(value: &CelValue<'a>) -> Option<CelValue<'a>> {
    Some(CelValue::Double(match value {
        CelValue::Double(double) => *double,
        CelValue::Int(int) => *int as f64,
        CelValue::Uint(uint) => *uint as f64,
        _ => return None,
    }))
}

fn to_text<'a>(value: &CelValue<'a>) -> Option<CelValue<'a>> {
    Some(match value {
        CelValue::Text(text) => CelValue::Text(text.clone()),
        CelValue::Bool(yes) => CelValue::Text(CelText::Borrowed(if *yes { "true" } else { "false" })),
        CelValue::Int(int) => CelValue::shared_text(int.to_string()),
        CelValue::Uint(uint) => CelValue::shared_text(uint.to_string()),
        CelValue::Double(double) => CelValue::shared_text(double_text(*double)),
        CelValue::Time(time) => CelValue::shared_text(time.to_string()),
        CelValue::Span(ms) => CelValue::shared_text(span_text(*ms)),
        _ => return None,
    })
}
