//! The lengths of time over which facts are summed, and how a range is made of them.

use kernel::base::{DAY_MS, HOUR_MS, MINUTE_MS};

/// A length of time over which facts are summed. Each begins at a multiple of the one before, in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Grain {
    /// Every zone is ahead of UTC by quarters of an hour.
    Quarter,
    Hour,
    Day,
    /// From Monday.
    Week,
}

/// 1970 began on a Thursday.
const FIRST_MONDAY_MS: i64 = 4 * DAY_MS;

impl Grain {
    pub const ALL: [Grain; 4] = [Grain::Quarter, Grain::Hour, Grain::Day, Grain::Week];

    pub const fn length_ms(self) -> i64 {
        match self {
            Grain::Quarter => 15 * MINUTE_MS,
            Grain::Hour => HOUR_MS,
            Grain::Day => DAY_MS,
            Grain::Week => 7 * DAY_MS,
        }
    }

    /// As it is stored: in minutes.
    pub const fn minutes(self) -> i64 {
        self.length_ms() / MINUTE_MS
    }

    /// The start of the one that this moment is in.
    pub fn floor(self, at: i64) -> i64 {
        let first = if self == Grain::Week { FIRST_MONDAY_MS } else { 0 };
        (at - first).div_euclid(self.length_ms()) * self.length_ms() + first
    }

    pub fn ceil(self, at: i64) -> i64 {
        let start = self.floor(at);
        if start == at { at } else { start + self.length_ms() }
    }
}

/// Consecutive ones of a grain, from `start` to before `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub grain: Grain,
    pub start: i64,
    pub end: i64,
}

/// Splits a range into as few as possible, of the given grains (the shortest first), and leaves out what is shorter than the
/// first at either end.
pub fn cover_range(start: i64, end: i64, grains: &[Grain]) -> Vec<Span> {
    let mut spans = Vec::new();
    add_spans(&mut spans, start, end, grains);
    spans
}

fn add_spans(spans: &mut Vec<Span>, start: i64, end: i64, grains: &[Grain]) {
    let Some((longest, shorter)) = grains.split_last() else { return };
    let (from, until) = (longest.ceil(start), longest.floor(end));
    if from >= until {
        return add_spans(spans, start, end, shorter);
    }
    add_spans(spans, start, from, shorter);
    spans.push(Span { grain: *longest, start: from, end: until });
    add_spans(spans, until, end, shorter);
}

/// Joins spans of the same grain that follow each other.
pub fn join_spans(mut spans: Vec<Span>) -> Vec<Span> {
    spans.sort_by_key(|span| (span.grain, span.start));
    let mut joined: Vec<Span> = Vec::with_capacity(spans.len());
    for span in spans {
        match joined.last_mut() {
            Some(last) if last.grain == span.grain && last.end == span.start => last.end = span.end,
            _ => joined.push(span),
        }
    }
    joined
}

/// A moment that every fact is before: the end of what has no end.
pub const END_OF_TIME: i64 = FIRST_MONDAY_MS + 1_000_000 * 7 * DAY_MS;
/// A moment that no fact is before: the first Monday after 1970.
pub const START_OF_TIME: i64 = FIRST_MONDAY_MS;

/// The time of a fact as it is summed: facts are not before the start of time, nor after its end.
pub fn clamp_time(at: i64) -> i64 {
    at.clamp(START_OF_TIME, END_OF_TIME - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-16, a Monday.
    const MONDAY: i64 = 1_794_787_200_000;

    #[test]
    fn a_range_is_covered_once_by_few() {
        assert_eq!(Grain::Week.floor(MONDAY), MONDAY);
        assert_eq!(Grain::Week.floor(MONDAY - 1), MONDAY - 7 * DAY_MS);
        let (start, end) = (MONDAY - 3 * DAY_MS - 90 * MINUTE_MS, MONDAY + 9 * DAY_MS + 61 * MINUTE_MS);
        let spans = cover_range(start, end, &Grain::ALL);
        let grains: Vec<Grain> = spans.iter().map(|span| span.grain).collect();
        assert_eq!(
            grains,
            [Grain::Quarter, Grain::Hour, Grain::Day, Grain::Week, Grain::Day, Grain::Hour],
            "{spans:?}"
        );
        assert!(spans.windows(2).all(|pair| pair[0].end == pair[1].start), "{spans:?}");
        assert_eq!(
            (spans[0].start, spans[5].end),
            (start, MONDAY + 9 * DAY_MS + 60 * MINUTE_MS),
            "a minute is left out"
        );
        assert!(cover_range(MONDAY + 1, MONDAY + 2, &Grain::ALL).is_empty());
    }

    #[test]
    fn spans_that_follow_each_other_are_one() {
        let span = |start| Span { grain: Grain::Hour, start, end: start + HOUR_MS };
        let joined = join_spans(vec![span(HOUR_MS), span(0), span(5 * HOUR_MS)]);
        assert_eq!(joined, [Span { grain: Grain::Hour, start: 0, end: 2 * HOUR_MS }, span(5 * HOUR_MS)]);
    }
}
