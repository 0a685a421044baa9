//! Finds the sealed values that do not open: their key is lost, or they were changed or moved. For `doctor` and
//! `admin keyring status`, which name them before somebody needs one.

use serde::Serialize;

use super::SealedColumnStatements;
use super::walk::{ColumnWalk, SealedRow};
use crate::base::{Result, Secrets};
use crate::store::Db;

/// The values of one column that do not open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UnopenedValues {
    pub column: &'static str,
    pub values: u64,
    pub first: UnopenedValue,
}

/// Where a value is that does not open, and why it does not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UnopenedValue {
    pub tenant_id: String,
    pub record_id: String,
    pub version: i64,
    pub reason: String,
}

/// Opens all values that do not expire, of all tenants, and returns what does not open, by column.
pub async fn find_unopened(
    system: &Db,
    secrets: &Secrets,
    columns: &[SealedColumnStatements],
) -> Result<Vec<UnopenedValues>> {
    let mut found = Vec::new();
    for column in columns {
        let Some(statements) = column.rewrap else { continue };
        let mut walk = ColumnWalk::new(system, statements.walk);
        let mut unopened = None::<UnopenedValues>;
        loop {
            let rows = walk.next_rows().await?;
            if rows.is_empty() {
                break;
            }
            for value in rows.into_iter().filter_map(|row| find_reason(secrets, column.name, row)) {
                match &mut unopened {
                    Some(unopened) => unopened.values += 1,
                    None => unopened = Some(UnopenedValues { column: column.name, values: 1, first: value }),
                }
            }
        }
        found.extend(unopened);
    }
    Ok(found)
}

fn find_reason(secrets: &Secrets, column: &'static str, row: SealedRow) -> Option<UnopenedValue> {
    // An erased value is empty.
    if row.sealed.is_empty() {
        return None;
    }
    let error = secrets.open_value(row.binding(column), &row.sealed).err()?;
    let reason = error.cause_chain().unwrap_or_default();
    Some(UnopenedValue { tenant_id: row.tenant, record_id: row.record, version: row.version, reason })
}
