//! What a request for an endpoint may say.

use std::collections::BTreeMap;

use kernel::auth::Rights;
use kernel::base::{Label, Result};
use kernel::http::{Field, Fields, FromBody};
use kernel::outbound::{BadTarget, Target};
use utoipa::ToSchema;
use utoipa::openapi::schema::{ArrayBuilder, ObjectBuilder, Schema, Type};

use super::{EVENTS_MAX, HEADER_BYTES_MAX, HEADERS_MAX, OVERLAP_HOURS_DEFAULT, OVERLAP_HOURS_MAX, RATE_MAX};
use crate::catalogue;

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
        let headers = fields.optional("headers", parse_headers);
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

fn events_schema() -> Schema {
    let words = catalogue::vocabulary().unwrap_or_default();
    let word = ObjectBuilder::new().schema_type(Type::String).enum_values(Some(words));
    ArrayBuilder::new().items(word).min_items(Some(1)).max_items(Some(EVENTS_MAX)).build().into()
}

fn headers_schema() -> Schema {
    let value = ObjectBuilder::new().schema_type(Type::String).max_length(Some(HEADER_BYTES_MAX));
    ObjectBuilder::new()
        .schema_type(Type::Object)
        .additional_properties(Some(Schema::from(value)))
        .max_properties(Some(HEADERS_MAX))
        .into()
}

fn parse_url(field: &mut Field<'_>) -> Option<Target> {
    let text = field.string()?;
    match Target::parse(&text) {
        Ok(target) => Some(target),
        Err(BadTarget::NotAUrl(detail)) => field.wrong("invalid_url", detail),
        Err(BadTarget::NotAllowed(refusal)) => field.wrong("target_not_allowed", refusal.detail),
    }
}

fn parse_events(field: &mut Field<'_>) -> Option<Vec<String>> {
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

/// Headers that are ours, or that decide how the request is framed.
const REFUSED_HEADERS: &[&str] =
    &["host", "transfer-encoding", "connection", "te", "trailer", "upgrade", "expect", "cookie", "user-agent"];
const REFUSED_HEADER_FAMILIES: &[&str] = &["content-", "proxy-", "webhook-"];

fn parse_headers(field: &mut Field<'_>) -> Option<BTreeMap<String, String>> {
    let mut seen = Vec::new();
    let headers = field.map(HEADERS_MAX, |name, value| {
        let lower = name.to_ascii_lowercase();
        if name.is_empty() || name.len() > 100 || !name.bytes().all(is_token) {
            return value.wrong("invalid_header", "is not the name of a header");
        }
        if REFUSED_HEADERS.contains(&lower.as_str())
            || REFUSED_HEADER_FAMILIES.iter().any(|family| lower.starts_with(family))
        {
            return value.wrong("header_not_allowed", "is set by the service and cannot be given");
        }
        if seen.contains(&lower) {
            return value.wrong("duplicate_header", "is given twice; names of headers do not depend on case");
        }
        seen.push(lower);
        let text = value.string()?;
        if text.len() > HEADER_BYTES_MAX || !text.bytes().all(|byte| byte == b'\t' || (0x20..0x7f).contains(&byte)) {
            return value
                .wrong("invalid_header", format!("must be at most {HEADER_BYTES_MAX} visible ASCII characters"));
        }
        Some(text)
    })?;
    Some(headers.into_iter().collect())
}

/// RFC 9110.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Nobody can have sent to them, or take over the sending of, what they may not read.
pub fn check_subscription(rights: &Rights, events: &[String]) -> Result<()> {
    let needed = catalogue::scopes_needed(events.iter().map(String::as_str))?;
    rights.require_all(&needed, "An endpoint with these events")
}
