//! Wall-clock time in milliseconds, replaceable in tests.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub const SECOND_MS: i64 = 1_000;
pub const MINUTE_MS: i64 = 60 * SECOND_MS;
pub const HOUR_MS: i64 = 60 * MINUTE_MS;
pub const DAY_MS: i64 = 24 * HOUR_MS;

/// Where the time comes from.
#[derive(Clone, Debug, Default)]
pub enum Clock {
    #[default]
    System,
    /// Stands still until a test moves it.
    Manual(Arc<AtomicI64>),
}

impl Clock {
    pub fn manual(start: Timestamp) -> Self {
        Clock::Manual(Arc::new(AtomicI64::new(start.as_millis())))
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "this is where the time comes from; everywhere else it comes from here"
    )]
    pub fn now(&self) -> Timestamp {
        match self {
            Clock::System => Timestamp(jiff::Timestamp::now().as_millisecond()),
            Clock::Manual(at) => Timestamp(at.load(Ordering::SeqCst)),
        }
    }

    /// Moves a manual clock; the system's is not ours to move.
    pub fn advance(&self, by_ms: i64) {
        if let Clock::Manual(at) = self {
            at.fetch_add(by_ms, Ordering::SeqCst);
        }
    }
}

/// A moment, in milliseconds since 1970, in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    pub const fn from_millis(ms: i64) -> Self {
        Timestamp(ms)
    }

    pub const fn as_millis(self) -> i64 {
        self.0
    }

    #[must_use]
    pub const fn plus(self, ms: i64) -> Self {
        Timestamp(self.0.saturating_add(ms))
    }

    /// RFC 3339, with any offset; finer than a millisecond is cut off.
    pub fn parse(text: &str) -> Option<Self> {
        let parsed: jiff::Timestamp = text.parse().ok()?;
        Some(Timestamp(parsed.as_millisecond()))
    }
}

/// RFC 3339 in UTC with milliseconds and `Z`.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(timestamp) => write!(f, "{timestamp:.3}"),
            Err(_) => write!(f, "9999-12-31T23:59:59.999Z"),
        }
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Timestamp::parse(&text).ok_or_else(|| serde::de::Error::custom("not an RFC 3339 time"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_written_with_milliseconds_in_utc() {
        let at = Timestamp::parse("2026-01-02T03:04:05+01:00").map(|at| at.to_string());
        assert_eq!(at.as_deref(), Some("2026-01-02T02:04:05.000Z"));
    }
}
