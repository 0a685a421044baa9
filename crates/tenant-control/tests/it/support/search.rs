//! An index beside a server of this process, brought up to date when a test says so.

use kernel::args;
use kernel::store::changes::{self, Place};
use kernel::store::{Purpose, Store};
use serde_json::Value;
use tempfile::TempDir;
use tenant_control::features::search::keeper::Keeper;

use super::server::Server;

pub const SEARCH: &str = "/api/search";

/// A search index in a folder that goes with it.
pub struct Indexed {
    store: Store,
    keeper: Keeper,
    pub folder: TempDir,
}

impl Indexed {
    /// Of everything that is there.
    pub async fn of(server: &Server) -> Indexed {
        Indexed::again(server, TempDir::new().expect("a folder")).await
    }

    /// As by a process that finds the folder of another.
    pub async fn again(server: &Server, folder: TempDir) -> Indexed {
        let keeper = Keeper::new(server.app.clone(), folder.path().to_owned(), server.app.settings.of_feature());
        let indexed = Indexed { store: server.app.store.clone(), keeper, folder };
        indexed.catch_up().await;
        indexed
    }

    /// Takes in what was written since. On PostgreSQL a change is shown once nothing that began before it is under way, in
    /// whichever database of the server: that is waited for.
    pub async fn catch_up(&self) {
        let (system, start) = (self.store.system(Purpose::Cli), Place { written_by: 0, number: 0 });
        loop {
            let written: i64 = system.one("SELECT COUNT(*) FROM changes", args![]).await.expect("a count");
            let shown = changes::read(&system, start, 100_000).await.expect("the changes");
            if i64::try_from(shown.len()) == Ok(written) {
                break;
            }
            tokio::task::yield_now().await;
        }
        self.keeper.catch_up().await.expect("the index is up to date");
    }

    /// The process ends.
    pub fn stop(self) -> TempDir {
        self.folder
    }
}

/// A query as it stands in a URL.
pub fn spelt(q: &str) -> String {
    let spell =
        |byte: u8| if byte.is_ascii_alphanumeric() { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    q.bytes().map(spell).collect()
}

impl Server {
    /// What a search finds, with all that is told beside it.
    pub async fn search(&self, cookie: &str, q: &str) -> Value {
        self.get(format!("{SEARCH}?q={}", spelt(q))).cookie(cookie).await.ok(200)
    }

    /// The titles of what a search finds.
    pub async fn titles(&self, cookie: &str, q: &str) -> Vec<String> {
        let found = self.search(cookie, q).await;
        let hits = found["data"].as_array().expect("data");
        hits.iter().map(|hit| hit["title"].as_str().expect("a title").to_owned()).collect()
    }
}
