//! Connections that read from SQLite. A read runs inline on the caller's thread: it takes microseconds, and handing
//! it to another thread would cost more than the read itself.
//!
//! When no connection is free, only one read of each tenant is in the queue for the next one, so that no tenant starves
//! others.

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit, TryAcquireError};

use crate::base::{Error, Result};

use super::handle::FairnessKey;
use super::sqlite::{self, SqliteConnection};
use super::tenant_limiter::TenantLimiter;

pub(super) struct ReaderPool {
    idle: Mutex<Vec<SqliteConnection>>,
    permits: Semaphore,
    waiting: TenantLimiter,
    wait_max: Duration,
}

impl ReaderPool {
    /// Opens all connections, so that a later shortage of file descriptors or disk cannot stop reads.
    pub fn open_all(path: &Path, count: usize, wait_max: Duration) -> Result<Self> {
        let idle = (0..count).map(|_| sqlite::open_reader(path, wait_max)).collect::<Result<Vec<_>>>()?;
        Ok(ReaderPool {
            idle: Mutex::new(idle),
            permits: Semaphore::new(count),
            waiting: TenantLimiter::new(1),
            wait_max,
        })
    }

    /// Acquires a connection, after a bounded wait for one.
    pub async fn acquire_reader(&self, key: FairnessKey) -> Result<ReaderGuard<'_>> {
        let permit = match self.permits.try_acquire() {
            Ok(permit) => permit,
            Err(TryAcquireError::Closed) => return Err(closed_error()),
            Err(TryAcquireError::NoPermits) => self.wait_for_permit(key).await?,
        };
        self.pop_idle(permit)
    }

    async fn wait_for_permit(&self, key: FairnessKey) -> Result<SemaphorePermit<'_>> {
        let waited = tokio::time::timeout(self.wait_max, async {
            let _queue_permit = self.waiting.acquire(key, self.wait_max).await?;
            self.permits.acquire().await.map_err(|_| closed_error())
        });
        waited.await.map_err(|_| Error::unavailable("no connection to read with became free in time"))?
    }

    fn pop_idle<'a>(&'a self, permit: SemaphorePermit<'a>) -> Result<ReaderGuard<'a>> {
        let connection = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        Ok(ReaderGuard { connection: Some(connection.ok_or_else(closed_error)?), readers: self, _permit: permit })
    }

    /// Acquires a connection for a caller that has ensured that one is free.
    pub fn try_acquire_reader(&self) -> Result<ReaderGuard<'_>> {
        let permit = self.permits.try_acquire().map_err(|_| closed_error())?;
        self.pop_idle(permit)
    }

    /// Closes idle connections; those in use are closed when their guard is dropped.
    pub fn close(&self) {
        self.permits.close();
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

fn closed_error() -> Error {
    Error::unavailable("the store is closed")
}

/// A connection in use; it returns to the pool when dropped, also after a panic.
pub(super) struct ReaderGuard<'a> {
    connection: Option<SqliteConnection>,
    readers: &'a ReaderPool,
    _permit: SemaphorePermit<'a>,
}

impl ReaderGuard<'_> {
    pub fn read_with<R>(self, work: impl FnOnce(&SqliteConnection) -> Result<R>) -> Result<R> {
        work(self.connection.as_ref().ok_or_else(closed_error)?)
    }
}

impl Drop for ReaderGuard<'_> {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take()
            && !self.readers.permits.is_closed()
        {
            self.readers.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        }
    }
}
