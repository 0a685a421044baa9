//! Applies the change feed to an index, and saves its feed position in the store.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kernel::base::{Error, Result, StringEnum, TenantId, run_blocking};
use kernel::store::Db;
use kernel::store::changes::{self, ChangePosition, ChangedRecord};

use super::documents::{self, DocumentKind, SearchDocument};
use super::index::ServingIndex;
use super::index::writer::DocumentWriter;
use super::index_folder::IndexFolder;

/// The most changes in one commit.
const CHANGES_MAX: i64 = 5_000;
/// The most records that are read and held at a time.
const RECORDS_MAX: usize = 256;
/// The shortest time between two commits.
pub const COMMIT_EVERY: Duration = Duration::from_millis(300);
/// How often the feed position is saved: when it has moved, and when it has not.
pub const SAVE_EVERY: Duration = Duration::from_secs(5);
const IDLE_SAVE_EVERY: Duration = Duration::from_mins(1);

/// Why an update failed.
pub enum UpdateError {
    /// The records could not be read; the index is unchanged.
    Store(Error),
    /// The index could not be written, or the store no longer knows it.
    Index(Error),
}

impl From<Error> for UpdateError {
    fn from(error: Error) -> Self {
        UpdateError::Store(error)
    }
}

/// The outcome of one update.
#[derive(Clone, Copy)]
pub struct AppliedChanges {
    pub has_changes: bool,
    /// The end of the feed was reached.
    pub is_caught_up: bool,
}

/// An index and its position in the change feed.
pub struct IndexUpdater {
    folder: Arc<IndexFolder>,
    /// The name of this reader of the feed, and of the folder of the index.
    name: String,
    serving: Arc<ServingIndex>,
    writer: Option<DocumentWriter>,
    position: ChangePosition,
    /// The position that the store has saved, and when; `None` before the first time.
    saved_position: ChangePosition,
    saved_at: Option<Instant>,
    /// When the index was last checked to match the store.
    checked_at: Instant,
}

