//! Parts of a timestamp, in UTC or in a time zone, and of a duration.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use super::super::value::{CelTime, CelValue, parse_offset};
use super::super::{CostMeter, ExpressionError};
use super::{CallResult, span};

/// The cost of looking up a time zone, beside the step.
const ZONE_BYTES: usize = 64;

/// A part of a timestamp or of a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimePart {
    FullYear,
    Month,
    Date,
    DayOfMonth,
    DayOfWeek,
    DayOfYear,
    Hours,
    Minutes,
    Seconds,
    Milliseconds,
}

pub fn part_of<'a>(part: TimePart, arguments: &[CelValue<'a>], meter: &mut CostMeter) -> CallResult<'a> {
    let local = match arguments {
        [CelValue::Time(time)] => time.to_local(0).ok_or_else(out_of_range)?,
        [CelValue::Time(time), CelValue::Text(zone)] => {
            meter.charge_bytes(ZONE_BYTES.saturating_add(zone.len()))?;
            local_datetime(*time, zone)?
        }
        [CelValue::Span(nanoseconds)] => return Ok(span::span_part(part, *nanoseconds)),
        _ => return Ok(None),
    };
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

fn out_of_range() -> ExpressionError {
    ExpressionError::failed("A time must be within the years 1 to 9999.")
}

fn local_datetime(time: CelTime, zone: &str) -> Result<DateTime, ExpressionError> {
    let offset_seconds = match parse_offset(zone) {
        Some(seconds) => seconds,
        None => zone_offset(time, zone).ok_or_else(|| {
            ExpressionError::failed("A time zone is an IANA name such as Europe/Berlin, or an offset such as +02:00.")
        })?,
    };
    time.to_local(offset_seconds).ok_or_else(out_of_range)
}

fn zone_offset(time: CelTime, zone: &str) -> Option<i64> {
    // The time zone database ends a day before the last time does.
    let seconds = time.seconds().min(Timestamp::MAX.as_second());
    let instant = Timestamp::from_second(seconds).ok()?;
    Some(i64::from(TimeZone::get(zone).ok()?.to_offset(instant).seconds()))
}
