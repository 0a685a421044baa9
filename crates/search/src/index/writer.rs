//! Making, opening and changing an index. One process writes it, and each commit says how far in the feed it has come.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use kernel::base::TenantId;
use kernel::store::changes::Place;
use tantivy::index::SegmentId;
use tantivy::indexer::{IndexWriterOptions, LogMergePolicy, MergeCandidate, MergePolicy, NoMergePolicy};
use tantivy::{Index, IndexReader, IndexWriter, ReloadPolicy, SegmentMeta, TantivyError};

use super::super::documents::{Document, Kind};
use super::super::folder::FREE_BYTES_MIN;
use super::files::{Files, sweep};
use super::schema::{self, FORMAT, Fields, Owner};

/// An index that can be read.
#[derive(Clone)]
pub struct Opened {
    pub path: PathBuf,
    pub index: Index,
    pub fields: Fields,
    pub reader: IndexReader,
}

/// Why an index has to be built anew, in words.
pub struct Unusable(pub String);

impl From<TantivyError> for Unusable {
    fn from(error: TantivyError) -> Self {
        Unusable(error.to_string())
    }
}

/// Blocks of what is shown that are kept unpacked for each segment.
const SHOWN_BLOCKS: usize = 8;

fn reader(index: &Index) -> tantivy::Result<IndexReader> {
    // Told of a commit by whoever makes it; no thread watches the folder.
    index.reader_builder().reload_policy(ReloadPolicy::Manual).doc_store_cache_num_blocks(SHOWN_BLOCKS).try_into()
}

/// An empty index in a new folder.
pub fn create(path: &Path) -> tantivy::Result<Opened> {
    std::fs::create_dir_all(path)?;
    let (schema, fields) = schema::schema();
    let index = Index::create(Files::open(path)?, schema, schema::settings())?;
    schema::register(&index);
    let reader = reader(&index)?;
    Ok(Opened { path: path.into(), index, fields, reader })
}

/// How far an index has come, as each commit says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stands {
    /// It was written by this version.
    pub is_current: bool,
    /// Everything in the feed up to here is in it.
    pub place: Place,
    /// The store knew before the commit that it had come so far: one that does not is an older copy.
    pub passed: Place,
}

/// Opens what is there, if this version can read it and every file is as it was written.
pub fn open(path: &Path) -> Result<(Opened, Stands), Unusable> {
    // Tantivy trusts what it reads from a file in places, and panics.
    let opened = std::panic::catch_unwind(|| -> Result<(Opened, Stands), Unusable> {
        let files = Files::open(path).map_err(TantivyError::from)?;
        let index = Index::open(files)?;
        let (schema, fields) = schema::schema();
        schema::register(&index);
        let meta = index.load_metas()?;
        // One that was never committed says nothing: as if it were not there.
        let stands = meta.payload.as_deref().and_then(read_payload);
        let Some(stands) = stands.filter(|_| index.schema() == schema) else {
            return Err(Unusable("it is of another version".to_owned()));
        };
        // Checksums are looked at only of files that are listed.
        let listed = index.directory().list_managed_files();
        let terms = |segment: &tantivy::SegmentMeta| segment.relative_path(tantivy::index::SegmentComponent::Terms);
        if !meta.segments.iter().all(|segment| listed.contains(&terms(segment))) {
            return Err(Unusable("some of its files are not listed".to_owned()));
        }
        if !index.validate_checksum()?.is_empty() {
            return Err(Unusable("some of its files are damaged".to_owned()));
        }
        // What a process has left that was killed, or had no room, is not needed.
        sweep(path, &meta).map_err(TantivyError::from)?;
        let reader = reader(&index)?;
        Ok((Opened { path: path.into(), index, fields, reader }, stands))
    });
    opened.unwrap_or_else(|_| Err(Unusable("it is damaged".to_owned())))
}

/// How many documents an index has, without opening it to be asked.
pub fn count(path: &Path) -> tantivy::Result<u64> {
    let meta = Index::open(Files::open(path)?)?.load_metas()?;
    Ok(meta.segments.iter().map(|segment| u64::from(segment.num_docs())).sum())
}

fn payload(place: Place, passed: Place) -> String {
    format!("{FORMAT} {} {} {} {}", place.written_by, place.number, passed.written_by, passed.number)
}

fn read_payload(payload: &str) -> Option<Stands> {
    let numbers: Vec<i64> = payload.split(' ').map(str::parse).collect::<Result<_, _>>().ok()?;
    let [format, written_by, number, passed_by, passed] = *numbers.as_slice() else { return None };
    let place = Place { written_by, number };
    let passed = Place { written_by: passed_by, number: passed };
    Some(Stands { is_current: format == i64::from(FORMAT), place, passed })
}

