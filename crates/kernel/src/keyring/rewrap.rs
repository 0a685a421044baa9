//! Rewraps the values that other keys have sealed, so that the primary key alone opens them.
//!
//! A pass walks each column along its key and needs no state: one that was interrupted begins again, and passes over what is
//! done. Each value is replaced in a transaction of its own, if it is still the one that was read: a concurrent change wins, and
//! no lock is held while another is waited for. Versions and times of records stay, and nobody is told: nothing has changed.

use super::walk::{ColumnWalk, SealedRow};
use super::{RewrapStatements, SealedColumnStatements};
use crate::base::seal::sealed_key_id;
use crate::base::{Error, Result, Secrets};
use crate::store::Db;

/// What a pass has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RewrapReport {
    pub rewrapped: u64,
    /// Values that were changed or deleted between reading and replacing them.
    pub outrun: u64,
    /// Values that no key of this node opens.
    pub failed: u64,
}

/// Rewraps the values of all tenants, as far as other keys than the primary have sealed them. A value that cannot be opened stays
/// as it is, and is counted and logged.
pub async fn rewrap_values(system: &Db, secrets: &Secrets, columns: &[SealedColumnStatements]) -> Result<RewrapReport> {
    let mut report = RewrapReport::default();
    for column in columns {
        if let Some(statements) = column.rewrap {
            rewrap_column(system, secrets, (column.name, statements), &mut report).await?;
        }
    }
    Ok(report)
}

async fn rewrap_column(
    system: &Db,
    secrets: &Secrets,
    (name, statements): (&'static str, RewrapStatements),
    report: &mut RewrapReport,
) -> Result<()> {
    let mut walk = ColumnWalk::new(system, statements.walk);
    let (mut first_failure, failed_before) = (None::<(SealedRow, Error)>, report.failed);
    loop {
        let rows = walk.next_rows().await?;
        if rows.is_empty() {
            break;
        }
        for row in rows {
            // An erased value is empty.
            if row.sealed.is_empty() || sealed_key_id(&row.sealed) == Some(secrets.keyring().primary_id()) {
                continue;
            }
            match secrets.rewrap_value(&system.env().random, row.binding(name), &row.sealed) {
                Ok(None) => {}
                Ok(Some(rewrapped)) => match replace_value(system, statements.replace, row, rewrapped).await? {
                    0 => report.outrun += 1,
                    _ => report.rewrapped += 1,
                },
                Err(error) => {
                    report.failed += 1;
                    first_failure.get_or_insert((row, error));
                }
            }
        }
    }
    if let Some((row, error)) = first_failure {
        let (values, SealedRow { tenant, record, version, .. }) = (report.failed - failed_before, row);
        tracing::error!(
            %error, column = name, values, tenant, record, version,
            "failed to rewrap sealed values, of which the first is named; they stay as they are"
        );
    }
    Ok(())
}

/// Returns how many values were replaced: none if it was changed meanwhile.
async fn replace_value(system: &Db, replace: &'static str, row: SealedRow, rewrapped: Vec<u8>) -> Result<u64> {
    system.env().faults.check_outside_tx("rewrap.value.before").await?;
    let SealedRow { tenant, record, version, sealed } = row;
    system.write(async move |tx| tx.exec(replace, crate::args![tenant, record, version, sealed, rewrapped]).await).await
}
