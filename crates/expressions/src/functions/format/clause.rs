//! One place of a format: how a value is written there.

use serde_json::Value;

use super::super::super::value::{CelText, CelValue, MapEntries, MapKey, span_text};
use super::super::super::{CostMeter, ExpressionError};

/// The longest number: 64 bits in binary, or a double with all its digits.
const NUMBER_BYTES: usize = 450;

#[derive(Clone, Copy, Debug)]
pub struct FormatClause {
    pub verb: FormatVerb,
    /// Digits after the point, for `%f` and `%e`.
    pub precision: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormatVerb {
    Text,
    Decimal,
    Fixed,
    Scientific,
    Binary,
    Octal,
    Hexadecimal { upper: bool },
}

impl FormatVerb {
    pub fn find_by_letter(letter: char) -> Option<FormatVerb> {
        Some(match letter {
            's' => FormatVerb::Text,
            'd' => FormatVerb::Decimal,
            'f' => FormatVerb::Fixed,
            'e' => FormatVerb::Scientific,
            'b' => FormatVerb::Binary,
            'o' => FormatVerb::Octal,
            'x' => FormatVerb::Hexadecimal { upper: false },
            'X' => FormatVerb::Hexadecimal { upper: true },
            _ => return None,
        })
    }

    fn name(self) -> &'static str {
        match self {
            FormatVerb::Text => "%s",
            FormatVerb::Decimal => "%d",
            FormatVerb::Fixed => "%f",
            FormatVerb::Scientific => "%e",
            FormatVerb::Binary => "%b",
            FormatVerb::Octal => "%o",
            FormatVerb::Hexadecimal { upper: false } => "%x",
            FormatVerb::Hexadecimal { upper: true } => "%X",
        }
    }
}

impl FormatClause {
    pub fn push_value(
        self,
        value: &CelValue<'_>,
        text: &mut String,
        meter: &mut CostMeter,
    ) -> Result<(), ExpressionError> {
        let bytes = match (self.verb, value) {
            (FormatVerb::Text, value) => return push_text(value, text, meter),
            (FormatVerb::Hexadecimal { .. }, CelValue::Text(value)) => Some(value.as_bytes()),
            (FormatVerb::Hexadecimal { .. }, CelValue::Bytes(value)) => Some(&**value),
            _ => None,
        };
        if let (Some(bytes), FormatVerb::Hexadecimal { upper }) = (bytes, self.verb) {
            meter.charge_bytes(bytes.len().saturating_mul(2))?;
            for byte in bytes {
                push_hexadecimal(text, *byte, upper);
            }
            return Ok(());
        }
        meter.charge_bytes(NUMBER_BYTES)?;
        let number = self.number_text(value).ok_or_else(|| {
            ExpressionError::failed(format!("{} of a format cannot take {}.", self.verb.name(), value.kind_name()))
        })?;
        text.push_str(&number);
        Ok(())
    }

    #[expect(clippy::cast_precision_loss, reason = "the nearest is what is asked for")]
    fn number_text(self, value: &CelValue<'_>) -> Option<String> {
        let (magnitude, is_negative) = match value {
            CelValue::Int(int) => (int.unsigned_abs(), *int < 0),
            CelValue::Uint(uint) => (*uint, false),
            CelValue::Bool(yes) if self.verb == FormatVerb::Binary => (u64::from(*yes), false),
            CelValue::Double(double) => return self.double_text(*double),
            _ => return None,
        };
        let sign = if is_negative { "-" } else { "" };
        Some(match self.verb {
            FormatVerb::Text | FormatVerb::Decimal => format!("{sign}{magnitude}"),
            FormatVerb::Binary => format!("{sign}{magnitude:b}"),
            FormatVerb::Octal => format!("{sign}{magnitude:o}"),
            FormatVerb::Hexadecimal { upper: false } => format!("{sign}{magnitude:x}"),
            FormatVerb::Hexadecimal { upper: true } => format!("{sign}{magnitude:X}"),
            FormatVerb::Fixed | FormatVerb::Scientific => {
                let double = magnitude as f64;
                return self.double_text(if is_negative { -double } else { double });
            }
        })
    }

