//! A consistent copy of a SQLite database while it is in use.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::base::{Error, Result, run_blocking};

use super::sqlite;

/// How long to wait while the write-ahead log is reset. The copy does not wait for writers.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(5);

/// Copies everything that was acknowledged before the call. The copy appears under its name only when it is complete and on
/// disk; a file of that name is replaced.
pub(super) async fn backup_sqlite(database: PathBuf, target: PathBuf, tag: String) -> Result<()> {
    let work = move || {
        let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let name = target.file_name().ok_or_else(|| Error::internal("the backup needs a file name"))?;
        let partial = folder.join(format!(".{}.{tag}.partial", name.to_string_lossy()));
        let result = copy_database(&database, &partial)
            .and_then(|()| std::fs::rename(&partial, &target).map_err(|error| file_error(&target, &error)))
            .and_then(|()| sync_to_disk(folder));
        if result.is_err() {
            // A partial copy is useless; if it cannot be removed, the error stays the same.
            let _ = std::fs::remove_file(&partial);
        }
        result
    };
    run_blocking(work).await
}

fn copy_database(database: &Path, partial: &Path) -> Result<()> {
    // Created before SQLite fills it, so that only the owner can ever read it.
    let name = partial.to_str().ok_or_else(|| Error::internal("the name of the backup is not UTF-8"))?;
    sqlite::create_private(partial).map_err(|error| file_error(partial, &error))?;
    let connection = sqlite::open_connection(database, LOCK_WAIT_MAX)?;
    connection.execute("VACUUM INTO $1", [name]).map_err(sqlite::map_sqlite_error)?;
    sync_to_disk(partial)
}

fn sync_to_disk(path: &Path) -> Result<()> {
    File::open(path).and_then(|file| file.sync_all()).map_err(|error| file_error(path, &error))
}

fn file_error(path: &Path, error: &std::io::Error) -> Error {
    Error::unavailable(format!("{}: {error}", path.display()))
}
