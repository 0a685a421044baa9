//! The URL of a request to elsewhere, in a body.

use kernel::http::Field;
use kernel::outbound::{BadTarget, Target};

pub fn parse_target_url(field: &mut Field<'_>) -> Option<Target> {
    let text = field.string()?;
    match Target::parse(&text) {
        Ok(target) => Some(target),
        Err(BadTarget::NotAUrl(detail)) => field.wrong("invalid_url", detail),
        Err(BadTarget::NotAllowed(refusal)) => field.wrong("target_not_allowed", refusal.detail),
    }
}
