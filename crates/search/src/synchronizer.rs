//! Keeps the search index of this node in sync with the store: opens or rebuilds it, and applies the change feed.
//!
//! The index is a copy. If anything is wrong with it, it is rebuilt from the records, and only search waits for that.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kernel::base::{Error, HOUR_MS, Result, run_blocking};
use kernel::jobs::ServerNode;
use kernel::store::changes;
use kernel::store::{Db, Purpose};
use tokio::sync::Mutex;

use super::builder::IndexBuilder;
use super::index::ServingIndex;
use super::index::writer;
use super::index_folder::IndexFolder;
use super::service::SearchService;
use super::updater::{AppliedChanges, COMMIT_EVERY, IndexUpdater, UpdateError, close_updater, matches_store};

/// How often an empty feed is polled.
const POLL_EVERY: Duration = Duration::from_millis(100);
/// The backoff after a failure.
const BACKOFF_MIN: Duration = Duration::from_secs(1);
const BACKOFF_MAX: Duration = Duration::from_secs(30);
/// The longest backoff if the store failed, which others wait for as well.
const STORE_BACKOFF_MAX: Duration = Duration::from_secs(2);
/// A reader silent for so long is removed, and its node rebuilds the index when it returns. Until then all changes are kept
/// for it.
const READER_EXPIRY_MS: i64 = HOUR_MS;
/// How often the feed is cleaned, how many rows one transaction removes, and how many transactions one cleaning has.
const CLEAN_EVERY: Duration = Duration::from_secs(5);
const CLEAN_ROWS: i64 = 2_000;
const CLEAN_BATCHES_MAX: usize = 20;
/// The shortest time between two inspections of all files after failed searches.
const INSPECT_EVERY: Duration = Duration::from_mins(1);

/// Keeps the index of this node in a folder.
pub struct IndexSynchronizer {
    node: ServerNode,
    root: PathBuf,
    served: SearchService,
    state: Mutex<SynchronizerState>,
}

#[derive(Default)]
struct SynchronizerState {
    folder: Option<Arc<IndexFolder>>,
    updater: Option<IndexUpdater>,
    cleaned_at: Option<Instant>,
    inspected_at: Option<Instant>,
}

impl IndexSynchronizer {
    pub fn new(node: ServerNode, root: PathBuf, served: SearchService) -> Self {
        IndexSynchronizer { node, root, served, state: Mutex::default() }
    }

    /// Runs until it is dropped.
    pub async fn run(self) {
        let mut backoff = BACKOFF_MIN;
        loop {
            let began = Instant::now();
            let step = self.run_once().await;
            self.served.report_lag();
            let backoff_max = match step {
                Ok(applied) => {
                    backoff = BACKOFF_MIN;
                    let rest =
                        if applied.has_changes { COMMIT_EVERY.saturating_sub(began.elapsed()) } else { POLL_EVERY };
                    tokio::time::sleep(rest).await;
                    continue;
                }
                Err(UpdateError::Store(error)) => log_failure(&error, STORE_BACKOFF_MAX),
                Err(UpdateError::Index(error)) => log_failure(&error, BACKOFF_MAX),
            };
            tokio::time::sleep(backoff.min(backoff_max)).await;
            backoff = (backoff * 2).min(BACKOFF_MAX);
        }
    }

    /// Applies all committed changes now, as [`IndexSynchronizer::run`] does over time.
    pub async fn catch_up(&self) -> Result<()> {
        loop {
            match self.run_once().await {
                Ok(applied) if applied.has_changes => {}
                Ok(_) => return Ok(()),
                Err(UpdateError::Store(error) | UpdateError::Index(error)) => return Err(error),
            }
        }
    }

    /// Opens the index if it is not open, and applies the next changes.
    async fn run_once(&self) -> Result<AppliedChanges, UpdateError> {
        let state = &mut *self.state.lock().await;
        let system = self.system_db();
        self.inspect_when_due(state).await;
        let applied = self.apply_changes(state, &system).await;
        // Cleaning comes last: it removes silent readers, and this node must have reported itself first.
        self.clean_when_due(state, &system).await;
        applied
    }

