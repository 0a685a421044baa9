//! Builds a new index from the records of all tenants. Changes made during the build come from the change feed afterwards.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kernel::base::{Error, RandomSource, Result, StringEnum, run_blocking};
use kernel::store::Db;
use kernel::store::changes::{self, ChangePosition};

use super::documents::store::WalkPosition;
use super::documents::{self, DocumentKind, SearchDocument};
use super::index::ServingIndex;
use super::index::writer::{self, DocumentWriter, OpenIndex};
use super::index_folder::IndexFolder;
use super::service::SearchService;
use super::updater::{COMMIT_EVERY, IndexUpdater, SAVE_EVERY, UpdateError, close_updater, to_gauge_value};

/// The most records that are read at a time.
const WALK_ROWS: usize = 500;
/// How many attempts there are to read the same records, and the time between them.
const TRIES_MAX: usize = 30;
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Letters of a reader's name.
const NAME_LEN: usize = 16;

pub struct IndexBuilder<'a> {
    pub system: &'a Db,
    pub folder: Arc<IndexFolder>,
    pub random: &'a RandomSource,
    pub served: &'a SearchService,
}

/// An index being built, and the names of those that it replaces.
struct NewIndex {
    name: String,
    opened: OpenIndex,
    writer: DocumentWriter,
    position: ChangePosition,
    replaced: Vec<String>,
}

