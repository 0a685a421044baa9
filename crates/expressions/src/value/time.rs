//! Times and durations, to the nanosecond.

use jiff::SignedDuration;
use jiff::civil::{DateTime, date};
use kernel::base::Timestamp;

/// The years 1 to 9999, in seconds since 1970: others have no RFC 3339 form.
const FIRST_SECOND: i64 = -62_135_596_800;
const LAST_SECOND: i64 = 253_402_300_799;
pub const NANOSECONDS: i64 = 1_000_000_000;
const EPOCH: DateTime = date(1970, 1, 1).at(0, 0, 0, 0);

/// A time of the years 1 to 9999.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CelTime {
    /// Since 1970; negative before.
    seconds: i64,
    /// After that second.
    nanoseconds: i64,
}

impl CelTime {
    pub const EPOCH: CelTime = CelTime { seconds: 0, nanoseconds: 0 };

    /// `None` beyond the years 1 to 9999.
    pub fn new(seconds: i64, nanoseconds: i64) -> Option<CelTime> {
        let seconds = seconds.checked_add(nanoseconds.div_euclid(NANOSECONDS))?;
        let in_range = (FIRST_SECOND..=LAST_SECOND).contains(&seconds);
        in_range.then(|| CelTime { seconds, nanoseconds: nanoseconds.rem_euclid(NANOSECONDS) })
    }

    pub fn from_timestamp(time: Timestamp) -> Option<CelTime> {
        let ms = time.as_millis();
        CelTime::new(ms.div_euclid(1_000), ms.rem_euclid(1_000) * 1_000_000)
    }

    pub fn seconds(self) -> i64 {
        self.seconds
    }

    pub fn checked_add(self, span: i64) -> Option<CelTime> {
        CelTime::new(self.seconds.checked_add(span / NANOSECONDS)?, self.nanoseconds + span % NANOSECONDS)
    }

    pub fn checked_sub(self, span: i64) -> Option<CelTime> {
        self.checked_add(span.checked_neg()?)
    }

    /// The nanoseconds since another time; `None` beyond 292 years.
    pub fn span_since(self, other: CelTime) -> Option<i64> {
        let nanoseconds = i128::from(self.seconds - other.seconds) * i128::from(NANOSECONDS)
            + i128::from(self.nanoseconds - other.nanoseconds);
        i64::try_from(nanoseconds).ok()
    }

    /// The date and the clock in a zone this many seconds ahead of UTC.
    pub fn to_local(self, offset_seconds: i64) -> Option<DateTime> {
        let nanoseconds = i32::try_from(self.nanoseconds).ok()?;
        EPOCH.checked_add(SignedDuration::new(self.seconds.checked_add(offset_seconds)?, nanoseconds)).ok()
    }

    /// A time as RFC 3339 writes it, to the nanosecond.
    pub fn parse(text: &str) -> Option<CelTime> {
        let (clock, rest) = text.split_at_checked("2026-01-02T03:04:05".len())?;
        let number = |from: usize, to: usize| parse_digits(clock.get(from..to)?);
        let signs_fit = clock.bytes().enumerate().all(|(at, letter)| match at {
            4 | 7 => letter == b'-',
            10 => letter.eq_ignore_ascii_case(&b'T'),
            13 | 16 => letter == b':',
            _ => letter.is_ascii_digit(),
        });
        if !signs_fit {
            return None;
        }
        let (nanoseconds, zone) = parse_fraction(rest)?;
        let local = DateTime::new(
            i16::try_from(number(0, 4)?).ok()?,
            i8::try_from(number(5, 7)?).ok()?,
            i8::try_from(number(8, 10)?).ok()?,
            i8::try_from(number(11, 13)?).ok()?,
            i8::try_from(number(14, 16)?).ok()?,
            i8::try_from(number(17, 19)?).ok()?,
            0,
        );
        let seconds = local.ok()?.duration_since(EPOCH).as_secs();
        CelTime::new(seconds - parse_zone(zone)?, nanoseconds)
    }

    /// RFC 3339 in UTC, with at least this many digits after the second, and as many as there are.
    pub fn to_text(self, digits_min: usize) -> String {
        let Some(local) = self.to_local(0) else { return String::new() };
        let mut text = local.strftime("%Y-%m-%dT%H:%M:%S").to_string();
        let fraction = format!("{:09}", self.nanoseconds);
        let digits = fraction.trim_end_matches('0').len();
        // In thousandths, millionths or billionths, where a least number of digits is asked for.
        let digits = if digits_min > 0 { digits.max(digits_min).next_multiple_of(3) } else { digits };
        if digits > 0 {
            text.push('.');
            text.push_str(&fraction[..digits]);
        }
        text.push('Z');
        text
    }
}

fn parse_digits(digits: &str) -> Option<i64> {
    digits.bytes().all(|digit| digit.is_ascii_digit()).then(|| digits.parse().ok())?
}

/// The nanoseconds of a fraction, if there is one, and what follows.
fn parse_fraction(text: &str) -> Option<(i64, &str)> {
    let Some(digits) = text.strip_prefix('.') else { return Some((0, text)) };
    let end = digits.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(digits.len());
    let (digits, rest) = digits.split_at(end);
    let nanoseconds = format!("{digits:0<9}").parse().ok()?;
    (1..=9).contains(&digits.len()).then_some((nanoseconds, rest))
}

/// The seconds that a zone is ahead of UTC: `Z`, `+02:00`.
fn parse_zone(zone: &str) -> Option<i64> {
    if zone.eq_ignore_ascii_case("Z") { Some(0) } else { parse_offset(zone).filter(|_| zone.starts_with(['+', '-'])) }
}

/// The seconds of `+02:00`, `-08:00` or `02:00`.
pub fn parse_offset(text: &str) -> Option<i64> {
    let (sign, digits) = match text.as_bytes().first()? {
        b'-' => (-1, &text[1..]),
        b'+' => (1, &text[1..]),
        _ => (1, text),
    };
    let (hours, minutes) = digits.split_once(':')?;
    let number = |digits: &str| if digits.len() == 2 { parse_digits(digits) } else { None };
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    (hours < 24 && minutes < 60).then_some(sign * (hours * 3_600 + minutes * 60))
}

/// Seconds, with a fraction where there is one, and `s`: the JSON form of protocol buffer durations.
pub fn span_text(nanoseconds: i64) -> String {
    let (sign, nanoseconds) = (if nanoseconds < 0 { "-" } else { "" }, nanoseconds.unsigned_abs());
    let (seconds, rest) = (nanoseconds / NANOSECONDS.unsigned_abs(), nanoseconds % NANOSECONDS.unsigned_abs());
    match rest {
        0 => format!("{sign}{seconds}s"),
        rest => format!("{sign}{seconds}.{}s", format!("{rest:09}").trim_end_matches('0')),
    }
}
