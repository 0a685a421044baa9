//! An index that follows the feed: takes the next changes in, and notes in the store how far it has come.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kernel::base::{Error, Result, TenantId, Word};
use kernel::store::Db;
use kernel::store::changes::{self, Changed, Place};

use super::documents::{self, Document, Kind};
use super::folder::Folder;
use super::index::Serving;
use super::index::writer::Writer;
use super::served::blocking;

/// Changes of one commit.
const CHANGES_MAX: i64 = 5_000;
/// Records that are read and held at a time.
const RECORDS_MAX: usize = 256;
/// From one note of how far it has read to the next, if it has come any further, and if not.
pub const PASS_EVERY: Duration = Duration::from_secs(5);
const PASS_EVERY_MAX: Duration = Duration::from_mins(1);

/// What went wrong.
pub enum Trouble {
    /// The records could not be read; the index is as it was.
    Store(Error),
    /// The index could not be written, or was forgotten.
    Index(Error),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Trouble::Store(error)
    }
}

/// What was taken from the feed.
#[derive(Clone, Copy)]
pub struct Taken {
    pub is_any: bool,
    /// Nothing more was there.
    pub is_all: bool,
}

/// An index, and how far in the feed it has come.
pub struct Following {
    folder: Arc<Folder>,
    /// As which it reads the feed, and what its folder is called.
    name: String,
    serving: Arc<Serving>,
    writer: Option<Writer>,
    place: Place,
    /// How far the store knows of, and since when; none before it was noted at all.
    passed: Place,
    passed_at: Option<Instant>,
    /// When it was last seen that this is an index of the store as it is.
    looked_at: Instant,
}

