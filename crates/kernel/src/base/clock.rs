//! Wall-clock time in milliseconds, replaceable in tests.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use jiff::civil::DateTime;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub const SECOND_MS: i64 = 1_000;
pub const MINUTE_MS: i64 = 60 * SECOND_MS;
pub const HOUR_MS: i64 = 60 * MINUTE_MS;
pub const DAY_MS: i64 = 24 * HOUR_MS;

/// The source of the time.
#[derive(Clone, Debug, Default)]
pub enum WallClock {
    #[default]
    System,
    /// Stands still until a test moves it. The database uses it too, instead of its own time.
    Manual(Arc<AtomicI64>),
    /// The system's clock, off by so many milliseconds: for tests of a node with a wrong clock.
    Skewed(i64),
}

impl WallClock {
    pub fn new_manual(start: Timestamp) -> Self {
        WallClock::Manual(Arc::new(AtomicI64::new(start.as_millis())))
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "this is where the time comes from; everywhere else it comes from here"
    )]
    pub fn now(&self) -> Timestamp {
        match self {
            WallClock::System => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
            }
            WallClock::Skewed(by_ms) => WallClock::System.now().plus_ms(*by_ms),
            WallClock::Manual(at) => Timestamp(at.load(Ordering::SeqCst)),
        }
    }

    /// Moves a manual clock; other clocks are left alone.
    pub fn advance(&self, by_ms: i64) {
        if let WallClock::Manual(at) = self {
            at.fetch_add(by_ms, Ordering::SeqCst);
        }
    }
}

/// A point in time, in milliseconds since 1970, in UTC.
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
    pub const fn plus_ms(self, ms: i64) -> Self {
        Timestamp(self.0.saturating_add(ms))
    }

    /// Parses RFC 3339 with any offset; digits below a millisecond are cut off.
    pub fn parse(text: &str) -> Option<Self> {
        let (local, offset_ms) = split_offset(text)?;
        let local: DateTime = local.parse().ok()?;
        let ms = i64::try_from(local.duration_since(EPOCH).as_millis()).ok()? - offset_ms;
        // An offset can move the time out of the years 0 to 9999, which RFC 3339 cannot write.
        (MIN_MS..=MAX_MS).contains(&ms).then_some(Timestamp(ms))
    }
}

const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);
/// The first millisecond of the year 0, and the last of the year 9999.
const MIN_MS: i64 = -62_167_219_200_000;
const MAX_MS: i64 = 253_402_300_799_999;

/// Splits a time in RFC 3339 into its local part and its offset. jiff alone would accept many other forms.
fn split_offset(text: &str) -> Option<(&str, i64)> {
    let shape = |text: &str, pattern: &str| {
        text.len() == pattern.len()
            && text.bytes().zip(pattern.bytes()).all(|(byte, expected)| match expected {
                b'0' => byte.is_ascii_digit(),
                expected => byte.eq_ignore_ascii_case(&expected),
            })
    };
    let (local, offset_ms) = if let Some(local) = text.strip_suffix(['Z', 'z']) {
        (local, 0)
    } else {
        let (local, offset) = text.split_at_checked(text.len().checked_sub("+00:00".len())?)?;
        let sign = match offset.as_bytes().first() {
            Some(b'+') => 1,
            Some(b'-') => -1,
            _ => return None,
        };
        let (hours, minutes): (i64, i64) = (offset.get(1..3)?.parse().ok()?, offset.get(4..6)?.parse().ok()?);
        if !shape(&offset[1..], "00:00") || hours > 23 || minutes > 59 {
            return None;
        }
        (local, sign * (hours * HOUR_MS + minutes * MINUTE_MS))
    };
    let (seconds, fraction) = local.split_once('.').map_or((local, None), |(seconds, digits)| (seconds, Some(digits)));
    let fine = fraction.is_none_or(|digits| {
        (1..=FRACTION_MAX).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit())
    });
    (shape(seconds, "0000-00-00T00:00:00") && fine).then_some((local, offset_ms))
}

/// Fractional digits of a second, down to nanoseconds.
const FRACTION_MAX: usize = 9;

/// RFC 3339 in UTC with milliseconds and `Z`.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(std::str::from_utf8(&self.to_rfc3339()).map_err(|_| fmt::Error)?)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(std::str::from_utf8(&self.to_rfc3339()).unwrap_or_default())
    }
}

