//! Request bodies of the endpoint routes.

use std::collections::BTreeMap;

use feature_kit::parse_target_url;
use feature_kit::request_headers::{HEADER_BYTES_MAX, HEADERS_MAX, parse_headers};
use feature_kit::subscription::{parse_patterns, patterns_schema};
use kernel::base::Label;
use kernel::http::{BodyFields, FromBody};
use kernel::outbound::Target;
use utoipa::ToSchema;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};

use super::{OVERLAP_HOURS_DEFAULT, OVERLAP_HOURS_MAX, RATE_MAX};

/// What creating or replacing an endpoint takes.
#[derive(Debug, ToSchema)]
#[schema(as = WebhookInput, example = json!({
    "name": "Chat", "url": "https://hooks.acme.example/tickets", "events": ["ticket.created", "ticket.updated"]
}))]
#[serde(deny_unknown_fields)]
pub struct WebhookInput {
    /// A label for people; need not be unique.
    #[schema(value_type = String, min_length = 1, max_length = 200, pattern = "\\S")]
    pub name: Label,
    /// Where deliveries are sent: http or https, without user info and fragment, and not inside a private network.
    #[schema(value_type = String, max_length = 2048, format = "uri")]
    pub url: Target,
    /// Kinds of events, `<family>.*`, or `*` for everything but tests. Each needs the `read` scope of its family.
    #[schema(schema_with = patterns_schema)]
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

impl FromBody for WebhookInput {
    fn from_fields(fields: &mut BodyFields) -> Option<Self> {
        let name = fields.read_required("name", |field| field.read_parsed("invalid_name", Label::parse));
        let url = fields.read_required("url", parse_target_url);
        let events = fields.read_required("events", parse_patterns);
        let enabled = fields.read_optional("enabled", |field| field.read_boolean());
        let headers = fields.read_optional("headers", |field| parse_headers(field, &[], &[]));
        let rate = fields
            .read_optional("rate_limit_per_second", |field| field.read_or_null(|rate| rate.read_integer(1..=RATE_MAX)));
        let ordered = fields.read_optional("ordered", |field| field.read_boolean());
        Some(WebhookInput {
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

/// The body of PUT: a replacement, or a rotation of the secret alone.
pub enum WebhookChange {
    Replace(Box<WebhookInput>),
    RotateSecret { overlap_hours: i64 },
}

/// `{"rotate_secret": {}}`, alone in the body.
#[derive(ToSchema)]
#[schema(as = WebhookRotation, example = json!({"rotate_secret": {"overlap_hours": 24}}))]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "the document's description of what WebhookChange::from_fields reads")]
pub struct WebhookRotation {
    rotate_secret: WebhookRotationSettings,
}

#[derive(ToSchema)]
#[schema(as = WebhookRotationSettings)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "the document's description of what WebhookChange::from_fields reads")]
pub struct WebhookRotationSettings {
    /// How long the old secret goes on signing beside the new one; 24 when omitted.
    #[schema(minimum = 0, maximum = 168, nullable = false)]
    overlap_hours: Option<i64>,
}

impl FromBody for WebhookChange {
    fn from_fields(fields: &mut BodyFields) -> Option<Self> {
        if !fields.has_field("rotate_secret") {
            return WebhookInput::from_fields(fields).map(|input| WebhookChange::Replace(Box::new(input)));
        }
        let overlap = fields.read_alone("rotate_secret", |field| {
            field.read_object(|inner| {
                inner.read_optional("overlap_hours", |field| field.read_integer(0..=OVERLAP_HOURS_MAX))
            })
        });
        Some(WebhookChange::RotateSecret { overlap_hours: overlap?.unwrap_or(OVERLAP_HOURS_DEFAULT) })
    }
}

fn headers_schema() -> Schema {
    let value = ObjectBuilder::new().schema_type(Type::String).max_length(Some(HEADER_BYTES_MAX));
    ObjectBuilder::new()
        .schema_type(Type::Object)
        .additional_properties(Some(Schema::from(value)))
        .max_properties(Some(HEADERS_MAX))
        .into()
}
