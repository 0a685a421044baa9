//! Functions on texts. They count characters, not bytes, as CEL does.

use std::ops::Range;

use serde_json::Value;

use super::{CelText, CelValue, CostMeter, ExpressionError, Function, SLOT_BYTES, count_value};

pub fn call_text_function<'a>(
    function: Function,
    text: &CelText<'a>,
    rest: &[CelValue<'a>],
    meter: &mut CostMeter,
) -> Result<Option<CelValue<'a>>, ExpressionError> {
    // Each function reads the text at least once; a longer needle is not searched for.
    meter.charge_bytes(text.len())?;
    Ok(Some(match (function, rest) {
        (Function::Contains, [CelValue::Text(part)]) => CelValue::Bool(text.contains(&**part)),
        (Function::StartsWith, [CelValue::Text(part)]) => CelValue::Bool(text.starts_with(&**part)),
        (Function::EndsWith, [CelValue::Text(part)]) => CelValue::Bool(text.ends_with(&**part)),
        (Function::LowerAscii, []) => CelValue::shared_text(text.to_ascii_lowercase()),
        (Function::UpperAscii, []) => CelValue::shared_text(text.to_ascii_uppercase()),
        (Function::Trim, []) => trim_text(text),
        (Function::Split, [CelValue::Text(separator)]) => split_text(text, separator, None, meter)?,
        (Function::Split, [CelValue::Text(separator), CelValue::Int(limit)]) => {
            split_text(text, separator, Some(*limit), meter)?
        }
        (Function::Replace, [CelValue::Text(old), CelValue::Text(new)]) => replace_text(text, old, new, None, meter)?,
        (Function::Replace, [CelValue::Text(old), CelValue::Text(new), CelValue::Int(limit)]) => {
            replace_text(text, old, new, Some(*limit), meter)?
        }
        (Function::Substring, [CelValue::Int(from)]) => slice_characters(text, *from, None)?,
        (Function::Substring, [CelValue::Int(from), CelValue::Int(to)]) => slice_characters(text, *from, Some(*to))?,
        (Function::IndexOf, [CelValue::Text(part)]) => index_of(text, part, 0)?,
        (Function::IndexOf, [CelValue::Text(part), CelValue::Int(from)]) => index_of(text, part, *from)?,
        _ => return Ok(None),
    }))
}

/// A slice of a text: borrowed if the text is borrowed.
fn slice_text<'a>(text: &CelText<'a>, range: Range<usize>) -> CelValue<'a> {
    match text {
        CelText::Borrowed(whole) => CelValue::Text(CelText::Borrowed(whole.get(range).unwrap_or_default())),
        CelText::Shared(whole) => CelValue::shared_text(whole.get(range).unwrap_or_default()),
    }
}

fn trim_text<'a>(text: &CelText<'a>) -> CelValue<'a> {
    let start = text.len() - text.trim_start().len();
    slice_text(text, start..start + text.trim().len())
}

/// Splits into at most `limit` parts, the last of which is the rest. 0 gives no parts, a negative limit gives all.
fn split_text<'a>(
    text: &CelText<'a>,
    separator: &str,
    limit: Option<i64>,
    meter: &mut CostMeter,
) -> Result<CelValue<'a>, ExpressionError> {
    let limit = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
    if limit == 0 {
        return Ok(CelValue::from_items(Vec::new()));
    }
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

fn replace_text<'a>(
    text: &str,
    old: &str,
    new: &str,
    limit: Option<i64>,
    meter: &mut CostMeter,
) -> Result<CelValue<'a>, ExpressionError> {
    let limit = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
    // Counted first, so that the result is charged before it is created.
    let count = text.matches(old).take(limit).count();
    let length = count.checked_mul(new.len()).and_then(|more| more.checked_add(text.len()));
    meter.charge_bytes(length.ok_or(ExpressionError::BudgetExceeded)?)?;
    Ok(CelValue::shared_text(text.replacen(old, new, count)))
}

fn slice_characters<'a>(text: &CelText<'a>, from: i64, to: Option<i64>) -> Result<CelValue<'a>, ExpressionError> {
    let outside = || ExpressionError::failed("substring reaches beyond the text.");
    let at = |character: i64| byte_offset(text, character).ok_or_else(outside);
    let (from, to) = (at(from)?, to.map_or(Ok(text.len()), at)?);
    if from > to {
        return Err(outside());
    }
    Ok(slice_text(text, from..to))
}

fn index_of<'a>(text: &str, part: &str, from: i64) -> Result<CelValue<'a>, ExpressionError> {
    let start = byte_offset(text, from).ok_or_else(|| ExpressionError::failed("indexOf starts beyond the text."))?;
    Ok(match text[start..].find(part) {
        Some(at) => count_value(text[..start + at].chars().count()),
        None => CelValue::Int(-1),
    })
}

/// The byte offset of a character. The offset just after the last character is valid too.
fn byte_offset(text: &str, character: i64) -> Option<usize> {
    let character = usize::try_from(character).ok()?;
    text.char_indices().map(|(at, _)| at).chain([text.len()]).nth(character)
}

pub fn join_list<'a>(
    list: &CelValue<'a>,
    rest: &[CelValue<'a>],
    meter: &mut CostMeter,
) -> Result<Option<CelValue<'a>>, ExpressionError> {
    let separator = match rest {
        [] => "",
        [CelValue::Text(separator)] => &**separator,
        _ => return Ok(None),
    };
    let mut joined = String::new();
    let mut add = |first: bool, part: &str| {
        let separator = if first { "" } else { separator };
        meter.charge_bytes(1 + separator.len() + part.len())?;
        joined.push_str(separator);
        joined.push_str(part);
        Ok::<(), ExpressionError>(())
    };
    let texts_alone = || ExpressionError::failed("join takes a list of texts; string() makes one of a number.");
    match list {
        CelValue::Json(Value::Array(items)) => {
            for (at, item) in items.iter().enumerate() {
                add(at == 0, item.as_str().ok_or_else(texts_alone)?)?;
            }
        }
        CelValue::List(items) => {
            for (at, item) in items.iter().enumerate() {
                let CelValue::Text(part) = item else { return Err(texts_alone()) };
                add(at == 0, part)?;
            }
        }
        _ => return Ok(None),
    }
    Ok(Some(CelValue::shared_text(joined)))
}
