//! The `RateLimit` headers: the remaining budget of a caller.

use axum::http::{HeaderMap, HeaderName, HeaderValue};

use super::rate_policy::{RatePolicy, WINDOW_SECONDS};
use crate::base::TenantId;

/// The contents of the `RateLimit` headers of one answer.
#[derive(Clone, Copy, Debug)]
pub struct RateState {
    pub(super) policy: RatePolicy,
    pub(super) quota: u64,
    pub(super) remaining: u64,
    pub(super) reset_seconds: i64,
    /// The tenant whose budget was charged; `None` for an address.
    pub(super) tenant: Option<TenantId>,
}

impl RateState {
    pub fn write_headers(&self, headers: &mut HeaderMap) {
        let reset = self.reset_seconds.unsigned_abs();
        let policy = self.header_item([(";q=", self.quota), (";w=", WINDOW_SECONDS.unsigned_abs())]);
        let state = self.header_item([(";r=", self.remaining), (";t=", reset)]);
        for (header, text) in [(&RATELIMIT_POLICY, policy), (&RATELIMIT, state)] {
            if let Ok(value) = HeaderValue::try_from(text) {
                headers.insert(header, value);
            }
        }
    }

    /// The policy's name and two parameters. Formatted by hand, because every answer has two such headers.
    fn header_item(&self, parameters: [(&str, u64); 2]) -> String {
        let mut text = String::with_capacity(ITEM_CHARS);
        text.push('"');
        text.push_str(self.policy.name());
        text.push('"');
        for (name, number) in parameters {
            text.push_str(name);
            push_number(&mut text, number);
        }
        text
    }
}

static RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
static RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
/// The length of most headers.
const ITEM_CHARS: usize = 32;

fn push_number(text: &mut String, number: u64) {
    if number > 9 {
        push_number(text, number / 10);
    }
    text.extend(char::from_digit(u32::try_from(number % 10).unwrap_or_default(), 10));
}
