//! The jobs in flight of a lane: started, and not saved yet.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use tokio::time::Instant;

/// Unsaved outcomes; when there are as many, no new job is started.
const UNSAVED_MAX: usize = 256;
/// A job that takes longer is reported as slow.
const SLOW_AFTER: Duration = Duration::from_secs(1);

/// The jobs of a lane that run, or have ended and are not saved yet.
pub struct JobsInFlight<I> {
    flights: HashMap<I, JobFlight>,
    running: usize,
}

struct JobFlight {
    since: Instant,
    ended: bool,
    reported: bool,
}

impl<I> Default for JobsInFlight<I> {
    fn default() -> Self {
        JobsInFlight { flights: HashMap::new(), running: 0 }
    }
}

impl<I: Copy + Eq + Hash> JobsInFlight<I> {
    /// Whether a job is in flight. Such a job is still due in the database.
    pub fn contains_job(&self, id: &I) -> bool {
        self.flights.contains_key(id)
    }

    /// Jobs that have not ended.
    pub fn running_count(&self) -> usize {
        self.running
    }

    /// All jobs in flight.
    pub fn len(&self) -> usize {
        self.flights.len()
    }

    pub fn is_empty(&self) -> bool {
        self.flights.is_empty()
    }

    /// Whether there are so many unsaved outcomes that no job may be started.
    pub fn is_full(&self) -> bool {
        self.flights.len() - self.running >= UNSAVED_MAX
    }

    /// Adds a job. Returns false if it is in flight already.
    pub(super) fn begin_job(&mut self, id: I) -> bool {
        let is_new = !self.contains_job(&id);
        if is_new {
            self.flights.insert(id, JobFlight { since: Instant::now(), ended: false, reported: false });
            self.running += 1;
        }
        is_new
    }

    /// Marks a job as ended but not saved.
    pub(super) fn mark_ended(&mut self, id: &I) {
        if let Some(flight) = self.flights.get_mut(id).filter(|flight| !flight.ended) {
            flight.ended = true;
            self.running -= 1;
        }
    }

    pub(super) fn mark_saved(&mut self, id: &I) {
        if self.flights.remove(id).is_some_and(|flight| !flight.ended) {
            self.running -= 1;
        }
    }

    /// Removes the running jobs, which were aborted.
    pub(super) fn drop_running(&mut self) {
        self.flights.retain(|_, flight| flight.ended);
        self.running = 0;
    }

    /// Whether all jobs in flight are slow and still run.
    pub(super) fn is_only_waiting(&self, now: Instant) -> bool {
        let is_slow = |flight: &JobFlight| !flight.ended && now - flight.since >= SLOW_AFTER;
        !self.flights.is_empty() && self.flights.values().all(is_slow)
    }

    /// Whether a job has not been slow so far.
    pub(super) fn is_quick(&self, id: &I, now: Instant) -> bool {
        self.flights.get(id).is_some_and(|flight| now - flight.since < SLOW_AFTER)
    }

    /// The slow jobs that were not reported before. Ended jobs whose outcomes are not saved yet are not among them.
    pub(super) fn take_slow(&mut self, now: Instant) -> Vec<I> {
        let is_slow = |flight: &JobFlight| !flight.ended && !flight.reported && now - flight.since >= SLOW_AFTER;
        let slow = self.flights.iter_mut().filter(|(_, flight)| is_slow(flight));
        slow.map(|(id, flight)| {
            flight.reported = true;
            *id
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_counts_until_it_is_noted_and_runs_until_it_has_ended() {
        let mut in_flight = JobsInFlight::default();
        assert!(in_flight.is_empty() && in_flight.begin_job(1) && in_flight.begin_job(2) && in_flight.begin_job(3));
        assert!(!in_flight.begin_job(1), "one that is under way is not started again");
        in_flight.mark_ended(&1);
        in_flight.mark_ended(&1);
        assert_eq!((in_flight.running_count(), in_flight.len(), in_flight.contains_job(&1)), (2, 3, true));
        in_flight.mark_saved(&1);
        in_flight.mark_saved(&2);
        assert_eq!((in_flight.running_count(), in_flight.len(), in_flight.contains_job(&2)), (1, 1, false));
        in_flight.drop_running();
        assert_eq!((in_flight.running_count(), in_flight.is_empty()), (0, true));
    }

    #[test]
    fn what_waits_to_be_noted_is_bounded_and_what_runs_is_not() {
        let mut in_flight = JobsInFlight::default();
        assert!((0..2 * UNSAVED_MAX).all(|id| in_flight.begin_job(id)));
        (1..UNSAVED_MAX).for_each(|id| in_flight.mark_ended(&id));
        assert!(!in_flight.is_full());
        in_flight.mark_ended(&0);
        assert!(in_flight.is_full());
    }

    #[test]
    fn what_takes_long_is_shown_once_and_what_has_ended_is_not() {
        let mut in_flight = JobsInFlight::default();
        assert!(in_flight.begin_job(1) && in_flight.begin_job(2));
        in_flight.mark_ended(&2);
        let now = Instant::now();
        assert!(in_flight.take_slow(now).is_empty());
        assert_eq!(in_flight.take_slow(now + SLOW_AFTER), [1]);
        assert!(in_flight.take_slow(now + 2 * SLOW_AFTER).is_empty());
    }

    #[test]
    fn a_lane_only_waits_when_every_job_takes_long_and_nothing_is_to_be_saved() {
        let mut in_flight = JobsInFlight::default();
        let now = Instant::now() + SLOW_AFTER;
        assert!(!in_flight.is_only_waiting(now), "nothing is under way");
        assert!(in_flight.begin_job(1) && in_flight.begin_job(2));
        assert!(!in_flight.is_only_waiting(Instant::now()) && in_flight.is_only_waiting(now + SLOW_AFTER));
        assert!(in_flight.is_quick(&1, Instant::now()) && !in_flight.is_quick(&1, now + SLOW_AFTER));
        in_flight.mark_ended(&2);
        assert!(!in_flight.is_only_waiting(now + SLOW_AFTER));
    }
}
