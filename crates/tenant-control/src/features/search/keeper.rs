//! Keeps the index of this node like the store: opens it or builds it anew, and follows the feed of changes.
//!
//! The index is a copy. Whatever is wrong with it, it is built anew from the records, and nothing but search waits for that.

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
use super::following::{Following, Taken, Trouble, close};
use super::index::Serving;
use super::index::writer::{self, Stands};
use super::served::{Served, blocking};

/// From one look into the feed to the next, when there was nothing.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// From one commit to the next.
pub const COMMIT_EVERY: Duration = Duration::from_millis(300);
/// After something went wrong: at first, and at most.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
const AGAIN_AFTER_MAX: Duration = Duration::from_secs(30);
/// What could not be kept up to date for so long is not shown any more.
const BEHIND_AFTER: Duration = Duration::from_secs(5);
/// A node that was not seen for so long builds its index anew when it comes back: until then all changes are kept for it.
const FORGET_AFTER_MS: i64 = HOUR_MS;
/// From one cleaning of the feed to the next, and what is removed in one transaction and in one cleaning.
const CLEAN_EVERY: Duration = Duration::from_secs(5);
const CLEAN_ROWS: i64 = 2_000;
const CLEAN_STEPS: usize = 50;
/// From one look at all files for a search that failed to the next.
const INSPECT_EVERY: Duration = Duration::from_mins(1);

/// Keeps the index in a folder.
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

    /// Until it is dropped.
    pub async fn run(self) {
        let (mut fresh_at, mut again_after) = (Instant::now(), AGAIN_AFTER);
        loop {
            let began = Instant::now();
            let step = self.step().await;
            if let Ok(taken) = &step {
                again_after = AGAIN_AFTER;
                fresh_at = if taken.is_all { began } else { fresh_at };
            }
            metrics::gauge!("search_lag_seconds").set(fresh_at.elapsed().as_secs_f64());
            match step {
                Ok(taken) if taken.is_any => tokio::time::sleep(COMMIT_EVERY.saturating_sub(began.elapsed())).await,
                Ok(_) => tokio::time::sleep(LOOK_EVERY).await,
                Err(error) => {
                    let cause = error.cause().unwrap_or_else(|| error.to_string());
                    tracing::warn!(cause, "the search index cannot be kept up to date; it will be tried again");
                    if fresh_at.elapsed() >= BEHIND_AFTER {
                        self.served.fall_behind();
                    }
                    tokio::time::sleep(again_after).await;
                    again_after = (again_after * 2).min(AGAIN_AFTER_MAX);
                }
            }
        }
    }

    /// Brings everything into the index that is committed, as [`Keeper::run`] does by and by.
    pub async fn catch_up(&self) -> Result<()> {
        while self.step().await?.is_any {}
        Ok(())
    }

    /// Opens the index if that was not done, and takes the next changes.
    async fn step(&self) -> Result<Taken> {
        let kept = &mut *self.kept.lock().await;
        let system = self.records();
        self.clean_when_due(kept, &system).await;
        self.inspect_when_due(kept).await;
        let folder = self.folder(&mut kept.folder).await?;
        if kept.following.is_none() {
            kept.following = Some(self.begin(&system, folder).await?);
        }
        let Some(following) = &mut kept.following else { return Err(Error::internal("it has just begun")) };
        match following.step(&system).await {
            Ok(taken) => {
                self.served.serve(following.serving());
                Ok(taken)
            }
            // The store is away for a moment; the index is as it was.
            Err(Trouble::Store(error)) => Err(error),
            // It is opened again as it was last committed.
            Err(Trouble::Index(error)) => {
                close(kept.following.take()).await;
                Err(error)
            }
        }
    }

    /// The one that it has, or takes.
    async fn folder(&self, taken: &mut Option<Arc<Folder>>) -> Result<Arc<Folder>> {
        if let Some(folder) = taken {
            return Ok(folder.clone());
        }
        let root = self.root.clone();
        let folder = Arc::new(blocking(move || Folder::take(&root)).await?);
        Ok(taken.insert(folder).clone())
    }

    /// Of all tenants.
    fn records(&self) -> Db {
        self.node.store.system(Purpose::Jobs)
    }

    /// Whatever becomes of this node's index, changes that nobody needs do not pile up.
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
                    return tracing::warn!(cause, "changes that are in the search index were not removed");
                }
            }
        }
    }

    /// After a search that failed, all files are looked at again.
    async fn inspect_when_due(&self, kept: &mut Kept) {
        if kept.inspected.is_some_and(|at| at.elapsed() < INSPECT_EVERY) || !self.served.take_doubt() {
            return;
        }
        kept.inspected = Some(Instant::now());
        close(kept.following.take()).await;
    }

    /// Opens the index that is there, or builds one.
    async fn begin(&self, system: &Db, folder: Arc<Folder>) -> Result<Following> {
        let opening = folder.clone();
        let found = blocking(move || {
            opening.make()?;
            let Some(name) = opening.current()? else { return Ok(Err("there is none yet".to_owned())) };
            Ok(writer::open(&opening.root.join(&name)).map(|found| (name, found)).map_err(|unusable| unusable.0))
        });
        let builder = Builder { system, folder: folder.clone(), chance: &self.node.world.chance, served: &self.served };
        let (name, (opened, stands)) = match found.await? {
            Ok(found) => found,
            Err(reason) => return builder.build(None, &reason).await,
        };
        if !is_of_this_store(system, &name, stands).await? {
            let reason = "it has missed changes, or the store was put back to an earlier state";
            return builder.build(None, reason).await;
        }
        let following = Following::new(folder, name, Arc::new(Serving::new(opened)?), stands.place, stands.passed);
        if stands.is_current {
            return Ok(following);
        }
        // It can be asked, and is kept up to date until the new one is there.
        self.served.serve(following.serving());
        builder.build(Some(following), "it was written by another version").await
    }
}

/// Whether what an index has is what the store was like at its place, and everything since is still in the feed.
///
/// A store that was put back to an earlier state knows less than the index: a place before the one that the index had noted there, an
/// end before the place of the index, or other changes since.
async fn is_of_this_store(system: &Db, name: &str, stands: Stands) -> Result<bool> {
    let Some(noted) = changes::find_reader(system, name).await? else { return Ok(false) };
    let is_known = (stands.passed..=stands.place).contains(&noted);
    Ok(is_known && stands.place <= changes::end(system).await? && changes::is_there(system, stands.place).await?)
}
