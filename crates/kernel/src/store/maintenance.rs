//! Pauses between maintenance writes of the SQLite writer, such as indexing the software of a thousand machines.
//!
//! There is always a next maintenance write, so without pauses nearly every write of another tenant would wait for one. After
//! each of them the next waits for several times as long as it took, but only while other tenants write.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::base::TenantId;

use super::tenant_limiter::TenantPermit;

/// Held by a maintenance job until it is committed: one of its tenant and, on SQLite, the only one of all.
pub struct MaintenancePermit(#[expect(dead_code, reason = "it is held")] pub(super) TenantPermit);

/// The pause after a maintenance write, in multiples of its duration: maintenance has a quarter of the writer's time.
const PAUSE_FACTOR: u32 = 3;

/// One slow fsync does not stop maintenance for longer.
const PAUSE_MAX: Duration = Duration::from_millis(200);

/// For how long after a write of another tenant the next one is expected.
const CONTENTION_WINDOW: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct MaintenancePace(Mutex<PaceState>);

#[derive(Default)]
struct PaceState {
    last_maintenance: Option<MaintenanceWrite>,
    /// The last write of another tenant than that of the last maintenance.
    other_tenant_wrote_at: Option<Instant>,
}

struct MaintenanceWrite {
    tenant: Option<TenantId>,
    duration: Duration,
    ended_at: Instant,
}

impl PaceState {
    fn is_contended(&self, now: Instant) -> bool {
        self.other_tenant_wrote_at.is_some_and(|at| now.duration_since(at) <= CONTENTION_WINDOW)
    }
}

impl MaintenancePace {
    pub fn record_write(&self, tenant: Option<TenantId>, at: Instant) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.last_maintenance.as_ref().is_some_and(|last| last.tenant != tenant) {
            state.other_tenant_wrote_at = Some(at);
        }
    }

    pub fn record_maintenance(&self, tenant: Option<TenantId>, started_at: Instant, ended_at: Instant) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.last_maintenance.as_ref().is_some_and(|last| last.tenant != tenant) {
            state.other_tenant_wrote_at = Some(ended_at);
        }
        state.last_maintenance = Some(MaintenanceWrite { tenant, duration: ended_at - started_at, ended_at });
    }

    /// How long the next maintenance write has to wait.
    pub fn remaining_pause(&self, now: Instant) -> Duration {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &state.last_maintenance {
            Some(last) if state.is_contended(now) => {
                let pause = (last.duration * PAUSE_FACTOR).min(PAUSE_MAX);
                pause.saturating_sub(now.duration_since(last.ended_at))
            }
            _ => Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Env;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_job_pauses_only_while_other_tenants_write() {
        let env = Env::default();
        let (busy, quiet) = (Some(TenantId::new(&env)), Some(TenantId::new(&env)));
        let (pace, start) = (MaintenancePace::default(), Instant::now());
        pace.record_write(quiet, start);
        assert_eq!(pace.remaining_pause(start), Duration::ZERO, "nothing long has run");
        pace.record_maintenance(busy, start, start + 10 * MS);
        pace.record_write(busy, start + 10 * MS);
        assert_eq!(pace.remaining_pause(start + 10 * MS), Duration::ZERO, "its own writes are not others'");

        pace.record_write(quiet, start + 12 * MS);
        assert_eq!(pace.remaining_pause(start + 15 * MS), 25 * MS);
        assert_eq!(pace.remaining_pause(start + 40 * MS), Duration::ZERO);
        pace.record_maintenance(busy, start + 40 * MS, start + 240 * MS);
        assert_eq!(pace.remaining_pause(start + 240 * MS), PAUSE_MAX);
        pace.record_maintenance(busy, start + 1_000 * MS, start + 1_020 * MS);
        assert_eq!(pace.remaining_pause(start + 1_020 * MS), Duration::ZERO, "the other has not come back");

        pace.record_maintenance(quiet, start + 1_020 * MS, start + 1_030 * MS);
        assert_eq!(pace.remaining_pause(start + 1_030 * MS), 30 * MS, "long jobs of two are beside each other");
    }
}
