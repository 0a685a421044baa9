//! Limits per tenant: one tenant's requests wait for each other here, not on connections that others need.
//!
//! On PostgreSQL writes and reads are limited, and background jobs have permits of their own. The tenant's clock makes
//! writes serial in the database anyway, and a write that waits for it there would hold one of the few pooled connections.
//! One tenant's reads get half of the pool. On SQLite scans are limited, and reads when no connection is free.

use std::time::Duration;

use crate::base::{BudgetLimits, BudgetPermit, Error, FairBudget, Result};

use super::handle::FairnessKey;

/// One write that runs and one that is ready to follow, so that the database is not idle in between.
const TENANT_WRITES_MAX: usize = 2;

/// Writes of background jobs at once, over all tenants, and as many reads: a few of the pool's connections, so that no
/// backlog delays requests.
const JOB_PERMITS: usize = 6;

/// A background job can wait longer than a client, and should not fail because of a short wait.
const JOB_WAIT_MAX: Duration = Duration::from_secs(30);

pub(super) struct ConnectionLimiter {
    writes: ConnectionPermits,
    reads: ConnectionPermits,
}

struct ConnectionPermits {
    of_requests: TenantLimiter,
    of_jobs: TenantLimiter,
}

impl ConnectionLimiter {
    /// Creates the limits for a pool of `pool_max` connections.
    pub fn new(pool_max: usize) -> Self {
        // No tenant's reads get all connections, and every tenant gets at least one.
        let reads = ConnectionPermits::new(pool_max.max(1).div_ceil(2));
        ConnectionLimiter { writes: ConnectionPermits::new(TENANT_WRITES_MAX), reads }
    }

    /// Waits for a permit to write: at most `wait_max` for a request, longer for a job. The system needs none.
    pub async fn acquire_write(&self, key: FairnessKey, wait_max: Duration) -> Result<Option<TenantPermit>> {
        self.writes.acquire(key, wait_max).await
    }

    /// Waits for a permit to read. The system reads little, on behalf of all tenants, and needs no permit.
    pub async fn acquire_read(&self, key: FairnessKey, wait_max: Duration) -> Result<Option<TenantPermit>> {
        self.reads.acquire(key, wait_max).await
    }
}

impl ConnectionPermits {
    /// Creates the permits for tenants with `each` connections at most.
    fn new(each: usize) -> Self {
        let of_jobs = TenantLimiter::with_total(JOB_PERMITS, each);
        ConnectionPermits { of_requests: TenantLimiter::new(each), of_jobs }
    }

    async fn acquire(&self, key: FairnessKey, wait_max: Duration) -> Result<Option<TenantPermit>> {
        match key {
            FairnessKey::System => Ok(None),
            FairnessKey::Tenant(_) => self.of_requests.acquire(key, wait_max).await.map(Some),
            FairnessKey::Job(_) => self.of_jobs.acquire(key, JOB_WAIT_MAX).await.map(Some),
        }
    }
}

/// A number of permits for each tenant, and as many for its background jobs.
pub struct TenantLimiter(FairBudget<FairnessKey>);

/// Released when it is dropped.
pub struct TenantPermit(#[expect(dead_code, reason = "it is held")] BudgetPermit<FairnessKey>);

impl TenantLimiter {
    pub fn new(each: usize) -> Self {
        TenantLimiter::with_total(BudgetLimits::UNLIMITED.shared, each)
    }

    /// A limiter with `total` permits, of which a tenant has at most `each`.
    pub fn with_total(total: usize, each: usize) -> Self {
        TenantLimiter(FairBudget::new(BudgetLimits { shared: total, each, ..BudgetLimits::UNLIMITED }))
    }

    /// Waits at most `wait_max` for a permit of this key.
    pub async fn acquire(&self, key: FairnessKey, wait_max: Duration) -> Result<TenantPermit> {
        let permit = self.0.acquire(key.into(), 1, wait_max).await;
        permit
            .map(TenantPermit)
            .ok_or_else(|| Error::unavailable("too many requests of one tenant, or of all, are waiting"))
    }
}
