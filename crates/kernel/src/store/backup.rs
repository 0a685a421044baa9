//! A consistent copy of a SQLite database while it is in use.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::base::{Error, Result};

use super::sqlite;

/// How long to wait for the moment in which the log is reset. Writers are not waited for.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(5);

/// Copies everything that was acknowledged before the call. Either the whole copy appears under its name, on disk,
/// or nothing does; a file of that name is replaced.
pub(super) async fn backup_sqlite(database: PathBuf, target: PathBuf, tag: String) -> Result<()> {
    let work = move || {
        let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let name = target.file_name().ok_or_else(|| Error::internal("the backup needs a file name"))?;
        let partial = folder.join(format!(".{}.{tag}.partial", name.to_string_lossy()));
        let made = copy(&database, &partial)
            .and_then(|()| std::fs::rename(&partial, &target).map_err(|error| failed(&target, &error)))
            .and_then(|()| sync(folder));
        if made.is_err() {
            // What is left of the copy is of no use to anyone; that it may stay behind does not change the answer.
            let _ = std::fs::remove_file(&partial);
        }
        made
    };
    tokio::task::spawn_blocking(work).await.map_err(Error::internal)?
}

fn copy(database: &Path, partial: &Path) -> Result<()> {
    // Made before SQLite fills it, so that nobody but the owner can read it at any moment.
    let name = partial.to_str().ok_or_else(|| Error::internal("the name of the backup is not UTF-8"))?;
    sqlite::create_private(partial).map_err(|error| failed(partial, &error))?;
    let connection = sqlite::open(database, LOCK_WAIT_MAX)?;
    connection.execute("VACUUM INTO $1", [name]).map_err(sqlite::fault)?;
    sync(partial)
}

fn sync(path: &Path) -> Result<()> {
    File::open(path).and_then(|file| file.sync_all()).map_err(|error| failed(path, &error))
}

fn failed(path: &Path, error: &std::io::Error) -> Error {
    Error::unavailable(format!("{}: {error}", path.display()))
}
