//! Limits per tenant: one tenant's requests wait for each other here, not on connections that others need.
//!
//! On PostgreSQL writes and reads are limited, and background jobs have permits of their own. The tenant's clock makes
//! writes serial in the database anyway, and a write that waits for it there would hold one of the few pooled connections.
//! One tenant's reads get half of the pool. On SQLite scans are limited, and reads when no connection is free.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::base::{Error, Result, TenantId};

use super::Db;
use super::handle::FairnessKey;

/// One write that runs and one that is ready to follow, so that the database is not idle in between.
const TENANT_WRITES_MAX: usize = 2;

/// Semaphores kept before those without a permit in use are dropped.
const TENANTS_MAX: usize = 1_024;

/// Writes of background jobs at once, over all tenants, and as many reads: a few of the pool's connections, so that no
/// backlog delays requests.
const JOB_PERMITS: usize = 6;

/// A background job can wait longer than a client, and should not fail because of a short wait.
const JOB_WAIT_MAX: Duration = Duration::from_secs(30);

pub(super) struct ConnectionLimiter {
    writes: TenantLimiter,
    jobs: Arc<Semaphore>,
    reads: TenantLimiter,
    job_reads: Arc<Semaphore>,
}

/// A permit to read: the tenant's, and for a background job also the shared one of all jobs.
pub(super) struct ReadPermit {
    _tenant_permit: Option<OwnedSemaphorePermit>,
    _job_permit: Option<OwnedSemaphorePermit>,
}

/// A permit of a background job to write: the tenant's, and the shared one of all jobs.
pub(super) struct JobWritePermit {
    _tenant_permit: OwnedSemaphorePermit,
    _shared_permit: OwnedSemaphorePermit,
}

impl ConnectionLimiter {
    /// Creates the limits for a pool of `pool_max` connections.
    pub fn new(pool_max: usize) -> Self {
        // No tenant's reads get all connections, and every tenant gets at least one.
        let reads = TenantLimiter::new(pool_max.max(1).div_ceil(2));
        let new_job_semaphore = || Arc::new(Semaphore::new(JOB_PERMITS));
        ConnectionLimiter {
            writes: TenantLimiter::new(TENANT_WRITES_MAX),
            jobs: new_job_semaphore(),
            reads,
            job_reads: new_job_semaphore(),
        }
    }

    /// Waits at most `wait_max` for the tenant's permit to write.
    pub async fn acquire_write(&self, tenant: TenantId, wait_max: Duration) -> Result<OwnedSemaphorePermit> {
        self.writes.acquire(FairnessKey::Tenant(tenant), wait_max).await
    }

    /// Waits for a background job's permit to write. The tenant's permit comes first: while its rows are locked, its jobs
    /// hold no permit that others need.
    pub async fn acquire_job_write(&self, tenant: TenantId) -> Result<JobWritePermit> {
        let tenant_semaphore = self.writes.semaphore_for(FairnessKey::Job(tenant));
        let both = async {
            let tenant_permit = tenant_semaphore.acquire_owned().await.ok()?;
            let shared_permit = self.jobs.clone().acquire_owned().await.ok()?;
            Some(JobWritePermit { _tenant_permit: tenant_permit, _shared_permit: shared_permit })
        };
        match tokio::time::timeout(JOB_WAIT_MAX, both).await {
            Ok(Some(permit)) => Ok(permit),
            _ => Err(Error::unavailable("too many writes of the service's own work are waiting")),
        }
    }

    /// Waits for a permit to read. The system reads little, on behalf of all tenants, and needs no permit.
    pub async fn acquire_read(&self, key: FairnessKey, wait_max: Duration) -> Result<ReadPermit> {
        if key == FairnessKey::System {
            return Ok(ReadPermit { _tenant_permit: None, _job_permit: None });
        }
        let tenant_permit = self.reads.acquire(key, wait_max).await?;
        let mut job_permit = None;
        if matches!(key, FairnessKey::Job(_)) {
            let permit = tokio::time::timeout(JOB_WAIT_MAX, self.job_reads.clone().acquire_owned()).await;
            let timeout_error = || Error::unavailable("too many reads of the service's own work are waiting");
            job_permit = Some(permit.ok().and_then(Result::ok).ok_or_else(timeout_error)?);
        }
        Ok(ReadPermit { _tenant_permit: Some(tenant_permit), _job_permit: job_permit })
    }
}

/// A number of permits for each tenant, and as many for its background jobs.
pub struct TenantLimiter {
    each: usize,
    semaphores: Mutex<HashMap<FairnessKey, Arc<Semaphore>>>,
}

impl TenantLimiter {
    pub fn new(each: usize) -> Self {
        TenantLimiter { each, semaphores: Mutex::default() }
    }

    /// Waits at most `wait_max` for a permit of the handle's tenant.
    pub async fn acquire_for(&self, db: &Db, wait_max: Duration) -> Result<OwnedSemaphorePermit> {
        self.acquire(db.fairness_key(), wait_max).await
    }

    /// Waits at most `wait_max` for a permit of this key.
    pub(crate) async fn acquire(&self, key: FairnessKey, wait_max: Duration) -> Result<OwnedSemaphorePermit> {
        let semaphore = self.semaphore_for(key);
        if let Ok(permit) = semaphore.clone().try_acquire_owned() {
            return Ok(permit);
        }
        let waited = tokio::time::timeout(wait_max, semaphore.acquire_owned()).await;
        let Ok(Ok(permit)) = waited else {
            return Err(Error::unavailable("too many requests of this tenant are waiting"));
        };
        // Otherwise the thread that released the permit would run this task and the next of the same tenant, and starve the
        // requests that others have sent meanwhile.
        tokio::task::yield_now().await;
        Ok(permit)
    }

    fn semaphore_for(&self, key: FairnessKey) -> Arc<Semaphore> {
        let mut semaphores = self.semaphores.lock().unwrap_or_else(PoisonError::into_inner);
        if semaphores.len() >= TENANTS_MAX {
            // A permit holds its semaphore, so those in use stay.
            semaphores.retain(|_, semaphore| Arc::strong_count(semaphore) > 1);
        }
        semaphores.entry(key).or_insert_with(|| Arc::new(Semaphore::new(self.each))).clone()
    }
}
