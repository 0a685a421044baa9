//! When a server asked to be tried again.

use axum::http::{HeaderMap, header};

use crate::base::{DAY_MS, SECOND_MS, Timestamp};

/// The longest wait that a server can ask for.
const RETRY_AFTER_MAX_MS: i64 = DAY_MS;

/// The time in the `Retry-After` of a response, if it has one.
pub fn find_retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Timestamp> {
    parse_retry_after(headers.get(header::RETRY_AFTER)?.to_str().ok()?, now)
}

/// Caps the time that a server asked for.
pub fn cap_retry_after(requested: Timestamp, now: Timestamp) -> Timestamp {
    requested.min(now.plus_ms(RETRY_AFTER_MAX_MS))
}

/// Seconds from now, or a date.
fn parse_retry_after(text: &str, now: Timestamp) -> Option<Timestamp> {
    let text = text.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // A number that does not fit is above the cap anyway.
        let seconds = text.parse::<u32>().unwrap_or(u32::MAX);
        return Some(now.plus_ms(i64::from(seconds) * SECOND_MS));
    }
    let date = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?;
    Some(Timestamp::from_millis(date.as_millisecond()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_read() {
        let now = Timestamp::from_millis(1_768_471_200_000);
        assert_eq!(parse_retry_after("120", now), Some(now.plus_ms(120 * SECOND_MS)));
        assert_eq!(parse_retry_after("Thu, 15 Jan 2026 10:05:00 GMT", now), Some(now.plus_ms(300 * SECOND_MS)));
        for bad in ["", "-1", "soon", "1.5"] {
            assert_eq!(parse_retry_after(bad, now), None, "{bad}");
        }
    }
}
