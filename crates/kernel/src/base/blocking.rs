//! Work that would block the threads which serve requests.

use super::{Error, Result};

/// Runs `work` on a blocking thread: for what takes long, on the processor or on a disk.
pub async fn run_blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(Error::internal)?
}
