//! Arithmetic, comparison and membership.

use std::cmp::Ordering;

use serde_json::Value;

use super::functions::{span, time};
use super::node::Operator;
use super::value::{SLOT_BYTES, Text, V};
use super::{Fault, Meter};

pub fn apply<'a>(operator: Operator, one: &V<'a>, two: &V<'a>, meter: &mut Meter) -> Result<V<'a>, Fault> {
    match operator {
        Operator::Equal => equal(one, two, meter).map(V::Bool),
        Operator::Unequal => equal(one, two, meter).map(|same| V::Bool(!same)),
        Operator::Less => compare(operator, one, two, meter).map(|order| V::Bool(order.is_lt())),
        Operator::AtMost => compare(operator, one, two, meter).map(|order| V::Bool(order.is_le())),
        Operator::Greater => compare(operator, one, two, meter).map(|order| V::Bool(order.is_gt())),
        Operator::AtLeast => compare(operator, one, two, meter).map(|order| V::Bool(order.is_ge())),
        Operator::In => within(one, two, meter),
        Operator::Add if is_list(one) && is_list(two) => append(one, two, meter),
        _ => arithmetic(operator, one, two, meter),
    }
}

fn unfit(operator: Operator, one: &V<'_>, two: &V<'_>) -> Fault {
    Fault::failed(format!("{} cannot take {} and {}.", operator.sign(), one.kind(), two.kind()))
}

fn arithmetic<'a>(operator: Operator, one: &V<'a>, two: &V<'a>, meter: &mut Meter) -> Result<V<'a>, Fault> {
    let range = || Fault::failed(format!("The result of {} is out of range.", operator.sign()));
    match (one, two) {
        (V::Int(one), V::Int(two)) => int(operator, *one, *two)?.map(V::Int).ok_or_else(range),
        (V::Uint(one), V::Uint(two)) => uint(operator, *one, *two)?.map(V::Uint).ok_or_else(range),
        (V::Double(one), V::Double(two)) => double(operator, *one, *two).map(V::Double),
        (V::Text(one), V::Text(two)) if operator == Operator::Add => {
            meter.bytes(one.len().saturating_add(two.len()))?;
            Ok(V::text([&**one, &**two].concat()))
        }
        (V::Time(at), V::Span(ms)) if operator == Operator::Add => time::checked(at.as_millis().checked_add(*ms)),
        (V::Span(ms), V::Time(at)) if operator == Operator::Add => time::checked(at.as_millis().checked_add(*ms)),
        (V::Time(at), V::Span(ms)) if operator == Operator::Subtract => time::checked(at.as_millis().checked_sub(*ms)),
        (V::Time(one), V::Time(two)) if operator == Operator::Subtract => {
            length(one.as_millis().checked_sub(two.as_millis())).ok_or_else(range)
        }
        (V::Span(one), V::Span(two)) if operator == Operator::Add => length(one.checked_add(*two)).ok_or_else(range),
        (V::Span(one), V::Span(two)) if operator == Operator::Subtract => {
            length(one.checked_sub(*two)).ok_or_else(range)
        }
        _ => Err(unfit(operator, one, two)),
    }
}

fn length<'a>(ms: Option<i64>) -> Option<V<'a>> {
    ms.filter(|ms| ms.unsigned_abs() <= span::SPAN_MS_MAX.unsigned_abs()).map(V::Span)
}

fn by_zero() -> Fault {
    Fault::failed("A number cannot be divided by zero.")
}

fn int(operator: Operator, one: i64, two: i64) -> Result<Option<i64>, Fault> {
    Ok(match operator {
        Operator::Add => one.checked_add(two),
        Operator::Subtract => one.checked_sub(two),
        Operator::Multiply => one.checked_mul(two),
        Operator::Divide | Operator::Modulo if two == 0 => return Err(by_zero()),
        Operator::Divide => one.checked_div(two),
        Operator::Modulo => one.checked_rem(two),
        _ => None,
    })
}

