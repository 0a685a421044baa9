//! Conversions between types.

use super::super::value::{CelText, CelTime, CelValue, double_text, span_text};
use super::super::{CostMeter, ExpressionError};
use super::{CallResult, span};

/// A longer text is no number, timestamp, duration or bool.
const TEXT_BYTES_MAX: usize = 100;

/// The type that a value is converted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conversion {
    Int,
    Uint,
    Double,
    Text,
    Bytes,
    Bool,
    Timestamp,
    Duration,
}

pub fn convert<'a>(to: Conversion, arguments: &[CelValue<'a>], meter: &mut CostMeter) -> CallResult<'a> {
    let [value] = arguments else { return Ok(None) };
    match (to, value) {
        (Conversion::Text, value) => to_text(value, meter),
        (Conversion::Bytes, CelValue::Text(text)) => {
            meter.charge_bytes(text.len())?;
            Ok(Some(CelValue::Bytes(text.as_bytes().into())))
        }
        (_, CelValue::Text(text)) => {
            meter.charge_bytes(text.len().min(TEXT_BYTES_MAX))?;
            parse_text(to, text).map(Some)
        }
        (Conversion::Int, value) => to_int(value),
        (Conversion::Uint, value) => to_uint(value),
        (Conversion::Double, value) => Ok(to_double(value)),
        (Conversion::Timestamp, CelValue::Int(seconds)) => time_value(CelTime::new(*seconds, 0)).map(Some),
        (Conversion::Bool, CelValue::Bool(_))
        | (Conversion::Bytes, CelValue::Bytes(_))
        | (Conversion::Timestamp, CelValue::Time(_))
        | (Conversion::Duration, CelValue::Span(_)) => Ok(Some(value.clone())),
        _ => Ok(None),
    }
}

fn time_value<'a>(time: Option<CelTime>) -> Result<CelValue<'a>, ExpressionError> {
    time.map(CelValue::Time).ok_or_else(|| ExpressionError::failed("A time must be within the years 1 to 9999."))
}

fn parse_text<'a>(to: Conversion, text: &str) -> Result<CelValue<'a>, ExpressionError> {
    let no = |what: &str| Err(ExpressionError::failed(format!("The text is not {what}.")));
    let text = if text.len() > TEXT_BYTES_MAX { "" } else { text };
    match to {
        Conversion::Int => text.parse().map(CelValue::Int).or_else(|_| no("an integer")),
        Conversion::Uint if text.starts_with('+') => no("an integer without a sign"),
        Conversion::Uint => text.parse().map(CelValue::Uint).or_else(|_| no("an integer that is not negative")),
        Conversion::Double => text.parse().map(CelValue::Double).or_else(|_| no("a number")),
        Conversion::Bool => match text {
            "true" | "True" | "TRUE" | "t" | "1" => Ok(CelValue::Bool(true)),
            "false" | "False" | "FALSE" | "f" | "0" => Ok(CelValue::Bool(false)),
            _ => no("true or false"),
        },
        Conversion::Timestamp => {
            let time = CelTime::parse(text).map(CelValue::Time);
            time.map_or_else(|| no("an RFC 3339 time such as 2026-01-02T03:04:05Z, of the years 1 to 9999"), Ok)
        }
        Conversion::Duration => {
            let span = span::parse_span(text).map(CelValue::Span);
            span.map_or_else(|| no("a duration such as 1h30m, of at most 292 years"), Ok)
        }
        Conversion::Text | Conversion::Bytes => no("convertible"),
    }
}

/// The smallest doubles that are too large for an `int` and for a `uint`.
const INT_END: f64 = 9_223_372_036_854_775_808.0;
const UINT_END: f64 = 18_446_744_073_709_551_616.0;

fn out_of_range<T>() -> Result<T, ExpressionError> {
    Err(ExpressionError::failed("The number is out of range."))
}

fn to_int<'a>(value: &CelValue<'a>) -> CallResult<'a> {
    Ok(Some(CelValue::Int(match value {
        CelValue::Int(int) => *int,
        CelValue::Uint(uint) => i64::try_from(*uint).or_else(|_| out_of_range())?,
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the fraction is what is cut off, and the range is checked"
        )]
        CelValue::Double(double) if *double > -INT_END && *double < INT_END => *double as i64,
        CelValue::Double(_) => out_of_range()?,
        CelValue::Time(time) => time.seconds(),
        _ => return Ok(None),
    })))
}

fn to_uint<'a>(value: &CelValue<'a>) -> CallResult<'a> {
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

fn to_text<'a>(value: &CelValue<'a>, meter: &mut CostMeter) -> CallResult<'a> {
    Ok(Some(match value {
        CelValue::Text(text) => CelValue::Text(text.clone()),
        CelValue::Bool(yes) => CelValue::Text(CelText::Borrowed(if *yes { "true" } else { "false" })),
        CelValue::Int(int) => CelValue::shared_text(int.to_string()),
        CelValue::Uint(uint) => CelValue::shared_text(uint.to_string()),
        CelValue::Double(double) => CelValue::shared_text(double_text(*double)),
        CelValue::Time(time) => CelValue::shared_text(time.to_text(0)),
        CelValue::Span(nanoseconds) => CelValue::shared_text(span_text(*nanoseconds)),
        CelValue::Ip(address) => CelValue::shared_text(address.to_string()),
        CelValue::Cidr(range) => CelValue::shared_text(range.to_string()),
        CelValue::Bytes(bytes) => {
            meter.charge_bytes(bytes.len())?;
            let text = std::str::from_utf8(bytes).map_err(|_| ExpressionError::failed("The bytes are not UTF-8."));
            CelValue::shared_text(text?)
        }
        _ => return Ok(None),
    }))
}
