//! Parses the URL of an outbound request in a body.

use kernel::http::BodyField;
use kernel::outbound::{BadTarget, Target};

pub fn parse_target_url(field: &mut BodyField<'_>) -> Option<Target> {
    let text = field.read_string()?;
    match Target::parse(&text) {
        Ok(target) => Some(target),
        Err(BadTarget::NotAUrl(detail)) => field.report_error("invalid_url", detail),
        Err(BadTarget::NotAllowed(refusal)) => field.report_error("target_not_allowed", refusal.detail),
    }
}
