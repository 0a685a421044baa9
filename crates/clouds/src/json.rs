//! Reads values of a cloud's JSON. What is missing or of another type is `None`: clouds add and remove fields.

use serde_json::Value;

/// The value at a path of keys.
pub fn find_value<'a>(value: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(value, |value, key| value.get(key)).filter(|value| !value.is_null())
}

pub fn find_text<'a>(value: &'a Value, path: &[&str]) -> Option<&'a str> {
    find_value(value, path)?.as_str().filter(|text| !text.is_empty())
}

/// The elements at a path; none if there is no list.
pub fn list_values<'a>(value: &'a Value, path: &[&str]) -> impl Iterator<Item = &'a Value> + use<'a> {
    find_value(value, path).and_then(Value::as_array).into_iter().flatten()
}

/// A whole number that is not negative.
pub fn find_count(value: &Value, path: &[&str]) -> Option<i64> {
    let number = find_value(value, path)?;
    number.as_i64().or_else(|| number.as_f64().and_then(to_whole)).filter(|count| *count >= 0)
}

/// An amount that is not negative: a number, or a text of one, as prices are written.
pub fn find_amount(value: &Value, path: &[&str]) -> Option<f64> {
    let amount = match find_value(value, path)? {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    };
    amount.filter(|amount| amount.is_finite() && *amount >= 0.0)
}

/// A size that the cloud tells in a larger unit, possibly with a fraction.
pub fn find_bytes(value: &Value, path: &[&str], unit_bytes: f64) -> Option<i64> {
    find_amount(value, path).and_then(|amount| to_whole((amount * unit_bytes).round()))
}

/// A number without a fraction that is far below the end of the range.
#[expect(clippy::cast_possible_truncation, reason = "the range is checked")]
fn to_whole(number: f64) -> Option<i64> {
    const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
    (number.fract() == 0.0 && number.abs() <= EXACT_MAX).then_some(number as i64)
}

pub const MIB: f64 = 1_048_576.0;
pub const GIB: f64 = 1_073_741_824.0;
pub const GB: f64 = 1_000_000_000.0;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_out_of_range_are_none() {
        let value =
            json!({"big": 1e300, "negative": -1, "half": 0.5, "text": "7", "price": "4.1500", "odd": {"a": []}});
        assert_eq!(find_count(&value, &["big"]), None);
        assert_eq!(find_count(&value, &["negative"]), None);
        assert_eq!(find_count(&value, &["half"]), None);
        assert_eq!(find_count(&value, &["text"]), None);
        assert_eq!(find_count(&value, &["odd", "a", "b"]), None);
        assert_eq!(find_bytes(&value, &["half"], GIB), Some(536_870_912));
        assert_eq!(find_bytes(&value, &["big"], GIB), None);
        assert_eq!(find_amount(&value, &["price"]), Some(4.15));
    }
}
