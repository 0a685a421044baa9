//! Keeps the index of this node like the store: opens it or builds it anew, and follows the feed of changes.
//!
//! The index is a copy. Whatever is wrong with it, it is built anew from the records, and nothing but search waits for that.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use kernel::base::{Error, HOUR_MS, Result, TenantId, Word};
use kernel::jobs::Node;
use kernel::store::changes::{self, Changed, Place};
use kernel::store::{Db, Purpose};

use tokio::sync::Mutex;

use super::documents::{self, Document, Kind};
use super::index::writer::{self, Opened, Unusable, Writer};
use super::index::{Asked, Found, Serving};

/// From one look into the feed to the next, when there was nothing.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// From one commit to the next.
const COMMIT_EVERY: Duration = Duration::from_millis(300);
/// Changes of one commit.
const CHANGES_MAX: i64 = 5_000;
/// From one note of how far this node has read to the next.
const PASS_EVERY: Duration = Duration::from_secs(5);
/// After something went wrong.
const AGAIN_AFTER: Duration = Duration::from_secs(5);
/// A node that was not seen for so long builds its index anew when it comes back: until then all changes are kept for it.
const FORGET_AFTER_MS: i64 = HOUR_MS;
/// Changes that are removed in one step.
const CLEAN_ROWS: i64 = 5_000;
/// Records that are read at a time for a new index.
const WALK_ROWS: usize = 500;
/// Letters of a reader's name.
const NAME_LEN: usize = 16;

/// The index that serves, for those who ask. None while there is none.
#[derive(Clone, Default)]
pub struct Served(Arc<RwLock<State>>);

#[derive(Clone, Default)]
enum State {
    /// Not there yet.
    #[default]
    Building,
    Serving(Arc<Serving>),
    /// It is there, and cannot be kept up to date.
    Behind,
}

impl Served {
    /// The index, up to date but for what is being committed.
    pub fn get(&self) -> Result<Arc<Serving>> {
        match &*self.0.read().unwrap_or_else(PoisonError::into_inner) {
            State::Serving(serving) => Ok(serving.clone()),
            State::Building => Err(Error::unavailable("the search index is being built")),
            State::Behind => Err(Error::unavailable("the search index cannot be kept up to date")),
        }
    }

    /// Asks it off the threads that serve requests. None if that would cost more than a search may.
    pub async fn search(&self, asked: Asked) -> Result<Option<Found>> {
        let serving = self.get()?;
        blocking(move || serving.search(&asked)).await
    }

    fn set(&self, state: State) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = state;
    }

    fn fall_behind(&self) {
        let mut state = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if matches!(*state, State::Serving(_)) {
            *state = State::Behind;
        }
    }
}

/// Keeps the index in a folder.
pub struct Keeper {
    node: Node,
    folder: PathBuf,
    served: Served,
    following: Mutex<Option<Following>>,
}

/// An index that follows the feed, and how far it has come.
struct Following {
    /// As which it reads the feed, and what its folder is called.
    name: String,
    serving: Arc<Serving>,
    writer: Option<Writer>,
    place: Place,
    passed: Option<(Place, Instant)>,
}

impl Keeper {
    pub fn new(node: Node, folder: PathBuf, served: Served) -> Self {
        Keeper { node, folder, served, following: Mutex::new(None) }
    }

    /// Until it is dropped.
    pub async fn run(self) {
        loop {
            let began = Instant::now();
            match self.step().await {
                Ok(true) => tokio::time::sleep(COMMIT_EVERY.saturating_sub(began.elapsed())).await,
                Ok(false) => tokio::time::sleep(LOOK_EVERY).await,
                Err(error) => {
                    tracing::warn!(%error, "the search index cannot be kept up to date; it will be tried again");
                    self.served.fall_behind();
                    tokio::time::sleep(AGAIN_AFTER).await;
                }
            }
        }
    }

    /// Brings everything into the index that is committed, as [`Keeper::run`] does by and by.
    pub async fn catch_up(&self) -> Result<()> {
        while self.step().await? {}
        Ok(())
    }

    /// Opens the index if that was not done, and takes the next changes. Whether there were any.
    async fn step(&self) -> Result<bool> {
        let mut following = self.following.lock().await;
        let current = match following.take() {
            Some(current) => current,
            None => self.begin().await?,
        };
        let (current, has_changed) = self.follow(current).await?;
        // What has failed is dropped, and opened again as it was last committed.
        *following = Some(current);
        Ok(has_changed)
    }

    /// Of all tenants.
    fn records(&self) -> Db {
        self.node.store.system(Purpose::Jobs)
    }

    async fn begin(&self) -> Result<Following> {
        let folder = self.folder.clone();
        let opened = blocking(move || open(&folder)).await?;
        let (name, opened, place) = match opened {
            Ok(found) => found,
            Err(Unusable(reason)) => {
                tracing::info!(%reason, "the search index is built");
                return self.build().await;
            }
        };
        let serving = Arc::new(Serving::new(opened)?);
        match changes::find_reader(&self.records(), &name).await? {
            Some(passed) if passed <= place => Ok(self.serve(name, serving, place)),
            _ => {
                tracing::info!("the search index has missed changes, and is built anew");
                self.served.set(State::Serving(serving));
                self.build().await
            }
        }
    }

    fn serve(&self, name: String, serving: Arc<Serving>, place: Place) -> Following {
        self.served.set(State::Serving(serving.clone()));
        Following { name, serving, writer: None, place, passed: None }
    }

