//! How much of the writer's time goes to long jobs while others write.
//!
//! A long job is one piece of work that goes on, such as bringing the software of a thousand machines into the index: when it is
//! done the next is there. Each is short enough to wait for, but whoever writes would wait for one nearly every time. So after
//! each the writer is left to the others for a while, as long as there are any.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::base::TenantId;

/// For each part of the time that a long job takes, so many parts in which none begins.
const PAUSE_PARTS: u32 = 3;

/// A disk that stood still for a moment is no reason to wait for long.
const PAUSE_MAX: Duration = Duration::from_millis(200);

/// How long ago somebody else's write lets expect another.
const OTHERS_WITHIN: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct Pace(Mutex<State>);

#[derive(Default)]
struct State {
    last: Option<LongJob>,
    /// When somebody else than the tenant of the last long job wrote.
    others_wrote_at: Option<Instant>,
}

struct LongJob {
    tenant: Option<TenantId>,
    took: Duration,
    ended_at: Instant,
}

impl State {
    fn is_shared(&self, now: Instant) -> bool {
        self.others_wrote_at.is_some_and(|at| now.duration_since(at) <= OTHERS_WITHIN)
    }
}

impl Pace {
    pub fn note_write(&self, tenant: Option<TenantId>, at: Instant) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.last.as_ref().is_some_and(|last| last.tenant != tenant) {
            state.others_wrote_at = Some(at);
        }
    }

    pub fn note_long_job(&self, tenant: Option<TenantId>, started_at: Instant, ended_at: Instant) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.last.as_ref().is_some_and(|last| last.tenant != tenant) {
            state.others_wrote_at = Some(ended_at);
        }
        state.last = Some(LongJob { tenant, took: ended_at - started_at, ended_at });
    }

    /// Whether others write, too.
    pub fn is_shared(&self, now: Instant) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_shared(now)
    }

    /// How long the next long job has to wait.
    pub fn pause(&self, now: Instant) -> Duration {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &state.last {
            Some(last) if state.is_shared(now) => {
                let pause = (last.took * PAUSE_PARTS).min(PAUSE_MAX);
                pause.saturating_sub(now.duration_since(last.ended_at))
            }
            _ => Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::World;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_long_job_pauses_only_beside_others() {
        let world = World::default();
        let (busy, quiet) = (Some(TenantId::new(&world)), Some(TenantId::new(&world)));
        let (pace, start) = (Pace::default(), Instant::now());
        pace.note_write(quiet, start);
        assert_eq!(pace.pause(start), Duration::ZERO, "nothing long has run");
        pace.note_long_job(busy, start, start + 10 * MS);
        pace.note_write(busy, start + 10 * MS);
        assert_eq!(pace.pause(start + 10 * MS), Duration::ZERO, "its own writes are not others'");

        assert!(!pace.is_shared(start + 10 * MS));
        pace.note_write(quiet, start + 12 * MS);
        assert!(pace.is_shared(start + 1_012 * MS) && !pace.is_shared(start + 1_013 * MS));
        assert_eq!(pace.pause(start + 15 * MS), 25 * MS);
        assert_eq!(pace.pause(start + 40 * MS), Duration::ZERO);
        pace.note_long_job(busy, start + 40 * MS, start + 240 * MS);
        assert_eq!(pace.pause(start + 240 * MS), PAUSE_MAX);
        pace.note_long_job(busy, start + 1_000 * MS, start + 1_020 * MS);
        assert_eq!(pace.pause(start + 1_020 * MS), Duration::ZERO, "the other has not come back");

        pace.note_long_job(quiet, start + 1_020 * MS, start + 1_030 * MS);
        assert_eq!(pace.pause(start + 1_030 * MS), 30 * MS, "long jobs of two are beside each other");
    }
}
