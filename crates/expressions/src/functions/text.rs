//! Functions on texts. They count characters, not bytes, as CEL does.

use std::ops::Range;

use serde_json::Value;

use super::{Fault, Function, Meter, SLOT_BYTES, Text, V, length};

pub fn call<'a>(
    function: Function,
    text: &Text<'a>,
    rest: &[V<'a>],
    meter: &mut Meter,
) -> Result<Option<V<'a>>, Fault> {
    // Each function reads the text at least once; a longer needle is not searched for.
    meter.bytes(text.len())?;
    Ok(Some(match (function, rest) {
        (Function::Contains, [V::Text(part)]) => V::Bool(text.contains(&**part)),
        (Function::StartsWith, [V::Text(part)]) => V::Bool(text.starts_with(&**part)),
        (Function::EndsWith, [V::Text(part)]) => V::Bool(text.ends_with(&**part)),
        (Function::LowerAscii, []) => V::text(text.to_ascii_lowercase()),
        (Function::UpperAscii, []) => V::text(text.to_ascii_uppercase()),
        (Function::Trim, []) => trim(text),
        (Function::Split, [V::Text(separator)]) => split(text, separator, None, meter)?,
        (Function::Split, [V::Text(separator), V::Int(limit)]) => split(text, separator, Some(*limit), meter)?,
        (Function::Replace, [V::Text(old), V::Text(new)]) => replace(text, old, new, None, meter)?,
        (Function::Replace, [V::Text(old), V::Text(new), V::Int(limit)]) => {
            replace(text, old, new, Some(*limit), meter)?
        }
        (Function::Substring, [V::Int(from)]) => substring(text, *from, None)?,
        (Function::Substring, [V::Int(from), V::Int(to)]) => substring(text, *from, Some(*to))?,
        (Function::IndexOf, [V::Text(part)]) => index_of(text, part, 0)?,
        (Function::IndexOf, [V::Text(part), V::Int(from)]) => index_of(text, part, *from)?,
        _ => return Ok(None),
    }))
}

/// A slice of a text: borrowed if the text is borrowed.
fn piece<'a>(text: &Text<'a>, range: Range<usize>) -> V<'a> {
    match text {
        Text::Borrowed(whole) => V::Text(Text::Borrowed(whole.get(range).unwrap_or_default())),
        Text::Shared(whole) => V::text(whole.get(range).unwrap_or_default()),
    }
}

fn trim<'a>(text: &Text<'a>) -> V<'a> {
    let start = text.len() - text.trim_start().len();
    piece(text, start..start + text.trim().len())
}

/// Splits into at most `limit` parts, the last of which is the rest. 0 gives no parts, a negative limit gives all.
fn split<'a>(text: &Text<'a>, separator: &str, limit: Option<i64>, meter: &mut Meter) -> Result<V<'a>, Fault> {
    let limit = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
    if limit == 0 {
        return Ok(V::list(Vec::new()));
    }
    let mut parts = Vec::new();
    let mut push = |range: Range<usize>| {
        meter.bytes(SLOT_BYTES + range.len())?;
        parts.push(piece(text, range));
        Ok::<(), Fault>(())
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
    Ok(V::list(parts))
}

fn replace<'a>(text: &str, old: &str, new: &str, limit: Option<i64>, meter: &mut Meter) -> Result<V<'a>, Fault> {
    let limit = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
    // Counted first, so that the result is charged before it is created.
    let count = text.matches(old).take(limit).count();
    let made = count.checked_mul(new.len()).and_then(|more| more.checked_add(text.len()));
    meter.bytes(made.ok_or(Fault::Spent)?)?;
    Ok(V::text(text.replacen(old, new, count)))
}

fn substring<'a>(text: &Text<'a>, from: i64, to: Option<i64>) -> Result<V<'a>, Fault> {
    let outside = || Fault::failed("substring reaches beyond the text.");
    let at = |character: i64| byte_at(text, character).ok_or_else(outside);
    let (from, to) = (at(from)?, to.map_or(Ok(text.len()), at)?);
    if from > to {
        return Err(outside());
    }
    Ok(piece(text, from..to))
}

fn index_of<'a>(text: &str, part: &str, from: i64) -> Result<V<'a>, Fault> {
    let start = byte_at(text, from).ok_or_else(|| Fault::failed("indexOf starts beyond the text."))?;
    Ok(match text[start..].find(part) {
        Some(at) => length(text[..start + at].chars().count()),
        None => V::Int(-1),
    })
}

/// The byte offset of a character. The offset just after the last character is valid too.
fn byte_at(text: &str, character: i64) -> Option<usize> {
    let character = usize::try_from(character).ok()?;
    text.char_indices().map(|(at, _)| at).chain([text.len()]).nth(character)
}

pub fn join<'a>(list: &V<'a>, rest: &[V<'a>], meter: &mut Meter) -> Result<Option<V<'a>>, Fault> {
    let separator = match rest {
        [] => "",
        [V::Text(separator)] => &**separator,
        _ => return Ok(None),
    };
    let mut joined = String::new();
    let mut add = |first: bool, part: &str| {
        let separator = if first { "" } else { separator };
        meter.bytes(1 + separator.len() + part.len())?;
        joined.push_str(separator);
        joined.push_str(part);
        Ok::<(), Fault>(())
    };
    let texts_alone = || Fault::failed("join takes a list of texts; string() makes one of a number.");
    match list {
        V::Json(Value::Array(items)) => {
            for (at, item) in items.iter().enumerate() {
                add(at == 0, item.as_str().ok_or_else(texts_alone)?)?;
            }
        }
        V::List(items) => {
            for (at, item) in items.iter().enumerate() {
                let V::Text(part) = item else { return Err(texts_alone()) };
                add(at == 0, part)?;
            }
        }
        _ => return Ok(None),
    }
    Ok(Some(V::text(joined)))
}
