//! Business hours: how much of a period counts, and when a given amount of counted time has passed.

use jiff::ToSpan;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use kernel::base::{MINUTE_MS, Timestamp};

/// More windows than this in a week are a mistake.
const WINDOWS_MAX: usize = 50;
const DAY_MINUTES: i64 = 24 * 60;
/// Every target must be reached within this many weeks; business hours that are too few are refused.
const WEEKS_MAX: i64 = 520;
/// The end of the search for windows: a few weeks more than `WEEKS_MAX`, for daylight saving changes.
const DAYS_MAX: usize = 540 * 7;

/// The times in which the SLA clock runs.
#[derive(Clone, Debug)]
pub enum BusinessHours {
    /// Day and night.
    Always,
    Weekly(WeeklyHours),
}

/// Windows of a week in a time zone. The windows of a day are sorted and do not touch.
#[derive(Clone, Debug)]
pub struct WeeklyHours {
    zone: TimeZone,
    /// Monday first. Windows are in minutes of the day, the end exclusive.
    days: [Vec<(i64, i64)>; 7],
}

impl BusinessHours {
    /// Parses `mon-fri@09:00-17:00`, or a comma list of such windows. Without hours, every moment counts.
    pub fn parse(hours: Option<&str>, zone: Option<&str>) -> Result<Self, String> {
        let Some(hours) = hours else {
            return if zone.is_some() { Err("a time zone needs hours".to_owned()) } else { Ok(BusinessHours::Always) };
        };
        let zone = zone.unwrap_or("UTC");
        let zone =
            TimeZone::get(zone).map_err(|_| format!("{zone:?} is not an IANA time zone such as Europe/Berlin"))?;
        let mut days: [Vec<(i64, i64)>; 7] = Default::default();
        let parts: Vec<&str> = hours.split(',').collect();
        if parts.len() > WINDOWS_MAX {
            return Err(format!("must have at most {WINDOWS_MAX} windows"));
        }
        for part in parts {
            let wrong = || format!("{part:?} is not like mon-fri@09:00-17:00");
            let (on, window) = part.split_once('@').ok_or_else(wrong)?;
            let (from, to) = window.split_once('-').ok_or_else(wrong)?;
            let (from, to) = (parse_minute(from).ok_or_else(wrong)?, parse_minute(to).ok_or_else(wrong)?);
            if from >= to {
                return Err(format!("{part:?} ends before it starts"));
            }
            for day in parse_days(on).ok_or_else(wrong)? {
                days[day].push((from, to));
            }
        }
        for day in &mut days {
            *day = merge_windows(std::mem::take(day));
        }
        Ok(BusinessHours::Weekly(WeeklyHours { zone, days }))
    }

    /// Whether so many minutes pass within `WEEKS_MAX`.
    pub fn can_hold(&self, minutes: i64) -> bool {
        match self {
            BusinessHours::Always => true,
            BusinessHours::Weekly(weekly) => {
                let open: i64 = weekly.days.iter().flatten().map(|(from, to)| to - from).sum();
                open.saturating_mul(WEEKS_MAX) >= minutes
            }
        }
    }

    /// How many milliseconds between the two moments count.
    pub fn counted_ms_between(&self, from: Timestamp, to: Timestamp) -> i64 {
        match self {
            BusinessHours::Always => (to.as_millis() - from.as_millis()).max(0),
            BusinessHours::Weekly(weekly) => {
                let cut = |(start, end): (i64, i64)| (end.min(to.as_millis()) - start.max(from.as_millis())).max(0);
                weekly.windows_from(from).take_while(|(start, _)| *start < to.as_millis()).map(cut).sum()
            }
        }
    }

    /// The moment at which `ms` of counted time have passed since `start`.
    pub fn moment_after(&self, start: Timestamp, ms: i64) -> Timestamp {
        let BusinessHours::Weekly(weekly) = self else { return start.plus_ms(ms) };
        let mut left = ms;
        if left <= 0 {
            return start;
        }
        for (open, close) in weekly.windows_from(start) {
            let open = open.max(start.as_millis());
            if close <= open {
                continue;
            }
            if left <= close - open {
                return Timestamp::from_millis(open + left);
            }
            left -= close - open;
        }
        FAR_FUTURE
    }
}

