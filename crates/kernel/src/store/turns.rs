//! Turns: one tenant's requests wait for each other here, not on connections that others need.
//!
//! At PostgreSQL that is so for writes, and what the service does by itself has turns of its own. The tenant's clock makes them
//! serial in the database anyway, and a write that waits for it there would hold one of the few connections of the pool.
//! On SQLite it is so for queries that look at many rows.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::base::{Error, Result, TenantId};

/// One that works and one that stands ready behind it, so that the database is not idle in between.
const TURNS: usize = 2;

/// Tenants remembered before those without a waiting write are forgotten.
const TENANTS_MAX: usize = 1_024;

/// Writes of the service's own work at once, of all tenants: a few of the pool's connections, so that no amount of work
/// keeps requests waiting.
const JOB_TURNS: usize = 6;

/// The service's own work can wait longer than a client does, and must not be lost for it.
const JOB_WAIT_MAX: Duration = Duration::from_secs(30);

pub(super) struct Turns {
    writes: TenantTurns,
    jobs: Arc<Semaphore>,
    jobs_of_tenant: TenantTurns,
}

/// A turn of the service's own work: one of the tenant's, and one of all.
pub(super) struct JobTurn {
    _of_tenant: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

impl Default for Turns {
    fn default() -> Self {
        let (writes, jobs_of_tenant) = (TenantTurns::new(TURNS), TenantTurns::new(TURNS));
        Turns { writes, jobs: Arc::new(Semaphore::new(JOB_TURNS)), jobs_of_tenant }
    }
}

impl Turns {
    /// Waits for the tenant's turn, for so long at most.
    pub async fn take(&self, tenant: TenantId, wait_max: Duration) -> Result<OwnedSemaphorePermit> {
        self.writes.take(tenant, wait_max).await
    }

    /// Waits for a turn of the service's own work. The tenant's first: while its rows are locked, its work waits here and
    /// not on turns that others need.
    pub async fn take_for_job(&self, tenant: TenantId) -> Result<JobTurn> {
        let of_tenant = self.jobs_of_tenant.of(tenant);
        let both = async {
            let of_tenant = of_tenant.acquire_owned().await.ok()?;
            let of_all = self.jobs.clone().acquire_owned().await.ok()?;
            Some(JobTurn { _of_tenant: of_tenant, _of_all: of_all })
        };
        match tokio::time::timeout(JOB_WAIT_MAX, both).await {
            Ok(Some(turn)) => Ok(turn),
            _ => Err(Error::unavailable("too many writes of the service's own work are waiting")),
        }
    }
}

/// So many turns for each tenant.
pub(super) struct TenantTurns {
    each: usize,
    tenants: Mutex<HashMap<TenantId, Arc<Semaphore>>>,
}

impl TenantTurns {
    pub fn new(each: usize) -> Self {
        TenantTurns { each, tenants: Mutex::default() }
    }

    /// Waits for the tenant's turn, for so long at most.
    pub async fn take(&self, tenant: TenantId, wait_max: Duration) -> Result<OwnedSemaphorePermit> {
        match tokio::time::timeout(wait_max, self.of(tenant).acquire_owned()).await {
            Ok(Ok(turn)) => Ok(turn),
            _ => Err(Error::unavailable("too many requests of this tenant are waiting")),
        }
    }

    fn of(&self, tenant: TenantId) -> Arc<Semaphore> {
        let mut turns = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        if turns.len() >= TENANTS_MAX {
            // A permit holds its semaphore, so what is in use stays.
            turns.retain(|_, semaphore| Arc::strong_count(semaphore) > 1);
        }
        turns.entry(tenant).or_insert_with(|| Arc::new(Semaphore::new(self.each))).clone()
    }
}
