//! The checks of the database for `doctor`.

use super::{Engine, Purpose, Store, dialect};
use crate::args;
use crate::base::Result;

/// The result of one check. `problem` says what is wrong and what to do; without it the check passed.
#[derive(Clone, Debug)]
pub struct Check {
    pub name: &'static str,
    pub detail: String,
    pub problem: Option<String>,
}

impl Check {
    pub fn fine(name: &'static str, detail: impl Into<String>) -> Self {
        Check { name, detail: detail.into(), problem: None }
    }

    pub fn failed(name: &'static str, problem: impl Into<String>) -> Self {
        Check { name, detail: String::new(), problem: Some(problem.into()) }
    }
}

/// Nodes whose clocks differ by more count rates in different minutes, and run jobs too early or too late.
pub const CLOCK_SKEW_MAX_MS: i64 = 2_000;

impl Store {
    /// Checks reads and writes; on SQLite the pages of the file; on PostgreSQL row-level security and the clock.
    pub async fn self_check(&self) -> Result<Vec<Check>> {
        self.ping_writing(true).await?;
        let mut checks = vec![Check::fine("database", "reads and writes")];
        match self.engine() {
            Engine::Sqlite => checks.push(self.check_pages().await?),
            Engine::Postgres => checks.extend([self.check_walls().await?, self.check_clock().await?]),
        }
        Ok(checks)
    }

    async fn check_pages(&self) -> Result<Check> {
        let found: Vec<String> = self.system(Purpose::Health).list(dialect::SQLITE_CHECK, args![]).await?;
        if found == ["ok"] {
            return Ok(Check::fine("integrity", "every page of the file is sound"));
        }
        Ok(Check::failed("integrity", format!("the file is damaged; restore a backup: {}", found.join("; "))))
    }

    async fn check_walls(&self) -> Result<Check> {
        let open: Vec<String> = self.system(Purpose::Health).list(dialect::POSTGRES_OPEN_TABLES, args![]).await?;
        if open.is_empty() {
            return Ok(Check::fine("row-level security", "in force on every table of tenants"));
        }
        Ok(Check::failed("row-level security", format!("not in force on: {}", open.join(", "))))
    }

    async fn check_clock(&self) -> Result<Check> {
        let theirs: i64 = self.system(Purpose::Health).one(dialect::POSTGRES_CLOCK, args![]).await?;
        let skew = theirs - self.world().now().as_millis();
        if skew.abs() <= CLOCK_SKEW_MAX_MS {
            return Ok(Check::fine("clock", format!("{skew} ms from the database's")));
        }
        Ok(Check::failed("clock", format!("{skew} ms from the database's; let NTP set both")))
    }
}