/// The last moment of the year 9999.
const FAR_FUTURE: Timestamp = Timestamp::from_millis(253_402_300_799_999);

impl WeeklyHours {
    /// Windows as moments, from the day before `start` on.
    fn windows_from(&self, start: Timestamp) -> impl Iterator<Item = (i64, i64)> {
        let at = jiff::Timestamp::from_millisecond(start.as_millis()).unwrap_or_default();
        // A day of margin, because the local date may differ across a daylight saving change.
        let first = self.zone.to_datetime(at).date().saturating_sub(1.day());
        let dates = std::iter::successors(Some(first), |date| date.checked_add(1.day()).ok()).take(DAYS_MAX);
        dates.flat_map(|date| self.windows_on(date))
    }

    fn windows_on(&self, date: Date) -> Vec<(i64, i64)> {
        let day = &self.days[usize::from(date.weekday().to_monday_zero_offset().unsigned_abs())];
        let mut windows: Vec<(i64, i64)> = Vec::new();
        for (from, to) in day {
            let (Some(from), Some(to)) = (self.to_utc_ms(date, *from), self.to_utc_ms(date, *to)) else { continue };
            // A window that ends in a skipped hour would overlap the next one.
            let from = windows.last().map_or(from, |(_, end)| from.max(*end));
            windows.push((from, to.max(from)));
        }
        windows
    }

    /// A local time in UTC milliseconds. A skipped local time moves by the length of the gap; of a repeated one, the first
    /// counts.
    fn to_utc_ms(&self, date: Date, minute: i64) -> Option<i64> {
        let (date, minute) = if minute == DAY_MINUTES { (date.checked_add(1.day()).ok()?, 0) } else { (date, minute) };
        let (hour, minute) = (i8::try_from(minute / 60).ok()?, i8::try_from(minute % 60).ok()?);
        let zoned = self.zone.to_ambiguous_zoned(date.at(hour, minute, 0, 0)).compatible().ok()?;
        Some(zoned.timestamp().as_millisecond())
    }
}

const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];

/// Parses `mon` or `mon-fri`; `fri-mon` spans the weekend.
fn parse_days(text: &str) -> Option<Vec<usize>> {
    let day = |name: &str| DAYS.iter().position(|known| name.eq_ignore_ascii_case(known));
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (day(first)?, day(last)?);
    let mut days = vec![first];
    while days.last() != Some(&last) {
        days.push((days.last()? + 1) % DAYS.len());
    }
    Some(days)
}

/// Parses `09:00` into minutes since midnight; `24:00` is the end of the day.
fn parse_minute(text: &str) -> Option<i64> {
    let (hour, minute) = text.split_once(':')?;
    let number = |text: &str, max: i64| {
        let plain = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        plain.then(|| text.parse().ok()).flatten().filter(|number: &i64| *number <= max)
    };
    Some(number(hour, 24)? * 60 + number(minute, 59)?).filter(|minute| *minute <= DAY_MINUTES)
}

fn merge_windows(mut windows: Vec<(i64, i64)>) -> Vec<(i64, i64)> {
    windows.sort_unstable();
    let mut apart: Vec<(i64, i64)> = Vec::new();
    for (from, to) in windows {
        match apart.last_mut() {
            Some((_, end)) if from <= *end => *end = (*end).max(to),
            _ => apart.push((from, to)),
        }
    }
    apart
}

