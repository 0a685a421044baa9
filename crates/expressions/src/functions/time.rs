//! Parts of a timestamp, in UTC or in a time zone.

use jiff::civil::DateTime;
use jiff::tz::{Offset, TimeZone};
use kernel::base::Timestamp;

use super::super::ExpressionError;
use super::super::value::CelValue;
use super::TimePart;

/// The years 1 to 9999, in milliseconds since 1970.
const FIRST_MS: i64 = -62_135_596_800_000;
const LAST_MS: i64 = 253_402_300_799_999;

/// A timestamp of the years 1 to 9999; others have no RFC 3339 form.
pub fn checked_time<'a>(ms: Option<i64>) -> Result<CelValue<'a>, ExpressionError> {
    match ms {
        Some(ms) if (FIRST_MS..=LAST_MS).contains(&ms) => Ok(CelValue::Time(Timestamp::from_millis(ms))),
        _ => Err(ExpressionError::failed("A time must be within the years 1 to 9999.")),
    }
}

pub fn time_part<'a>(
    part: TimePart,
    time: Timestamp,
    zone: Option<&str>,
) -> Result<Option<CelValue<'a>>, ExpressionError> {
    let local = local_datetime(time, zone)?;
    Ok(Some(CelValue::Int(match part {
        TimePart::FullYear => i64::from(local.year()),
        TimePart::Month => i64::from(local.month()) - 1,
        TimePart::Date => i64::from(local.day()),
        TimePart::DayOfMonth => i64::from(local.day()) - 1,
        TimePart::DayOfWeek => i64::from(local.weekday().to_sunday_zero_offset()),
        TimePart::DayOfYear => i64::from(local.day_of_year()) - 1,
        TimePart::Hours => i64::from(local.hour()),
        TimePart::Minutes => i64::from(local.minute()),
        TimePart::Seconds => i64::from(local.second()),
        TimePart::Milliseconds => i64::from(local.millisecond()),
    })))
}

fn local_datetime(time: Timestamp, zone: Option<&str>) -> Result<DateTime, ExpressionError> {
    let unknown =
        || ExpressionError::failed("A time zone is an IANA name such as Europe/Berlin, or an offset such as +02:00.");
    let zone = match zone {
        None => TimeZone::UTC,
        Some(name) => match parse_offset(name) {
            Some(seconds) => TimeZone::fixed(Offset::from_seconds(seconds).map_err(|_| unknown())?),
            None => TimeZone::get(name).map_err(|_| unknown())?,
        },
    };
    let instant = jiff::Timestamp::from_millisecond(time.as_millis());
    Ok(zone.to_datetime(instant.map_err(|_| ExpressionError::failed("A time must be within the years 1 to 9999."))?))
}

/// `+02:00`, `-08:00`, or `02:00`.
fn parse_offset(text: &str) -> Option<i32> {
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
