//! Inputs of the actions that belong to no other feature: a request, a wait, an approval, an event.

pub mod store;

use std::collections::BTreeMap;

use feature_kit::request_headers::parse_headers;
use feature_kit::{
    CUSTOM_KINDS, CUSTOM_NAME_BYTES_MAX, CUSTOM_PREFIX, EventFamily, Feature, is_custom_kind, parse_target_url,
};
use kernel::auth::Scope;
use kernel::base::{SECOND_MS, Timestamp};
use kernel::events::EventKind;
use kernel::http::{BodyField, BodyFields, FromBody};
use kernel::outbound::Target;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{SECONDS_MAX, STATUSES_MAX};

/// What steps can do that belongs to no other feature.
pub const FEATURE: Feature = Feature {
    name: "actions",
    event_kinds: &[|| CUSTOM_EVENT.describe()],
    event_families: &[EventFamily { name: "custom", scope: Scope::WorkflowsRead }],
    actions: store::ACTIONS,
    ..Feature::NEW
};

pub const HTTP_REQUEST: &str = "http.request";
const METHODS: &[&str] = &["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"];
/// The message that is shown to those who approve.
const MESSAGE_BYTES_MAX: usize = 2_048;
const EVENT_BYTES_MAX: usize = 64 << 10;

/// The input of `http.request`.
#[derive(Clone, Debug, PartialEq)]
pub struct HttpRequest {
    pub method: &'static str,
    pub url: Target,
    pub headers: BTreeMap<String, String>,
    /// A text is sent as it is, any other value as JSON.
    pub body: Option<Value>,
    /// Statuses that are a success; if empty, 2xx is.
    pub expect_status: Vec<u16>,
}

impl FromBody for HttpRequest {
    fn from_fields(fields: &mut BodyFields) -> Option<Self> {
        let method = fields.read_required("method", |field| {
            field.read_parsed("invalid_value", |text| {
                let method = METHODS.iter().find(|method| **method == text);
                method.copied().ok_or_else(|| format!("must be one of {}", METHODS.join(", ")))
            })
        });
        let url = fields.read_required("url", parse_target_url);
        // The idempotency key is ours: it is the same in every attempt.
        let headers =
            fields.read_optional("headers", |field| parse_headers(field, &["idempotency-key"], &["content-type"]));
        let body = fields.read_optional("body", |field| Some(field.take_value()));
        let expect_status = fields.read_optional("expect_status", parse_statuses);
        Some(HttpRequest {
            method: method?,
            url: url?,
            headers: headers?.unwrap_or_default(),
            body: body?.filter(|body| !body.is_null()),
            expect_status: expect_status?.unwrap_or_default(),
        })
    }
}

fn parse_statuses(field: &mut BodyField<'_>) -> Option<Vec<u16>> {
    let one = |field: &mut BodyField<'_>| field.read_integer(100..=599).and_then(|status| u16::try_from(status).ok());
    if field.is_list() { field.read_list(STATUSES_MAX, one) } else { one(field).map(|status| vec![status]) }
}

/// The input of `wait`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitInput {
    /// From when the step became ready.
    Seconds(i64),
    Until(Timestamp),
}

impl WaitInput {
    /// The time at which a step wakes that became ready at `ready_at`.
    pub fn wakes_at(self, ready_at: Timestamp) -> Timestamp {
        match self {
            WaitInput::Seconds(seconds) => ready_at.plus_ms(seconds * SECOND_MS),
            WaitInput::Until(moment) => moment,
        }
    }
}

/// The output of `wait`.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct WaitOutput {
    pub until: Timestamp,
}

impl FromBody for WaitInput {
    fn from_fields(fields: &mut BodyFields) -> Option<Self> {
        if fields.has_field("seconds") && fields.has_field("until") {
            fields.report_field("until", "not_alone", "cannot be combined with seconds");
        } else if !fields.has_field("until") {
            return fields
                .read_required("seconds", |field| field.read_integer(0..=SECONDS_MAX))
                .map(WaitInput::Seconds);
        }
        let seconds = fields.read_optional("seconds", |field| field.read_integer(0..=SECONDS_MAX));
        let until = fields.read_optional("until", |field| field.read_time());
        seconds?;
        until?.map(WaitInput::Until)
    }
}

/// The input of `approval`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApprovalInput {
    pub message: String,
}

impl FromBody for ApprovalInput {
    fn from_fields(fields: &mut BodyFields) -> Option<Self> {
        let message = fields.read_required("message", |field| {
            field.read_parsed("invalid_text", |text| {
                if text.trim().is_empty() || text.len() > MESSAGE_BYTES_MAX || text.contains('\0') {
                    return Err(format!("must be 1 to {MESSAGE_BYTES_MAX} bytes, and not blank"));
                }
                Ok(text.to_owned())
            })
        });
        Some(ApprovalInput { message: message? })
    }
}

/// The input of `event.emit`.
struct EmitInput {
    kind: String,
    data: Map<String, Value>,
}

impl FromBody for EmitInput {
    fn from_fields(fields: &mut BodyFields) -> Option<Self> {
        let kind = fields.read_required("name", |field| {
            field.read_parsed("invalid_name", |name| {
                let kind = format!("{CUSTOM_PREFIX}{name}");
                if is_custom_kind(&kind) { Ok(kind) } else { Err(format!("must be {}", expected_name())) }
            })
        });
        let data = fields.read_optional("data", |field| {
            let Value::Object(data) = field.take_value() else {
                return field.report_error("wrong_type", "must be an object");
            };
            match serde_json::to_string(&data) {
                Ok(text) if text.len() <= EVENT_BYTES_MAX => Some(data),
                _ => field.report_error("too_long", format!("must be at most {EVENT_BYTES_MAX} bytes of JSON")),
            }
        });
        Some(EmitInput { kind: kind?, data: data?.unwrap_or_default() })
    }
}

fn expected_name() -> String {
    format!(
        "words of a-z, 0-9 and _, each with a letter first, dots between them, at most {CUSTOM_NAME_BYTES_MAX} bytes"
    )
}

pub const CUSTOM_EVENT: EventKind<CustomEvent> =
    EventKind::new(CUSTOM_KINDS, "A step of a workflow emitted an event; the workflow named it.");

/// The data of a custom event, as its workflow gave it.
#[derive(Clone, Debug, Serialize)]
pub struct CustomEvent(pub Map<String, Value>);
