//! What has become of jobs and is not on disk yet: one write at a time, each with all that has come by then.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::Settled;
use crate::base::{Code, Error, Result};

/// How long it is tried to note what became of jobs: as long as the lease lasts.
pub const SETTLE_MAX: Duration = Duration::from_secs(15);
const SETTLE_AGAIN: Duration = Duration::from_millis(500);

pub struct Unnoted<I, O> {
    ids: Vec<I>,
    outcomes: Vec<O>,
    batch: Option<Batch<I, O>>,
}

/// What the write under way is about.
struct Batch<I, O> {
    ids: Vec<I>,
    outcomes: Arc<Vec<O>>,
    since: Instant,
    write: JoinHandle<Result<Settled>>,
}

impl<I, O> Default for Unnoted<I, O> {
    fn default() -> Self {
        Unnoted { ids: Vec::new(), outcomes: Vec::new(), batch: None }
    }
}

impl<I, O> Unnoted<I, O> {
    pub fn push(&mut self, id: I, outcome: O) {
        self.ids.push(id);
        self.outcomes.push(outcome);
    }

    /// Begins to write what is known, unless a write is under way: then the next one takes more.
    pub fn write(&mut self, settle: impl FnOnce(Arc<Vec<O>>) -> BoxFuture<'static, Result<Settled>>) {
        if self.batch.is_some() || self.outcomes.is_empty() {
            return;
        }
        let (ids, outcomes) = (std::mem::take(&mut self.ids), Arc::new(std::mem::take(&mut self.outcomes)));
        let write = tokio::spawn(settle(outcomes.clone()));
        self.batch = Some(Batch { ids, outcomes, since: Instant::now(), write });
    }

    /// Waits for the write under way, for ever if there is none. Its end is then told to [`Unnoted::ended`].
    pub async fn written(&mut self) -> Result<Settled> {
        let Some(batch) = &mut self.batch else { return std::future::pending().await };
        (&mut batch.write).await.map_err(Error::internal).flatten()
    }

    /// What to do about a write that has ended so: begins it again while the database is away, else tells what it was
    /// about.
    pub fn ended(
        &mut self,
        written: &Result<Settled>,
        settle: impl FnOnce(Arc<Vec<O>>) -> BoxFuture<'static, Result<Settled>>,
    ) -> Option<Vec<I>> {
        let is_away = written.as_ref().is_err_and(|error| error.code() == Code::Unavailable);
        match &mut self.batch {
            Some(batch) if is_away && batch.since.elapsed() < SETTLE_MAX => {
                let write = settle(batch.outcomes.clone());
                batch.write = tokio::spawn(async move {
                    tokio::time::sleep(SETTLE_AGAIN).await;
                    write.await
                });
                None
            }
            batch => batch.take().map(|batch| batch.ids),
        }
    }
}
