//! The health of a search index, checked from outside the server that keeps it.

use std::path::Path;

use kernel::base::{Error, MINUTE_MS, Result};
use kernel::store::Db;
use kernel::store::changes;

use super::index::writer;
use super::index_folder;

/// The most unread changes that are counted.
const BEHIND_MAX: usize = 1_000;
/// A server that keeps an index saves its position every minute.
const SILENT_MAX_MS: i64 = 3 * MINUTE_MS;

/// Describes the index in one line; the inner error says that it cannot be kept up to date.
pub async fn check_index_health(root: &Path, system: &Db) -> Result<Result<String, String>> {
    if root.exists() && !root.is_dir() {
        return Ok(Err(format!("{} is no folder: remove it", root.display())));
    }
    if !root.is_dir() {
        return Ok(Ok("not made yet; `serve` builds it".to_owned()));
    }
    let is_served = index_folder::is_locked(root);
    if let Some(documents) = index_folder::find_progress(root).map_err(Error::internal)? {
        let building = if is_served { "is being built" } else { "was not built to its end; `serve` begins anew" };
        return Ok(Ok(format!("{building}, {documents} records so far")));
    }
    let Some(name) = index_folder::find_current(root).map_err(Error::internal)? else {
        let by = if is_served { "the server builds it; if it does not, its log says why" } else { "`serve` builds it" };
        return Ok(Ok(format!("not made yet; {by}")));
    };
    let (Ok(documents), Some(position)) =
        (writer::count_documents(&root.join(&name)), changes::find_reader_position(system, &name).await?)
    else {
        return Ok(Ok("is of no use any more; `serve` builds it anew".to_owned()));
    };
    let behind = changes::count_changes_after(system, position, BEHIND_MAX as i64 + 1).await?;
    let is_silent = changes::find_reader_liveness(system, &name, SILENT_MAX_MS).await? == Some(false);
    if is_served && is_silent {
        return Ok(Err("the server cannot keep it up to date; its log says why".to_owned()));
    }
    let behind = match behind {
        0 => "up to date".to_owned(),
        count if count > BEHIND_MAX => format!("more than {BEHIND_MAX} changes behind"),
        // The server saves its position only once a minute, so a count would be too high.
        _ if is_served => "kept up to date by the server".to_owned(),
        count => format!("{count} changes behind"),
    };
    Ok(Ok(format!("{documents} records, {behind}")))
}
