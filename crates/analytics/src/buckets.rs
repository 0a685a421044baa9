//! The hours, days and weeks of a time zone that a range reaches into.

use jiff::tz::TimeZone;
use jiff::{Timestamp as Instant, Zoned};
use kernel::base::{DAY_MS, Error, HOUR_MS, Result};

use crate::grain::Grain;
use crate::rollups::store::TimeRange;

kernel::string_enum! {
    /// How long a bucket is, in the time zone. A day of a change of the clocks has 23 or 25 hours, a week begins on Monday.
    #[schema(as = AnalyticsInterval)]
    pub enum Interval { Hour "hour", Day "day", Week "week" }
}

/// More buckets are refused.
pub const BUCKETS_MAX: usize = 10_000;

/// The starts of all buckets that the range reaches into, and the end of the last one. None if there are too many.
pub fn bucket_bounds(range: TimeRange, interval: Interval, zone: &TimeZone) -> Result<Option<Vec<i64>>> {
    let shortest = match interval {
        Interval::Hour => HOUR_MS,
        Interval::Day => 23 * HOUR_MS,
        Interval::Week => 6 * DAY_MS,
    };
    if (range.until - range.since) / shortest > BUCKETS_MAX as i64 + 1 {
        return Ok(None);
    }
    let mut bounds = vec![first_bound(range.since, interval, zone)?];
    while let Some(last) = bounds.last().copied().filter(|last| *last < range.until) {
        bounds.push(next_bound(last, interval, zone)?);
    }
    Ok((bounds.len() <= BUCKETS_MAX + 1).then_some(bounds))
}

fn to_zoned(at: i64, zone: &TimeZone) -> Result<Zoned> {
    Ok(Instant::from_millisecond(at).map_err(Error::internal)?.to_zoned(zone.clone()))
}

fn to_millis(day: &Zoned) -> i64 {
    day.timestamp().as_millisecond()
}

/// The start of the bucket that a moment is in.
fn first_bound(at: i64, interval: Interval, zone: &TimeZone) -> Result<i64> {
    let local = to_zoned(at, zone)?;
    match interval {
        Interval::Hour => {
            // The last quarter of an hour that began with a full hour of the clock.
            let mut start = Grain::Quarter.floor(at);
            while !is_full_hour(start, zone)? {
                start -= Grain::Quarter.length_ms();
            }
            Ok(start)
        }
        Interval::Day => local.start_of_day().map(|day| to_millis(&day)).map_err(Error::internal),
        Interval::Week => {
            let days = i64::from(local.weekday().to_monday_zero_offset());
            let monday = local.date().checked_sub(jiff::Span::new().days(days)).map_err(Error::internal)?;
            start_of(monday, zone)
        }
    }
}

fn next_bound(bound: i64, interval: Interval, zone: &TimeZone) -> Result<i64> {
    let days = match interval {
        Interval::Hour => {
            let mut next = bound + Grain::Quarter.length_ms();
            while !is_full_hour(next, zone)? {
                next += Grain::Quarter.length_ms();
            }
            return Ok(next);
        }
        Interval::Day => 1,
        Interval::Week => 7,
    };
    let date = to_zoned(bound, zone)?.date().checked_add(jiff::Span::new().days(days)).map_err(Error::internal)?;
    let next = start_of(date, zone)?;
    // A date that a zone has skipped, as Samoa did one, begins where the one after it does.
    if next > bound { Ok(next) } else { next_bound(next + DAY_MS, interval, zone) }
}

fn start_of(date: jiff::civil::Date, zone: &TimeZone) -> Result<i64> {
    date.to_zoned(zone.clone()).map(|day| to_millis(&day)).map_err(Error::internal)
}

