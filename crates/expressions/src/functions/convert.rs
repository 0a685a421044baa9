//! Conversions between types.

use kernel::base::Timestamp;

use super::super::value::{Text, V, double_text, span_text};
use super::super::{Fault, Meter};
use super::{Function, span, time};

/// A longer text is no number, timestamp, duration or bool.
const TEXT_BYTES_MAX: usize = 100;

pub fn call<'a>(function: Function, value: &V<'a>, meter: &mut Meter) -> Result<Option<V<'a>>, Fault> {
    if let (V::Text(text), false) = (value, function == Function::String) {
        meter.bytes(text.len().min(TEXT_BYTES_MAX))?;
        return parse(function, text).map(Some);
    }
    match function {
        Function::Int => int(value),
        Function::Uint => uint(value),
        Function::Double => Ok(double(value)),
        Function::String => Ok(string(value)),
        Function::Bool => Ok(matches!(value, V::Bool(_)).then(|| value.clone())),
        Function::Timestamp => match value {
            V::Time(_) => Ok(Some(value.clone())),
            V::Int(seconds) => time::checked(seconds.checked_mul(1_000)).map(Some),
            _ => Ok(None),
        },
        Function::Duration => Ok(matches!(value, V::Span(_)).then(|| value.clone())),
        _ => Ok(None),
    }
}

fn parse<'a>(function: Function, text: &str) -> Result<V<'a>, Fault> {
    let no = |what: &str| Err(Fault::failed(format!("The text is not {what}.")));
    let text = if text.len() > TEXT_BYTES_MAX { "" } else { text };
    match function {
        Function::Int => text.parse().map(V::Int).or_else(|_| no("an integer")),
        Function::Uint => text.parse().map(V::Uint).or_else(|_| no("an integer that is not negative")),
        Function::Double => text.parse().map(V::Double).or_else(|_| no("a number")),
        Function::Bool => match text {
            "true" | "True" | "TRUE" | "t" | "1" => Ok(V::Bool(true)),
            "false" | "False" | "FALSE" | "f" | "0" => Ok(V::Bool(false)),
            _ => no("true or false"),
        },
        Function::Timestamp => match Timestamp::parse(text) {
            Some(at) => time::checked(Some(at.as_millis())),
            None => no("an RFC 3339 time such as 2026-01-02T03:04:05Z"),
        },
        Function::Duration => span::parse(text).map(V::Span).map_or_else(|| no("a duration such as 1h30m"), Ok),
        _ => no("convertible"),
    }
}

/// The smallest doubles that are too large for an `int` and for a `uint`.
const INT_END: f64 = 9_223_372_036_854_775_808.0;
const UINT_END: f64 = 18_446_744_073_709_551_616.0;

fn range<T>() -> Result<T, Fault> {
    Err(Fault::failed("The number is out of range."))
}

fn int<'a>(value: &V<'a>) -> Result<Option<V<'a>>, Fault> {
    Ok(Some(V::Int(match value {
        V::Int(int) => *int,
        V::Uint(uint) => i64::try_from(*uint).or_else(|_| range())?,
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the fraction is what is cut off, and the range is checked"
        )]
        V::Double(double) if *double > -INT_END && *double < INT_END => *double as i64,
        V::Double(_) => range()?,
        V::Time(time) => time.as_millis().div_euclid(1_000),
        V::Span(ms) => ms / 1_000,
        _ => return Ok(None),
    })))
}

fn uint<'a>(value: &V<'a>) -> Result<Option<V<'a>>, Fault> {
    Ok(Some(V::Uint(match value {
        V::Uint(uint) => *uint,
        V::Int(int) => u64::try_from(*int).or_else(|_| range())?,
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the fraction is what is cut off, and the range is checked"
        )]
        V::Double(double) if *double >= 0.0 && *double < UINT_END => *double as u64,
        V::Double(_) => range()?,
        _ => return Ok(None),
    })))
}

#[expect(clippy::cast_precision_loss, reason = "the nearest is what is asked for")]
fn double<'a>(value: &V<'a>) -> Option<V<'a>> {
    Some(V::Double(match value {
        V::Double(double) => *double,
        V::Int(int) => *int as f64,
        V::Uint(uint) => *uint as f64,
        _ => return None,
    }))
}

fn string<'a>(value: &V<'a>) -> Option<V<'a>> {
    Some(match value {
        V::Text(text) => V::Text(text.clone()),
        V::Bool(yes) => V::Text(Text::Borrowed(if *yes { "true" } else { "false" })),
        V::Int(int) => V::text(int.to_string()),
        V::Uint(uint) => V::text(uint.to_string()),
        V::Double(double) => V::text(double_text(*double)),
        V::Time(time) => V::text(time.to_string()),
        V::Span(ms) => V::text(span_text(*ms)),
        _ => return None,
    })
}
