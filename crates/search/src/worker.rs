//! A thread for what is written to the index. It gives way to all others: whoever waits for an answer comes before what is found a
//! moment later.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;

use kernel::base::{Error, Result};
use tokio::sync::oneshot;

type Job = Box<dyn FnOnce() + Send>;

/// Ends with the last one who can give it work.
pub struct Worker(mpsc::Sender<Job>);

impl Worker {
    pub fn start() -> Result<Self> {
        let (sender, jobs) = mpsc::channel::<Job>();
        let work = move || {
            give_way();
            for job in jobs {
                job();
            }
        };
        std::thread::Builder::new().name("search-index".to_owned()).spawn(work).map_err(Error::internal)?;
        Ok(Worker(sender))
    }

    /// One job after another.
    pub async fn run<T: Send + 'static>(&self, job: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
        let (done, result) = oneshot::channel();
        let job = move || {
            // Tantivy panics at some of what it reads from files that are damaged.
            let ended = catch_unwind(AssertUnwindSafe(job));
            // Nobody waits for it any more, if this fails.
            let _ = done.send(ended.unwrap_or_else(|_| Err(Error::internal("writing the search index has panicked"))));
        };
        self.0.send(Box::new(job)).map_err(|_| Error::internal("the thread of the search index is gone"))?;
        result.await.map_err(Error::internal)?
    }
}

/// The threads that it begins, which merge and compress, give way as well.
#[cfg(target_os = "linux")]
fn give_way() {
    const NICER: i32 = 10;
    if let Err(error) = rustix::process::nice(NICER) {
        tracing::debug!(%error, "the search index is written as if others waited for it");
    }
}

#[cfg(not(target_os = "linux"))]
fn give_way() {}
