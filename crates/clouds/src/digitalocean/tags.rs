//! DigitalOcean's tags are words: `key:value` is read and written as a key and a value, with the last colon between them.

use std::collections::BTreeMap;

use crate::{OPERATION_TAG, SpecFieldError};

const TAG_CHARS_MAX: usize = 255;
/// What the service's own keys begin with.
const OWN_PREFIX: &str = "tenant-control:";

/// A word without a colon is a key without a value. Where several words have the same key, as those of Kubernetes do (`k8s`,
/// `k8s:worker`), each is a key as a whole, so that none is lost. The service's own keys keep the value of their first word:
/// a droplet stays that of its order when somebody adds a tag.
pub fn read_tags<'a>(words: impl Iterator<Item = &'a str>) -> BTreeMap<String, String> {
    let mut words_by_key: BTreeMap<&str, Vec<(&str, &str)>> = BTreeMap::new();
    for word in words {
        let (key, value) = word.rsplit_once(':').unwrap_or((word, ""));
        words_by_key.entry(key).or_default().push((word, value));
    }
    let mut tags = BTreeMap::new();
    for (key, words) in words_by_key {
        let is_single = words.len() == 1 || key.starts_with(OWN_PREFIX);
        let valued = words.first().filter(|_| is_single);
        tags.extend(valued.map(|(_, value)| (key.to_owned(), (*value).to_owned())));
        for (word, _) in words.iter().skip(usize::from(is_single)) {
            tags.entry((*word).to_owned()).or_default();
        }
    }
    tags
}

pub fn to_word(key: &str, value: &str) -> String {
    if value.is_empty() { key.to_owned() } else { format!("{key}:{value}") }
}

pub fn operation_word(operation_id: &str) -> String {
    to_word(OPERATION_TAG, operation_id)
}

/// What keeps a tag from being written, or from being read back as it was.
pub fn check_tag(key: &str, value: &str) -> Option<SpecFieldError> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, ':' | '-' | '_');
    let problem = if key.is_empty() {
        "must not be empty"
    } else if !key.chars().chain(value.chars()).all(is_allowed) {
        "may have only letters, digits, :, - and _ in key and value at DigitalOcean"
    } else if value.contains(':') {
        "must have no colon in its value: the last one is between key and value"
    } else if value.is_empty() && key.contains(':') {
        "needs a value, because its key has a colon"
    } else if to_word(key, value).len() > TAG_CHARS_MAX {
        "is longer than 255 characters together with its value"
    } else {
        return None;
    };
    Some(SpecFieldError::new("tags", format!("{key:?} {problem}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_read_back_as_they_were_written() {
        for (key, value) in [("env", "prod"), ("web", ""), (OPERATION_TAG, "op_1"), ("a:b", "c")] {
            assert_eq!(check_tag(key, value), None);
            let tags = read_tags([to_word(key, value).as_str()].into_iter());
            assert_eq!(tags, BTreeMap::from([(key.to_owned(), value.to_owned())]));
        }
    }

    #[test]
    fn no_tag_is_lost_where_several_have_the_same_key() {
        for (words, expected) in [
            (&["k8s", "k8s:c0ffee", "k8s:worker"][..], &[("k8s", ""), ("k8s:c0ffee", ""), ("k8s:worker", "")][..]),
            (&["env:prod", "env:dev", "web"], &[("env:dev", ""), ("env:prod", ""), ("web", "")]),
            (&["a:b", "a:c", "a:b:d"], &[("a:b", "d"), ("a:c", "")]),
            (
                &["tenant-control:operation:op_2", "tenant-control:operation:op_1"],
                &[("tenant-control:operation", "op_2"), ("tenant-control:operation:op_1", "")],
            ),
        ] {
            let tags = read_tags(words.iter().copied());
            let tags: Vec<(&str, &str)> = tags.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
            assert_eq!(tags, expected);
        }
    }

    #[test]
    fn tags_that_would_change_are_refused() {
        let long = "x".repeat(256);
        for (key, value) in [("", "a"), ("a", "b:c"), ("a:b", ""), ("a b", "c"), ("a", "ü"), (long.as_str(), "")] {
            assert!(check_tag(key, value).is_some(), "{key} {value}");
        }
    }
}
