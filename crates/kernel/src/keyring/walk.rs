//! Reads the sealed values of a column along its key.

use crate::base::Result;
use crate::base::seal::SealBinding;
use crate::store::Db;

/// Rows that one statement reads. Values are a few kilobytes at the most.
const WALK_ROWS: i64 = 200;

/// A sealed value, and what it is sealed for.
pub struct SealedRow {
    pub tenant: String,
    pub record: String,
    pub version: i64,
    /// Empty if the value was erased.
    pub sealed: Vec<u8>,
}

impl SealedRow {
    pub fn binding(&self, column: &'static str) -> SealBinding<'_> {
        SealBinding { tenant: &self.tenant, table: column, record: &self.record, version: self.version }
    }
}

/// A walk along the values of all tenants. It holds no lock between its statements.
pub struct ColumnWalk<'a> {
    system: &'a Db,
    statement: &'static str,
    /// The tenant, record and version of the last value.
    after: (String, String, i64),
}

impl<'a> ColumnWalk<'a> {
    /// `statement` is [`RewrapStatements::walk`](super::RewrapStatements::walk).
    pub fn new(system: &'a Db, statement: &'static str) -> Self {
        ColumnWalk { system, statement, after: (String::new(), String::new(), 0) }
    }

    /// The next values; empty at the end.
    pub async fn next_rows(&mut self) -> Result<Vec<SealedRow>> {
        let (tenant, record, version) = &self.after;
        let rows: Vec<(String, String, i64, Vec<u8>)> = self
            .system
            .list(self.statement, crate::args![tenant.as_str(), record.as_str(), *version, WALK_ROWS])
            .await?;
        if let Some((tenant, record, version, _)) = rows.last() {
            self.after = (tenant.clone(), record.clone(), *version);
        }
        let to_row = |(tenant, record, version, sealed)| SealedRow { tenant, record, version, sealed };
        Ok(rows.into_iter().map(to_row).collect())
    }
}
