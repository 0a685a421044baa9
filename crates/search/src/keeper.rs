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
use super::following::{Following, Taken, Trouble, close, is_of_this_store};
use super::index::Serving;
use super::index::writer;
use super::served::{Served, blocking};

/// From one look into the feed to the next, when there was nothing.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// From one commit to the next.
pub const COMMIT_EVERY: Duration = Duration::from_millis(300);
/// After something went wrong: at first, and at most.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
const AGAIN_AFTER_MAX: Duration = Duration::from_secs(30);
/// The same if it was the store, which others wait for as well.
const STORE_AGAIN_AFTER_MAX: Duration = Duration::from_secs(2);
/// A node that was not seen for so long builds its index anew when it comes back: until then all changes are kept for it.
const FORGET_AFTER_MS: i64 = HOUR_MS;
/// From one cleaning of the feed to the next, and what is removed in one transaction and in one cleaning.
const CLEAN_EVERY: Duration = Duration::from_secs(5);
const CLEAN_ROWS: i64 = 2_000;
const CLEAN_STEPS: usize = 20;
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

    /// Brings everything into the index that is committed, as [`Keeper::run`] does by and by.
    pub async fn catch_up(&self) -> Result<()> {
        loop {
            match self.step().await {
                Ok(taken) if taken.is_any => {}
                Ok(_) => return Ok(()),
                Err(Trouble::Store(error) | Trouble::Index(error)) => return Err(error),
            }
        }
    }

    /// Opens the index if that was not done, and takes the next changes.
    async fn step(&self) -> Result<Taken, Trouble> {
        let kept = &mut *self.kept.lock().await;
        let system = self.records();
        self.inspect_when_due(kept).await;
        let taken = self.follow(kept, &system).await;
        // Behind it: this node must have said that it is there.
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
                // Until then what serves is an older one, if there is one.
                if taken.is_all {
                    self.served.serve(following.serving(), began);
                }
                Ok(taken)
            }
            // The store is away for a moment; the index is as it was.
            Err(Trouble::Store(error)) => Err(Trouble::Store(error)),
            // It is opened again as it was last committed.
            Err(Trouble::Index(error)) => {
                close(kept.following.take()).await;
                Err(Trouble::Index(error))
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
        // The store may know of more than the last commit does.
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
        // It can be asked, and is kept up to date until the new one is there.
        builder.build(Some(following), "it was written by another version").await
    }
}

/// Says what went wrong, and for how long at most it is waited.
fn warn(error: &Error, again_max: Duration) -> Duration {
    let cause = error.cause().unwrap_or_else(|| error.to_string());
    tracing::warn!(cause, "the search index cannot be kept up to date; it will be tried again");
    again_max
}
