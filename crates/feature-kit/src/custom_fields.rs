//! Custom fields of a record: JSON of the tenant's own, bounded, changed by merge patches (RFC 7396).

use kernel::http::BodyField;
use serde_json::{Map, Value};

use crate::null_input::NullInput;

pub const CUSTOM_FIELDS_MAX: usize = 50;
pub const CUSTOM_DEPTH_MAX: usize = 5;
pub const CUSTOM_BYTES_MAX: usize = 16 * 1024;

pub fn parse_custom_fields(field: &mut BodyField<'_>, null: NullInput) -> Option<Map<String, Value>> {
    let Value::Object(object) = field.take_value() else {
        return field.report_error("wrong_type", "must be an object");
    };
    // A patch removes as well as adds; the merged fields are checked again where it is applied.
    let mut added = object.clone();
    if null == NullInput::Clears {
        added.clear();
        merge_patch(&mut added, object.clone());
    }
    match check_custom_fields(&added) {
        Ok(()) => Some(object),
        Err((code, detail)) => field.report_error(code, detail),
    }
}

/// What is wrong with custom fields, as a code and a detail.
pub fn check_custom_fields(object: &Map<String, Value>) -> Result<(), (&'static str, String)> {
    if object.len() > CUSTOM_FIELDS_MAX {
        return Err(("too_many", format!("must have at most {CUSTOM_FIELDS_MAX} fields")));
    }
    let depth = 1 + object.values().map(nesting_depth).max().unwrap_or(0);
    if depth > CUSTOM_DEPTH_MAX {
        return Err(("too_deep", format!("must be at most {CUSTOM_DEPTH_MAX} deep, itself included")));
    }
    let bytes = serde_json::to_string(object).map_or(usize::MAX, |text| text.len());
    if bytes > CUSTOM_BYTES_MAX {
        return Err(("too_long", format!("must be at most {CUSTOM_BYTES_MAX} bytes of JSON, not {bytes}")));
    }
    Ok(())
}

fn nesting_depth(value: &Value) -> usize {
    match value {
        Value::Object(object) => 1 + object.values().map(nesting_depth).max().unwrap_or(0),
        Value::Array(items) => 1 + items.iter().map(nesting_depth).max().unwrap_or(0),
        _ => 0,
    }
}

/// RFC 7396.
pub fn merge_patch(target: &mut Map<String, Value>, patch: Map<String, Value>) {
    for (name, value) in patch {
        match (value, target.get_mut(&name)) {
            (Value::Null, _) => drop(target.remove(&name)),
            (Value::Object(inner), Some(Value::Object(existing))) => merge_patch(existing, inner),
            (Value::Object(inner), _) => {
                let mut created = Map::new();
                merge_patch(&mut created, inner);
                target.insert(name, Value::Object(created));
            }
            (value, _) => drop(target.insert(name, value)),
        }
    }
}
