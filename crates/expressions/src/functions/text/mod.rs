//! Functions on texts. They count characters, not bytes, as CEL does.

mod parts;
mod search;

use std::ops::Range;

pub use self::parts::{char_at, join, replace, split, substring};
pub use self::search::{contains, ends_with, index_of, last_index_of, starts_with};

use super::super::value::{CelText, CelValue};
use super::super::{CostMeter, ExpressionError};
use super::CallResult;

/// A slice of a text: borrowed if the text is borrowed.
fn slice_text<'a>(text: &CelText<'a>, range: Range<usize>) -> CelValue<'a> {
    match text {
        CelText::Borrowed(whole) => CelValue::Text(CelText::Borrowed(whole.get(range).unwrap_or_default())),
        CelText::Shared(whole) => CelValue::shared_text(whole.get(range).unwrap_or_default()),
    }
}

/// The byte offset of a character. The offset just after the last character is valid too.
fn byte_offset(text: &str, character: i64) -> Option<usize> {
    let character = usize::try_from(character).ok()?;
    text.char_indices().map(|(at, _)| at).chain([text.len()]).nth(character)
}

pub fn lower_ascii<'a>(arguments: &[CelValue<'a>], meter: &mut CostMeter) -> CallResult<'a> {
    let [CelValue::Text(text)] = arguments else { return Ok(None) };
    meter.charge_bytes(text.len())?;
    Ok(Some(CelValue::shared_text(text.to_ascii_lowercase())))
}

pub fn upper_ascii<'a>(arguments: &[CelValue<'a>], meter: &mut CostMeter) -> CallResult<'a> {
    let [CelValue::Text(text)] = arguments else { return Ok(None) };
    meter.charge_bytes(text.len())?;
    Ok(Some(CelValue::shared_text(text.to_ascii_uppercase())))
}

pub fn trim<'a>(arguments: &[CelValue<'a>], meter: &mut CostMeter) -> CallResult<'a> {
    let [CelValue::Text(text)] = arguments else { return Ok(None) };
    meter.charge_bytes(text.len())?;
    let start = text.len() - text.trim_start().len();
    Ok(Some(slice_text(text, start..start + text.trim().len())))
}

pub fn quote<'a>(arguments: &[CelValue<'a>], meter: &mut CostMeter) -> CallResult<'a> {
    let [CelValue::Text(text)] = arguments else { return Ok(None) };
    // A character becomes up to two.
    meter.charge_bytes(text.len().saturating_mul(2) + 2)?;
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for letter in text.chars() {
        match letter {
            '\x07' => quoted.push_str("\\a"),
            '\x08' => quoted.push_str("\\b"),
            '\x0C' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\x0B' => quoted.push_str("\\v"),
            '\\' => quoted.push_str("\\\\"),
            '"' => quoted.push_str("\\\""),
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    Ok(Some(CelValue::shared_text(quoted)))
}

fn beyond_the_text(function: &str) -> ExpressionError {
    ExpressionError::failed(format!("{function} reaches beyond the text."))
}
