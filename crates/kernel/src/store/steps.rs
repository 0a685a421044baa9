//! Changes many rows in batches, so that the duration of a statement does not grow with the table.

use super::{Db, Value};
use crate::base::Result;

/// Rows of one step. A statement of PostgreSQL may take 30 s, and other writes to SQLite wait for a whole step.
pub const STEP_ROWS: i64 = 2_000;

impl Db {
    /// Runs a statement repeatedly, each time in a transaction of its own, until it changes nothing more, and returns how
    /// many rows it changed in all. Its last argument, the row limit, is added here. It must not match rows that it has
    /// changed.
    ///
    /// After a failure the earlier steps stay committed, and a new call continues from there.
    pub async fn exec_in_steps(&self, sql: &'static str, mut values: Vec<Value>) -> Result<u64> {
        values.push(STEP_ROWS.into());
        let mut all = 0;
        loop {
            let rows = [values.clone()];
            let changed = self.write(async move |tx| tx.exec_each(sql, &rows).await).await?;
            // Fewer rows than the limit do not mean the end: another transaction may have deleted some that were matched.
            if changed == 0 {
                return Ok(all);
            }
            all += changed;
        }
    }
}
