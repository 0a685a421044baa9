//! The lengths of time by which the product sums, as they are stored.

use kernel::base::{DAY_MS, HOUR_MS, MINUTE_MS};

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Grain {
    Quarter,
    Hour,
    Day,
    Week,
}

/// 1970 began on a Thursday, and weeks begin on Monday.
const FIRST_MONDAY_MS: i64 = 4 * DAY_MS;

impl Grain {
    pub const ALL: [Grain; 4] = [Grain::Quarter, Grain::Hour, Grain::Day, Grain::Week];
    /// Of what is broken down by key, route or tenant.
    pub const OF_MEMBERS: [Grain; 3] = [Grain::Hour, Grain::Day, Grain::Week];
    /// By when a ticket was created.
    pub const OF_BIRTHS: [Grain; 4] = [Grain::Quarter, Grain::Hour, Grain::Day, Grain::Week];

    pub const fn length_ms(self) -> i64 {
        match self {
            Grain::Quarter => 15 * MINUTE_MS,
            Grain::Hour => HOUR_MS,
            Grain::Day => DAY_MS,
            Grain::Week => 7 * DAY_MS,
        }
    }

    /// As it is stored.
    pub const fn minutes(self) -> i64 {
        self.length_ms() / MINUTE_MS
    }

    pub fn floor(self, at: i64) -> i64 {
        let first = if self == Grain::Week { FIRST_MONDAY_MS } else { 0 };
        (at - first).div_euclid(self.length_ms()) * self.length_ms() + first
    }

    /// All that reach into a range.
    pub fn starts(self, since: i64, until: i64) -> impl Iterator<Item = i64> {
        let first = self.floor(since);
        (0..).map(move |n: i64| first + n * self.length_ms()).take_while(move |start| *start < until)
    }

    /// What happens in one of it, of so much in a day.
    pub const fn part_of_day(self, of_day: i64) -> i64 {
        of_day * self.minutes() / Grain::Day.minutes()
    }
}
