//! What a request for an endpoint may say.

use std::collections::BTreeMap;

use kernel::auth::Rights;
use kernel::base::{Label, Result};
use kernel::http::{Field, Fields, FromBody};
use kernel::outbound::{BadTarget, Target};
use utoipa::ToSchema;
use utoipa::openapi::schema::{AnyOfBuilder, ArrayBuilder, ObjectBuilder, Schema, Type};

use super::{EVENTS_MAX, HEADER_BYTES_MAX, HEADERS_MAX, OVERLAP_HOURS_DEFAULT, OVERLAP_HOURS_MAX, RATE_MAX, headers};
use crate::catalogue;
use crate::features::workflows::actions::KIND_BYTES_MAX;

/// What creating or replacing an endpoint takes.
#[derive(Debug, ToSchema)]
#[schema(as = WebhookInput, example = json!({
    "name": "Chat", "url": "https://hooks.acme.example/tickets", "events": ["ticket.created", "ticket.updated"]
}))]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// A label for people; need not be unique.
    #[schema(value_type = String, min_length = 1, max_length = 200, pattern = "\\S")]
    pub name: Label,
    /// Where deliveries are sent: http or https, without user info and fragment, and not inside a private network.
    #[schema(value_type = String, max_length = 2048, format = "uri")]
    pub url: Target,
    /// Kinds of events, `<family>.*`, or `*` for everything but tests. Each needs the `read` scope of its family.
    #[schema(schema_with = events_schema)]
    pub events: Vec<String>,
    /// `false` keeps events as skipped. True when omitted.
    #[schema(value_type = Option<bool>, nullable = false)]
    pub enabled: bool,
    /// Sent with every delivery; a value of `********` keeps what is stored, as long as scheme, host and port of `url` stay
    /// the same. Not allowed: `host`, `content-*`,
    /// `transfer-encoding`, `connection`, `te`, `trailer`, `upgrade`, `expect`, `cookie`, `proxy-*`, `user-agent`,
    /// `webhook-*`.
    #[schema(schema_with = headers_schema, required = false)]
    pub headers: BTreeMap<String, String>,
    /// Deliveries per second at most; null means unlimited.
    #[schema(minimum = 1, maximum = 1000)]
    pub rate_limit_per_second: Option<i64>,
    /// Keep the order of the events of each record.
    #[schema(value_type = Option<bool>, nullable = false)]
    pub ordered: bool,
}

impl FromBody for Input {
    fn from_fields(fields: &mut Fields) -> Option<Self> {
        let name = fields.required("name", |field| field.parsed("invalid_name", Label::parse));
        let url = fields.required("url", parse_url);
        let events = fields.required("events", parse_events);
        let enabled = fields.optional("enabled", |field| field.boolean());
        let headers = fields.optional("headers", |field| headers::parse(field, &[], &[]));
        let rate = fields.optional("rate_limit_per_second", |field| field.or_null(|rate| rate.integer(1..=RATE_MAX)));
        let ordered = fields.optional("ordered", |field| field.boolean());
        Some(Input {
            name: name?,
            url: url?,
            events: events?,
            enabled: enabled?.unwrap_or(true),
            headers: headers?.unwrap_or_default(),
            rate_limit_per_second: rate?.flatten(),
            ordered: ordered?.unwrap_or(false),
        })
    }
}

/// What PUT takes: a replacement, or a rotation of the secret alone.
pub enum Change {
    Replace(Box<Input>),
    RotateSecret { overlap_hours: i64 },
}

/// `{"rotate_secret": {}}`, alone in the body.
#[derive(ToSchema)]
#[schema(as = WebhookRotation, example = json!({"rotate_secret": {"overlap_hours": 24}}))]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "the document's description of what Change::from_fields reads")]
pub struct Rotation {
    rotate_secret: RotationSettings,
}

#[derive(ToSchema)]
#[schema(as = WebhookRotationSettings)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "the document's description of what Change::from_fields reads")]
pub struct RotationSettings {
    /// How long the old secret goes on signing beside the new one; 24 when omitted.
    #[schema(minimum = 0, maximum = 168, nullable = false)]
    overlap_hours: Option<i64>,
}

impl FromBody for Change {
    fn from_fields(fields: &mut Fields) -> Option<Self> {
        if !fields.has("rotate_secret") {
            return Input::from_fields(fields).map(|input| Change::Replace(Box::new(input)));
        }
        let overlap = fields.alone("rotate_secret", |field| {
            field.object(|inner| inner.optional("overlap_hours", |field| field.integer(0..=OVERLAP_HOURS_MAX)))
        });
        Some(Change::RotateSecret { overlap_hours: overlap?.unwrap_or(OVERLAP_HOURS_DEFAULT) })
    }
}

/// What `events` of an endpoint can be, and `types` of a workflow.
pub fn events_schema() -> Schema {
    let words = catalogue::vocabulary().unwrap_or_default();
    let word = ObjectBuilder::new().schema_type(Type::String).enum_values(Some(words));
    let custom = ObjectBuilder::new()
        .schema_type(Type::String)
        .pattern(Some("^custom(\\.[a-z][a-z0-9_]*)+$"))
        .max_length(Some(KIND_BYTES_MAX))
        .description(Some("An event that a step of a workflow emits."));
    ArrayBuilder::new()
        .items(AnyOfBuilder::new().item(word).item(custom))
        .min_items(Some(1))
        .max_items(Some(EVENTS_MAX))
        .build()
        .into()
}

fn headers_schema() -> Schema {
    let value = ObjectBuilder::new().schema_type(Type::String).max_length(Some(HEADER_BYTES_MAX));
    ObjectBuilder::new()
        .schema_type(Type::Object)
        .additional_properties(Some(Schema::from(value)))
        .max_properties(Some(HEADERS_MAX))
        .into()
}

pub fn parse_url(field: &mut Field<'_>) -> Option<Target> {
    let text = field.string()?;
    match Target::parse(&text) {
        Ok(target) => Some(target),
        Err(BadTarget::NotAUrl(detail)) => field.wrong("invalid_url", detail),
        Err(BadTarget::NotAllowed(refusal)) => field.wrong("target_not_allowed", refusal.detail),
    }
}

pub fn parse_events(field: &mut Field<'_>) -> Option<Vec<String>> {
    let words = field.list(EVENTS_MAX, |item| {
        item.parsed("unknown_event", |word| match catalogue::can_subscribe(word) {
            Ok(true) => Ok(word.to_owned()),
            _ => Err(unknown_event(word)),
        })
    })?;
    if words.is_empty() {
        return field.wrong("required", "must name at least one kind of event");
    }
    let mut events: Vec<String> = Vec::with_capacity(words.len());
    for word in words {
        if !events.contains(&word) {
            events.push(word);
        }
    }
    Some(events)
}

fn unknown_event(word: &str) -> String {
    let word: String = word.chars().take(60).collect();
    let known = catalogue::vocabulary().unwrap_or_default().join(", ");
    format!("{word:?} is not a kind of event; known are {known}")
}

/// Nobody can have sent to them, or take over the sending of, what they may not read.
pub fn check_subscription(rights: &Rights, events: &[String]) -> Result<()> {
    let needed = catalogue::scopes_needed(events.iter().map(String::as_str))?;
    rights.require_all(&needed, "An endpoint with these events")
}