/// The least memory that tantivy works with, and for an index that is built anew.
const STEADY_BYTES: usize = 15_000_000;
const BUILDING_BYTES: usize = 120_000_000;

/// How long the lock of a process is waited for that was killed: the kernel may not be done with it.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(10);
const LOCK_LOOK: Duration = Duration::from_millis(50);

/// Which segments are made one.
#[derive(Debug)]
struct Merging {
    by_size: LogMergePolicy,
    path: PathBuf,
}

/// More than a document takes in an index.
const DOCUMENT_BYTES: u64 = 2_000;

impl Merging {
    fn new(path: &Path) -> Self {
        let mut by_size = LogMergePolicy::default();
        by_size.set_min_num_segments(8);
        // Below this all segments are of one level and merged together: small, as that level is written again every eight commits.
        by_size.set_min_layer_size(1_000);
        // A segment is cleaned once a quarter of it is deleted.
        by_size.set_del_docs_ratio_before_merge(0.25);
        Merging { by_size, path: path.into() }
    }
}

impl MergePolicy for Merging {
    /// None for which there is no room: what is merged is there twice for a while.
    fn compute_merge_candidates(&self, segments: &[SegmentMeta]) -> Vec<MergeCandidate> {
        let free = fs4::available_space(&self.path).unwrap_or_default();
        let documents_of = |segment: &SegmentId| {
            let meta = segments.iter().find(|meta| meta.id() == *segment);
            meta.map_or(0, |meta| u64::from(meta.num_docs()))
        };
        let bytes = |one: &MergeCandidate| one.0.iter().map(documents_of).sum::<u64>().saturating_mul(DOCUMENT_BYTES);
        let mut candidates = self.by_size.compute_merge_candidates(segments);
        candidates.retain(|one| bytes(one).saturating_add(FREE_BYTES_MIN) <= free);
        candidates
    }
}

/// The one who changes an index. After an error it is dropped, and another begins at the last commit.
pub struct Writer {
    fields: Fields,
    reader: IndexReader,
    inner: IndexWriter,
}

impl Writer {
    pub fn steady(opened: &Opened) -> tantivy::Result<Self> {
        Self::new(opened, STEADY_BYTES, Box::new(Merging::new(&opened.path)))
    }

    pub fn building(opened: &Opened) -> tantivy::Result<Self> {
        // Whoever follows merges what this leaves: until then it would only wait for it.
        Self::new(opened, BUILDING_BYTES, Box::new(NoMergePolicy))
    }

    fn new(opened: &Opened, memory_bytes: usize, merging: Box<dyn MergePolicy>) -> tantivy::Result<Self> {
        let options = IndexWriterOptions::builder()
            .num_worker_threads(1)
            .memory_budget_per_thread(memory_bytes)
            .num_merge_threads(1)
            .build();
        let begun = Instant::now();
        let inner = loop {
            match opened.index.writer_with_options(options.clone()) {
                Err(TantivyError::LockFailure(..)) if begun.elapsed() < LOCK_WAIT_MAX => std::thread::sleep(LOCK_LOOK),
                other => break other?,
            }
        };
        // Nobody else writes now, and this one merges nothing before its first commit.
        sweep(&opened.path, &opened.index.load_metas()?)?;
        inner.set_merge_policy(merging);
        Ok(Writer { fields: opened.fields, reader: opened.reader.clone(), inner })
    }

    /// Without looking for an older one: for building anew.
    pub fn add(&mut self, document: &Document) -> tantivy::Result<()> {
        self.inner.add_document(schema::entry(&self.fields, document)).map(drop)
    }

    /// What is known of a record from now on: nothing, unless it is added again.
    pub fn remove(&mut self, tenant: TenantId, kind: Kind, id: &str) {
        self.inner.delete_term(Owner::of(tenant, kind).key(&self.fields, id));
    }

    /// Writes what has come since the last commit, how far in the feed that is, and how far the store knows of. Then readers
    /// see it.
    pub fn commit(&mut self, place: Place, passed: Place) -> tantivy::Result<()> {
        let mut prepared = self.inner.prepare_commit()?;
        // Every time: a commit without takes it away.
        prepared.set_payload(&payload(place, passed));
        prepared.commit()?;
        self.reader.reload()
    }

    /// Waits for what goes on behind commits: dropped, it would go on beside the next writer.
    pub fn close(self) {
        if let Err(error) = self.inner.wait_merging_threads() {
            tracing::warn!(%error, "the search index was not closed as it should be");
        }
    }
}
