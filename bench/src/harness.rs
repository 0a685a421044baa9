//! What every benchmark needs: its outcome, a runtime, numbers from the environment and a folder.

use std::error::Error;

/// Every failure ends the run and is shown as it is.
pub type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

pub fn runtime() -> Outcome<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().enable_all().build()?)
}

/// A number from the environment, for longer or shorter runs.
pub fn setting(name: &str, default: usize) -> Outcome<usize> {
    match std::env::var(name) {
        Ok(text) => text.parse().map_err(|_| format!("{name} must be a whole number").into()),
        Err(_) => Ok(default),
    }
}

/// A folder on the disk to be measured: `BENCH_DIR`, else the system's folder for temporary files.
pub fn folder() -> Outcome<tempfile::TempDir> {
    let parent = std::env::var_os("BENCH_DIR").map_or_else(std::env::temp_dir, Into::into);
    Ok(tempfile::Builder::new().prefix("tenant-control-bench.").tempdir_in(parent)?)
}
