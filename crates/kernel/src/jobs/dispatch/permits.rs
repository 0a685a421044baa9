//! How many lanes of one kind a node works on at once, and whose.
//!
//! A lane that does nothing but wait for others' servers holds no permit that another could work with: such slow lanes
//! have permits of their own. Beyond those they are leased only while half of the others are free. In both, tenants share
//! as [`FairPermits`] says, so no number of tenants whose receivers hang keeps the lane of another from being leased.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::super::lanes::DueLane;
use crate::base::TenantId;
use crate::outbound::{FairPermit, FairPermits};

/// A tenant has at most an eighth of what is free: of 512 more lanes than it has endpoints, when others are idle.
const PART: usize = 8;
/// For each slow lane there may be so many others.
const LANES_PER_SLOW_LANE: usize = 2;

pub struct LanePermits {
    working: Pool,
    waiting: Pool,
}

struct Pool {
    permits: Arc<FairPermits<TenantId>>,
    /// Whether a lane that is due was refused a permit: those that have one make room sooner then.
    crowded: AtomicBool,
}

/// The permit of one lane that this node works on.
pub struct LanePermit {
    permits: Arc<LanePermits>,
    tenant: TenantId,
    slow: bool,
    held: FairPermit<TenantId>,
}

impl LanePermits {
    pub fn new(lanes_max: usize) -> Arc<Self> {
        let pool = |total| Pool { permits: FairPermits::new(total, PART), crowded: AtomicBool::new(false) };
        Arc::new(LanePermits { working: pool(lanes_max), waiting: pool(lanes_max.div_ceil(LANES_PER_SLOW_LANE)) })
    }

    /// Of lanes that are due, the first that there are permits for, at most so many.
    pub fn choose(self: &Arc<Self>, due: Vec<DueLane>, max: usize) -> (Vec<DueLane>, Vec<LanePermit>) {
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
            self.pool(slow).crowded.store(refused[usize::from(slow)], Ordering::Relaxed);
        }
        (lanes, permits)
    }

    /// Whether lanes wait that could work.
    pub fn is_crowded(&self) -> bool {
        self.working.crowded.load(Ordering::Relaxed)
    }

    /// Waits until a lane that works gives its permit back.
    pub async fn freed(&self) {
        self.working.permits.freed().await;
    }

    fn acquire_for(self: &Arc<Self>, lane: &DueLane) -> Option<LanePermit> {
        let own = self.try_acquire(lane.tenant_id, lane.slow);
        let may_borrow = || lane.slow && self.working.permits.is_half_free();
        own.or_else(|| may_borrow().then(|| self.try_acquire(lane.tenant_id, false)).flatten())
    }

    fn try_acquire(self: &Arc<Self>, tenant: TenantId, slow: bool) -> Option<LanePermit> {
        // A tenant whose lanes only wait has those as well: otherwise each that goes over would make room for its next.
        let elsewhere = if slow { 0 } else { self.waiting.permits.held_by(tenant) };
        let held = self.pool(slow).permits.try_acquire_beside(tenant, elsewhere)?;
        Some(LanePermit { permits: self.clone(), tenant, slow, held })
    }

    fn pool(&self, slow: bool) -> &Pool {
        if slow { &self.waiting } else { &self.working }
    }
}

impl LanePermit {
    /// Whether lanes of this kind of pace wait for a permit.
    pub fn is_crowded(&self) -> bool {
        self.permits.pool(self.slow).crowded.load(Ordering::Relaxed)
    }

    /// Goes over to the permits of lanes of this pace, if there is one; else it keeps what it has.
    pub fn change_pace(&mut self, slow: bool) {
        if self.slow != slow
            && let Some(held) = self.permits.pool(slow).permits.try_acquire(self.tenant)
        {
            (self.slow, self.held) = (slow, held);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::World;

    fn due(tenant_id: TenantId, slow: bool) -> DueLane {
        DueLane { tenant_id, key: "lane".to_owned(), slow }
    }

    #[test]
    fn lanes_that_only_wait_hold_no_permit_of_those_that_work() {
        let permits = LanePermits::new(64);
        let tenants: Vec<TenantId> = (0..30).map(|_| TenantId::new(&World::default())).collect();
        let mut hanging = Vec::new();
        for tenant in &tenants {
            let (_, mut taken) = permits.choose((0..50).map(|_| due(*tenant, false)).collect(), 50);
            for permit in &mut taken {
                permit.change_pace(true);
            }
            hanging.extend(taken);
        }
        let slow = hanging.iter().filter(|permit| permit.slow).count();
        assert!((20..=32).contains(&slow), "they have some, and not more than their share: {slow}");
        let mut working = hanging.iter().filter(|permit| !permit.slow);
        assert!(working.all(LanePermit::is_crowded), "whoever has one makes room when it can");
        let healthy = TenantId::new(&World::default());
        let (lanes, taken) = permits.choose(vec![due(tenants[0], true), due(healthy, false)], 10);
        assert_eq!(
            (lanes.len(), lanes[0].tenant_id),
            (1, healthy),
            "a lane that is known to be slow waits for its kind"
        );
        assert!(!taken[0].is_crowded());
    }
}
