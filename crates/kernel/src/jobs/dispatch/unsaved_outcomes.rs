//! Outcomes of jobs that are not saved yet. One write runs at a time and takes all outcomes that have come by then.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::work::SaveReport;
use crate::base::{Code, Error, Result};

/// How long saving is retried: within the lease.
pub const SAVE_RETRY_MAX: Duration = Duration::from_secs(15);
const SAVE_RETRY_DELAY: Duration = Duration::from_millis(500);

pub struct UnsavedOutcomes<I, O> {
    ids: Vec<I>,
    outcomes: Vec<O>,
    batch: Option<SaveBatch<I, O>>,
}

/// The write under way.
struct SaveBatch<I, O> {
    ids: Vec<I>,
    outcomes: Arc<Vec<O>>,
    since: Instant,
    write: JoinHandle<Result<SaveReport>>,
}

impl<I, O> Default for UnsavedOutcomes<I, O> {
    fn default() -> Self {
        UnsavedOutcomes { ids: Vec::new(), outcomes: Vec::new(), batch: None }
    }
}

impl<I, O> UnsavedOutcomes<I, O> {
    pub fn push_outcome(&mut self, id: I, outcome: O) {
        self.ids.push(id);
        self.outcomes.push(outcome);
    }

    /// Starts to save the outcomes, unless a write is under way; then the next write takes them.
    pub fn begin_save(&mut self, save: impl FnOnce(Arc<Vec<O>>) -> BoxFuture<'static, Result<SaveReport>>) {
        if self.batch.is_some() || self.outcomes.is_empty() {
            return;
        }
        let (ids, outcomes) = (std::mem::take(&mut self.ids), Arc::new(std::mem::take(&mut self.outcomes)));
        let write = tokio::spawn(save(outcomes.clone()));
        self.batch = Some(SaveBatch { ids, outcomes, since: Instant::now(), write });
    }

    /// Waits for the write under way, or for ever if there is none. The caller passes the result to
    /// [`UnsavedOutcomes::finish_save`].
    pub async fn wait_saved(&mut self) -> Result<SaveReport> {
        let Some(batch) = &mut self.batch else { return std::future::pending().await };
        (&mut batch.write).await.map_err(Error::internal).flatten()
    }

    /// Handles the result of a write. Retries it during an outage of the database, otherwise returns the ids of its jobs.
    pub fn finish_save(
        &mut self,
        written: &Result<SaveReport>,
        save: impl FnOnce(Arc<Vec<O>>) -> BoxFuture<'static, Result<SaveReport>>,
    ) -> Option<Vec<I>> {
        let is_outage = written.as_ref().is_err_and(|error| error.code() == Code::Unavailable);
        match &mut self.batch {
            Some(batch) if is_outage && batch.since.elapsed() < SAVE_RETRY_MAX => {
                let write = save(batch.outcomes.clone());
                batch.write = tokio::spawn(async move {
                    tokio::time::sleep(SAVE_RETRY_DELAY).await;
                    write.await
                });
                None
            }
            batch => batch.take().map(|batch| batch.ids),
        }
    }
}
