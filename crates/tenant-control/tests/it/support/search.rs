//! An index beside a server of this process, brought up to date when a test says so.

use std::path::{Path, PathBuf};

use kernel::args;
use kernel::store::changes::{self, ChangePosition};
use kernel::store::{Purpose, Store};
use serde_json::Value;
use tempfile::TempDir;
use tenant_control::features::search::synchronizer::IndexSynchronizer;

use super::server::Server;

pub const SEARCH: &str = "/api/search";

/// What the folder of an index is called in a data directory.
pub const FOLDER: &str = "search";

/// A search index in a data directory of its own, which goes with it.
pub struct Indexed {
    store: Store,
    keeper: IndexSynchronizer,
    data: TempDir,
}

impl Indexed {
    /// Of everything that is there.
    pub async fn of(server: &Server) -> Indexed {
        Indexed::again(server, TempDir::new().expect("a folder")).await
    }

    /// As by a process that finds the data directory of another.
    pub async fn again(server: &Server, data: TempDir) -> Indexed {
        let folder = data.path().join(FOLDER);
        let keeper = IndexSynchronizer::new(server.app.clone(), folder, server.app.settings.feature_settings());
        let indexed = Indexed { store: server.app.store.clone(), keeper, data };
        indexed.catch_up().await;
        indexed
    }

    /// Takes in what was written since. On PostgreSQL a change is shown once nothing that began before it is under way, in
    /// whichever database of the server: that is waited for. Not for while others write: see [`Indexed::follow`].
    pub async fn catch_up(&self) {
        let (system, start) = (self.store.system(Purpose::Cli), ChangePosition { written_by: 0, number: 0 });
        loop {
            let written: i64 = system.get_one("SELECT COUNT(*) FROM changes", args![]).await.expect("a count");
            let shown = changes::list_changes_after(&system, start, 100_000).await.expect("the changes");
            if i64::try_from(shown.len()) == Ok(written) {
                break;
            }
            tokio::task::yield_now().await;
        }
        self.follow().await;
    }

    /// Takes in what is shown by now, and waits for nobody. An index that was not told for many seconds that it is up to date does
    /// not serve any more: a test with hundreds of searches says so now and then.
    pub async fn follow(&self) {
        self.keeper.catch_up().await.expect("the index is up to date");
    }

    /// Where it is.
    pub fn root(&self) -> PathBuf {
        self.data.path().join(FOLDER)
    }

    /// Which of the indexes in its folder is in use: another one after it was built anew.
    pub fn current(&self) -> String {
        current(&self.root()).expect("an index is in use")
    }

    /// The process ends.
    pub fn stop(self) -> TempDir {
        self.data
    }
}

/// What the index in a folder is called that is in use, if there is one.
pub fn current(root: &Path) -> Option<String> {
    std::fs::read_to_string(root.join("current")).ok().map(|name| name.trim().to_owned())
}

/// A file of an index with another content. Whoever has the old one open keeps it, as after a disk was exchanged.
pub fn put(path: &Path, content: &[u8]) {
    std::fs::remove_file(path).expect("the file was there");
    std::fs::write(path, content).expect("the file is written");
}

/// Does something to the content of all files of an index that end so.
pub fn spoil(index: &Path, extension: &str, how: impl Fn(&mut Vec<u8>)) {
    let mut spoilt = 0;
    for entry in std::fs::read_dir(index).expect("the index") {
        let path = entry.expect("a file").path();
        if path.extension().is_some_and(|found| found == extension) {
            let mut content = std::fs::read(&path).expect("the content");
            // One that a process had just begun when it was killed is no part of the index.
            if content.is_empty() {
                continue;
            }
            how(&mut content);
            put(&path, &content);
            spoilt += 1;
        }
    }
    assert!(spoilt > 0, "no file of {} ends in {extension}", index.display());
}

/// A query as it stands in a URL.
pub fn spelt(q: &str) -> String {
    let spell =
        |byte: u8| if byte.is_ascii_alphanumeric() { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    q.bytes().map(spell).collect()
}

/// Where a query is asked.
pub fn asking(q: &str) -> String {
    format!("{SEARCH}?q={}", spelt(q))
}

impl Server {
    /// What a search finds, with all that is told beside it.
    pub async fn search(&self, cookie: &str, q: &str) -> Value {
        self.get(asking(q)).cookie(cookie).await.ok(200)
    }

    /// The titles of what a search finds.
    pub async fn titles(&self, cookie: &str, q: &str) -> Vec<String> {
        let found = self.search(cookie, q).await;
        let hits = found["data"].as_array().expect("data");
        hits.iter().map(|hit| hit["title"].as_str().expect("a title").to_owned()).collect()
    }
}