fn uint(operator: Operator, one: u64, two: u64) -> Result<Option<u64>, Fault> {
    Ok(match operator {
        Operator::Add => one.checked_add(two),
        Operator::Subtract => one.checked_sub(two),
        Operator::Multiply => one.checked_mul(two),
        Operator::Divide | Operator::Modulo if two == 0 => return Err(by_zero()),
        Operator::Divide => one.checked_div(two),
        Operator::Modulo => one.checked_rem(two),
        _ => None,
    })
}

fn double(operator: Operator, one: f64, two: f64) -> Result<f64, Fault> {
    match operator {
        Operator::Add => Ok(one + two),
        Operator::Subtract => Ok(one - two),
        Operator::Multiply => Ok(one * two),
        Operator::Divide => Ok(one / two),
        _ => Err(Fault::failed("% takes integers.")),
    }
}

pub fn negate<'a>(value: &V<'a>) -> Result<V<'a>, Fault> {
    match value {
        V::Int(int) => int.checked_neg().map(V::Int).ok_or_else(|| Fault::failed("The result of - is out of range.")),
        V::Double(double) => Ok(V::Double(-double)),
        other => Err(Fault::failed(format!("- cannot take {}.", other.kind()))),
    }
}

fn is_list(value: &V<'_>) -> bool {
    matches!(value, V::List(_) | V::Json(Value::Array(_)))
}

fn append<'a>(one: &V<'a>, two: &V<'a>, meter: &mut Meter) -> Result<V<'a>, Fault> {
    let mut list = Vec::new();
    for part in [one, two] {
        match part {
            V::List(items) => {
                meter.bytes(items.len() * SLOT_BYTES)?;
                list.extend(items.iter().cloned());
            }
            V::Json(Value::Array(items)) => {
                meter.bytes(items.len() * SLOT_BYTES)?;
                list.extend(items.iter().map(V::of));
            }
            _ => {}
        }
    }
    Ok(V::list(list))
}

fn compare(operator: Operator, one: &V<'_>, two: &V<'_>, meter: &mut Meter) -> Result<Ordering, Fault> {
    match (one, two) {
        (V::Text(one), V::Text(two)) => {
            meter.bytes(one.len().min(two.len()))?;
            Ok(str::cmp(one, two))
        }
        (V::Bool(one), V::Bool(two)) => Ok(one.cmp(two)),
        (V::Time(one), V::Time(two)) => Ok(one.cmp(two)),
        (V::Span(one), V::Span(two)) => Ok(one.cmp(two)),
        _ if is_number(one) && is_number(two) => {
            numbers(one, two).ok_or_else(|| Fault::failed("What is not a number is neither less nor more."))
        }
        _ => Err(unfit(operator, one, two)),
    }
}

fn is_number(value: &V<'_>) -> bool {
    matches!(value, V::Int(_) | V::Uint(_) | V::Double(_))
}

/// Compares numbers of any type by value. `None` if one of them is not a number (NaN).
fn numbers(one: &V<'_>, two: &V<'_>) -> Option<Ordering> {
    match (one, two) {
        (V::Double(one), V::Double(two)) => one.partial_cmp(two),
        (V::Double(one), two) => with_double(two.whole()?, *one).map(Ordering::reverse),
        (one, V::Double(two)) => with_double(one.whole()?, *two),
        (one, two) => Some(one.whole()?.cmp(&two.whole()?)),
    }
}

fn with_double(whole: i128, double: f64) -> Option<Ordering> {
    // Beyond the range of all integer types.
    if double.is_nan() || double.abs() >= 1e30 {
        return 0.0.partial_cmp(&double);
    }
    #[expect(clippy::cast_possible_truncation, reason = "the fraction is what is cut off, and the rest fits")]
    let cut = double.trunc() as i128;
    Some(whole.cmp(&cut).then_with(|| 0.0_f64.total_cmp(&(double.fract() + 0.0))))
}

