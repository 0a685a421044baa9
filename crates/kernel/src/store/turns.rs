//! Turns: one tenant's requests wait for each other here, not on connections that others need.
//!
//! At PostgreSQL that is so for writes and for reads, and what the service does by itself has turns of its own. The tenant's
//! clock makes writes serial in the database anyway, and one that waits for it there would hold one of the few connections of
//! the pool. Reads of one tenant have half of the pool. On SQLite it is so for queries that look at many rows, and for reads
//! when no connection is free.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::base::{Error, Result, TenantId};

use super::Db;
use super::handle::Lane;

/// One that works and one that stands ready behind it, so that the database is not idle in between.
const TURNS: usize = 2;

/// Tenants remembered before those without a turn in use are forgotten.
const TENANTS_MAX: usize = 1_024;

/// Writes of the service's own work at once, of all tenants: a few of the pool's connections, so that no amount of work
/// keeps requests waiting.
const JOB_TURNS: usize = 6;

/// The service's own work can wait longer than a client does, and must not be lost for it.
const JOB_WAIT_MAX: Duration = Duration::from_secs(30);

pub(super) struct Turns {
    writes: TenantTurns,
    jobs: Arc<Semaphore>,
    reads: TenantTurns,
    job_reads: Arc<Semaphore>,
}

/// A turn to read: one of the tenant's, and of the service's own work also one of all.
pub(super) struct ReadTurn {
    _of_tenant: Option<OwnedSemaphorePermit>,
    _of_jobs: Option<OwnedSemaphorePermit>,
}

/// A turn of the service's own work: one of the tenant's, and one of all.
pub(super) struct JobTurn {
    _of_tenant: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

impl Turns {
    /// For a pool of so many connections.
    pub fn new(pool_max: usize) -> Self {
        // No tenant's reads have all connections, and none has none.
        let reads = TenantTurns::new(pool_max.max(1).div_ceil(2));
        let own_work = || Arc::new(Semaphore::new(JOB_TURNS));
        Turns { writes: TenantTurns::new(TURNS), jobs: own_work(), reads, job_reads: own_work() }
    }

    /// Waits for the tenant's turn to write, for so long at most.
    pub async fn take(&self, tenant: TenantId, wait_max: Duration) -> Result<OwnedSemaphorePermit> {
        self.writes.take(Lane::Tenant(tenant), wait_max).await
    }

    /// Waits for a turn of the service's own work. The tenant's first: while its rows are locked, its work waits here and
    /// not on turns that others need.
    pub async fn take_for_job(&self, tenant: TenantId) -> Result<JobTurn> {
        let of_tenant = self.writes.of(Lane::Job(tenant));
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

    /// Waits for a turn to read. The system reads little, for everybody, and waits for nobody.
    pub async fn take_to_read(&self, lane: Lane, wait_max: Duration) -> Result<ReadTurn> {
        if lane == Lane::System {
            return Ok(ReadTurn { _of_tenant: None, _of_jobs: None });
        }
        let of_tenant = self.reads.take(lane, wait_max).await?;
        let mut of_jobs = None;
        if matches!(lane, Lane::Job(_)) {
            let turn = tokio::time::timeout(JOB_WAIT_MAX, self.job_reads.clone().acquire_owned()).await;
            let late = || Error::unavailable("too many reads of the service's own work are waiting");
            of_jobs = Some(turn.ok().and_then(Result::ok).ok_or_else(late)?);
        }
        Ok(ReadTurn { _of_tenant: Some(of_tenant), _of_jobs: of_jobs })
    }
}

/// So many turns for each tenant, and as many for what the service does for it.
pub struct TenantTurns {
    each: usize,
    lanes: Mutex<HashMap<Lane, Arc<Semaphore>>>,
}

impl TenantTurns {
    pub fn new(each: usize) -> Self {
        TenantTurns { each, lanes: Mutex::default() }
    }

    /// Waits for a turn of whoever has this handle, for so long at most.
    pub async fn take_for(&self, db: &Db, wait_max: Duration) -> Result<OwnedSemaphorePermit> {
        self.take(db.lane(), wait_max).await
    }

    /// Waits for the tenant's turn, for so long at most.
    pub(crate) async fn take(&self, lane: Lane, wait_max: Duration) -> Result<OwnedSemaphorePermit> {
        let turns = self.of(lane);
        if let Ok(turn) = turns.clone().try_acquire_owned() {
            return Ok(turn);
        }
        let waited = tokio::time::timeout(wait_max, turns.acquire_owned()).await;
        let Ok(Ok(turn)) = waited else {
            return Err(Error::unavailable("too many requests of this tenant are waiting"));
        };
        // The thread on which the turn before it ended would go on with this one, and the next, and look at nothing that
        // has come in from others meanwhile.
        tokio::task::yield_now().await;
        Ok(turn)
    }

    fn of(&self, lane: Lane) -> Arc<Semaphore> {
        let mut turns = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        if turns.len() >= TENANTS_MAX {
            // A permit holds its semaphore, so what is in use stays.
            turns.retain(|_, semaphore| Arc::strong_count(semaphore) > 1);
        }
        turns.entry(lane).or_insert_with(|| Arc::new(Semaphore::new(self.each))).clone()
    }
}
