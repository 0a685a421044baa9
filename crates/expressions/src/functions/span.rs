//! Durations: `1h30m`, `-1.5s`.

use super::super::value::{CelValue, NANOSECONDS};
use super::time::TimePart;

const FRACTION_DIGITS_MAX: usize = 15;

/// Parses a duration in the syntax of Go, into nanoseconds. What is finer is cut off; 292 years are the longest.
pub fn parse_span(text: &str) -> Option<i64> {
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut nanoseconds: i128 = 0;
    while !rest.is_empty() {
        let end = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
        let (number, after) = rest.split_at(end);
        let end = after.find(|letter: char| letter.is_ascii_digit() || letter == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        nanoseconds = nanoseconds.checked_add(to_nanoseconds(number, unit)?)?;
        rest = after;
    }
    i64::try_from(sign * nanoseconds).ok()
}

fn to_nanoseconds(number: &str, unit: &str) -> Option<i128> {
    let unit: i128 = match unit {
        "h" => 3_600_000_000_000,
        "m" => 60_000_000_000,
        "s" => 1_000_000_000,
        "ms" => 1_000_000,
        "us" | "µs" | "μs" => 1_000,
        "ns" => 1,
        _ => return None,
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let digits = |text: &str| if text.is_empty() { Some(0) } else { text.parse::<u64>().ok().map(i128::from) };
    // The nanoseconds of an hour have fewer digits than this: further digits of a fraction change nothing.
    let fraction = fraction.get(..fraction.len().min(FRACTION_DIGITS_MAX))?;
    let scale = 10_i128.pow(u32::try_from(fraction.len()).ok()?);
    digits(whole)?.checked_mul(unit)?.checked_add(digits(fraction)? * unit / scale)
}

/// The whole duration in this unit, except for milliseconds, which are those after the last full second.
pub fn span_part<'a>(part: TimePart, nanoseconds: i64) -> Option<CelValue<'a>> {
    let seconds = nanoseconds / NANOSECONDS;
    Some(CelValue::Int(match part {
        TimePart::Hours => seconds / 3_600,
        TimePart::Minutes => seconds / 60,
        TimePart::Seconds => seconds,
        TimePart::Milliseconds => nanoseconds % NANOSECONDS / 1_000_000,
        _ => return None,
    }))
}
