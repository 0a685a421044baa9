//! Schedules: five fields of cron in a time zone.
//!
//! Where clocks change, fixed times that are skipped fire right after the jump, and fixed times that occur twice fire once.
//! Steps such as `*/15` fire at each quarter of an hour that exists.

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::civil::Date;
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{ToSpan, Zoned};
use kernel::base::Timestamp;

/// Enough for five fields with long lists.
const CRON_BYTES_MAX: usize = 100;
const ZONE_BYTES_MAX: usize = 64;
/// Leap days and weekdays repeat after these 28 years: a schedule that matches none of their days never fires.
const CALENDAR_YEARS: (i16, i16) = (2000, 2027);
/// How many clock changes the search goes beyond when a time falls into skipped hours.
const JUMPS_MAX: usize = 8;
const DAY_SECONDS: i32 = 24 * 60 * 60;
/// How many fixed times that are already past are examined.
const FIXED_TIMES_MAX: usize = 10_000;

#[derive(Clone, Debug)]
pub struct CronSchedule {
    cron: Cron,
    zone: TimeZone,
    /// Minutes and hours are listed one by one, without steps.
    fixed: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleError {
    pub field: ScheduleField,
    pub code: &'static str,
    pub detail: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScheduleField {
    Cron,
    Timezone,
}

impl ScheduleField {
    pub fn name(self) -> &'static str {
        match self {
            ScheduleField::Cron => "cron",
            ScheduleField::Timezone => "timezone",
        }
    }
}

impl CronSchedule {
    pub fn parse(cron: &str, timezone: &str) -> Result<CronSchedule, ScheduleError> {
        let schedule = CronSchedule { cron: parse_cron(cron)?, zone: parse_zone(timezone)?, fixed: is_fixed(cron) };
        if schedule.ever_fires() {
            Ok(schedule)
        } else {
            let detail = "There is no such day in any year.".to_owned();
            Err(ScheduleError { field: ScheduleField::Cron, code: "never_fires", detail })
        }
    }

    /// The first time after `at`; none beyond the range of timestamps.
    pub fn next_after(&self, at: Timestamp) -> Option<Timestamp> {
        let from = jiff::Timestamp::from_millisecond(at.as_millis()).ok()?;
        let next = if self.fixed {
            self.next_fixed(from)?
        } else {
            let next = self
                .find_occurrence(&from.to_zoned(self.zone.clone()), false)
                .or_else(|| self.find_after_jump(from))?;
            next.timestamp()
        };
        Some(Timestamp::from_millis(next.as_millisecond()))
    }

    /// Searches in local time without clock changes, and converts the result: a skipped time becomes the time of the jump,
    /// an ambiguous time its first occurrence.
    fn next_fixed(&self, from: jiff::Timestamp) -> Option<jiff::Timestamp> {
        let mut shown = from.to_zoned(self.zone.clone()).datetime();
        for _ in 0..FIXED_TIMES_MAX {
            shown = self.find_occurrence(&shown.to_zoned(TimeZone::UTC).ok()?, false)?.datetime();
            let at = match self.zone.to_ambiguous_timestamp(shown).offset() {
                AmbiguousOffset::Unambiguous { offset } => offset.to_timestamp(shown).ok()?,
                AmbiguousOffset::Fold { before, .. } => before.to_timestamp(shown).ok()?,
                // A skipped day has no times: Samoa had no 30 December 2011.
                AmbiguousOffset::Gap { before, after } if after.seconds() - before.seconds() >= DAY_SECONDS => continue,
                AmbiguousOffset::Gap { after, .. } => {
                    self.zone.following(after.to_timestamp(shown).ok()?).next()?.timestamp()
                }
            };
            if at > from {
                return Some(at);
            }
        }
        None
    }

    fn find_occurrence(&self, from: &Zoned, inclusive: bool) -> Option<Zoned> {
        self.cron.find_next_occurrence(from, inclusive).ok()
    }

    /// The search can fail for a time within more than two skipped hours: Samoa had no 30 December 2011. It is repeated from
    /// each following clock change.
    fn find_after_jump(&self, from: jiff::Timestamp) -> Option<Zoned> {
        let mut jumps = self.zone.following(from).take(JUMPS_MAX);
        jumps.find_map(|jump| self.find_occurrence(&jump.timestamp().to_zoned(self.zone.clone()), true))
    }

    /// Whether any day matches. The search itself would go on until the year 5000.
    fn ever_fires(&self) -> bool {
        let pattern = &self.cron.pattern;
        let (first, last) = CALENDAR_YEARS;
        let mut day = Date::constant(first, 1, 1);
        while day.year() <= last {
            let month = u32::from(day.month().unsigned_abs());
            let step = if pattern.month_match(month).unwrap_or(false) {
                let weekday = croner::Weekday::from_days_from_sunday(u32::from(
                    day.weekday().to_sunday_zero_offset().unsigned_abs(),
                ));
                let number = u32::from(day.day().unsigned_abs());
                if pattern.day_match(i32::from(day.year()), month, number, weekday).unwrap_or(false) {
                    return true;
                }
                day.checked_add(1.day())
            } else {
                day.last_of_month().checked_add(1.day())
            };
            match step {
                Ok(next) => day = next,
                Err(_) => return false,
            }
        }
        false
    }
}

/// Whether minutes and hours have no steps or wildcards.
fn is_fixed(cron: &str) -> bool {
    let fields: Vec<&str> = cron.split_whitespace().collect();
    fields.len() == 5 && !fields[..2].iter().any(|field| field.contains(['*', '/', '?']))
}

fn parse_cron(text: &str) -> Result<Cron, ScheduleError> {
    let fault = |detail: String| ScheduleError { field: ScheduleField::Cron, code: "invalid", detail };
    if text.len() > CRON_BYTES_MAX {
        return Err(fault(format!("must have at most {CRON_BYTES_MAX} bytes")));
    }
    let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
    parser.parse(text).map_err(|error| fault(format!("must be five fields of cron, such as 0 9 * * MON-FRI: {error}")))
}

pub fn parse_zone(name: &str) -> Result<TimeZone, ScheduleError> {
    // These files of the database are the zone of this machine, and differ between nodes.
    let is_local = ["localtime", "posixrules"].iter().any(|local| local.eq_ignore_ascii_case(name));
    let zone = if name.len() > ZONE_BYTES_MAX || is_local { None } else { TimeZone::get(name).ok() };
    zone.ok_or_else(|| ScheduleError {
        field: ScheduleField::Timezone,
        code: "invalid",
        detail: "must be an IANA time zone such as Europe/Berlin".to_owned(),
    })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
mod tests;
