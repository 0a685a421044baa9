//! Parts of a timestamp, in UTC or in a time zone.

use jiff::civil::DateTime;
use jiff::tz::{Offset, TimeZone};
use kernel::base::Timestamp;

use super::super::Fault;
use super::super::value::V;
use super::Part;

/// The years 1 to 9999, in milliseconds since 1970.
const FIRST_MS: i64 = -62_135_596_800_000;
const LAST_MS: i64 = 253_402_300_799_999;

/// A timestamp of the years 1 to 9999; others have no RFC 3339 form.
pub fn checked<'a>(ms: Option<i64>) -> Result<V<'a>, Fault> {
    match ms {
        Some(ms) if (FIRST_MS..=LAST_MS).contains(&ms) => Ok(V::Time(Timestamp::from_millis(ms))),
        _ => Err(Fault::failed("A time must be within the years 1 to 9999.")),
    }
}

pub fn part<'a>(part: Part, time: Timestamp, zone: Option<&str>) -> Result<Option<V<'a>>, Fault> {
    let local = local(time, zone)?;
    Ok(Some(V::Int(match part {
        Part::FullYear => i64::from(local.year()),
        Part::Month => i64::from(local.month()) - 1,
        Part::Date => i64::from(local.day()),
        Part::DayOfMonth => i64::from(local.day()) - 1,
        Part::DayOfWeek => i64::from(local.weekday().to_sunday_zero_offset()),
        Part::DayOfYear => i64::from(local.day_of_year()) - 1,
        Part::Hours => i64::from(local.hour()),
        Part::Minutes => i64::from(local.minute()),
        Part::Seconds => i64::from(local.second()),
        Part::Milliseconds => i64::from(local.millisecond()),
    })))
}

fn local(time: Timestamp, zone: Option<&str>) -> Result<DateTime, Fault> {
    let unknown = || Fault::failed("A time zone is an IANA name such as Europe/Berlin, or an offset such as +02:00.");
    let zone = match zone {
        None => TimeZone::UTC,
        Some(name) => match offset(name) {
            Some(seconds) => TimeZone::fixed(Offset::from_seconds(seconds).map_err(|_| unknown())?),
            None => TimeZone::get(name).map_err(|_| unknown())?,
        },
    };
    let instant = jiff::Timestamp::from_millisecond(time.as_millis());
    Ok(zone.to_datetime(instant.map_err(|_| Fault::failed("A time must be within the years 1 to 9999."))?))
}

/// `+02:00`, `-08:00`, or `02:00`.
fn offset(text: &str) -> Option<i32> {
    let (sign, digits) = match text.as_bytes().first()? {
        b'-' => (-1, &text[1..]),
        b'+' => (1, &text[1..]),
        _ => (1, text),
    };
    let (hours, minutes) = digits.split_once(':')?;
    let number = |text: &str| {
        let two = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        if two { text.parse::<i32>().ok() } else { None }
    };
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    (hours < 24 && minutes < 60).then_some(sign * (hours * 3_600 + minutes * 60))
}