impl IndexUpdater {
    pub fn new(
        folder: Arc<IndexFolder>,
        name: String,
        serving: Arc<ServingIndex>,
        position: ChangePosition,
        saved_position: ChangePosition,
    ) -> Self {
        IndexUpdater {
            folder,
            name,
            serving,
            writer: None,
            position,
            saved_position,
            saved_at: None,
            checked_at: Instant::now(),
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn serving_index(&self) -> Arc<ServingIndex> {
        self.serving.clone()
    }

    /// Reads the next changes and applies them to the index.
    pub async fn apply_changes(&mut self, system: &Db) -> Result<AppliedChanges, UpdateError> {
        let changed = changes::list_changes_after(system, self.position, CHANGES_MAX).await?;
        let applied = AppliedChanges {
            has_changes: !changed.is_empty(),
            is_caught_up: (changed.len() as u64) < CHANGES_MAX.unsigned_abs(),
        };
        if let Some(position) = changed.last().map(|last| last.position) {
            // The index is unchanged so far: after a failure here the update is retried.
            let (folder, name) = (self.folder.clone(), self.name.clone());
            let is_there = run_blocking(move || Ok(folder.root.join(name).is_dir())).await?;
            if !is_there {
                return Err(UpdateError::Index(Error::internal("its folder is gone: it is built anew")));
            }
            let folder = self.folder.clone();
            run_blocking(move || folder.check_free_space()).await?;
            let mut previous: Option<LoadedRecords> = None;
            for (kind, ids) in group_by_kind(changed) {
                // The next records are read while the previous ones are written.
                let reading = async {
                    let documents = documents::store::read_documents(system, kind, &ids).await?;
                    Ok::<LoadedRecords, UpdateError>(LoadedRecords { kind, ids: ids.clone(), documents })
                };
                let (written, loaded) = tokio::join!(self.apply_records(previous.take()), reading);
                written.map_err(UpdateError::Index)?;
                previous = Some(loaded?);
            }
            self.apply_records(previous).await.map_err(UpdateError::Index)?;
            self.commit_changes(position).await.map_err(UpdateError::Index)?;
        }
        self.save_position(system).await?;
        Ok(applied)
    }

    /// Replaces these records by their current documents. Records without a document are deleted.
    async fn apply_records(&mut self, loaded: Option<LoadedRecords>) -> Result<()> {
        let Some(LoadedRecords { kind, ids, documents }) = loaded else { return Ok(()) };
        self.run_on_writer(move |writer| {
            for (tenant, id) in &ids {
                writer.remove_record(*tenant, kind, id);
            }
            for document in &documents {
                writer.add_document(document).map_err(Error::internal)?;
            }
            Ok(())
        })
        .await
    }

    async fn commit_changes(&mut self, position: ChangePosition) -> Result<()> {
        let (saved_position, serving) = (self.saved_position, self.serving.clone());
        self.run_on_writer(move |writer| {
            writer.commit_changes(position, saved_position).map_err(Error::internal)?;
            serving.refresh_snapshot()
        })
        .await?;
        self.position = position;
        metrics::gauge!("search_documents").set(to_gauge_value(self.serving.count_documents()));
        Ok(())
    }

    /// Runs a job on the writer, which is closed if the job fails.
    async fn run_on_writer(
        &mut self,
        job: impl FnOnce(&mut DocumentWriter) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        let (writer, serving) = (self.writer.take(), self.serving.clone());
        let write = move || {
            let mut writer = match writer {
                Some(writer) => writer,
                None => DocumentWriter::for_updates(serving.open_index()).map_err(Error::internal)?,
            };
            match job(&mut writer) {
                Ok(()) => Ok(writer),
                Err(error) => {
                    writer.close();
                    Err(error)
                }
            }
        };
        self.writer = Some(self.folder.run_job(write).await?);
        Ok(())
    }

    /// Saves the feed position and checks that the index still matches the store, each at its interval.
    async fn save_position(&mut self, system: &Db) -> Result<(), UpdateError> {
        let every = if self.position == self.saved_position { IDLE_SAVE_EVERY } else { SAVE_EVERY };
        if self.saved_at.is_none_or(|at| at.elapsed() >= every) {
            if !changes::advance_reader(system, &self.name, self.saved_position, self.position).await? {
                return Err(stale_index_error());
            }
            (self.saved_position, self.saved_at) = (self.position, Some(Instant::now()));
        }
        if self.checked_at.elapsed() >= SAVE_EVERY {
            if !matches_store(system, &self.name, self.saved_position, self.position).await? {
                return Err(stale_index_error());
            }
            self.checked_at = Instant::now();
        }
        Ok(())
    }
}

fn stale_index_error() -> UpdateError {
    UpdateError::Index(Error::internal(
        "it was forgotten, or the store was put back to an earlier state: it is built anew",
    ))
}

/// Whether the index has the state of the store at its position, and the feed still has every later change.
///
/// A store that was restored to an earlier state is behind the index: its saved position is before the one that the index
/// recorded, its feed ends before the position of the index, or it has no change at that position.
pub async fn matches_store(
    system: &Db,
    name: &str,
    saved_position: ChangePosition,
    position: ChangePosition,
) -> Result<bool> {
    let Some(reader_position) = changes::find_reader_position(system, name).await? else { return Ok(false) };
    let is_consistent = (saved_position..=position).contains(&reader_position);
    Ok(is_consistent
        && position <= changes::get_end_position(system).await?
        && changes::has_change_at(system, position).await?)
}

/// Closes the writer. Uncommitted changes are read again by the next one.
pub async fn close_updater(updater: Option<IndexUpdater>) {
    let Some(IndexUpdater { folder, writer: Some(writer), .. }) = updater else { return };
    let close = move || {
        writer.close();
        Ok(())
    };
    if let Err(error) = folder.run_job(close).await {
        tracing::warn!(%error, "failed to close the search index");
    }
}

/// Changed records of one kind, with the current documents of those that exist.
struct LoadedRecords {
    kind: DocumentKind,
    ids: Vec<(TenantId, String)>,
    documents: Vec<SearchDocument>,
}

/// Groups changed records by kind into distinct batches. Kinds that this version does not know are skipped.
fn group_by_kind(changed: Vec<ChangedRecord>) -> Vec<(DocumentKind, Vec<(TenantId, String)>)> {
    let mut by_kind: BTreeMap<DocumentKind, BTreeSet<(TenantId, String)>> = BTreeMap::new();
    for ChangedRecord { tenant, kind, id, .. } in changed {
        if let Some(kind) = DocumentKind::parse(&kind) {
            by_kind.entry(kind).or_default().insert((tenant, id));
        }
    }
    let mut batches = Vec::new();
    for (kind, ids) in by_kind {
        let ids: Vec<(TenantId, String)> = ids.into_iter().collect();
        batches.extend(ids.chunks(RECORDS_MAX).map(|ids| (kind, ids.to_vec())));
    }
    batches
}

/// Metrics take floating-point numbers.
#[expect(clippy::cast_precision_loss, reason = "nobody counts beyond 2^52 documents")]
pub fn to_gauge_value(count: u64) -> f64 {
    count as f64
}