impl IndexBuilder<'_> {
    /// Builds the index. An old one that can still be searched serves and is kept up to date meanwhile.
    pub async fn build_index(&self, old: Option<IndexUpdater>, reason: &str) -> Result<IndexUpdater, UpdateError> {
        tracing::info!(reason, "building the search index");
        if old.is_none() {
            self.served.mark_building();
        }
        let name = self.random.base62_text(NAME_LEN).to_lowercase();
        let mut progress = BuildProgress { old, updated_at: None, saved_at: Instant::now() };
        let built = self.build_named(&name, &mut progress).await;
        close_updater(progress.old).await;
        if built.is_err() {
            self.discard_build(name).await;
        }
        built.map_err(UpdateError::Index)
    }

    async fn build_named(&self, name: &str, progress: &mut BuildProgress) -> Result<IndexUpdater> {
        let began = Instant::now();
        let position = changes::get_end_position(self.system).await?;
        changes::insert_reader(self.system, name, position).await?;
        let mut new = self.create_index(name, progress.old.as_ref(), position).await?;
        let mut count = 0;
        for kind in DocumentKind::ALL {
            let mut page = Some(self.read_page(*kind, None).await?);
            while let Some((documents, after)) = page {
                count += documents.len();
                // The next page is read while this one is added.
                let next = async {
                    match after {
                        Some(after) => self.read_page(*kind, Some(after)).await.map(Some),
                        None => Ok(None),
                    }
                };
                let (writer, next) = tokio::join!(self.add_documents(new.writer, documents), next);
                (new.writer, page) = (writer?, next?);
                self.continue_build(progress, &new, count).await?;
            }
        }
        close_updater(progress.old.take()).await;
        let NewIndex { name, opened, mut writer, replaced, .. } = new;
        let (folder, current) = (self.folder.clone(), name.clone());
        let finish = move || {
            folder.check_free_space()?;
            writer.commit_changes(position, position).map_err(Error::internal)?;
            writer.close();
            folder.set_current(&current)?;
            folder.save_progress(None)?;
            folder.remove_others(&[&current])
        };
        self.folder.run_job(finish).await?;
        for old in replaced {
            // A reader that cannot be removed now expires later.
            if let Err(error) = changes::delete_reader(self.system, &old).await {
                tracing::warn!(%error, "failed to unregister a replaced search index");
            }
        }
        tracing::info!(documents = count, seconds = began.elapsed().as_secs_f32(), "search index built");
        metrics::gauge!("search_build_documents").set(0.0);
        let serving = Arc::new(ServingIndex::new(opened)?);
        Ok(IndexUpdater::new(self.folder.clone(), name, serving, position, position))
    }

    /// Reads the next records. A busy or unavailable store is retried, because starting over would cost it more.
    async fn read_page(
        &self,
        kind: DocumentKind,
        after: Option<WalkPosition>,
    ) -> Result<(Vec<SearchDocument>, Option<WalkPosition>)> {
        let mut tries = 1;
        loop {
            match documents::store::walk_documents(self.system, kind, after.clone(), WALK_ROWS).await {
                Err(error) if tries < TRIES_MAX => {
                    tracing::debug!(%error, "search index build is waiting for the store");
                    tries += 1;
                    tokio::time::sleep(TRY_AGAIN_AFTER).await;
                }
                other => return other,
            }
        }
    }

    async fn add_documents(
        &self,
        mut writer: DocumentWriter,
        documents: Vec<SearchDocument>,
    ) -> Result<DocumentWriter> {
        let add = move || {
            for document in &documents {
                writer.add_document(document).map_err(Error::internal)?;
            }
            Ok(writer)
        };
        self.folder.run_job(add).await
    }

    async fn create_index(&self, name: &str, old: Option<&IndexUpdater>, position: ChangePosition) -> Result<NewIndex> {
        // The job owns its data, because it continues if its caller is dropped.
        let (folder, name, old) = (self.folder.clone(), name.to_owned(), old.map(|old| old.name().to_owned()));
        let make = move || {
            // Indexes that can no longer be searched make room for the new one.
            let replaced: Vec<String> = folder.remove_others(&old.iter().map(String::as_str).collect::<Vec<_>>())?;
            folder.save_progress(Some(0))?;
            let opened = writer::create_index(&folder.root.join(&name)).map_err(Error::internal)?;
            let writer = DocumentWriter::for_build(&opened).map_err(Error::internal)?;
            Ok(NewIndex { name, opened, writer, position, replaced: replaced.into_iter().chain(old).collect() })
        };
        self.folder.run_job(make).await
    }

    /// Does what is due during a build: updates the old index, and saves the progress of the new one.
    async fn continue_build(&self, progress: &mut BuildProgress, new: &NewIndex, count: usize) -> Result<()> {
        metrics::gauge!("search_build_documents").set(to_gauge_value(count as u64));
        self.served.report_lag();
        if let Some(old) = &mut progress.old
            && progress.updated_at.is_none_or(|at| at.elapsed() >= COMMIT_EVERY)
        {
            let began = Instant::now();
            progress.updated_at = Some(began);
            match old.apply_changes(self.system).await {
                Ok(applied) if applied.is_caught_up => self.served.mark_serving(old.serving_index(), began),
                Ok(_) | Err(UpdateError::Store(_)) => {}
                Err(UpdateError::Index(_)) => {
                    self.served.mark_building();
                    close_updater(progress.old.take()).await;
                }
            }
        }
        if progress.saved_at.elapsed() < SAVE_EVERY {
            return Ok(());
        }
        progress.saved_at = Instant::now();
        tracing::info!(documents = count, "search index build in progress");
        if !changes::advance_reader(self.system, &new.name, new.position, new.position).await? {
            return Err(Error::internal("it was forgotten while it was being built"));
        }
        let folder = self.folder.clone();
        run_blocking(move || {
            folder.save_progress(Some(count))?;
            folder.check_free_space()
        })
        .await
    }

    /// Removes the folder and the feed reader of a failed build.
    async fn discard_build(&self, name: String) {
        let (folder, reader) = (self.folder.clone(), name.clone());
        let removed = run_blocking(move || {
            folder.save_progress(None)?;
            let path = folder.root.join(&name);
            if path.exists() { std::fs::remove_dir_all(path).map_err(Error::internal) } else { Ok(()) }
        })
        .await;
        for error in [removed.err(), changes::delete_reader(self.system, &reader).await.err()].into_iter().flatten() {
            tracing::warn!(%error, "failed to clean up a failed search index build");
        }
    }
}

/// The old index during a build, and when it was last updated and the progress last saved.
struct BuildProgress {
    old: Option<IndexUpdater>,
    updated_at: Option<Instant>,
    saved_at: Instant,
}
