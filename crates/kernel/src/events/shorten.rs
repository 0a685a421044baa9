//! Shortens the data of an event until it fits into a delivery.
//!
//! Long texts are cut first, then long lists, each at its end and only as far as needed. All fields stay, and short texts
//! (ids, times, words) are never cut, so the data still matches the schema in the catalogue. `truncated` tells the receiver
//! to read the whole record from the API.

use serde_json::{Value, json};

/// The limits for texts and then for lists, tried one after the other until the data fits.
const TEXT_BYTES_STEPS: [usize; 7] = [64 << 10, 32 << 10, 16 << 10, 8 << 10, 4 << 10, 2 << 10, 1 << 10];
const LIST_ITEMS_STEPS: [usize; 4] = [1_000, 100, 10, 1];

/// The end of a text that was cut.
const ELLIPSIS: char = '…';

/// Shortens `data` until `fits`. Data that cannot fit, because it has too many fields, is reduced to the record's id.
pub(super) fn shorten_data(mut data: Value, record: &str, fits: impl Fn(&Value) -> bool) -> Value {
    if let Value::Object(fields) = &mut data {
        fields.insert("truncated".to_owned(), Value::Bool(true));
        for bytes in TEXT_BYTES_STEPS {
            cut_texts(&mut data, bytes);
            if fits(&data) {
                return data;
            }
        }
        for items in LIST_ITEMS_STEPS {
            cut_lists(&mut data, items);
            if fits(&data) {
                return data;
            }
        }
    }
    json!({ "id": record, "truncated": true })
}

fn cut_texts(value: &mut Value, bytes_max: usize) {
    match value {
        Value::String(text) if text.len() > bytes_max => {
            text.truncate(text.floor_char_boundary(bytes_max - ELLIPSIS.len_utf8()));
            text.push(ELLIPSIS);
        }
        Value::Array(items) => items.iter_mut().for_each(|item| cut_texts(item, bytes_max)),
        Value::Object(fields) => fields.values_mut().for_each(|field| cut_texts(field, bytes_max)),
        _ => {}
    }
}

fn cut_lists(value: &mut Value, items_max: usize) {
    match value {
        Value::Array(items) => {
            items.truncate(items_max);
            for item in items {
                cut_lists(item, items_max);
            }
        }
        Value::Object(fields) => fields.values_mut().for_each(|field| cut_lists(field, items_max)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fits_in(bytes: usize) -> impl Fn(&Value) -> bool {
        move |data| data.to_string().len() <= bytes
    }

    #[test]
    fn texts_are_cut_no_further_than_needed_and_between_characters() {
        let data = json!({"id": "x", "text": "ü".repeat(40_000), "inner": [{"text": "short"}]});
        let cut = shorten_data(data, "x", fits_in(50_000));
        let text = cut["text"].as_str().unwrap_or_default();
        assert!(text.len() <= 32 << 10 && text.len() > (32 << 10) - 4 && text.ends_with("ü…"), "{}", text.len());
        assert_eq!((&cut["inner"][0]["text"], &cut["truncated"]), (&json!("short"), &json!(true)));
    }

    #[test]
    fn lists_are_cut_where_texts_are_not_enough() {
        let cut = shorten_data(json!({"id": "x", "list": vec!["item"; 5_000]}), "x", fits_in(10_000));
        assert_eq!(cut["list"].as_array().map(Vec::len), Some(1_000));
    }

    #[test]
    fn what_cannot_be_cut_is_told_of_by_its_id() {
        let fields: serde_json::Map<String, Value> = (0..1_000).map(|n| (n.to_string(), Value::Null)).collect();
        for data in [Value::Object(fields), json!("x".repeat(1_000))] {
            assert_eq!(shorten_data(data, "x", fits_in(100)), json!({"id": "x", "truncated": true}));
        }
    }
}
