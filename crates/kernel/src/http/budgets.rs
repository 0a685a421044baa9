//! The fair budgets of one node: requests, work permits and memory, shared so that no tenant and no anonymous address can
//! take them all. `admission.rs` charges requests to them.

use std::time::Duration;

use super::payer::Payer;
use crate::base::{BudgetLimits, BudgetPermit, Error, FairBudget, Result, TenantId};

/// How long a request waits for a permit. Shorter than the timeouts of clients.
pub(super) const PERMIT_WAIT_MAX: Duration = Duration::from_secs(10);
/// Concurrent writes. They wait for a disk or for PostgreSQL together, so many of them fill one group commit.
const WRITES: BudgetLimits =
    BudgetLimits { shared: 256, reserve: 256, floor: 1, divisor: 2, ..BudgetLimits::UNLIMITED };
/// Concurrent reports of agents, from the parser to the disk. One tenant may have as many as fill one group commit.
const REPORTS: BudgetLimits = BudgetLimits { shared: 64, reserve: 64, floor: 1, divisor: 4, ..BudgetLimits::UNLIMITED };
/// Concurrent parsers of reports. The largest report takes about 150 MiB.
const PARSERS_MAX: usize = 3;

/// One part in this many of the memory is available to each tenant however much others hold. It fits the largest body.
const MEMORY_FLOOR_PARTS: usize = 22;

/// The budgets of one node.
pub(super) struct Admission {
    /// Requests of unauthenticated callers, by address. Many tenants may share an address behind a proxy.
    pub arrivals: FairBudget<Payer>,
    /// Requests of tenants that are not answered yet.
    pub requests: FairBudget<Payer>,
    pub reads: FairBudget<Payer>,
    pub writes: FairBudget<Payer>,
    pub reports: FairBudget<Payer>,
    pub parsers: FairBudget<Payer>,
    /// Answers that are computed of thousands of rows.
    pub calculations: FairBudget<Payer>,
    /// Bytes of arriving bodies and unsent answers. Unauthenticated callers have a budget of their own, so that they take
    /// nothing from tenants however many addresses they use.
    pub memory: FairBudget<Payer>,
    pub anonymous_memory: FairBudget<Payer>,
    /// Refusals that are being delayed, see `RequestContext::delay_flood`.
    pub delays: FairBudget<Payer>,
}

/// The limits of one node for all its clients.
#[derive(Clone, Copy, Debug)]
pub struct AdmissionLimits {
    /// Requests under way. One tenant may hold an eighth of those that are free; one address, half of those for
    /// unauthenticated callers.
    pub requests_max: usize,
    /// Bytes of bodies and answers in memory, shared in the same way.
    pub memory_bytes_max: usize,
}

impl Default for AdmissionLimits {
    fn default() -> Self {
        AdmissionLimits { requests_max: 8192, memory_bytes_max: 384 * 1024 * 1024 }
    }
}

impl Admission {
    pub fn new(limits: AdmissionLimits) -> Self {
        // A read occupies a thread: the more run at once, the longer each one waits for a processor.
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let reads = processors.max(4) * 4;
        // Half of the processors stay free of parsing, and of calculations. A tenant may have one of each.
        let half = (processors / 2).max(1);
        let parsers = half.min(PARSERS_MAX);
        let budget = |shared: usize, reserve: usize, floor: usize, divisor: usize| {
            FairBudget::new(BudgetLimits { shared, reserve, floor, divisor, ..BudgetLimits::UNLIMITED })
        };
        let AdmissionLimits { requests_max, memory_bytes_max } = limits;
        Admission {
            arrivals: budget(requests_max, requests_max, 1, 2),
            requests: budget(requests_max, requests_max, 1, 8),
            reads: budget(reads, reads, 1, 2),
            writes: FairBudget::new(WRITES),
            reports: FairBudget::new(REPORTS),
            parsers: budget(0, parsers, 1, 1),
            calculations: budget(0, half, 1, 1),
            memory: budget(memory_bytes_max, memory_bytes_max / 2, memory_bytes_max / MEMORY_FLOOR_PARTS, 8),
            anonymous_memory: budget(memory_bytes_max / 4, 0, 0, 8),
            delays: budget(requests_max, 0, 0, 2),
        }
    }

    /// Waits for a permit to read as this tenant.
    pub async fn acquire_read(&self, tenant: TenantId) -> Result<WorkPermit> {
        acquire_work(&self.reads, Payer::Tenant(tenant)).await
    }

    /// Waits for a permit to process one more report of the tenant.
    pub async fn acquire_report(&self, tenant: TenantId) -> Result<WorkPermit> {
        acquire_work(&self.reports, Payer::Tenant(tenant)).await
    }

    /// Waits for a permit to compute an answer. A tenant may hold one.
    pub async fn acquire_calculation(&self, tenant: TenantId) -> Result<WorkPermit> {
        acquire_work(&self.calculations, Payer::Tenant(tenant)).await
    }

    /// Waits for a parser permit. A tenant may hold one.
    pub async fn acquire_parser(&self, tenant: TenantId) -> Result<WorkPermit> {
        acquire_work(&self.parsers, Payer::Tenant(tenant)).await
    }
}

pub(super) async fn acquire_work(budget: &FairBudget<Payer>, payer: Payer) -> Result<WorkPermit> {
    let permit = budget.acquire(payer.into(), 1, PERMIT_WAIT_MAX).await;
    permit.map(WorkPermit).ok_or_else(|| Error::unavailable("too many requests of one tenant, or of all, are waiting"))
}

/// A permit to read, write or parse, released when dropped.
pub struct WorkPermit(#[expect(dead_code, reason = "it is held")] BudgetPermit<Payer>);

/// Reserved bytes of memory, released when dropped.
pub(super) struct MemoryPermit(#[expect(dead_code, reason = "it is held")] pub BudgetPermit<Payer>);

/// The permits that a request holds.
#[derive(Default)]
pub(super) struct AdmissionPermits {
    pub request: Option<BudgetPermit<Payer>>,
    pub work: Option<WorkPermit>,
}
