//! Two nodes on one PostgreSQL as an operator runs them: each with a folder of its own, and the same secrets file.

use tempfile::TempDir;

use super::load::Api;
use super::postgres::{TestDatabase, fresh_database};
use super::process::{Launch, Process};

pub struct Nodes {
    pub a: Process,
    pub b: Process,
    /// How the first is started, which commands beside it are told as well.
    pub first: Launch,
    pub database: TestDatabase,
    _folders: [TempDir; 2],
}

impl Nodes {
    pub async fn start(change: impl Fn(Launch) -> Launch) -> Nodes {
        let database = fresh_database().await;
        let folders = [TempDir::new().unwrap(), TempDir::new().unwrap()];
        let first = change(Launch::on_database(&database.url, folders[0].path()));
        let a = first.start().await;
        let second = change(Launch::on_database(&database.url, folders[1].path()));
        let b = second.secrets_file(&first.own_secrets_file()).start().await;
        Nodes { a, b, first, database, _folders: folders }
    }

    /// A client of each, with one new session that has used nothing of its budget yet.
    pub fn apis(&self) -> [Api; 2] {
        let cookie = self.first.sign_in();
        [self.a.api(&cookie), self.b.api(&cookie)]
    }
}
