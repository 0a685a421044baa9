//! Numbers as JSON Schema compares them: by value, so that `1` and `1.0` are one number.

use std::cmp::Ordering;
use std::fmt::Write;

use serde_json::{Number, Value};

pub fn compare_numbers(left: &Number, right: &Number) -> Ordering {
    let (left, right) = (split_number(left), split_number(right));
    left.0.cmp(&right.0).then_with(|| left.1.total_cmp(&right.1))
}

/// The whole part of a number and what is left of it. Beyond `i128` the whole part is its limit, and the number itself
/// is the rest, so that the order is the same.
#[expect(clippy::cast_possible_truncation, reason = "a float beyond i128 becomes its limit, as wanted")]
fn split_number(number: &Number) -> (i128, f64) {
    if let Some(whole) = number.as_i128() {
        return (whole, 0.0);
    }
    let float = number.as_f64().unwrap_or_default();
    let whole = float.trunc() as i128;
    let is_limit = whole == i128::MAX || whole == i128::MIN;
    // Adding zero makes a negative zero positive.
    (whole, if is_limit { float } else { float.fract() + 0.0 })
}

pub fn is_integer(number: &Number) -> bool {
    number.as_i128().is_some() || number.as_f64().is_some_and(|float| float.fract() == 0.0)
}

/// Whether the quotient is whole. Both are the decimals that are written: 0.3 is three times 0.1, which floats deny.
pub fn is_multiple(number: &Number, divisor: &Number) -> bool {
    let ((digits, exponent), (divisor, divisor_exponent)) = (parse_decimal(number), parse_decimal(divisor));
    let zeros = exponent - divisor_exponent;
    if zeros >= 0 {
        return (0..zeros).fold(digits % divisor, |remainder, _| remainder * 10 % divisor) == 0;
    }
    let scale = 10_u128.checked_pow(zeros.unsigned_abs());
    // A divisor beyond `u128` is larger than all digits of a number.
    scale.and_then(|scale| scale.checked_mul(divisor)).map_or(digits == 0, |divisor| digits.is_multiple_of(divisor))
}

/// The digits of a number, at most twenty, and the power of ten that they count. The sign is left out.
fn parse_decimal(number: &Number) -> (u128, i32) {
    let text = number.to_string();
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let decimals = mantissa.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    let digits = mantissa.bytes().filter(u8::is_ascii_digit);
    let digits = digits.fold(0, |digits, digit| digits * 10 + u128::from(digit - b'0'));
    (digits, exponent.parse().unwrap_or(0) - i32::try_from(decimals).unwrap_or(0))
}

/// A text that two values share if they are equal.
pub fn canonical_text(value: &Value) -> String {
    let mut text = String::new();
    write_canonical(value, &mut text);
    text
}

fn write_canonical(value: &Value, text: &mut String) {
    match value {
        Value::Number(number) => match number.as_f64().filter(|_| number.is_f64()) {
            Some(float) if float.fract() == 0.0 => {
                let _ = write!(text, "{:.0}", float + 0.0);
            }
            _ => text.push_str(&number.to_string()),
        },
        Value::Array(items) => {
            text.push('[');
            for item in items {
                write_canonical(item, text);
                text.push(',');
            }
            text.push(']');
        }
        Value::Object(entries) => {
            let mut entries: Vec<_> = entries.iter().collect();
            entries.sort_unstable_by_key(|(name, _)| *name);
            text.push('{');
            for (name, value) in entries {
                text.push_str(&Value::from(name.as_str()).to_string());
                write_canonical(value, text);
            }
            text.push('}');
        }
        _ => text.push_str(&value.to_string()),
    }
}
