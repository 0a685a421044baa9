//! Request ids and W3C trace context: accepted when well formed. A missing request id is generated.

use std::sync::Arc;

use axum::http::{HeaderMap, HeaderName};

use crate::base::Env;

/// The header that carries the request id in both directions.
pub static REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
static TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const REQUEST_ID_CHARS_MAX: usize = 128;
/// The number of random characters in a generated id.
const REQUEST_ID_CHARS: usize = 20;

/// The caller's `X-Request-Id` if it is 1 to 128 visible characters, else a new one.
pub fn request_id(headers: &HeaderMap, env: &Env) -> Arc<str> {
    let mut given = headers.get_all(&REQUEST_ID).iter();
    if let (Some(value), None) = (given.next(), given.next())
        && let Ok(text) = value.to_str()
        && (1..=REQUEST_ID_CHARS_MAX).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_graphic())
    {
        return text.into();
    }
    let mut text = String::with_capacity(4 + REQUEST_ID_CHARS);
    text.push_str("req_");
    env.random.push_public_base62(&mut text, REQUEST_ID_CHARS);
    text.into()
}

/// The `traceparent` header of the W3C recommendation, version 00.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceParent {
    trace_id: String,
}

impl TraceParent {
    pub fn from_headers(headers: &HeaderMap) -> Option<Self> {
        let mut given = headers.get_all(&TRACEPARENT).iter();
        match (given.next(), given.next()) {
            (Some(value), None) => Self::parse(value.to_str().ok()?),
            _ => None,
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let is_hex = |part: &str, len: usize| {
            part.len() == len && part.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
        };
        let is_id = |part: &str, len: usize| is_hex(part, len) && part.bytes().any(|b| b != b'0');
        let mut parts = text.split('-');
        let (version, trace_id, parent_id, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let is_valid = is_hex(version, 2) && version != "ff" && is_id(trace_id, 32) && is_id(parent_id, 16);
        // Version 00 ends here; later versions may have more parts.
        let is_whole = is_hex(flags, 2) && (version != "00" || parts.next().is_none());
        (is_valid && is_whole).then(|| TraceParent { trace_id: trace_id.to_owned() })
    }

    pub fn trace_id(&self) -> &str {
        &self.trace_id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_well_formed_traceparent_is_honoured() {
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert_eq!(TraceParent::parse(good).map(|t| t.trace_id), Some("4bf92f3577b34da6a3ce929d0e0e4736".to_owned()));
        assert!(TraceParent::parse(&format!("{}-extra", good.replacen("00", "01", 1))).is_some());
        for bad in [
            "",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x",
        ] {
            assert_eq!(TraceParent::parse(bad), None, "{bad}");
        }
    }
}
