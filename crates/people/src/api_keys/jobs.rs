//! The background job of API keys: announcing that they expire soon.

use kernel::base::{DAY_MS, Result};
use kernel::jobs::ServerNode;
use kernel::jobs::lanes::tenant_db;
use kernel::store::Purpose;

use super::store;

/// How long before its expiry a key is announced; a key with a shorter lifetime is not announced.
pub const ANNOUNCE_MS: i64 = 7 * DAY_MS;
/// Keys of one round; the rest waits for the next.
const ROUND_MAX: usize = 500;

/// Publishes one event for every key that expires soon. Nodes may run this at the same time: the write decides which of them
/// publishes.
pub async fn announce_expiry(node: &ServerNode) -> Result<()> {
    let before = node.env.now().plus_ms(ANNOUNCE_MS);
    let due = store::list_expiring_keys(&node.store.system(Purpose::Jobs), before, ROUND_MAX).await?;
    for (tenant, id) in due {
        let published =
            tenant_db(&node.store, tenant).write(async move |tx| store::publish_expiry(tx, id, before).await).await;
        // A key that fails must not keep the others from being announced.
        if let Err(error) = published {
            tracing::warn!(%error, key = %id, "failed to announce that a key expires");
        }
    }
    Ok(())
}