pub const fn minutes_ms(minutes: i64) -> i64 {
    minutes.saturating_mul(MINUTE_MS)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may fail")]
    use super::*;

    fn at(text: &str) -> Timestamp {
        Timestamp::parse(text).unwrap()
    }

    fn berlin(hours: &str) -> BusinessHours {
        BusinessHours::parse(Some(hours), Some("Europe/Berlin")).unwrap()
    }

    #[test]
    fn a_promise_of_a_day_ends_with_the_day_and_not_with_the_next_morning() {
        let hours = berlin("mon-fri@09:00-17:00");
        let friday = at("2026-01-09T08:00:00Z");
        assert_eq!(hours.moment_after(friday, minutes_ms(480)), at("2026-01-09T16:00:00Z"));
        assert_eq!(hours.moment_after(friday, minutes_ms(481)), at("2026-01-12T08:01:00Z"));
    }

    #[test]
    fn outside_the_hours_nothing_counts() {
        let hours = berlin("mon-fri@09:00-12:00,mon-fri@13:00-17:00");
        assert_eq!(hours.counted_ms_between(at("2026-01-09T11:00:00Z"), at("2026-01-09T12:00:00Z")), 0);
        assert_eq!(hours.counted_ms_between(at("2026-01-09T10:30:00Z"), at("2026-01-09T12:30:00Z")), minutes_ms(60));
        assert_eq!(hours.counted_ms_between(at("2026-01-10T00:00:00Z"), at("2026-01-12T00:00:00Z")), 0);
        assert_eq!(hours.moment_after(at("2026-01-10T12:00:00Z"), 1), at("2026-01-12T08:00:00.001Z"));
    }

    #[test]
    fn days_are_shorter_and_longer_when_the_clocks_change() {
        let hours = berlin("mon-sun@00:00-24:00");
        // 29 March 2026 has 23 hours in Berlin, 25 October has 25.
        assert_eq!(
            hours.counted_ms_between(at("2026-03-28T23:00:00Z"), at("2026-03-29T22:00:00Z")),
            minutes_ms(23 * 60)
        );
        assert_eq!(
            hours.counted_ms_between(at("2026-10-24T22:00:00Z"), at("2026-10-25T23:00:00Z")),
            minutes_ms(25 * 60)
        );
        let night = berlin("sun@02:00-03:00");
        assert_eq!(night.counted_ms_between(at("2026-03-28T12:00:00Z"), at("2026-03-30T12:00:00Z")), 0);
        assert_eq!(night.counted_ms_between(at("2026-10-24T12:00:00Z"), at("2026-10-26T12:00:00Z")), minutes_ms(120));
    }

    #[test]
    fn office_hours_keep_their_local_time_over_a_change() {
        let hours = berlin("mon-fri@09:00-17:00");
        // Friday 27 March at 16:00 in winter, so 9:00 on Monday is 7:00 in UTC.
        assert_eq!(hours.moment_after(at("2026-03-27T15:00:00Z"), minutes_ms(120)), at("2026-03-30T08:00:00Z"));
        assert_eq!(hours.moment_after(at("2026-10-23T14:00:00Z"), minutes_ms(120)), at("2026-10-26T09:00:00Z"));
    }

    #[test]
    fn no_minute_counts_twice_when_the_clocks_skip_an_hour() {
        let hours = berlin("sun@01:30-02:30,sun@03:00-04:00");
        // From 00:30 to 02:00 in UTC, though the first window would end at 03:30 local time.
        assert_eq!(hours.counted_ms_between(at("2026-03-28T12:00:00Z"), at("2026-03-30T12:00:00Z")), minutes_ms(90));
    }

    #[test]
    fn what_is_not_hours_is_refused() {
        for bad in
            ["", "mon", "mon@", "mon@9:00-17:00", "mon@09:00", "mon@17:00-09:00", "mon@09:00-24:01", "fry@09:00-10:00"]
        {
            assert!(BusinessHours::parse(Some(bad), None).is_err(), "{bad}");
        }
        assert!(BusinessHours::parse(Some("mon@09:00-10:00"), Some("Mars/Olympus")).is_err());
        assert!(BusinessHours::parse(None, Some("UTC")).is_err());
        assert!(matches!(BusinessHours::parse(None, None), Ok(BusinessHours::Always)));
        assert!(BusinessHours::parse(Some("fri-mon@00:00-24:00"), Some("America/New_York")).is_ok());
    }
}
