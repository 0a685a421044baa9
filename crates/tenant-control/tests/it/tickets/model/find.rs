//! Which tickets of the plain list a question is about, and in which order.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// When each ticket changed last, by its id: the first change of all is 1.
pub type Changes = BTreeMap<String, usize>;

/// A question with the ids and times of the run in it.
#[derive(Clone, Debug)]
pub struct Question {
    pub filters: Vec<(&'static str, String)>,
    pub sort: Option<&'static str>,
    pub limit: Option<usize>,
}

impl Question {
    /// All records that are asked for, in order.
    pub fn answer<'a>(&self, records: impl Iterator<Item = &'a Value>, changes: &Changes) -> Vec<&'a Value> {
        let mut found: Vec<&Value> = records.filter(|record| self.wants(record)).collect();
        found.sort_by(|a, b| self.compare(a, b, changes));
        found
    }

    pub fn wants(&self, record: &Value) -> bool {
        self.filters.iter().all(|(name, wanted)| passes(record, name, wanted))
    }

    pub fn compare(&self, a: &Value, b: &Value, changes: &Changes) -> Ordering {
        let delta = self.filters.iter().any(|(name, _)| *name == "updated_since");
        let sort = self.sort.unwrap_or(if delta { "updated_at" } else { "-created_at" });
        let (field, down) = sort.strip_prefix('-').map_or((sort, false), |field| (field, true));
        let (left, right) = (place(a, field, changes), place(b, field, changes));
        // What has no date comes last, whichever way the others go.
        let missing = left.0.is_empty().cmp(&right.0.is_empty());
        missing.then(if down { right.cmp(&left) } else { left.cmp(&right) })
    }
}

/// What a record is sorted by, as a text that sorts so, in the order of updates when it changed, and its number.
fn place(record: &Value, field: &str, changes: &Changes) -> (String, usize, i64) {
    let value = record[field].as_str().unwrap_or_default();
    let text = match (field, value) {
        ("priority", "low") => "1",
        ("priority", "medium") => "2",
        ("priority", "high") => "3",
        ("priority", "critical") => "4",
        _ => value,
    };
    let id = record["id"].as_str().expect("an id");
    let changed = if field == "updated_at" { changes.get(id).copied().unwrap_or_default() } else { 0 };
    (text.to_owned(), changed, record["number"].as_i64().expect("a number"))
}

fn passes(record: &Value, name: &str, wanted: &str) -> bool {
    let any = || wanted.split(',');
    let has = |list: &Value, one: &str| list.as_array().expect("a list").iter().any(|value| value == one);
    match name {
        "tag" => any().any(|one| has(&record["tags"], one)),
        "device_id" => any().any(|one| has(&record["device_ids"], one)),
        "number" => any().any(|one| one.parse() == Ok(record["number"].as_i64().expect("a number"))),
        "created_since" => record["created_at"].as_str().expect("a time") >= wanted,
        "updated_since" => record["updated_at"].as_str().expect("a time") >= wanted,
        "q" => {
            let subject = words(record["subject"].as_str().expect("a subject"));
            words(wanted).iter().all(|start| subject.iter().any(|word| word.starts_with(start.as_str())))
        }
        _ => any().any(|one| record[name] == one || one == "none" && record[name].is_null()),
    }
}

/// Runs of letters and digits, whether they are written large or small.
fn words(text: &str) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    let mut word = String::new();
    for letter in text.chars().chain([' ']) {
        if letter.is_alphanumeric() {
            word.extend(letter.to_lowercase());
        } else if !word.is_empty() {
            all.insert(std::mem::take(&mut word));
        }
    }
    all
}
