//! How deep a value is. What comes in is wrapped by whatever keeps and tells it, and is read again there: readers of JSON
//! give up at some depth, and a value that nobody can read again would stop everything behind it.

use serde_json::Value;

/// Of what runs are given, steps make, and servers answer: half of what can be read again.
pub const DEPTH_MAX: usize = 64;

/// Whether a value can be kept and told.
pub fn is_shallow(value: &Value) -> bool {
    fits(value, DEPTH_MAX)
}

fn fits(value: &Value, left: usize) -> bool {
    match value {
        Value::Array(items) => left > 0 && items.iter().all(|item| fits(item, left - 1)),
        Value::Object(fields) => left > 0 && fields.values().all(|field| fits(field, left - 1)),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_shallow_up_to_a_depth() {
        let nested = |depth: usize| (0..depth).fold(Value::Null, |value, _| Value::Array(vec![value]));
        assert!(is_shallow(&nested(DEPTH_MAX)) && !is_shallow(&nested(DEPTH_MAX + 1)));
    }
}
