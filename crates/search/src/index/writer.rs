//! Creates, opens and changes an index. One process writes it, and each commit records its feed position.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use kernel::base::TenantId;
use kernel::store::changes::ChangePosition;
use tantivy::index::SegmentId;
use tantivy::indexer::{IndexWriterOptions, LogMergePolicy, MergeCandidate, MergePolicy, NoMergePolicy};
use tantivy::{Index, IndexReader, IndexWriter, ReloadPolicy, SegmentMeta, TantivyError};

use super::super::documents::{DocumentKind, SearchDocument};
use super::super::index_folder::FREE_BYTES_MIN;
use super::files::{IndexDirectory, remove_orphans};
use super::schema::{self, FORMAT, IndexFields, TermOwner};

/// An index that is open for reading.
#[derive(Clone)]
pub struct OpenIndex {
    pub path: PathBuf,
    pub index: Index,
    pub fields: IndexFields,
    pub reader: IndexReader,
    /// The version of the format that its documents were written in.
    pub format: u32,
}

impl OpenIndex {
    /// Whether all documents were written by this version.
    pub fn is_current(&self) -> bool {
        self.format == FORMAT
    }
}

/// Why an index has to be rebuilt, in words.
pub struct UnusableIndex(pub String);

impl From<TantivyError> for UnusableIndex {
    fn from(error: TantivyError) -> Self {
        UnusableIndex(error.to_string())
    }
}

/// The number of unpacked blocks of stored documents that are cached for each segment.
const SHOWN_BLOCKS: usize = 8;

fn open_reader(index: &Index) -> tantivy::Result<IndexReader> {
    // The writer reloads the reader after a commit; no thread watches the folder.
    index.reader_builder().reload_policy(ReloadPolicy::Manual).doc_store_cache_num_blocks(SHOWN_BLOCKS).try_into()
}

/// Creates an empty index in a new folder.
pub fn create_index(path: &Path) -> tantivy::Result<OpenIndex> {
    std::fs::create_dir_all(path)?;
    let (schema, fields) = schema::build_schema();
    let index = Index::create(IndexDirectory::open(path)?, schema, schema::index_settings())?;
    schema::register_tokenizer(&index);
    let reader = open_reader(&index)?;
    Ok(OpenIndex { path: path.into(), index, fields, reader, format: FORMAT })
}

/// What each commit records of the state of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitState {
    /// See [`OpenIndex::format`].
    format: u32,
    /// Every change up to this feed position is in the index.
    pub position: ChangePosition,
    /// The position that the store had saved before the commit. A store that has an earlier one is an older copy.
    pub saved_position: ChangePosition,
}

/// Opens an index if this version can read it and all its checksums hold.
pub fn open_index(path: &Path) -> Result<(OpenIndex, CommitState), UnusableIndex> {
    // Tantivy trusts some of what it reads from files, and panics if it is damaged.
    let opened = std::panic::catch_unwind(|| -> Result<(OpenIndex, CommitState), UnusableIndex> {
        let files = IndexDirectory::open(path).map_err(TantivyError::from)?;
        let index = Index::open(files)?;
        let (schema, fields) = schema::build_schema();
        schema::register_tokenizer(&index);
        let meta = index.load_metas()?;
        // An index that was never committed has no payload, and counts as missing.
        let commit_state = meta.payload.as_deref().and_then(decode_payload);
        let Some(commit_state) = commit_state.filter(|_| index.schema() == schema) else {
            return Err(UnusableIndex("it is of another version".to_owned()));
        };
        // Tantivy verifies only the checksums of listed files.
        let listed = index.directory().list_managed_files();
        let terms = |segment: &tantivy::SegmentMeta| segment.relative_path(tantivy::index::SegmentComponent::Terms);
        if !meta.segments.iter().all(|segment| listed.contains(&terms(segment))) {
            return Err(UnusableIndex("some of its files are not listed".to_owned()));
        }
        if !index.validate_checksum()?.is_empty() {
            return Err(UnusableIndex("some of its files are damaged".to_owned()));
        }
        // Files left by a process that was killed or ran out of space are not needed.
        remove_orphans(path, &meta).map_err(TantivyError::from)?;
        let reader = open_reader(&index)?;
        Ok((OpenIndex { path: path.into(), index, fields, reader, format: commit_state.format }, commit_state))
    });
    opened.unwrap_or_else(|_| Err(UnusableIndex("it is damaged".to_owned())))
}

/// How many documents an index has, without opening it for searches.
pub fn count_documents(path: &Path) -> tantivy::Result<u64> {
    let meta = Index::open(IndexDirectory::open(path)?)?.load_metas()?;
    Ok(meta.segments.iter().map(|segment| u64::from(segment.num_docs())).sum())
}

fn encode_payload(format: u32, position: ChangePosition, saved_position: ChangePosition) -> String {
    format!(
        "{format} {} {} {} {}",
        position.written_by, position.number, saved_position.written_by, saved_position.number
    )
}

fn decode_payload(payload: &str) -> Option<CommitState> {
    let numbers: Vec<i64> = payload.split(' ').map(str::parse).collect::<Result<_, _>>().ok()?;
    let [format, written_by, number, saved_by, saved_number] = *numbers.as_slice() else { return None };
    let position = ChangePosition { written_by, number };
    let saved_position = ChangePosition { written_by: saved_by, number: saved_number };
    Some(CommitState { format: u32::try_from(format).ok()?, position, saved_position })
}

