//! Keeps the search index of this node in sync with the store: opens or rebuilds it, and applies the change feed.
//!
//! The index is a copy. If anything is wrong with it, it is rebuilt from the records, and only search waits for that.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kernel::base::{Error, HOUR_MS, Result};
use kernel::jobs::Node;
use kernel::store::changes;
use kernel::store::{Db, Purpose};
use tokio::sync::Mutex;

use super::builder::Builder;
use super::folder::Folder;
use super::following::{Following, Taken, Trouble, close, is_of_this_store};
use super::index::Serving;
use super::index::writer;
use super::served::{Served, blocking};

/// How often an empty feed is polled.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The shortest time between two commits.
pub const COMMIT_EVERY: Duration = Duration::from_millis(300);
/// The backoff after a failure.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
const AGAIN_AFTER_MAX: Duration = Duration::from_secs(30);
/// The longest backoff if the store failed, which others wait for as well.
const STORE_AGAIN_AFTER_MAX: Duration = Duration::from_secs(2);
/// A reader silent for so long is removed, and its node rebuilds the index when it returns. Until then all changes are kept
/// for it.
const FORGET_AFTER_MS: i64 = HOUR_MS;
/// How often the feed is cleaned, how many rows one transaction removes, and how many transactions one cleaning has.
const CLEAN_EVERY: Duration = Duration::from_secs(5);
const CLEAN_ROWS: i64 = 2_000;
const CLEAN_STEPS: usize = 20;
/// The shortest time between two inspections of all files after failed searches.
const INSPECT_EVERY: Duration = Duration::from_mins(1);

/// Keeps the index of this node in a folder.
pub struct Keeper {
    node: Node,
    root: PathBuf,
    served: Served,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    folder: Option<Arc<Folder>>,
    following: Option<Following>,
    cleaned: Option<Instant>,
    inspected: Option<Instant>,
}

impl Keeper {
    pub fn new(node: Node, root: PathBuf, served: Served) -> Self {
        Keeper { node, root, served, kept: Mutex::default() }
    }

    /// Runs until it is dropped.
    pub async fn run(self) {
        let mut again_after = AGAIN_AFTER;
        loop {
            let began = Instant::now();
            let step = self.step().await;
            self.served.note_lag();
            let again_max = match step {
                Ok(taken) => {
                    again_after = AGAIN_AFTER;
                    let rest = if taken.is_any { COMMIT_EVERY.saturating_sub(began.elapsed()) } else { LOOK_EVERY };
                    tokio::time::sleep(rest).await;
                    continue;
                }
                Err(Trouble::Store(error)) => warn(&error, STORE_AGAIN_AFTER_MAX),
                Err(Trouble::Index(error)) => warn(&error, AGAIN_AFTER_MAX),
            };
            tokio::time::sleep(again_after.min(again_max)).await;
            again_after = (again_after * 2).min(AGAIN_AFTER_MAX);
        }
    }

    /// Applies all committed changes now, as [`IndexKeeper::run`] does over time.
    pub async fn catch_up(&self) -> Result<()> {
        loop {
            match self.step().await {
                Ok(taken) if taken.is_any => {}
                Ok(_) => return Ok(()),
                Err(Trouble::Store(error) | Trouble::Index(error)) => return Err(error),
            }
        }
    }

    /// Opens the index if it is not open, and applies the next changes.
    async fn step(&self) -> Result<Taken, Trouble> {
        let kept = &mut *self.kept.lock().await;
        let system = self.records();
        self.inspect_when_due(kept).await;
        let taken = self.follow(kept, &system).await;
        // Cleaning comes last: it removes silent readers, and this node must have reported itself first.
        self.clean_when_due(kept, &system).await;
        taken
    }

