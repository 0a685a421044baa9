//! Permits for the concurrent requests of lanes of all kinds. A lane's first request needs none, so receivers that hang can
//! slow other lanes down but never stop them.

use crate::base::{BudgetLimits, BudgetPermit, FairBudget, TenantId};

/// Concurrent requests of this node, beside one for each lane. Each takes a connection and up to 256 KiB of payload.
///
/// A tenant has at most a quarter of those that the others leave: 128 when they are idle, an eighth of all beside four
/// greedy tenants.
const PERMITS: BudgetLimits = BudgetLimits { shared: 512, divisor: 4, ..BudgetLimits::UNLIMITED };

pub struct LaneRequestPermits(FairBudget<TenantId>);

impl Default for LaneRequestPermits {
    fn default() -> Self {
        LaneRequestPermits(FairBudget::new(PERMITS))
    }
}

/// The permit of one request, released when it is dropped. The default is that of a lane's first request, which needs none.
#[derive(Default)]
pub struct LaneRequestPermit {
    _shared: Option<BudgetPermit<TenantId>>,
}

impl LaneRequestPermits {
    /// Acquires a permit for a lane of the tenant that has `in_flight` requests.
    ///
    /// A lane gets no further permit if it already has more requests than its tenant has permits left; so a tenant's
    /// lanes converge to equal shares. Their outcomes are then saved together, because the deliveries of one event are
    /// sent at about the same time.
    pub fn try_acquire(&self, tenant: TenantId, in_flight: usize) -> Option<LaneRequestPermit> {
        if in_flight == 0 {
            return Some(LaneRequestPermit::default());
        }
        if in_flight > self.0.available_for(&tenant) {
            return None;
        }
        Some(LaneRequestPermit { _shared: Some(self.0.try_acquire(tenant.into(), 1)?) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Env;

    /// The most requests that one lane has under way.
    const WINDOW_MAX: usize = 16;

    fn fill(lane: &mut Vec<LaneRequestPermit>, permits: &LaneRequestPermits, tenant: TenantId) {
        while lane.len() < WINDOW_MAX {
            let Some(permit) = permits.try_acquire(tenant, lane.len()) else { break };
            lane.push(permit);
        }
    }

    #[test]
    fn lanes_come_to_have_as_many_whoever_came_first() {
        let (permits, tenant) = (LaneRequestPermits::default(), TenantId::new(&Env::default()));
        let mut lanes: Vec<Vec<LaneRequestPermit>> = (0..16).map(|_| Vec::new()).collect();
        let counts = |lanes: &[Vec<LaneRequestPermit>]| lanes.iter().map(Vec::len).collect::<Vec<_>>();
        fill(&mut lanes[0], &permits, tenant);
        assert_eq!(lanes[0].len(), WINDOW_MAX, "one alone has all it wants");
        for _ in 0..100 {
            for lane in &mut lanes {
                lane.pop();
                fill(lane, &permits, tenant);
            }
        }
        assert!(counts(&lanes).iter().all(|count| (7..=9).contains(count)), "{:?}", counts(&lanes));
        lanes.truncate(2);
        for lane in &mut lanes {
            fill(lane, &permits, tenant);
        }
        assert_eq!(counts(&lanes), [WINDOW_MAX; 2], "what others leave is there to be taken");
    }
}
