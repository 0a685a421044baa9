//! Changing many rows some at a time, so that no statement takes as long as there are rows.

use super::{Db, Value};
use crate::base::Result;

/// Rows of one step. A statement of PostgreSQL may take 30 s, and whoever else writes to SQLite waits for a whole step.
pub const STEP_ROWS: i64 = 2_000;

impl Db {
    /// Runs a statement again and again, each time as a transaction of its own, until it changes nothing more. How many rows
    /// it may change is its last argument, which is added here. What it has changed it must not find again. Tells how many
    /// rows there were.
    ///
    /// After a failure the steps before it stay done, and running all of it again goes on from there.
    pub async fn exec_in_steps(&self, sql: &'static str, mut values: Vec<Value>) -> Result<u64> {
        values.push(STEP_ROWS.into());
        let mut all = 0;
        loop {
            let rows = [values.clone()];
            let changed = self.write(async move |tx| tx.exec_each(sql, &rows).await).await?;
            // Fewer than it may is not yet all: others may have removed some of those that it had found.
            if changed == 0 {
                return Ok(all);
            }
            all += changed;
        }
    }
}