/// The memory of a writer: the least that tantivy accepts, and the amount for a build.
const STEADY_BYTES: usize = 15_000_000;
const BUILDING_BYTES: usize = 120_000_000;

/// How long to wait for the lock of a killed process, which the operating system may not have released yet.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(10);
const LOCK_POLL_EVERY: Duration = Duration::from_millis(50);

/// Merges segments by size, as long as the disk has room.
#[derive(Debug)]
struct DiskAwareMergePolicy {
    by_size: LogMergePolicy,
    path: PathBuf,
}

/// An upper bound of the size of a document in an index.
const DOCUMENT_BYTES: u64 = 2_000;

impl DiskAwareMergePolicy {
    fn new(path: &Path) -> Self {
        let mut by_size = LogMergePolicy::default();
        by_size.set_min_num_segments(8);
        // All segments below this size are one level and merge together. It is small, because that level is rewritten every
        // eight commits.
        by_size.set_min_layer_size(1_000);
        // A segment is rewritten once a quarter of its documents are deleted.
        by_size.set_del_docs_ratio_before_merge(0.25);
        DiskAwareMergePolicy { by_size, path: path.into() }
    }
}

impl MergePolicy for DiskAwareMergePolicy {
    /// Leaves out merges for which there is no room: merged segments exist twice for a while.
    fn compute_merge_candidates(&self, segments: &[SegmentMeta]) -> Vec<MergeCandidate> {
        let free = fs4::available_space(&self.path).unwrap_or_default();
        let documents_of = |segment: &SegmentId| {
            let meta = segments.iter().find(|meta| meta.id() == *segment);
            meta.map_or(0, |meta| u64::from(meta.num_docs()))
        };
        let bytes = |candidate: &MergeCandidate| {
            candidate.0.iter().map(documents_of).sum::<u64>().saturating_mul(DOCUMENT_BYTES)
        };
        let mut candidates = self.by_size.compute_merge_candidates(segments);
        candidates.retain(|candidate| bytes(candidate).saturating_add(FREE_BYTES_MIN) <= free);
        candidates
    }
}

/// The writer of an index. After an error it is dropped, and the next one starts at the last commit.
pub struct DocumentWriter {
    fields: IndexFields,
    format: u32,
    reader: IndexReader,
    inner: IndexWriter,
}

impl DocumentWriter {
    pub fn for_updates(opened: &OpenIndex) -> tantivy::Result<Self> {
        Self::new(opened, STEADY_BYTES, Box::new(DiskAwareMergePolicy::new(&opened.path)))
    }

    pub fn for_build(opened: &OpenIndex) -> tantivy::Result<Self> {
        // The writer for updates merges the segments later; merging during the build would only delay it.
        Self::new(opened, BUILDING_BYTES, Box::new(NoMergePolicy))
    }

    fn new(opened: &OpenIndex, memory_bytes: usize, merge_policy: Box<dyn MergePolicy>) -> tantivy::Result<Self> {
        let options = IndexWriterOptions::builder()
            .num_worker_threads(1)
            .memory_budget_per_thread(memory_bytes)
            .num_merge_threads(1)
            .build();
        let begun = Instant::now();
        let inner = loop {
            match opened.index.writer_with_options(options.clone()) {
                Err(TantivyError::LockFailure(..)) if begun.elapsed() < LOCK_WAIT_MAX => {
                    std::thread::sleep(LOCK_POLL_EVERY);
                }
                other => break other?,
            }
        };
        // No other writer exists now, and this one merges nothing before its first commit.
        remove_orphans(&opened.path, &opened.index.load_metas()?)?;
        inner.set_merge_policy(merge_policy);
        let (fields, format) = (opened.fields, opened.format);
        Ok(DocumentWriter { fields, format, reader: opened.reader.clone(), inner })
    }

    /// Adds a document without removing an older one of the same record.
    pub fn add_document(&mut self, document: &SearchDocument) -> tantivy::Result<()> {
        self.inner.add_document(schema::build_entry(&self.fields, document)).map(drop)
    }

    /// Removes the document of a record. It may be added again before the commit.
    pub fn remove_record(&mut self, tenant: TenantId, kind: DocumentKind, id: &str) {
        self.inner.delete_term(TermOwner::for_kind(tenant, kind).key_term(&self.fields, id));
    }

    /// Commits the changes with their feed position and the one that the store has saved. Then readers see them.
    pub fn commit_changes(&mut self, position: ChangePosition, saved_position: ChangePosition) -> tantivy::Result<()> {
        let mut prepared = self.inner.prepare_commit()?;
        // Every commit sets the payload: one without would remove it.
        // The format stays that of the documents that were there before: an old index that is kept up to date is still old.
        prepared.set_payload(&encode_payload(self.format, position, saved_position));
        prepared.commit()?;
        self.reader.reload()
    }

    /// Waits for merging threads: after a plain drop they would continue beside the next writer.
    pub fn close(self) {
        if let Err(error) = self.inner.wait_merging_threads() {
            tracing::warn!(%error, "failed to close the search index writer");
        }
    }
}