/// Values of different types are not equal; numbers are compared by value.
pub fn equal(one: &V<'_>, two: &V<'_>, meter: &mut Meter) -> Result<bool, Fault> {
    meter.bytes(1)?;
    Ok(match (one, two) {
        (V::Null, V::Null) => true,
        (V::Bool(one), V::Bool(two)) => one == two,
        (V::Text(one), V::Text(two)) => {
            meter.bytes(one.len().min(two.len()))?;
            **one == **two
        }
        (V::Time(one), V::Time(two)) => one == two,
        (V::Span(one), V::Span(two)) => one == two,
        (V::Type(one), V::Type(two)) => one == two,
        _ if is_number(one) && is_number(two) => numbers(one, two) == Some(Ordering::Equal),
        _ if is_list(one) && is_list(two) => lists_equal(one, two, meter)?,
        _ if one.type_name() == "map" && two.type_name() == "map" => maps_equal(one, two, meter)?,
        _ => false,
    })
}

fn lists_equal(one: &V<'_>, two: &V<'_>, meter: &mut Meter) -> Result<bool, Fault> {
    if len(one) != len(two) {
        return Ok(false);
    }
    for at in 0..len(one) {
        let (Some(one), Some(two)) = (element(one, at), element(two, at)) else { return Ok(false) };
        if !equal(&one, &two, meter)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn maps_equal(one: &V<'_>, two: &V<'_>, meter: &mut Meter) -> Result<bool, Fault> {
    if len(one) != len(two) {
        return Ok(false);
    }
    match one {
        V::Json(Value::Object(entries)) => {
            for (key, value) in entries {
                if !same_at(&V::Text(Text::Borrowed(key)), &V::of(value), two, meter)? {
                    return Ok(false);
                }
            }
        }
        V::Map(entries) => {
            for (key, value) in entries.iter() {
                if !same_at(&key.value(), value, two, meter)? {
                    return Ok(false);
                }
            }
        }
        _ => {}
    }
    Ok(true)
}

fn same_at<'a>(key: &V<'a>, value: &V<'a>, map: &V<'a>, meter: &mut Meter) -> Result<bool, Fault> {
    if let V::Text(text) = key {
        meter.bytes(text.len())?;
    }
    match pick(map, key) {
        Some(other) => equal(value, &other, meter),
        None => Ok(false),
    }
}

fn len(value: &V<'_>) -> usize {
    match value {
        V::Json(Value::Array(items)) => items.len(),
        V::Json(Value::Object(entries)) => entries.len(),
        V::List(items) => items.len(),
        V::Map(entries) => entries.len(),
        _ => 0,
    }
}

fn element<'a>(list: &V<'a>, at: usize) -> Option<V<'a>> {
    match list {
        V::Json(Value::Array(items)) => items.get(at).map(V::of),
        V::List(items) => items.get(at).cloned(),
        _ => None,
    }
}

/// `of[key]`.
pub fn pick<'a>(of: &V<'a>, key: &V<'a>) -> Option<V<'a>> {
    match of {
        V::Json(Value::Object(entries)) => match key {
            V::Text(text) => entries.get(&**text).map(V::of),
            _ => None,
        },
        V::Map(entries) => entries.get(&key.key()?).cloned(),
        list => element(list, usize::try_from(key.whole()?).ok()?),
    }
}

fn within<'a>(one: &V<'a>, two: &V<'a>, meter: &mut Meter) -> Result<V<'a>, Fault> {
    if is_list(two) {
        for at in 0..len(two) {
            let Some(item) = element(two, at) else { break };
            if equal(one, &item, meter)? {
                return Ok(V::Bool(true));
            }
        }
        return Ok(V::Bool(false));
    }
    if two.type_name() == "map" {
        if let V::Text(text) = one {
            meter.bytes(text.len())?;
        }
        if is_number(one) || one.key().is_some() {
            return Ok(V::Bool(pick(two, one).is_some()));
        }
    }
    Err(unfit(Operator::In, one, two))
}
