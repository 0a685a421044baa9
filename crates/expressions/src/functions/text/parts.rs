//! Parts of texts, and texts made of parts.

use std::ops::Range;

use super::super::super::value::{CelText, CelValue, SLOT_BYTES};
use super::super::super::{CostMeter, ExpressionError};
use super::super::CallResult;
use super::{beyond_the_text, byte_offset, slice_text};

pub fn substring<'a>(arguments: &[CelValue<'a>], meter: &mut CostMeter) -> CallResult<'a> {
    let (text, from, to) = match arguments {
        [CelValue::Text(text), CelValue::Int(from)] => (text, *from, None),
        [CelValue::Text(text), CelValue::Int(from), CelValue::Int(to)] => (text, *from, Some(*to)),
        _ => return Ok(None),
    };
    meter.charge_bytes(text.len())?;
    let at = |character: i64| byte_offset(text, character).ok_or_else(|| beyond_the_text("substring"));
    let (from, to) = (at(from)?, to.map_or(Ok(text.len()), at)?);
    if from > to {
        return Err(beyond_the_text("substring"));
    }
    Ok(Some(slice_text(text, from..to)))
}

/// The character as a text; just after the last one it is empty.
pub fn char_at<'a>(arguments: &[CelValue<'a>], meter: &mut CostMeter) -> CallResult<'a> {
    let [CelValue::Text(text), CelValue::Int(at)] = arguments else { return Ok(None) };
    meter.charge_bytes(text.len())?;
    let start = byte_offset(text, *at).ok_or_else(|| beyond_the_text("charAt"))?;
    let length = text[start..].chars().next().map_or(0, char::len_utf8);
    Ok(Some(slice_text(text, start..start + length)))
}

/// Splits into at most `limit` parts, the last of which is the rest. 0 gives no parts, a negative limit gives all.
pub fn split<'a>(arguments: &[CelValue<'a>], meter: &mut CostMeter) -> CallResult<'a> {
    let (text, separator, limit) = match arguments {
        [CelValue::Text(text), CelValue::Text(separator)] => (text, separator, None),
        [CelValue::Text(text), CelValue::Text(separator), CelValue::Int(limit)] => (text, separator, Some(*limit)),
        _ => return Ok(None),
    };
    meter.charge_bytes(text.len().saturating_add(separator.len()))?;
    let limit = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
    if limit == 0 {
        return Ok(Some(CelValue::from_items(Vec::new())));
    }
    split_text(text, separator, limit, meter).map(Some)
}

fn split_text<'a>(
    text: &CelText<'a>,
    separator: &str,
    limit: usize,
    meter: &mut CostMeter,
) -> Result<CelValue<'a>, ExpressionError> {
    let mut parts = Vec::new();
    let mut push = |range: Range<usize>| {
        meter.charge_bytes(SLOT_BYTES + range.len())?;
        parts.push(slice_text(text, range));
        Ok::<(), ExpressionError>(())
    };
    let mut start = 0;
    for count in 1.. {
        let rest = &text[start..];
        let cut = if separator.is_empty() {
            // An empty separator splits between characters, but not before the first.
            rest.chars().next().map(char::len_utf8).filter(|at| *at < rest.len()).map(|at| (at, at))
        } else {
            rest.find(separator).map(|at| (at, at + separator.len()))
        };
        let Some((end, next)) = cut.filter(|_| count < limit) else { break };
        push(start..start + end)?;
        start += next;
    }
    if !separator.is_empty() || start < text.len() {
        push(start..text.len())?;
    }
    Ok(CelValue::from_items(parts))
}

pub fn replace<'a>(arguments: &[CelValue<'a>], meter: &mut CostMeter) -> CallResult<'a> {
    let (text, old, new, limit) = match arguments {
        [CelValue::Text(text), CelValue::Text(old), CelValue::Text(new)] => (text, old, new, None),
        [CelValue::Text(text), CelValue::Text(old), CelValue::Text(new), CelValue::Int(limit)] => {
            (text, old, new, Some(*limit))
        }
        _ => return Ok(None),
    };
    meter.charge_bytes(text.len().saturating_add(old.len()))?;
    let limit = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
    // Counted first, so that the result is charged before it is created.
    let count = text.matches(&**old).take(limit).count();
    let length = count.checked_mul(new.len()).and_then(|more| more.checked_add(text.len()));
    meter.charge_bytes(length.ok_or(ExpressionError::BudgetExceeded)?)?;
    Ok(Some(CelValue::shared_text(text.replacen(&**old, new, count))))
}

pub fn join<'a>(arguments: &[CelValue<'a>], meter: &mut CostMeter) -> CallResult<'a> {
    let (list, separator) = match arguments {
        [list] if list.is_list() => (list, ""),
        [list, CelValue::Text(separator)] if list.is_list() => (list, &**separator),
        _ => return Ok(None),
    };
    let mut joined = String::new();
    for (at, element) in list.elements().enumerate() {
        let CelValue::Text(part) = element else {
            return Err(ExpressionError::failed("join takes a list of texts; string() makes one of a number."));
        };
        let separator = if at == 0 { "" } else { separator };
        meter.charge_bytes(1 + separator.len() + part.len())?;
        joined.push_str(separator);
        joined.push_str(&part);
    }
    Ok(Some(CelValue::shared_text(joined)))
}
