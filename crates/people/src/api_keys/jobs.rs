//! The background job of API keys: announcing that they expire soon.

use kernel::base::Result;
use kernel::jobs::ServerNode;
use kernel::jobs::lanes::tenant_db;
use kernel::store::Purpose;

use super::{ANNOUNCE_MS, store};

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