    async fn apply_changes(&self, state: &mut SynchronizerState, system: &Db) -> Result<AppliedChanges, UpdateError> {
        let folder = self.acquire_folder(&mut state.folder).await.map_err(UpdateError::Index)?;
        let updater = match &mut state.updater {
            Some(updater) => updater,
            none => none.insert(self.open_or_build(system, folder).await?),
        };
        let began = Instant::now();
        let applied = updater.apply_changes(system).await;
        match &applied {
            // Before the end of the feed, an older index keeps serving if there is one.
            Ok(applied) if applied.is_caught_up => self.served.mark_serving(updater.serving_index(), began),
            // The next run opens the index again at its last commit.
            Err(UpdateError::Index(_)) => close_updater(state.updater.take()).await,
            // If the store is unavailable for a moment, the index is unchanged.
            Ok(_) | Err(UpdateError::Store(_)) => {}
        }
        applied
    }

    /// The locked folder; locks it on the first call.
    async fn acquire_folder(&self, acquired: &mut Option<Arc<IndexFolder>>) -> Result<Arc<IndexFolder>> {
        if let Some(folder) = acquired {
            return Ok(folder.clone());
        }
        let root = self.root.clone();
        let folder = Arc::new(run_blocking(move || IndexFolder::acquire(&root)).await?);
        Ok(acquired.insert(folder).clone())
    }

    /// A handle to the records of all tenants.
    fn system_db(&self) -> Db {
        self.node.store.system(Purpose::Jobs)
    }

    /// Removes changes that every reader has processed, even while this node's index fails.
    async fn clean_when_due(&self, state: &mut SynchronizerState, system: &Db) {
        if state.cleaned_at.is_some_and(|at| at.elapsed() < CLEAN_EVERY) {
            return;
        }
        state.cleaned_at = Some(Instant::now());
        for _ in 0..CLEAN_BATCHES_MAX {
            match changes::delete_passed_changes(system, READER_EXPIRY_MS, CLEAN_ROWS).await {
                Ok(removed) if removed < CLEAN_ROWS.unsigned_abs() => return,
                Ok(_) => {}
                Err(error) => {
                    let cause = error.cause_chain().unwrap_or_else(|| error.to_string());
                    return tracing::warn!(cause, "failed to clean the change feed of the search index");
                }
            }
        }
    }

    /// Closes the index after a failed search. Opening it again verifies all files.
    async fn inspect_when_due(&self, state: &mut SynchronizerState) {
        if state.inspected_at.is_some_and(|at| at.elapsed() < INSPECT_EVERY) || !self.served.take_failure() {
            return;
        }
        state.inspected_at = Some(Instant::now());
        close_updater(state.updater.take()).await;
    }

    /// Opens the existing index, or builds one.
    async fn open_or_build(&self, system: &Db, folder: Arc<IndexFolder>) -> Result<IndexUpdater, UpdateError> {
        let opening = folder.clone();
        let existing = run_blocking(move || {
            opening.create_root()?;
            let Some(name) = opening.find_current()? else { return Ok(Err("there is none yet".to_owned())) };
            Ok(writer::open_index(&opening.root.join(&name))
                .map(|existing| (name, existing))
                .map_err(|unusable| unusable.0))
        });
        let builder =
            IndexBuilder { system, folder: folder.clone(), random: &self.node.env.random, served: &self.served };
        let (name, (opened, commit_state)) = match existing.await.map_err(UpdateError::Index)? {
            Ok(existing) => existing,
            Err(reason) => return builder.build_index(None, &reason).await,
        };
        if !matches_store(system, &name, commit_state.saved_position, commit_state.position).await? {
            let reason = "it has missed changes, or the store was put back to an earlier state";
            return builder.build_index(None, reason).await;
        }
        // The store may have saved a later position than the last commit recorded.
        let saved_position = changes::find_reader_position(system, &name).await?.unwrap_or(commit_state.saved_position);
        let (clearing, current_name) = (folder.clone(), name.clone());
        let clear = move || {
            clearing.save_progress(None)?;
            clearing.remove_others(&[&current_name])
        };
        run_blocking(clear).await.map_err(UpdateError::Index)?;
        let is_current = opened.is_current();
        let serving = Arc::new(ServingIndex::new(opened).map_err(UpdateError::Index)?);
        let updater = IndexUpdater::new(folder, name, serving, commit_state.position, saved_position);
        if is_current {
            return Ok(updater);
        }
        // The old index serves and is kept up to date until the new one is built.
        builder.build_index(Some(updater), "it was written by another version").await
    }
}

/// Logs a failure and returns the longest backoff for it.
fn log_failure(error: &Error, backoff_max: Duration) -> Duration {
    let cause = error.cause_chain().unwrap_or_else(|| error.to_string());
    tracing::warn!(cause, "failed to update the search index; retrying");
    backoff_max
}
