//! Permits for the lanes of one kind that a node works on at once.
//!
//! A lane that only waits for other servers holds no permit that another lane could work with: such slow lanes have their
//! own permits. Beyond those, they are leased only while half of the working permits are free. Tenants share both pools by
//! [`FairBudget`], so tenants whose receivers hang cannot prevent the lanes of others from being leased.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

use super::super::lanes::DueLane;
use crate::base::{BudgetLimits, BudgetPermit, FairBudget, TenantId};

/// A tenant has at most a ninth of the permits that the others leave: of 512, more than it has endpoints.
const TENANT_DIVISOR: usize = 9;
/// The number of working permits for each slow one.
const LANES_PER_SLOW_LANE: usize = 2;

pub struct LanePermits {
    working: LanePermitPool,
    waiting: LanePermitPool,
}

struct LanePermitPool {
    permits: FairBudget<TenantId>,
    released: Arc<Notify>,
    /// Whether a due lane was refused a permit. Holders then release theirs sooner.
    crowded: AtomicBool,
}

/// The permit of one lane that this node works on.
pub struct LanePermit {
    permits: Arc<LanePermits>,
    tenant: TenantId,
    slow: bool,
    held: HeldPermit,
}

/// A permit that signals its release. The permit is released first, because fields are dropped in order.
struct HeldPermit {
    _held: BudgetPermit<TenantId>,
    _signal: ReleaseSignal,
}

struct ReleaseSignal(Arc<Notify>);

impl Drop for ReleaseSignal {
    fn drop(&mut self) {
        self.0.notify_waiters();
    }
}

impl LanePermitPool {
    fn new(total: usize) -> Self {
        let limits = BudgetLimits { shared: total, divisor: TENANT_DIVISOR, ..BudgetLimits::UNLIMITED };
        LanePermitPool { permits: FairBudget::new(limits), released: Arc::default(), crowded: AtomicBool::new(false) }
    }

    /// Acquires a permit for a tenant that has `elsewhere` permits of the other pool, which count as well.
    fn try_acquire(&self, tenant: TenantId, elsewhere: usize) -> Option<HeldPermit> {
        let held = self.permits.try_acquire_counting(tenant.into(), 1, elsewhere)?;
        Some(HeldPermit { _held: held, _signal: ReleaseSignal(self.released.clone()) })
    }
}

impl LanePermits {
    pub fn new(lanes_max: usize) -> Arc<Self> {
        let slow_max = lanes_max.div_ceil(LANES_PER_SLOW_LANE);
        Arc::new(LanePermits { working: LanePermitPool::new(lanes_max), waiting: LanePermitPool::new(slow_max) })
    }

    /// Chooses up to `max` of the due lanes, the first ones that get a permit.
    pub fn choose_lanes(self: &Arc<Self>, due: Vec<DueLane>, max: usize) -> (Vec<DueLane>, Vec<LanePermit>) {
        let (mut lanes, mut permits, mut refused) = (Vec::new(), Vec::new(), [false; 2]);
        for lane in due {
            if permits.len() == max {
                break;
            }
            match self.acquire_for(&lane) {
                Some(permit) => {
                    lanes.push(lane);
                    permits.push(permit);
                }
                None => refused[usize::from(lane.slow)] = true,
            }
        }
        for slow in [false, true] {
            self.pool_for(slow).crowded.store(refused[usize::from(slow)], Ordering::Relaxed);
        }
        (lanes, permits)
    }

    /// Whether lanes that are not slow wait for a permit.
    pub fn is_crowded(&self) -> bool {
        self.working.crowded.load(Ordering::Relaxed)
    }

    /// Waits until a lane releases a working permit.
    pub async fn wait_for_release(&self) {
        self.working.released.notified().await;
    }

    fn acquire_for(self: &Arc<Self>, lane: &DueLane) -> Option<LanePermit> {
        let own = self.try_acquire(lane.tenant_id, lane.slow);
        let may_borrow = || lane.slow && self.working.permits.is_half_free();
        own.or_else(|| may_borrow().then(|| self.try_acquire(lane.tenant_id, false)).flatten())
    }

    fn try_acquire(self: &Arc<Self>, tenant: TenantId, slow: bool) -> Option<LanePermit> {
        // A tenant's slow lanes count as well; otherwise each lane that becomes slow would make room for another of its own.
        let elsewhere = if slow { 0 } else { self.waiting.permits.held_by(&tenant) };
        let held = self.pool_for(slow).try_acquire(tenant, elsewhere)?;
        Some(LanePermit { permits: self.clone(), tenant, slow, held })
    }

    fn pool_for(&self, slow: bool) -> &LanePermitPool {
        if slow { &self.waiting } else { &self.working }
    }
}

impl LanePermit {
    /// Whether lanes wait for a permit of this pool.
    pub fn is_crowded(&self) -> bool {
        self.permits.pool_for(self.slow).crowded.load(Ordering::Relaxed)
    }

    /// Exchanges the permit for one of the slow or of the working pool, if one is free; otherwise keeps it.
    pub fn change_pace(&mut self, slow: bool) {
        if self.slow != slow
            && let Some(held) = self.permits.pool_for(slow).try_acquire(self.tenant, 0)
        {
            (self.slow, self.held) = (slow, held);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Env;

    fn due(tenant_id: TenantId, slow: bool) -> DueLane {
        DueLane { tenant_id, key: "lane".to_owned(), slow }
    }

    #[test]
    fn lanes_that_only_wait_hold_no_permit_of_those_that_work() {
        let permits = LanePermits::new(64);
        let tenants: Vec<TenantId> = (0..30).map(|_| TenantId::new(&Env::default())).collect();
        let mut hanging = Vec::new();
        for tenant in &tenants {
            let (_, mut taken) = permits.choose_lanes((0..50).map(|_| due(*tenant, false)).collect(), 50);
            for permit in &mut taken {
                permit.change_pace(true);
            }
            hanging.extend(taken);
        }
        let slow = hanging.iter().filter(|permit| permit.slow).count();
        assert!((20..=32).contains(&slow), "they have some, and not more than their share: {slow}");
        let mut working = hanging.iter().filter(|permit| !permit.slow);
        assert!(working.all(LanePermit::is_crowded), "whoever has one makes room when it can");
        let healthy = TenantId::new(&Env::default());
        let (lanes, taken) = permits.choose_lanes(vec![due(tenants[0], true), due(healthy, false)], 10);
        assert_eq!(
            (lanes.len(), lanes[0].tenant_id),
            (1, healthy),
            "a lane that is known to be slow waits for its kind"
        );
        assert!(!taken[0].is_crowded());
    }
}
