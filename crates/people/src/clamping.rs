//! Clamping timestamps that were written while a tenant's clock was ahead, before it is set back.

use kernel::args;
use kernel::base::{RecordId, Result, Timestamp};
use kernel::store::{Db, FromRow, STEP_ROWS, Value};

/// Clamps future timestamps of records to `now`. Otherwise readers of changes would miss every change until the clock reaches
/// those timestamps again. `find` lists records with such timestamps, and `clamp` changes one. Returns how many there were.
pub async fn clamp_records<I: RecordId + FromRow + Into<Value> + 'static>(
    db: &Db,
    now: Timestamp,
    kind: &'static str,
    (find, clamp): (&'static str, &'static str),
) -> Result<u64> {
    let mut all = 0;
    loop {
        let clamped_rows = db.write(async move |tx| {
            let found: Vec<I> = tx.list(find, args![now, STEP_ROWS]).await?;
            let mut rows: Vec<Vec<Value>> = Vec::with_capacity(found.len());
            for id in found {
                tx.record_change(kind, id).await?;
                rows.push(vec![id.into(), now.into()]);
            }
            tx.exec_each(clamp, &rows).await
        });
        let clamped_rows = clamped_rows.await?;
        all += clamped_rows;
        if clamped_rows < STEP_ROWS.unsigned_abs() {
            return Ok(all);
        }
    }
}