impl Timestamp {
    /// Formatted by hand for speed: every record of a response has several times, and every log line has one.
    fn to_rfc3339(self) -> [u8; RFC3339_TEMPLATE.len()] {
        let ms = self.0.clamp(MIN_MS, MAX_MS);
        let (year, month, day) = civil_date(ms.div_euclid(DAY_MS));
        let of_day = ms.rem_euclid(DAY_MS);
        let (hour, minute) = (of_day / HOUR_MS, of_day % HOUR_MS / MINUTE_MS);
        let (second, ms) = (of_day % MINUTE_MS / SECOND_MS, of_day % SECOND_MS);
        let mut text = *RFC3339_TEMPLATE;
        for (at, digits, number) in
            [(0, 4, year), (5, 2, month), (8, 2, day), (11, 2, hour), (14, 2, minute), (17, 2, second), (20, 3, ms)]
        {
            let mut rest = number;
            for digit in text[at..at + digits].iter_mut().rev() {
                *digit += u8::try_from(rest % 10).unwrap_or_default();
                rest /= 10;
            }
        }
        text
    }
}

const RFC3339_TEMPLATE: &[u8; 24] = b"0000-00-00T00:00:00.000Z";

/// The year, month and day of a day counted from 1970. The calculation starts each year in March, so that the leap day is
/// its last day, and uses spans of 400 years, which all have the same length.
fn civil_date(day: i64) -> (i64, i64, i64) {
    const FROM_MARCH_OF_YEAR_0: i64 = 719_468;
    const DAYS_OF_400_YEARS: i64 = 146_097;
    let day = day + FROM_MARCH_OF_YEAR_0;
    let (span, day) = (day.div_euclid(DAYS_OF_400_YEARS), day.rem_euclid(DAYS_OF_400_YEARS));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let year = 400 * span + year;
    if month < 10 { (year, month + 3, day) } else { (year + 1, month - 9, day) }
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

    #[test]
    fn every_time_of_four_digit_years_reads_back() {
        for text in [
            "0000-01-01T00:00:00.000Z",
            "1969-12-31T23:59:59.999Z",
            "1970-01-01T00:00:00.000Z",
            "2026-02-28T23:59:59.001Z",
            "9999-12-31T23:59:59.999Z",
        ] {
            assert_eq!(Timestamp::parse(text).map(|at| at.to_string()).as_deref(), Some(text));
        }
        assert_eq!(Timestamp::parse("2026-01-01t00:00:00.1234567z"), Timestamp::parse("2026-01-01T00:00:00.123Z"));
    }

    #[test]
    fn every_day_is_written_as_the_calendar_has_it() {
        // 23 shares no factor with the days of 400 years, so every day of the cycle is tested.
        const STEP: i64 = 23 * DAY_MS;
        for at in (MIN_MS..=MAX_MS).step_by(usize::try_from(STEP).unwrap_or(usize::MAX)) {
            let day = EPOCH.saturating_add(jiff::SignedDuration::from_millis(at)).date();
            assert_eq!(Timestamp(at).to_string(), format!("{day}T00:00:00.000Z"));
        }
    }

    #[test]
    fn what_is_no_rfc_3339_is_no_time() {
        for text in [
            "",
            "2026-02-01",
            "2026-02-01T12:00Z",
            "20260201T120000Z",
            "2026-02-01 12:00:00Z",
            "2026-02-01T12:00:00",
            "2026-02-01T12:00:00+01",
            "2026-02-01T12:00:00+0100",
            "2026-02-01T12:00:00+01:00:30",
            "2026-02-01T12:00:00+25:00",
            "2026-02-01T12:00:00,5Z",
            "2026-02-01T12:00:00.Z",
            "2026-02-01T12:00:00.0000000001Z",
            "2026-02-01T12:00:00Z[UTC]",
            "+002026-02-01T12:00:00Z",
            "-000001-01-01T00:00:00Z",
            "2026-02-30T12:00:00Z",
            "2026-02-01T24:00:00Z",
            "9999-12-31T23:59:59-01:00",
            "0000-01-01T00:00:00+01:00",
            "\u{662}026-02-01T12:00:00Z",
        ] {
            assert_eq!(Timestamp::parse(text), None, "{text}");
        }
    }
}
