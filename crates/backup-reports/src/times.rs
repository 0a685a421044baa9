//! The times of the tools: restic's have a zone, borg's are local to the device.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// No tool writes a time with more characters; the rest of a longer text is not looked at.
const TIME_CHARS_MAX: usize = 64;

/// Milliseconds since 1970. A time before that is one a tool never set: restic prints the year 1 then.
pub fn parse_time(text: &str, zone_offset_ms: i64) -> Option<i64> {
    if text.len() > TIME_CHARS_MAX {
        return None;
    }
    let at_ms = match text.parse::<Timestamp>() {
        Ok(at) => at.as_millisecond(),
        Err(_) => parse_local_time(text)?.saturating_sub(zone_offset_ms),
    };
    (at_ms > 0).then_some(at_ms)
}

fn parse_local_time(text: &str) -> Option<i64> {
    let local: DateTime = text.parse().ok()?;
    Some(local.to_zoned(TimeZone::UTC).ok()?.timestamp().as_millisecond())
}
