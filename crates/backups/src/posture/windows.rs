//! When a scheduled run counts as done.
//!
//! Machines start late, and backups take long: a run counts if it was under way at any time of a window around the scheduled
//! moment. The windows of two moments do not overlap.

use feature_kit::schedule::CronSchedule;
use kernel::base::{DAY_MS, HOUR_MS, Timestamp};

/// A run may come so much later than scheduled, and half of the time to the next one at most.
const LATE_MS_MAX: i64 = 4 * HOUR_MS;
/// A run may come so much earlier, and a quarter of the time since the one before at most.
const EARLY_MS_MAX: i64 = HOUR_MS;
/// Nothing is waited for longer than for a run of a day.
const LENGTH_MS_MAX: i64 = DAY_MS;

/// The window of a scheduled run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunWindow {
    pub scheduled_at: Timestamp,
    pub opens_at: Timestamp,
    /// From here on a run that has not come is missed.
    pub closes_at: Timestamp,
}

impl RunWindow {
    /// The window of the first moment after `after`; none where the schedule ends.
    pub fn next_after(schedule: &CronSchedule, after: Timestamp) -> Option<RunWindow> {
        let scheduled_at = schedule.next_after(after)?;
        let gap_ms = schedule.next_after(scheduled_at)?.as_millis() - scheduled_at.as_millis();
        // Moments before this are too far away to matter.
        let mut before = scheduled_at.plus_ms(-4 * EARLY_MS_MAX);
        while let Some(near) = schedule.next_after(before).filter(|near| *near < scheduled_at) {
            before = near;
        }
        let gap_before_ms = scheduled_at.as_millis() - before.as_millis();
        Some(RunWindow {
            scheduled_at,
            opens_at: scheduled_at.plus_ms(-gap_before_ms / 4),
            closes_at: scheduled_at.plus_ms((gap_ms / 2).min(LATE_MS_MAX)),
        })
    }

    /// When a run that took `length_ms` the last time counts as missed: it is reported when it ends, and may take half as long
    /// again.
    pub fn judged_at(&self, length_ms: i64) -> Timestamp {
        let length_ms = length_ms.clamp(0, LENGTH_MS_MAX);
        self.closes_at.max(self.scheduled_at.plus_ms(length_ms + length_ms / 2))
    }

    /// Whether a run was under way within the window.
    pub fn is_met_by(&self, started_at: Timestamp, ended_at: Timestamp) -> bool {
        started_at < self.closes_at && ended_at >= self.opens_at
    }
}
