//! Finding a text in another.

use super::super::super::CostMeter;
use super::super::super::value::CelValue;
use super::super::CallResult;
use super::{beyond_the_text, byte_offset};

pub fn contains<'a>(arguments: &[CelValue<'a>], meter: &mut CostMeter) -> CallResult<'a> {
    ask_text(arguments, meter, |text, part| text.contains(part))
}

pub fn starts_with<'a>(arguments: &[CelValue<'a>], meter: &mut CostMeter) -> CallResult<'a> {
    ask_text(arguments, meter, |text, part| text.starts_with(part))
}

pub fn ends_with<'a>(arguments: &[CelValue<'a>], meter: &mut CostMeter) -> CallResult<'a> {
    ask_text(arguments, meter, |text, part| text.ends_with(part))
}

fn ask_text<'a>(arguments: &[CelValue<'a>], meter: &mut CostMeter, ask: fn(&str, &str) -> bool) -> CallResult<'a> {
    let [CelValue::Text(text), CelValue::Text(part)] = arguments else { return Ok(None) };
    // A longer part is not searched for.
    meter.charge_bytes(text.len())?;
    Ok(Some(CelValue::Bool(ask(text, part))))
}

pub fn index_of<'a>(arguments: &[CelValue<'a>], meter: &mut CostMeter) -> CallResult<'a> {
    let (text, part, from) = match arguments {
        [CelValue::Text(text), CelValue::Text(part)] => (text, part, 0),
        [CelValue::Text(text), CelValue::Text(part), CelValue::Int(from)] => (text, part, *from),
        _ => return Ok(None),
    };
    // A search prepares itself with the part, however long the text is.
    meter.charge_bytes(text.len().saturating_add(part.len()))?;
    let start = byte_offset(text, from).ok_or_else(|| beyond_the_text("indexOf"))?;
    Ok(Some(match text[start..].find(&**part) {
        Some(at) => CelValue::from_count(text[..start + at].chars().count()),
        None => CelValue::Int(-1),
    }))
}

/// The last place where the part starts, at a character or before it.
pub fn last_index_of<'a>(arguments: &[CelValue<'a>], meter: &mut CostMeter) -> CallResult<'a> {
    let (text, part, from) = match arguments {
        [CelValue::Text(text), CelValue::Text(part)] => (text, part, None),
        [CelValue::Text(text), CelValue::Text(part), CelValue::Int(from)] => (text, part, Some(*from)),
        _ => return Ok(None),
    };
    meter.charge_bytes(text.len().saturating_add(part.len()))?;
    let start = match from {
        None => text.len(),
        Some(from) => byte_offset(text, from).ok_or_else(|| beyond_the_text("lastIndexOf"))?,
    };
    let mut end = start.saturating_add(part.len()).min(text.len());
    // The part ends where a character does.
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let found = text[..end].rfind(&**part);
    Ok(Some(match found {
        Some(at) => CelValue::from_count(text[..at].chars().count()),
        None => CelValue::Int(-1),
    }))
}
