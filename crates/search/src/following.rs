//! Applies the change feed to an index, and saves its feed position in the store.

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

/// The most changes in one commit.
const CHANGES_MAX: i64 = 5_000;
/// The most records that are read and held at a time.
const RECORDS_MAX: usize = 256;
/// How often the feed position is saved: when it has moved, and when it has not.
pub const PASS_EVERY: Duration = Duration::from_secs(5);
const PASS_EVERY_MAX: Duration = Duration::from_mins(1);

/// Why an update failed.
pub enum Trouble {
    /// The records could not be read; the index is unchanged.
    Store(Error),
    /// The index could not be written, or the store no longer knows it.
    Index(Error),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Trouble::Store(error)
    }
}

/// The outcome of one update.
#[derive(Clone, Copy)]
pub struct Taken {
    pub is_any: bool,
    /// The end of the feed was reached.
    pub is_all: bool,
}

/// An index and its position in the change feed.
pub struct Following {
    folder: Arc<Folder>,
    /// The name of this reader of the feed, and of the folder of the index.
    name: String,
    serving: Arc<Serving>,
    writer: Option<Writer>,
    place: Place,
    /// The position that the store has saved, and when; `None` before the first time.
    passed: Place,
    passed_at: Option<Instant>,
    /// When the index was last checked to match the store.
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

    /// Reads the next changes and applies them to the index.
    pub async fn step(&mut self, system: &Db) -> Result<Taken, Trouble> {
        let changed = changes::read(system, self.place, CHANGES_MAX).await?;
        let taken = Taken { is_any: !changed.is_empty(), is_all: (changed.len() as u64) < CHANGES_MAX.unsigned_abs() };
        if let Some(place) = changed.last().map(|last| last.place) {
            // The index is unchanged so far: after a failure here the update is retried.
            let (folder, name) = (self.folder.clone(), self.name.clone());
            let is_there = blocking(move || Ok(folder.root.join(name).is_dir())).await?;
            if !is_there {
                return Err(Trouble::Index(Error::internal("its folder is gone: it is built anew")));
            }
            let folder = self.folder.clone();
            blocking(move || folder.check_room()).await?;
            let mut before: Option<Read> = None;
            for (kind, ids) in by_kind(changed) {
                // The next records are read while the previous ones are written.
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

    /// Replaces these records by their current documents. Records without a document are deleted.
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

    /// Runs a job on the writer, which is closed if the job fails.
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

    /// Saves the feed position and checks that the index still matches the store, each at its interval.
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

/// Whether the index has the state of the store at its position, and the feed still has every later change.
///
/// A store that was restored to an earlier state is behind the index: its saved position is before the one that the index
/// recorded, its feed ends before the position of the index, or it has no change at that position.
pub async fn is_of_this_store(system: &Db, name: &str, passed: Place, place: Place) -> Result<bool> {
    let Some(noted) = changes::find_reader(system, name).await? else { return Ok(false) };
    let is_known = (passed..=place).contains(&noted);
    Ok(is_known && place <= changes::end(system).await? && changes::is_there(system, place).await?)
}

/// Closes the writer. Uncommitted changes are read again by the next one.
pub async fn close(following: Option<Following>) {
    let Some(Following { folder, writer: Some(writer), .. }) = following else { return };
    let close = move || {
        writer.close();
        Ok(())
    };
    if let Err(error) = folder.write(close).await {
        tracing::warn!(%error, "failed to close the search index");
    }
}

/// Changed records of one kind, with the current documents of those that exist.
struct Read {
    kind: Kind,
    ids: Vec<(TenantId, String)>,
    found: Vec<Document>,
}

/// Groups changed records by kind into distinct batches. Kinds that this version does not know are skipped.
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

/// Metrics take floating-point numbers.
#[expect(clippy::cast_precision_loss, reason = "nobody counts beyond 2^52 documents")]
pub fn number(count: u64) -> f64 {
    count as f64
}
