//! The folder of a node's search index: its lock, the name of the index that serves, and the progress of a build.

use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use kernel::base::{Error, Result};

use super::writer_thread::IndexWriterThread;

/// The most folders in one data directory, which only servers on PostgreSQL can share.
const FOLDERS_MAX: usize = 16;
/// How long to wait for the lock of a killed process, which the system may not have released yet.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(2);
const LOCK_POLL_EVERY: Duration = Duration::from_millis(50);
/// The space that an index leaves free on its disk, because the store may be on the same disk.
pub const FREE_BYTES_MIN: u64 = 128 << 20;

/// The file that names the index that serves. It is replaced by a rename.
const CURRENT_FILE: &str = "current";
/// The file with the number of records in a new index, for other processes.
const PROGRESS_FILE: &str = "building";

/// A folder locked by this process for as long as the value lives.
pub struct IndexFolder {
    pub root: PathBuf,
    _lock: File,
    worker: IndexWriterThread,
}

impl IndexFolder {
    /// Locks the folder, or a numbered one beside it if another process has locked it.
    pub fn acquire(root: &Path) -> Result<Self> {
        let begun = Instant::now();
        loop {
            match try_acquire(root)? {
                Some(folder) => {
                    remove_stale_folders(root);
                    return Ok(folder);
                }
                None if begun.elapsed() < LOCK_WAIT_MAX => std::thread::sleep(LOCK_POLL_EVERY),
                None => break,
            }
        }
        for number in 2..=FOLDERS_MAX {
            if let Some(folder) = try_acquire(&numbered_folder(root, number))? {
                tracing::info!(folder = %folder.root.display(), "search index folder is in use by another server");
                return Ok(folder);
            }
        }
        Err(Error::internal("too many servers share the folder of the search index"))
    }

    /// Runs a job on the writer thread, which has a lower priority than the threads that serve requests.
    pub async fn run_job<T: Send + 'static>(&self, job: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
        self.worker.run(job).await
    }

    /// Creates the folder again if it was removed while in use; only the index is lost then.
    pub fn create_root(&self) -> Result<()> {
        fs::create_dir_all(&self.root).map_err(Error::internal)
    }

    /// The name of the index that serves.
    pub fn find_current(&self) -> Result<Option<String>> {
        find_current(&self.root).map_err(Error::internal)
    }

    pub fn set_current(&self, name: &str) -> Result<()> {
        replace_file(&self.root, CURRENT_FILE, name).map_err(Error::internal)
    }

    /// Saves how many documents a new index has; `None` once the build has ended.
    pub fn save_progress(&self, documents: Option<usize>) -> Result<()> {
        let saved = match documents {
            Some(documents) => fs::write(self.root.join(PROGRESS_FILE), documents.to_string()),
            None => fs::remove_file(self.root.join(PROGRESS_FILE)).or_else(ignore_missing),
        };
        saved.map_err(Error::internal)
    }

    /// Removes every other index, which is an unfinished or a replaced one, and returns their names.
    pub fn remove_others(&self, keep: &[&str]) -> Result<Vec<String>> {
        let mut removed = Vec::new();
        for entry in fs::read_dir(&self.root).map_err(Error::internal)? {
            let entry = entry.map_err(Error::internal)?;
            let is_folder = entry.file_type().map_err(Error::internal)?.is_dir();
            if is_folder && !keep.iter().any(|name| entry.file_name() == **name) {
                fs::remove_dir_all(entry.path()).map_err(Error::internal)?;
                removed.push(entry.file_name().to_string_lossy().into_owned());
            }
        }
        Ok(removed)
    }

    /// Fails if the disk is nearly full.
    pub fn check_free_space(&self) -> Result<()> {
        let free = fs4::available_space(&self.root).map_err(Error::internal)?;
        if free < FREE_BYTES_MIN {
            let detail =
                format!("only {} MiB are free on its disk; {} are left to others", free >> 20, FREE_BYTES_MIN >> 20);
            return Err(Error::internal(detail));
        }
        Ok(())
    }
}

/// The name of the index that serves from a folder.
pub fn find_current(root: &Path) -> io::Result<Option<String>> {
    Ok(read_text(&root.join(CURRENT_FILE))?.map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()))
}

/// How many records a new index has, if one is being built.
pub fn find_progress(root: &Path) -> io::Result<Option<u64>> {
    Ok(read_text(&root.join(PROGRESS_FILE))?.map(|count| count.trim().parse().unwrap_or_default()))
}

/// Whether a server has locked this folder.
pub fn is_locked(root: &Path) -> bool {
    matches!(open_lock(root).map(|lock| lock.try_lock()), Ok(Err(TryLockError::WouldBlock)))
}

fn read_text(path: &Path) -> io::Result<Option<String>> {
    match fs::read(path) {
        // Bytes that are no text name no index.
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn ignore_missing(error: io::Error) -> io::Result<()> {
    if error.kind() == ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

fn replace_file(root: &Path, name: &str, text: &str) -> io::Result<()> {
    let next = root.join([name, ".next"].concat());
    let mut file = File::create(&next)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(next, root.join(name))?;
    File::open(root)?.sync_all()
}

fn numbered_folder(root: &Path, number: usize) -> PathBuf {
    with_suffix(root, &format!("-{number}"))
}

fn with_suffix(root: &Path, suffix: &str) -> PathBuf {
    let mut name = root.file_name().unwrap_or_default().to_owned();
    name.push(suffix);
    root.with_file_name(name)
}

/// The lock file is beside the folder, so that the folder can be removed as a whole.
fn open_lock(root: &Path) -> io::Result<File> {
    File::options().create(true).truncate(false).write(true).open(with_suffix(root, ".lock"))
}

/// `None` if another process has locked it.
fn try_acquire(root: &Path) -> Result<Option<IndexFolder>> {
    let lock = open_lock(root).map_err(Error::internal)?;
    match lock.try_lock() {
        Ok(()) => Ok(Some(IndexFolder { root: root.to_owned(), _lock: lock, worker: IndexWriterThread::start()? })),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(Error::internal(error)),
    }
}

/// Removes the numbered folders of servers that are gone. Running servers have theirs locked.
fn remove_stale_folders(root: &Path) {
    for number in 2..=FOLDERS_MAX {
        let stale = numbered_folder(root, number);
        if stale.exists()
            && let Ok(Some(folder)) = try_acquire(&stale)
            && let Err(error) = fs::remove_dir_all(&folder.root)
        {
            tracing::warn!(folder = %stale.display(), %error, "failed to remove an old search index");
        }
    }
}