    async fn follow(&self, kept: &mut Kept, system: &Db) -> Result<Taken, Trouble> {
        let folder = self.folder(&mut kept.folder).await.map_err(Trouble::Index)?;
        if kept.following.is_none() {
            kept.following = Some(self.begin(system, folder).await?);
        }
        let Some(following) = &mut kept.following else {
            return Err(Trouble::Index(Error::internal("it has just begun")));
        };
        let began = Instant::now();
        match following.step(system).await {
            Ok(taken) => {
                // Before the end of the feed, an older index keeps serving if there is one.
                if taken.is_all {
                    self.served.serve(following.serving(), began);
                }
                Ok(taken)
            }
            // The store is unavailable for a moment; the index is unchanged.
            Err(Trouble::Store(error)) => Err(Trouble::Store(error)),
            // The next run opens the index again at its last commit.
            Err(Trouble::Index(error)) => {
                close(kept.following.take()).await;
                Err(Trouble::Index(error))
            }
        }
    }

    /// The locked folder; locks it on the first call.
    async fn folder(&self, taken: &mut Option<Arc<Folder>>) -> Result<Arc<Folder>> {
        if let Some(folder) = taken {
            return Ok(folder.clone());
        }
        let root = self.root.clone();
        let folder = Arc::new(blocking(move || Folder::take(&root)).await?);
        Ok(taken.insert(folder).clone())
    }

    /// A handle to the records of all tenants.
    fn records(&self) -> Db {
        self.node.store.system(Purpose::Jobs)
    }

    /// Removes changes that every reader has processed, even while this node's index fails.
    async fn clean_when_due(&self, kept: &mut Kept, system: &Db) {
        if kept.cleaned.is_some_and(|at| at.elapsed() < CLEAN_EVERY) {
            return;
        }
        kept.cleaned = Some(Instant::now());
        for _ in 0..CLEAN_STEPS {
            match changes::clean(system, FORGET_AFTER_MS, CLEAN_ROWS).await {
                Ok(removed) if removed < CLEAN_ROWS.unsigned_abs() => return,
                Ok(_) => {}
                Err(error) => {
                    let cause = error.cause().unwrap_or_else(|| error.to_string());
                    return tracing::warn!(cause, "failed to clean the change feed of the search index");
                }
            }
        }
    }

    /// Closes the index after a failed search. Opening it again verifies all files.
    async fn inspect_when_due(&self, kept: &mut Kept) {
        if kept.inspected.is_some_and(|at| at.elapsed() < INSPECT_EVERY) || !self.served.take_doubt() {
            return;
        }
        kept.inspected = Some(Instant::now());
        close(kept.following.take()).await;
    }

    /// Opens the existing index, or builds one.
    async fn begin(&self, system: &Db, folder: Arc<Folder>) -> Result<Following, Trouble> {
        let opening = folder.clone();
        let found = blocking(move || {
            opening.make()?;
            let Some(name) = opening.current()? else { return Ok(Err("there is none yet".to_owned())) };
            Ok(writer::open(&opening.root.join(&name)).map(|found| (name, found)).map_err(|unusable| unusable.0))
        });
        let builder = Builder { system, folder: folder.clone(), chance: &self.node.world.chance, served: &self.served };
        let (name, (opened, stands)) = match found.await.map_err(Trouble::Index)? {
            Ok(found) => found,
            Err(reason) => return builder.build(None, &reason).await,
        };
        if !is_of_this_store(system, &name, stands.passed, stands.place).await? {
            let reason = "it has missed changes, or the store was put back to an earlier state";
            return builder.build(None, reason).await;
        }
        // The store may have saved a later position than the last commit recorded.
        let noted = changes::find_reader(system, &name).await?.unwrap_or(stands.passed);
        let (clearing, kept) = (folder.clone(), name.clone());
        let clear = move || {
            clearing.note_building(None)?;
            clearing.remove_others(&[&kept])
        };
        blocking(clear).await.map_err(Trouble::Index)?;
        let serving = Arc::new(Serving::new(opened).map_err(Trouble::Index)?);
        let following = Following::new(folder, name, serving, stands.place, noted);
        if stands.is_current {
            return Ok(following);
        }
        // The old index serves and is kept up to date until the new one is built.
        builder.build(Some(following), "it was written by another version").await
    }
}

/// Logs a failure and returns the longest backoff for it.
fn warn(error: &Error, again_max: Duration) -> Duration {
    let cause = error.cause().unwrap_or_else(|| error.to_string());
    tracing::warn!(cause, "failed to update the search index; retrying");
    again_max
}
