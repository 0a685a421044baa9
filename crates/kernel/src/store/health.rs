//! Whether the store can read and write.

use super::database::{Store, StoreBackend};
use super::handle::Purpose;
use super::sqlite;
use super::tx::Tx;
use crate::args;
use crate::base::{Result, run_blocking};

const PING: &str = "SELECT CAST(1 AS BIGINT)";

impl Store {
    /// Checks by a real round trip that reads work.
    pub async fn ping_read(&self) -> Result<()> {
        self.system(Purpose::Health).get_one::<i64>(PING, args![]).await.map(drop)
    }

    /// Checks that reads and writes work. After a failed write to disk it tries a write itself, so that an instance without
    /// traffic notices that there is space again.
    pub async fn ping(&self) -> Result<()> {
        let failing = match self.backend() {
            StoreBackend::Sqlite(sqlite) => sqlite.writer.is_failing(),
            StoreBackend::Postgres(_) => false,
        };
        self.ping_with_probe(failing).await
    }

    /// Like [`Store::ping`]; `probing` always tries a write to disk. The health endpoint does not, because anybody may call
    /// it and all tenants share the disk.
    pub(super) async fn ping_with_probe(&self, probing: bool) -> Result<()> {
        self.ping_read().await?;
        let health = self.system(Purpose::Health);
        match self.backend() {
            StoreBackend::Sqlite(sqlite) => {
                if probing {
                    let path = sqlite.path.clone();
                    run_blocking(move || sqlite::probe_disk(&path)).await?;
                }
                health.write(async move |tx: &mut Tx| if probing { tx.probe_write() } else { Ok(()) }).await?;
                if probing {
                    sqlite.writer.mark_recovered();
                }
                Ok(())
            }
            // A standby serves reads but refuses to begin a transaction that writes.
            StoreBackend::Postgres(_) => {
                health.write(async |tx| tx.get_one::<i64>(PING, args![]).await).await.map(drop)
            }
        }
    }
}
