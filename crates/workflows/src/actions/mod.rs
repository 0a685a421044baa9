//! What steps can do that belongs to no other feature, as they are given it: a request, a wait, a question, an event.

pub mod store;

use std::collections::BTreeMap;

use feature_kit::request_headers::parse_headers;
use feature_kit::{
    CUSTOM_KINDS, CUSTOM_NAME_BYTES_MAX, CUSTOM_PREFIX, EventFamily, Feature, is_custom_kind, parse_target_url,
};
use kernel::auth::Scope;
use kernel::base::{SECOND_MS, Timestamp};
use kernel::events::EventKind;
use kernel::http::{Field, Fields, FromBody};
use kernel::outbound::Target;
use serde::Serialize;
use serde_json::{Map, Value};

use super::SECONDS_MAX;

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
/// Statuses that are expected beside those that are a success.
const STATUSES_MAX: usize = 20;
/// What somebody reads before they approve it.
const MESSAGE_BYTES_MAX: usize = 2_048;
const EVENT_BYTES_MAX: usize = 64 << 10;

/// A request to somewhere else.
#[derive(Clone, Debug, PartialEq)]
pub struct HttpRequest {
    pub method: &'static str,
    pub url: Target,
    pub headers: BTreeMap<String, String>,
    /// A text is sent as it is, anything else as JSON.
    pub body: Option<Value>,
    /// If there are none, 2xx is a success.
    pub expect_status: Vec<u16>,
}

impl FromBody for HttpRequest {
    fn from_fields(fields: &mut Fields) -> Option<Self> {
        let method = fields.required("method", |field| {
            field.parsed("invalid_value", |text| {
                let known = METHODS.iter().find(|method| **method == text);
                known.copied().ok_or_else(|| format!("must be one of {}", METHODS.join(", ")))
            })
        });
        let url = fields.required("url", parse_target_url);
        // The key is the same in every attempt.
        let headers = fields.optional("headers", |field| parse_headers(field, &["idempotency-key"], &["content-type"]));
        let body = fields.optional("body", |field| Some(field.take()));
        let expect_status = fields.optional("expect_status", statuses);
        Some(HttpRequest {
            method: method?,
            url: url?,
            headers: headers?.unwrap_or_default(),
            body: body?.filter(|body| !body.is_null()),
            expect_status: expect_status?.unwrap_or_default(),
        })
    }
}

fn statuses(field: &mut Field<'_>) -> Option<Vec<u16>> {
    let one = |field: &mut Field<'_>| field.integer(100..=599).and_then(|status| u16::try_from(status).ok());
    if field.is_list() { field.list(STATUSES_MAX, one) } else { one(field).map(|status| vec![status]) }
}

/// Until when a step waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// From when its turn came.
    Seconds(i64),
    Until(Timestamp),
}

impl Wait {
    /// The moment, for a step whose turn came at `ready_at`.
    pub fn until(self, ready_at: Timestamp) -> Timestamp {
        match self {
            Wait::Seconds(seconds) => ready_at.plus(seconds * SECOND_MS),
            Wait::Until(moment) => moment,
        }
    }
}

impl FromBody for Wait {
    fn from_fields(fields: &mut Fields) -> Option<Self> {
        if fields.has("seconds") && fields.has("until") {
            fields.report("until", "not_alone", "cannot be combined with seconds");
        } else if !fields.has("until") {
            return fields.required("seconds", |field| field.integer(0..=SECONDS_MAX)).map(Wait::Seconds);
        }
        let seconds = fields.optional("seconds", |field| field.integer(0..=SECONDS_MAX));
        let until = fields.optional("until", |field| field.time());
        seconds?;
        until?.map(Wait::Until)
    }
}

/// What somebody is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Approval {
    pub message: String,
}

impl FromBody for Approval {
    fn from_fields(fields: &mut Fields) -> Option<Self> {
        let message = fields.required("message", |field| {
            field.parsed("invalid_text", |text| {
                if text.trim().is_empty() || text.len() > MESSAGE_BYTES_MAX || text.contains('\0') {
                    return Err(format!("must be 1 to {MESSAGE_BYTES_MAX} bytes, and not blank"));
                }
                Ok(text.to_owned())
            })
        });
        Some(Approval { message: message? })
    }
}

/// An event of the tenant's own.
struct Emit {
    kind: String,
    data: Map<String, Value>,
}

impl FromBody for Emit {
    fn from_fields(fields: &mut Fields) -> Option<Self> {
        let kind = fields.required("name", |field| {
            field.parsed("invalid_name", |name| {
                let kind = format!("{CUSTOM_PREFIX}{name}");
                if is_custom_kind(&kind) { Ok(kind) } else { Err(format!("must be {}", expected_name())) }
            })
        });
        let data = fields.optional("data", |field| {
            let Value::Object(data) = field.take() else { return field.wrong("wrong_type", "must be an object") };
            match serde_json::to_string(&data) {
                Ok(text) if text.len() <= EVENT_BYTES_MAX => Some(data),
                _ => field.wrong("too_long", format!("must be at most {EVENT_BYTES_MAX} bytes of JSON")),
            }
        });
        Some(Emit { kind: kind?, data: data?.unwrap_or_default() })
    }
}

fn expected_name() -> String {
    format!(
        "words of a-z, 0-9 and _, each with a letter first, dots between them, at most {CUSTOM_NAME_BYTES_MAX} bytes"
    )
}

pub const CUSTOM_EVENT: EventKind<CustomEvent> =
    EventKind::new(CUSTOM_KINDS, "A step of a workflow emitted an event; the workflow named it.");

/// What an event of a tenant's own tells: whatever its workflow said.
#[derive(Clone, Debug, Serialize)]
pub struct CustomEvent(pub Map<String, Value>);
