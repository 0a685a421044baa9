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

use super::handle::Lane;
use super::sqlite::{self, Lite};
use super::turns::TenantTurns;

pub(super) struct Readers {
    idle: Mutex<Vec<Lite>>,
    permits: Semaphore,
    waiting: TenantTurns,
    wait_max: Duration,
}

impl Readers {
    /// Opens all connections, so that a later shortage of file descriptors or disk cannot stop reads.
    pub fn open(path: &Path, count: usize, wait_max: Duration) -> Result<Self> {
        let idle = (0..count).map(|_| sqlite::open_reader(path, wait_max)).collect::<Result<Vec<_>>>()?;
        Ok(Readers { idle: Mutex::new(idle), permits: Semaphore::new(count), waiting: TenantTurns::new(1), wait_max })
    }

    /// Acquires a connection, after a bounded wait for one.
    pub async fn lend(&self, lane: Lane) -> Result<Lent<'_>> {
        let permit = match self.permits.try_acquire() {
            Ok(permit) => permit,
            Err(TryAcquireError::Closed) => return Err(closed()),
            Err(TryAcquireError::NoPermits) => self.wait(lane).await?,
        };
        self.pop(permit)
    }

    async fn wait(&self, lane: Lane) -> Result<SemaphorePermit<'_>> {
        let waited = tokio::time::timeout(self.wait_max, async {
            let _place = self.waiting.take(lane, self.wait_max).await?;
            self.permits.acquire().await.map_err(|_| closed())
        });
        waited.await.map_err(|_| Error::unavailable("no connection to read with became free in time"))?
    }

    fn pop<'a>(&'a self, permit: SemaphorePermit<'a>) -> Result<Lent<'a>> {
        let connection = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        Ok(Lent { connection: Some(connection.ok_or_else(closed)?), readers: self, _permit: permit })
    }

    /// Acquires a connection for a caller that has ensured that one is free.
    pub fn lend_now(&self) -> Result<Lent<'_>> {
        let permit = self.permits.try_acquire().map_err(|_| closed())?;
        self.pop(permit)
    }

    /// Closes idle connections; those in use are closed when their guard is dropped.
    pub fn close(&self) {
        self.permits.close();
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

fn closed() -> Error {
    Error::unavailable("the store is closed")
}

/// A connection in use; it returns to the pool when dropped, also after a panic.
pub(super) struct Lent<'a> {
    connection: Option<Lite>,
    readers: &'a Readers,
    _permit: SemaphorePermit<'a>,
}

impl Lent<'_> {
    pub fn read<R>(self, work: impl FnOnce(&Lite) -> Result<R>) -> Result<R> {
        work(self.connection.as_ref().ok_or_else(closed)?)
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take()
            && !self.readers.permits.is_closed()
        {
            self.readers.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        }
    }
}
