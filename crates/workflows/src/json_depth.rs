//! Limits the depth of JSON values. Values are wrapped when they are stored and published, and parsed again later. JSON
//! parsers refuse values beyond some depth, and one value that cannot be parsed would block everything queued behind it.

use serde_json::Value;

/// For inputs of runs and steps, outputs of steps and responses of servers: half of what the JSON parser accepts.
pub const JSON_DEPTH_MAX: usize = 64;

/// Whether a value can be stored and published.
pub fn is_shallow(value: &Value) -> bool {
    fits_depth(value, JSON_DEPTH_MAX)
}

fn fits_depth(value: &Value, left: usize) -> bool {
    match value {
        Value::Array(items) => left > 0 && items.iter().all(|item| fits_depth(item, left - 1)),
        Value::Object(fields) => left > 0 && fields.values().all(|field| fits_depth(field, left - 1)),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_shallow_up_to_a_depth() {
        let nested = |depth: usize| (0..depth).fold(Value::Null, |value, _| Value::Array(vec![value]));
        assert!(is_shallow(&nested(JSON_DEPTH_MAX)) && !is_shallow(&nested(JSON_DEPTH_MAX + 1)));
    }
}
