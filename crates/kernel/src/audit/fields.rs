//! Compares two states of a record field by field, in the form in which the API shows it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::base::{Error, Result};

/// One field before and after.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FieldChange {
    #[schema(required)]
    pub from: Value,
    #[schema(required)]
    pub to: Value,
}

/// The fields that differ, without the `observed` ones, which change with every write or without one.
pub fn changed_fields<T: Serialize>(old: &T, new: &T, observed: &[&str]) -> Result<BTreeMap<String, FieldChange>> {
    let (old, mut new) = (to_fields(old)?, to_fields(new)?);
    let differ = |(field, from): (String, Value)| {
        let to = new.remove(&field).unwrap_or_default();
        (from != to && !observed.contains(&field.as_str())).then_some((field, FieldChange { from, to }))
    };
    Ok(old.into_iter().filter_map(differ).collect())
}

fn to_fields<T: Serialize>(record: &T) -> Result<Map<String, Value>> {
    match serde_json::to_value(record).map_err(Error::internal)? {
        Value::Object(fields) => Ok(fields),
        _ => Err(Error::internal("a record is an object")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_differs_is_told_with_both_values_and_what_is_observed_is_not() {
        let old = json!({"name": "A", "tags": ["x"], "team": null, "version": 1});
        let new = json!({"name": "B", "tags": ["x"], "team": "Night", "version": 2});
        let changes = changed_fields(&old, &new, &["version"]).map(|changes| json!(changes));
        let expected = json!({"name": {"from": "A", "to": "B"}, "team": {"from": null, "to": "Night"}});
        assert_eq!(changes.unwrap_or_default(), expected);
        assert!(changed_fields(&old, &old, &[]).is_ok_and(|changes| changes.is_empty()));
        assert!(changed_fields(&1, &2, &[]).is_err(), "a record is an object");
    }
}