    /// Reads all records of all tenants into a new index. What is written meanwhile comes from the feed.
    async fn build(&self) -> Result<Following> {
        let (system, began) = (self.records(), Instant::now());
        let name = self.node.world.chance.base62(NAME_LEN).to_lowercase();
        let place = changes::end(&system).await?;
        changes::begin_reader(&system, &name, place).await?;
        let (path, root) = (self.folder.join(&name), self.folder.clone());
        let make = move || -> Result<(Opened, Writer, Vec<String>)> {
            let current = writer::current(&root).map_err(Error::internal)?;
            std::fs::create_dir_all(&root).map_err(Error::internal)?;
            let removed = writer::remove_others(&root, current.as_deref()).map_err(Error::internal)?;
            let opened = writer::create(&path).map_err(Error::internal)?;
            let writer = Writer::building(&opened).map_err(Error::internal)?;
            Ok((opened, writer, removed.into_iter().chain(current).collect()))
        };
        let (opened, mut writing, replaced) = blocking(make).await?;
        let mut count = 0_usize;
        for kind in Kind::ALL {
            let mut behind = None;
            loop {
                let (found, next) = documents::store::walk(&system, *kind, behind, WALK_ROWS).await?;
                count += found.len();
                writing = blocking(move || add_all(writing, &found)).await?;
                metrics::gauge!("search_build_documents").set(small(count));
                if next.is_none() {
                    break;
                }
                behind = next;
            }
            // A reader that is not seen is forgotten.
            changes::pass(&system, &name, place).await?;
        }
        let (root, current) = (self.folder.clone(), name.clone());
        let finish = move || {
            writing.commit(place).map_err(Error::internal)?;
            drop(writing);
            writer::set_current(&root, &current).map_err(Error::internal)?;
            writer::remove_others(&root, Some(&current)).map_err(Error::internal)
        };
        blocking(finish).await?;
        for old in replaced {
            changes::end_reader(&system, &old).await?;
        }
        tracing::info!(documents = count, seconds = began.elapsed().as_secs_f32(), "the search index is built");
        let serving = Arc::new(Serving::new(opened)?);
        Ok(self.serve(name, serving, place))
    }

    /// Takes the next changes. Whether there were any.
    async fn follow(&self, mut current: Following) -> Result<(Following, bool)> {
        let system = self.records();
        let changed = changes::read(&system, current.place, CHANGES_MAX).await?;
        let has_changed = !changed.is_empty();
        if let Some(last) = changed.last() {
            let place = last.place;
            let (gone, found) = read(&system, changed).await?;
            current = blocking(move || current.take(&gone, &found, place)).await?;
            metrics::gauge!("search_documents")
                .set(small(usize::try_from(current.serving.documents()).unwrap_or(usize::MAX)));
        }
        // Up to date, or nearly.
        self.served.set(State::Serving(current.serving.clone()));
        let is_due = current.passed.is_none_or(|(_, at)| at.elapsed() >= PASS_EVERY);
        if is_due {
            if !changes::pass(&system, &current.name, current.place).await? {
                return Err(Error::internal("the search index was forgotten while it was in use, and is built anew"));
            }
            current.passed = Some((current.place, Instant::now()));
            let seen_before = system.world().now().plus(-FORGET_AFTER_MS);
            changes::clean(&system, seen_before, CLEAN_ROWS).await?;
        }
        Ok((current, has_changed))
    }
}

impl Following {
    /// Brings some changes into the index: what is gone, and what is there now.
    fn take(
        mut self,
        gone: &BTreeSet<(TenantId, Kind, String)>,
        found: &[Document],
        place: Place,
    ) -> Result<Following> {
        let mut writer = match self.writer.take() {
            Some(writer) => writer,
            None => Writer::steady(self.serving.opened()).map_err(Error::internal)?,
        };
        for (tenant, kind, id) in gone {
            writer.remove(*tenant, *kind, id);
        }
        for document in found {
            writer.add(document).map_err(Error::internal)?;
        }
        writer.commit(place).map_err(Error::internal)?;
        self.serving.refresh()?;
        self.writer = Some(writer);
        self.place = place;
        Ok(self)
    }
}

/// The records that have changed, as they are now; and all of which something else was known.
async fn read(system: &Db, changed: Vec<Changed>) -> Result<(BTreeSet<(TenantId, Kind, String)>, Vec<Document>)> {
    let mut by_kind: BTreeMap<&'static str, BTreeSet<(TenantId, String)>> = BTreeMap::new();
    for Changed { tenant, kind, id, .. } in changed {
        // What this version does not know is none of its business.
        if let Some(kind) = Kind::parse(&kind) {
            by_kind.entry(kind.as_str()).or_default().insert((tenant, id));
        }
    }
    let (mut gone, mut found) = (BTreeSet::new(), Vec::new());
    for kind in Kind::ALL {
        let Some(ids) = by_kind.remove(kind.as_str()) else { continue };
        let ids: Vec<(TenantId, String)> = ids.into_iter().collect();
        found.extend(documents::store::read(system, *kind, &ids).await?);
        gone.extend(ids.into_iter().map(|(tenant, id)| (tenant, *kind, id)));
    }
    Ok((gone, found))
}

type Current = (String, Opened, Place);

fn open(folder: &Path) -> Result<std::result::Result<Current, Unusable>> {
    let Some(name) = writer::current(folder).map_err(Error::internal)? else {
        return Ok(Err(Unusable("there is none yet".to_owned())));
    };
    Ok(writer::open(&folder.join(&name)).map(|(opened, place)| (name, opened, place)))
}

fn add_all(mut writer: Writer, found: &[Document]) -> Result<Writer> {
    for document in found {
        writer.add(document).map_err(Error::internal)?;
    }
    Ok(writer)
}

fn small(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

/// Off the threads that serve requests.
async fn blocking<T: Send + 'static>(job: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(job).await.map_err(Error::internal)?
}
