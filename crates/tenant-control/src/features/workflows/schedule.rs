//! When a schedule fires: five fields of cron, on the clocks of a time zone.
//!
//! A fixed time that the clocks jump over fires when they have jumped, and one that they show twice fires once; `*/15` and
//! its like fire at each quarter of an hour that there is.

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{ToSpan, Zoned};
use kernel::base::Timestamp;

/// Five fields, each a long list.
const CRON_BYTES_MAX: usize = 100;
const ZONE_BYTES_MAX: usize = 64;
/// The calendar repeats itself after so many years, leap days and days of the week together: what is on none of their days
/// never is.
const CALENDAR: (i16, i16) = (2000, 2027);
/// How many changes of the clocks are looked beyond where a time falls into hours that never were.
const JUMPS_MAX: usize = 8;

#[derive(Clone, Debug)]
pub struct Schedule {
    cron: Cron,
    zone: TimeZone,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleFault {
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

impl Schedule {
    pub fn parse(cron: &str, timezone: &str) -> Result<Schedule, ScheduleFault> {
        let schedule = Schedule { cron: parse_cron(cron)?, zone: parse_zone(timezone)? };
        if schedule.ever() {
            Ok(schedule)
        } else {
            let detail = "No day of any year is like this.".to_owned();
            Err(ScheduleFault { field: ScheduleField::Cron, code: "never_fires", detail })
        }
    }

    /// The first time later than this one. None where there is none that can be written.
    pub fn next_after(&self, at: Timestamp) -> Option<Timestamp> {
        let from = jiff::Timestamp::from_millisecond(at.as_millis()).ok()?;
        let next = self.search(&from.to_zoned(self.zone.clone()), false).or_else(|| self.beyond_a_jump(from))?;
        Some(Timestamp::from_millis(next.timestamp().as_millisecond()))
    }

    fn search(&self, from: &Zoned, inclusive: bool) -> Option<Zoned> {
        self.cron.find_next_occurrence(from, inclusive).ok()
    }

    /// A fixed time within hours that were left out, more than two of them, is an error of the search: Samoa had no 30
    /// December 2011. It goes on where the clocks do.
    fn beyond_a_jump(&self, from: jiff::Timestamp) -> Option<Zoned> {
        let mut jumps = self.zone.following(from).take(JUMPS_MAX);
        jumps.find_map(|jump| self.search(&jump.timestamp().to_zoned(self.zone.clone()), true))
    }

    /// Whether there is a day for it at all. The search itself would look until the year 5000.
    fn ever(&self) -> bool {
        let pattern = &self.cron.pattern;
        let (first, last) = CALENDAR;
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

fn parse_cron(text: &str) -> Result<Cron, ScheduleFault> {
    let fault = |detail: String| ScheduleFault { field: ScheduleField::Cron, code: "invalid", detail };
    if text.len() > CRON_BYTES_MAX {
        return Err(fault(format!("must have at most {CRON_BYTES_MAX} bytes")));
    }
    let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
    parser.parse(text).map_err(|error| fault(format!("must be five fields of cron, such as 0 9 * * MON-FRI: {error}")))
}

fn parse_zone(name: &str) -> Result<TimeZone, ScheduleFault> {
    let known = if name.len() > ZONE_BYTES_MAX { None } else { TimeZone::get(name).ok() };
    known.ok_or_else(|| ScheduleFault {
        field: ScheduleField::Timezone,
        code: "invalid",
        detail: "must be an IANA time zone such as Europe/Berlin".to_owned(),
    })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
mod tests;