    fn double_text(self, double: f64) -> Option<String> {
        if !double.is_finite() {
            let takes_double = matches!(self.verb, FormatVerb::Decimal | FormatVerb::Fixed | FormatVerb::Scientific);
            return takes_double.then(|| plain_double(double));
        }
        let precision = self.precision;
        Some(match self.verb {
            FormatVerb::Decimal => plain_double(double),
            FormatVerb::Fixed => format!("{double:.precision$}"),
            FormatVerb::Scientific => {
                // The exponent has a sign and at least two digits.
                let text = format!("{double:.precision$e}");
                let (digits, exponent) = text.split_once('e')?;
                let exponent: i32 = exponent.parse().ok()?;
                format!("{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.unsigned_abs())
            }
            _ => return None,
        })
    }
}

fn plain_double(double: f64) -> String {
    if double.is_infinite() {
        (if double > 0.0 { "Infinity" } else { "-Infinity" }).to_owned()
    } else {
        double.to_string()
    }
}

pub fn push_hexadecimal(text: &mut String, byte: u8, upper: bool) {
    for digit in [byte >> 4, byte & 0xF] {
        let digit = char::from_digit(u32::from(digit), 16).unwrap_or('0');
        text.push(if upper { digit.to_ascii_uppercase() } else { digit });
    }
}

/// `%s`, of values of any type. Recurses as deep as lists and maps are nested.
fn push_text(value: &CelValue<'_>, text: &mut String, meter: &mut CostMeter) -> Result<(), ExpressionError> {
    match value {
        CelValue::Text(part) => push_plain(part, text, meter),
        CelValue::Bytes(bytes) => {
            let part = std::str::from_utf8(bytes).map_err(|_| ExpressionError::failed("The bytes are not UTF-8."))?;
            push_plain(part, text, meter)
        }
        CelValue::Map(entries) => push_map(entries, text, meter),
        CelValue::Json(Value::Object(entries)) => {
            let entries =
                entries.iter().map(|(key, value)| (MapKey::Text(CelText::Borrowed(key)), CelValue::from_json(value)));
            push_map(&entries.collect(), text, meter)
        }
        list if list.is_list() => push_list(list, text, meter),
        leaf => {
            let part = leaf_text(leaf)
                .ok_or_else(|| ExpressionError::failed(format!("%s of a format cannot take {}.", leaf.kind_name())))?;
            push_plain(&part, text, meter)
        }
    }
}

fn push_plain(part: &str, text: &mut String, meter: &mut CostMeter) -> Result<(), ExpressionError> {
    meter.charge_bytes(part.len() + 1)?;
    text.push_str(part);
    Ok(())
}

fn leaf_text(leaf: &CelValue<'_>) -> Option<String> {
    Some(match leaf {
        CelValue::Null => "null".to_owned(),
        CelValue::Bool(yes) => yes.to_string(),
        CelValue::Int(int) => int.to_string(),
        CelValue::Uint(uint) => uint.to_string(),
        CelValue::Double(double) => plain_double(*double),
        CelValue::Time(time) => time.to_text(0),
        CelValue::Span(nanoseconds) => span_text(*nanoseconds),
        CelValue::Type(name) => (*name).to_owned(),
        CelValue::Ip(address) => address.to_string(),
        CelValue::Cidr(range) => range.to_string(),
        _ => return None,
    })
}

fn push_list(list: &CelValue<'_>, text: &mut String, meter: &mut CostMeter) -> Result<(), ExpressionError> {
    push_plain("[", text, meter)?;
    for (at, element) in list.elements().enumerate() {
        push_plain(if at == 0 { "" } else { ", " }, text, meter)?;
        push_text(&element, text, meter)?;
    }
    push_plain("]", text, meter)
}

/// Entries are in the order of their keys as texts.
fn push_map(entries: &MapEntries<'_>, text: &mut String, meter: &mut CostMeter) -> Result<(), ExpressionError> {
    meter.charge_bytes(entries.len().saturating_mul(super::super::super::value::ENTRY_BYTES))?;
    let mut named: Vec<(String, &CelValue<'_>)> = entries.iter().map(|(key, value)| (key.to_name(), value)).collect();
    named.sort_by(|(one, _), (two, _)| one.cmp(two));
    push_plain("{", text, meter)?;
    for (at, (name, value)) in named.iter().enumerate() {
        push_plain(if at == 0 { "" } else { ", " }, text, meter)?;
        push_plain(name, text, meter)?;
        push_plain(": ", text, meter)?;
        push_text(value, text, meter)?;
    }
    push_plain("}", text, meter)
}
