//! Tags of a record, and keys in general: labels that can stand in a comma list of a filter.

use kernel::base::Label;
use kernel::http::BodyField;

pub const TAGS_MAX: usize = 50;

pub fn parse_tags(field: &mut BodyField<'_>) -> Option<Vec<String>> {
    Some(remove_duplicates(field.read_list(TAGS_MAX, |field| parse_key(field, "tag"))?))
}

/// A label without a comma. `noun` is what people call it.
pub fn parse_key(field: &mut BodyField<'_>, noun: &str) -> Option<String> {
    field.read_parsed("invalid_text", |text| {
        let label = Label::parse(text)?.into_string();
        if label.contains(',') {
            return Err(format!("must not contain a comma, which separates one {noun} from the next in filters"));
        }
        Ok(label)
    })
}

/// Removes repeated values; the first of each stays.
pub fn remove_duplicates<T: PartialEq>(values: Vec<T>) -> Vec<T> {
    values.into_iter().fold(Vec::new(), |mut unique, value| {
        if !unique.contains(&value) {
            unique.push(value);
        }
        unique
    })
}
