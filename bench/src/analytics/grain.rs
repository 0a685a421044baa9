//! What happens in the lengths of time by which the product sums.

pub use analytics::grain::Grain;

/// The starts of all that reach into a range.
pub fn starts(grain: Grain, since: i64, until: i64) -> impl Iterator<Item = i64> {
    let first = grain.floor(since);
    (0..).map(move |n: i64| first + n * grain.length_ms()).take_while(move |start| *start < until)
}

/// What happens in one of the grain, of so much in a day.
pub const fn part_of_day(grain: Grain, of_day: i64) -> i64 {
    of_day * grain.minutes() / Grain::Day.minutes()
}
