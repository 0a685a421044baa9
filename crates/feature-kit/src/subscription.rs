//! Which events an endpoint or a workflow subscribes to: a list of kinds, of `<family>.*`, or `*`.

use kernel::auth::Rights;
use kernel::base::Result;
use kernel::events::family_of;
use kernel::http::BodyField;
use kernel::store::{NewEvent, Value};
use utoipa::openapi::schema::{AnyOfBuilder, ArrayBuilder, ObjectBuilder, Schema, Type};

use crate::custom_event::CUSTOM_KIND_BYTES_MAX;
use crate::feature::registry;
use crate::tags::remove_duplicates;

/// Subscribes to everything but tests.
pub const EVERYTHING: &str = "*";
/// The test of an endpoint. It is sent to that endpoint alone, whatever it and others subscribe to.
pub const TEST_KIND: &str = "webhook.test";
pub const PATTERNS_MAX: usize = 50;

/// Whether events of this kind go to one endpoint alone, and so to no subscriber.
pub fn is_for_one_endpoint(kind: &str) -> bool {
    kind == TEST_KIND
}

/// The patterns that an event matches: its kind, its family, and everything but tests.
pub fn matching_patterns(kind: &str) -> [String; 3] {
    let everything = if is_for_one_endpoint(kind) { kind } else { EVERYTHING };
    [kind.to_owned(), format!("{}.*", family_of(kind)), everything.to_owned()]
}

/// The three patterns of an event, as its followers bind them.
pub fn pattern_values(event: &NewEvent<'_>) -> Vec<Value> {
    matching_patterns(event.kind).map(Into::into).into()
}

/// The sequence of an event and its three patterns.
pub fn wake_values(event: &NewEvent<'_>) -> Vec<Value> {
    [event.sequence.into()].into_iter().chain(pattern_values(event)).collect()
}

/// The schema of `events` of an endpoint and of `types` of a workflow.
pub fn patterns_schema() -> Schema {
    let words = registry().event_patterns().unwrap_or_default();
    let word = ObjectBuilder::new().schema_type(Type::String).enum_values(Some(words));
    let custom = ObjectBuilder::new()
        .schema_type(Type::String)
        .pattern(Some("^custom(\\.[a-z][a-z0-9_]*)+$"))
        .max_length(Some(CUSTOM_KIND_BYTES_MAX))
        .description(Some("An event that a step of a workflow emits."));
    ArrayBuilder::new()
        .items(AnyOfBuilder::new().item(word).item(custom))
        .min_items(Some(1))
        .max_items(Some(PATTERNS_MAX))
        .build()
        .into()
}

pub fn parse_patterns(field: &mut BodyField<'_>) -> Option<Vec<String>> {
    let patterns = field.read_list(PATTERNS_MAX, |item| {
        item.read_parsed("unknown_event", |word| {
            let is_known = registry().can_subscribe(word).is_ok_and(|accepted| accepted);
            if is_known { Ok(word.to_owned()) } else { Err(unknown_event(word)) }
        })
    })?;
    if patterns.is_empty() {
        return field.report_error("required", "must name at least one kind of event");
    }
    Some(remove_duplicates(patterns))
}

fn unknown_event(word: &str) -> String {
    let word: String = word.chars().take(60).collect();
    let patterns = registry().event_patterns().unwrap_or_default().join(", ");
    format!("{word:?} is not a kind of event; known are {patterns}")
}

/// A subscriber is sent only what its owner may read.
pub fn check_subscription(rights: &Rights, patterns: &[String]) -> Result<()> {
    let needed = registry().scopes_needed(patterns.iter().map(String::as_str))?;
    rights.require_all(&needed, "An endpoint with these events")
}
