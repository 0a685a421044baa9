//! What is done about keys without being asked: telling that they expire soon.

use kernel::base::{DAY_MS, Result};
use kernel::jobs::Node;
use kernel::jobs::lanes::tenant_db;
use kernel::store::Purpose;

use super::store;

/// How long before its end a key's expiry is told; a key that lives shorter than this is not told of.
pub const ANNOUNCE_MS: i64 = 7 * DAY_MS;
/// Keys of one round; what is left waits for the next.
const ROUND_MAX: usize = 500;

/// Tells of every key that expires soon, once. Nodes may do this at the same time: the write decides who tells.
pub async fn announce_expiry(node: &Node) -> Result<()> {
    let before = node.world.now().plus(ANNOUNCE_MS);
    let due = store::to_announce(&node.store.system(Purpose::Jobs), before, ROUND_MAX).await?;
    for (tenant, id) in due {
        let told = tenant_db(&node.store, tenant).write(async move |tx| store::announce(tx, id, before).await).await;
        // One that cannot be told must not keep the others from being told.
        if let Err(error) = told {
            tracing::warn!(%error, key = %id, "it could not be told that a key expires soon; it will be tried again");
        }
    }
    Ok(())
}
