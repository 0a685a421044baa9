//! The checks of the database for `doctor`.

use super::{DatabaseEngine, Purpose, Store, dialect};
use crate::args;
use crate::base::Result;

/// The result of one check. `problem` says what is wrong and what to do; without it the check passed.
#[derive(Clone, Debug)]
pub struct SelfCheckItem {
    pub name: &'static str,
    pub detail: String,
    pub problem: Option<String>,
}

impl SelfCheckItem {
    pub fn from_detail(name: &'static str, detail: impl Into<String>) -> Self {
        SelfCheckItem { name, detail: detail.into(), problem: None }
    }

    pub fn from_problem(name: &'static str, problem: impl Into<String>) -> Self {
        SelfCheckItem { name, detail: String::new(), problem: Some(problem.into()) }
    }
}

/// Nodes whose clocks differ by more count rates in different minutes, and run jobs too early or too late.
pub const CLOCK_SKEW_MAX_MS: i64 = 2_000;

impl Store {
    /// Checks reads and writes; on SQLite the pages of the file; on PostgreSQL row-level security and the clock.
    pub async fn self_check(&self) -> Result<Vec<SelfCheckItem>> {
        self.ping_with_probe(true).await?;
        let mut checks = vec![SelfCheckItem::from_detail("database", "reads and writes")];
        match self.engine() {
            DatabaseEngine::Sqlite => checks.push(self.check_pages().await?),
            DatabaseEngine::Postgres => checks.extend([self.check_row_security().await?, self.check_clock().await?]),
        }
        Ok(checks)
    }

    async fn check_pages(&self) -> Result<SelfCheckItem> {
        let found: Vec<String> = self.system(Purpose::Health).list(dialect::SQLITE_CHECK, args![]).await?;
        if found == ["ok"] {
            return Ok(SelfCheckItem::from_detail("integrity", "every page of the file is sound"));
        }
        Ok(SelfCheckItem::from_problem(
            "integrity",
            format!("the file is damaged; restore a backup: {}", found.join("; ")),
        ))
    }

    async fn check_row_security(&self) -> Result<SelfCheckItem> {
        let open: Vec<String> = self.system(Purpose::Health).list(dialect::POSTGRES_OPEN_TABLES, args![]).await?;
        if open.is_empty() {
            return Ok(SelfCheckItem::from_detail("row-level security", "in force on every table of tenants"));
        }
        Ok(SelfCheckItem::from_problem("row-level security", format!("not in force on: {}", open.join(", "))))
    }

    async fn check_clock(&self) -> Result<SelfCheckItem> {
        let database_ms: i64 = self.system(Purpose::Health).get_one(dialect::POSTGRES_CLOCK, args![]).await?;
        let skew = database_ms - self.env().now().as_millis();
        if skew.abs() <= CLOCK_SKEW_MAX_MS {
            return Ok(SelfCheckItem::from_detail("clock", format!("{skew} ms from the database's")));
        }
        Ok(SelfCheckItem::from_problem("clock", format!("{skew} ms from the database's; let NTP set both")))
    }
}
