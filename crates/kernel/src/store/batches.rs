//! Changes many rows in batches, so that the duration of a transaction does not grow with the table.

use super::{Db, Tx, Value, WriteFn};
use crate::args;
use crate::base::{Result, Timestamp};

/// Rows of one batch. A statement of PostgreSQL may take 30 s, and other writes to SQLite wait for a whole batch.
pub const BATCH_ROWS: i64 = 2_000;

impl Db {
    /// Runs a statement repeatedly, each time in a transaction of its own, until it changes nothing more, and returns how
    /// many rows it changed in all. Its last argument, the row limit, is added here. It must not match rows that it has
    /// changed.
    ///
    /// After a failure the earlier batches stay committed, and a new call continues from there.
    pub async fn exec_in_batches(&self, sql: &'static str, mut values: Vec<Value>) -> Result<u64> {
        values.push(BATCH_ROWS.into());
        let rows = [values];
        // Fewer rows than the limit do not mean the end: another transaction may have deleted some that were matched.
        self.write_in_batches(1, async move |tx| tx.exec_each(sql, &rows).await).await
    }

    /// Repeats a write, each time in a transaction of its own, until it changes fewer than `rows_max` rows, and returns how
    /// many it changed in all.
    pub async fn write_in_batches(
        &self,
        rows_max: i64,
        write: impl for<'t> WriteFn<&'t mut Tx, Result<u64>, Fut: Send> + Clone + Send + 'static,
    ) -> Result<u64> {
        let mut all = 0;
        loop {
            let changed = self.write(write.clone()).await?;
            all += changed;
            if changed < rows_max.unsigned_abs() {
                return Ok(all);
            }
        }
    }

    /// Clamps times of records to `now`, before the tenant's clock is set back: otherwise readers of changes would miss every
    /// change until the clock reaches those times again. `list` has the ids of records that changed after `$2`, at most `$3`
    /// of them; `clamp` sets the times of the record `$2` to `$3`. Returns the number of records.
    pub async fn clamp_future_records(
        &self,
        kind: &'static str,
        (list, clamp): (&'static str, &'static str),
        now: Timestamp,
    ) -> Result<u64> {
        let write = async move |tx: &mut Tx| {
            let ids: Vec<String> = tx.list(list, args![now, BATCH_ROWS]).await?;
            let mut rows: Vec<Vec<Value>> = Vec::with_capacity(ids.len());
            for id in ids {
                tx.record_change(kind, &id).await?;
                rows.push(vec![id.into(), now.into()]);
            }
            tx.exec_each(clamp, &rows).await
        };
        self.write_in_batches(BATCH_ROWS, write).await
    }
}