fn is_full_hour(at: i64, zone: &TimeZone) -> Result<bool> {
    let instant = Instant::from_millisecond(at).map_err(Error::internal)?;
    // Offsets of before 1972 have odd minutes and seconds; their hours are those of the next quarter of an hour.
    let offset = i64::from(zone.to_offset(instant).seconds()) * kernel::base::SECOND_MS;
    Ok((at + offset).rem_euclid(HOUR_MS) < Grain::Quarter.length_ms())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn at(text: &str) -> i64 {
        text.parse::<Instant>().unwrap().as_millisecond()
    }

    fn bounds(since: &str, until: &str, interval: Interval, zone: &str) -> Vec<String> {
        let zone = TimeZone::get(zone).unwrap();
        let range = TimeRange { since: at(since), until: at(until) };
        let bounds = bucket_bounds(range, interval, &zone).unwrap().unwrap();
        bounds.into_iter().map(|at| Instant::from_millisecond(at).unwrap().to_string()).collect()
    }

    #[test]
    fn days_of_changes_of_the_clocks_have_23_and_25_hours() {
        let spring = bounds("2026-03-28T12:00:00Z", "2026-03-30T12:00:00Z", Interval::Day, "Europe/Berlin");
        assert_eq!(
            spring,
            ["2026-03-27T23:00:00Z", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z", "2026-03-30T22:00:00Z"]
        );
        let autumn = bounds("2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z", Interval::Hour, "Europe/Berlin");
        assert_eq!(autumn.len(), 26);
    }

    #[test]
    fn weeks_begin_on_monday_and_the_last_one_is_whole() {
        let weeks = bounds("2026-11-18T12:00:00Z", "2026-11-23T00:00:00Z", Interval::Week, "UTC");
        assert_eq!(weeks, ["2026-11-16T00:00:00Z", "2026-11-23T00:00:00Z"]);
        let weeks = bounds("2026-03-27T12:00:00Z", "2026-04-01T00:00:00Z", Interval::Week, "Europe/Berlin");
        assert_eq!(weeks, ["2026-03-22T23:00:00Z", "2026-03-29T22:00:00Z", "2026-04-05T22:00:00Z"]);
    }

    #[test]
    fn zones_that_are_ahead_by_parts_of_an_hour_have_hours_of_their_own() {
        for (zone, first) in [("Asia/Kolkata", "2026-11-16T11:30:00Z"), ("Asia/Kathmandu", "2026-11-16T11:15:00Z")] {
            let hours = bounds("2026-11-16T12:10:00Z", "2026-11-16T12:20:00Z", Interval::Hour, zone);
            assert_eq!(hours.first().map(String::as_str), Some(first), "{zone}");
        }
        // Lord Howe Island sets its clocks by half an hour: one hour of the day has 90 minutes, or one has 30.
        let hours = bounds("2026-04-04T12:00:00Z", "2026-04-04T18:00:00Z", Interval::Hour, "Australia/Lord_Howe");
        assert!(hours.windows(2).all(|pair| pair[0] < pair[1]), "{hours:?}");
        assert_eq!(
            hours[..4],
            ["2026-04-04T12:00:00Z", "2026-04-04T13:00:00Z", "2026-04-04T14:00:00Z", "2026-04-04T15:30:00Z"]
        );
    }

    #[test]
    fn a_day_without_midnight_and_a_day_that_was_skipped() {
        let days = bounds("2018-11-03T12:00:00Z", "2018-11-05T12:00:00Z", Interval::Day, "America/Sao_Paulo");
        assert_eq!(
            days,
            ["2018-11-03T03:00:00Z", "2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z", "2018-11-06T02:00:00Z"]
        );
        let days = bounds("2011-12-29T12:00:00Z", "2011-12-31T12:00:00Z", Interval::Day, "Pacific/Apia");
        assert!(days.windows(2).all(|pair| pair[0] < pair[1]), "{days:?}");
    }

    #[test]
    fn too_many_are_refused_before_they_are_counted() {
        let range = TimeRange { since: 0, until: at("2026-11-16T00:00:00Z") };
        assert_eq!(bucket_bounds(range, Interval::Hour, &TimeZone::UTC).unwrap(), None);
        let range = TimeRange { since: 0, until: BUCKETS_MAX as i64 * HOUR_MS };
        assert_eq!(bucket_bounds(range, Interval::Hour, &TimeZone::UTC).unwrap().unwrap().len(), BUCKETS_MAX + 1);
    }
}