impl Following {
    pub fn new(folder: Arc<Folder>, name: String, serving: Arc<Serving>, place: Place, passed: Place) -> Self {
        Following { folder, name, serving, writer: None, place, passed, passed_at: None, looked_at: Instant::now() }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn serving(&self) -> Arc<Serving> {
        self.serving.clone()
    }

    /// Takes the next changes.
    pub async fn step(&mut self, system: &Db) -> Result<Taken, Trouble> {
        let changed = changes::read(system, self.place, CHANGES_MAX).await?;
        let taken = Taken { is_any: !changed.is_empty(), is_all: (changed.len() as u64) < CHANGES_MAX.unsigned_abs() };
        if let Some(place) = changed.last().map(|last| last.place) {
            // Nothing was touched yet: it goes on as soon as there is room.
            let (folder, name) = (self.folder.clone(), self.name.clone());
            let is_there = blocking(move || Ok(folder.root.join(name).is_dir())).await?;
            if !is_there {
                return Err(Trouble::Index(Error::internal("its folder is gone: it is built anew")));
            }
            let folder = self.folder.clone();
            blocking(move || folder.check_room()).await?;
            let mut before: Option<Read> = None;
            for (kind, ids) in by_kind(changed) {
                // Some are read while those before them are written.
                let reading = async {
                    let found = documents::store::read(system, kind, &ids).await?;
                    Ok::<Read, Trouble>(Read { kind, ids: ids.clone(), found })
                };
                let (written, read) = tokio::join!(self.take(before.take()), reading);
                written.map_err(Trouble::Index)?;
                before = Some(read?);
            }
            self.take(before).await.map_err(Trouble::Index)?;
            self.commit(place).await.map_err(Trouble::Index)?;
        }
        self.pass(system).await?;
        Ok(taken)
    }

    /// Replaces these records by what they are now. Those that are not found are gone.
    async fn take(&mut self, read: Option<Read>) -> Result<()> {
        let Some(Read { kind, ids, found }) = read else { return Ok(()) };
        self.write(move |writer| {
            for (tenant, id) in &ids {
                writer.remove(*tenant, kind, id);
            }
            for document in &found {
                writer.add(document).map_err(Error::internal)?;
            }
            Ok(())
        })
        .await
    }

    async fn commit(&mut self, place: Place) -> Result<()> {
        let (passed, serving) = (self.passed, self.serving.clone());
        self.write(move |writer| {
            writer.commit(place, passed).map_err(Error::internal)?;
            serving.refresh()
        })
        .await?;
        self.place = place;
        metrics::gauge!("search_documents").set(number(self.serving.documents()));
        Ok(())
    }

    /// A writer that has failed is closed.
    async fn write(&mut self, job: impl FnOnce(&mut Writer) -> Result<()> + Send + 'static) -> Result<()> {
        let (writer, serving) = (self.writer.take(), self.serving.clone());
        let write = move || {
            let mut writer = match writer {
                Some(writer) => writer,
                None => Writer::steady(serving.opened()).map_err(Error::internal)?,
            };
            match job(&mut writer) {
                Ok(()) => Ok(writer),
                Err(error) => {
                    writer.close();
                    Err(error)
                }
            }
        };
        self.writer = Some(self.folder.write(write).await?);
        Ok(())
    }

    /// Looks whether the store is still the one that this is an index of, and notes how far it has come, now and then.
    async fn pass(&mut self, system: &Db) -> Result<(), Trouble> {
        let every = if self.place == self.passed { PASS_EVERY_MAX } else { PASS_EVERY };
        if self.passed_at.is_none_or(|at| at.elapsed() >= every) {
            if !changes::pass(system, &self.name, self.passed, self.place).await? {
                return Err(foreign());
            }
            (self.passed, self.passed_at) = (self.place, Some(Instant::now()));
        }
        if self.looked_at.elapsed() >= PASS_EVERY {
            if !is_of_this_store(system, &self.name, self.passed, self.place).await? {
                return Err(foreign());
            }
            self.looked_at = Instant::now();
        }
        Ok(())
    }
}

fn foreign() -> Trouble {
    Trouble::Index(Error::internal("it was forgotten, or the store was put back to an earlier state: it is built anew"))
}

/// Whether what an index has is what the store was like at its place, and everything since is still in the feed.
///
/// A store that was put back to an earlier state knows less than the index: a place before the one that was noted there, an end before
/// the place of the index, or other changes since.
pub async fn is_of_this_store(system: &Db, name: &str, passed: Place, place: Place) -> Result<bool> {
    let Some(noted) = changes::find_reader(system, name).await? else { return Ok(false) };
    let is_known = (passed..=place).contains(&noted);
    Ok(is_known && place <= changes::end(system).await? && changes::is_there(system, place).await?)
}

/// Stops writing. What was not committed is read again by whoever comes next.
pub async fn close(following: Option<Following>) {
    let Some(Following { folder, writer: Some(writer), .. }) = following else { return };
    let close = move || {
        writer.close();
        Ok(())
    };
    if let Err(error) = folder.write(close).await {
        tracing::warn!(%error, "the search index was not closed as it should be");
    }
}

/// Records of one kind as they are now.
struct Read {
    kind: Kind,
    ids: Vec<(TenantId, String)>,
    found: Vec<Document>,
}

/// Which records are to be read, each once, some at a time. What this version does not know is none of its business.
fn by_kind(changed: Vec<Changed>) -> Vec<(Kind, Vec<(TenantId, String)>)> {
    let mut by_kind: BTreeMap<usize, BTreeSet<(TenantId, String)>> = BTreeMap::new();
    for Changed { tenant, kind, id, .. } in changed {
        if let Some(kind) = Kind::parse(&kind) {
            by_kind.entry(kind.index()).or_default().insert((tenant, id));
        }
    }
    let mut some = Vec::new();
    for (index, ids) in by_kind {
        let Some(kind) = Kind::ALL.get(index) else { continue };
        let ids: Vec<(TenantId, String)> = ids.into_iter().collect();
        some.extend(ids.chunks(RECORDS_MAX).map(|ids| (*kind, ids.to_vec())));
    }
    some
}

/// As metrics have numbers.
#[expect(clippy::cast_precision_loss, reason = "nobody counts beyond 2^52 documents")]
pub fn number(count: u64) -> f64 {
    count as f64
}
