//! The thread that writes the index, at a lower priority: requests come before the freshness of the index.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;

use kernel::base::{Error, Result};
use tokio::sync::oneshot;

type IndexWriterJob = Box<dyn FnOnce() + Send>;

/// The thread ends when this handle is dropped.
pub struct IndexWriterThread(mpsc::Sender<IndexWriterJob>);

impl IndexWriterThread {
    pub fn start() -> Result<Self> {
        let (sender, jobs) = mpsc::channel::<IndexWriterJob>();
        let work = move || {
            lower_thread_priority();
            for job in jobs {
                job();
            }
        };
        std::thread::Builder::new().name("search-index".to_owned()).spawn(work).map_err(Error::internal)?;
        Ok(IndexWriterThread(sender))
    }

    /// Runs a job after those before it.
    pub async fn run<T: Send + 'static>(&self, job: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
        let (done, result) = oneshot::channel();
        let job = move || {
            // Tantivy panics on some damaged files.
            let ended = catch_unwind(AssertUnwindSafe(job));
            // This fails if the caller was dropped.
            let _ = done.send(ended.unwrap_or_else(|_| Err(Error::internal("writing the search index has panicked"))));
        };
        self.0.send(Box::new(job)).map_err(|_| Error::internal("the thread of the search index is gone"))?;
        result.await.map_err(Error::internal)?
    }
}

/// Lowers the priority of this thread and of those that it starts, which merge and compress.
#[cfg(target_os = "linux")]
fn lower_thread_priority() {
    const NICER: i32 = 10;
    if let Err(error) = rustix::process::nice(NICER) {
        tracing::debug!(%error, "failed to lower the priority of the search index thread");
    }
}

#[cfg(not(target_os = "linux"))]
fn lower_thread_priority() {}
