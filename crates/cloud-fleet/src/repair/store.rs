//! SQL that brings back what a node's clock that ran ahead has put off into the future.

use kernel::args;
use kernel::base::{DAY_MS, Result, Timestamp};
use kernel::jobs::lanes;
use kernel::store::Db;

use crate::CLOUD_LANE;
use crate::providers::PROVIDERS_MAX;
use crate::providers::store::region_lane;
use crate::vms;

kernel::statements! {
    CLAMP_VERIFICATIONS = "UPDATE cloud_providers SET verify_at = $2 WHERE tenant_id = $1 AND verify_at > $3";
    CLAMP_SYNCS = "UPDATE cloud_regions SET sync_at = $2 WHERE tenant_id = $1 AND sync_at > $3";
    CLAMP_OPERATIONS = "UPDATE vm_operations SET next_at = $2 WHERE tenant_id = $1 AND id IN (SELECT o.id FROM vm_operations o
        WHERE o.tenant_id = $1 AND o.next_at > $3 ORDER BY o.provider_id, o.region, o.next_at LIMIT $4)";
    REGIONS = "SELECT p.id, p.regions FROM cloud_providers p WHERE p.tenant_id = $1 AND p.deleted_at IS NULL
        ORDER BY p.created_at, p.id LIMIT $2";
}

/// The longest that anything of a cloud is put off.
const LATEST_MS: i64 = 2 * DAY_MS;

/// Clamps future timestamps before the tenant's clock is set back. Returns the number of machines.
pub async fn clamp_future_timestamps(db: &Db, now: Timestamp) -> Result<u64> {
    let latest = now.plus_ms(LATEST_MS);
    db.write(async move |tx| {
        tx.exec(CLAMP_VERIFICATIONS, args![now, latest]).await?;
        tx.exec(CLAMP_SYNCS, args![now, latest]).await?;
        let providers: Vec<(crate::providers::ProviderId, String)> = tx.list(REGIONS, args![PROVIDERS_MAX]).await?;
        for (id, regions) in providers {
            let regions: Vec<String> = serde_json::from_str(&regions).unwrap_or_default();
            let of_regions = regions.iter().map(|region| region_lane(id, region));
            for lane in std::iter::once(id.to_string()).chain(of_regions) {
                lanes::clamp_future_timestamps(tx, CLOUD_LANE, &lane, now, latest).await?;
                lanes::wake_lane(tx, CLOUD_LANE, &lane).await?;
            }
        }
        Ok(())
    })
    .await?;
    db.exec_in_batches(CLAMP_OPERATIONS, vec![now.into(), latest.into()]).await?;
    vms::store::clamp_future_timestamps(db, now).await
}
