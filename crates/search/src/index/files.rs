//! The directory of an index: the files that tantivy writes, with fewer waits for the disk.
//!
//! A commit of one document would wait for the disk some twenty times: for every file of the new segment, and for the list
//! of files before each of them. The list is written once per commit instead, without fsync. A crash can lose only the names
//! of files that no commit uses; [`remove_orphans`] finds those when the index is opened.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tantivy::directory::error::{DeleteError, LockError, OpenDirectoryError, OpenReadError, OpenWriteError};
use tantivy::directory::{DirectoryLock, FileHandle, Lock, MmapDirectory, WatchCallback, WatchHandle, WritePtr};
use tantivy::{Directory, IndexMeta};

#[derive(Clone, Debug)]
pub struct IndexDirectory {
    inner: MmapDirectory,
    root: PathBuf,
    /// The list of files, if it is still to be written.
    list: Arc<Mutex<Option<Vec<u8>>>>,
}

const LIST_FILE: &str = ".managed.json";
const META_FILE: &str = "meta.json";

/// Removes files that the last commit does not use, which an interrupted process has left. Nobody may write or merge
/// meanwhile.
///
/// A file of deletions is named after its operation number. Numbering restarts at the last commit, so a leftover file would
/// fail the next commit.
pub fn remove_orphans(root: &Path, meta: &IndexMeta) -> io::Result<()> {
    let living = meta.list_segment_files();
    for file in std::fs::read_dir(root)? {
        let file = file?;
        let name = PathBuf::from(file.file_name());
        let is_lock = name.extension().is_some_and(|extension| extension == "lock");
        if !living.contains(&name) && name != Path::new(META_FILE) && name != Path::new(LIST_FILE) && !is_lock {
            std::fs::remove_file(file.path())?;
        }
    }
    Ok(())
}

impl IndexDirectory {
    pub fn open(root: &Path) -> Result<Self, OpenDirectoryError> {
        Ok(IndexDirectory { inner: MmapDirectory::open(root)?, root: root.into(), list: Arc::default() })
    }
}

impl Directory for IndexDirectory {
    fn get_file_handle(&self, path: &Path) -> Result<Arc<dyn FileHandle>, OpenReadError> {
        self.inner.get_file_handle(path)
    }

    fn delete(&self, path: &Path) -> Result<(), DeleteError> {
        self.inner.delete(path)
    }

    fn exists(&self, path: &Path) -> Result<bool, OpenReadError> {
        self.inner.exists(path)
    }

    fn open_write(&self, path: &Path) -> Result<WritePtr, OpenWriteError> {
        self.inner.open_write(path)
    }

    fn atomic_read(&self, path: &Path) -> Result<Vec<u8>, OpenReadError> {
        self.inner.atomic_read(path)
    }

    fn atomic_write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        if path == Path::new(LIST_FILE) {
            *list = Some(bytes.to_vec());
            return Ok(());
        }
        if let Some(bytes) = list.take() {
            // The rename is atomic: readers see the old list or the new one.
            let next = self.root.join(".managed.next");
            std::fs::write(&next, bytes)?;
            std::fs::rename(next, self.root.join(LIST_FILE))?;
        }
        self.inner.atomic_write(path, bytes)
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.inner.sync_directory()
    }

    fn watch(&self, callback: WatchCallback) -> tantivy::Result<WatchHandle> {
        self.inner.watch(callback)
    }

    fn acquire_lock(&self, lock: &Lock) -> Result<DirectoryLock, LockError> {
        self.inner.acquire_lock(lock)
    }
}
