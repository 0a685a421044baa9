//! Machines of a region that was removed, or of a provider that was deleted, leave the list. There may be many thousands, so
//! each transaction forgets a batch of them, and the writes of others come in between.

use kernel::args;
use kernel::base::Result;
use kernel::store::{Db, Tx};

use super::super::store::{READ, StoredVm, forget_listed};
use crate::providers::ProviderId;
use crate::providers::store::find_in_tx;

kernel::statements! {
    LISTED_IN_REGION = kernel::sql![
        READ,
        " AND v.provider_id = $2 AND v.region = $3
        AND v.deleted_at IS NULL ORDER BY v.id LIMIT $4"
    ];
    LISTED_OF_PROVIDER = kernel::sql![
        READ,
        " AND v.provider_id = $2 AND v.deleted_at IS NULL ORDER BY v.created_at, v.id LIMIT $3"
    ];
}

const BATCH_ROWS: usize = 100;
/// Batches that the caller who removes something waits for. The lanes forget the rest.
const CALLER_BATCHES_MAX: usize = 100;

/// What a batch leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForgetProgress {
    Done,
    More,
    /// The region was added again: its machines stay.
    RegionReturned,
}

/// Forgets a batch of the machines of a removed region. Of a deleted provider all leave, wherever they are.
pub async fn forget_batch(tx: &mut Tx, provider: ProviderId, region: Option<&str>) -> Result<ForgetProgress> {
    tx.tick().await?;
    let rows = BATCH_ROWS as i64;
    let listed: Vec<StoredVm> = match (find_in_tx(tx, provider).await?, region) {
        (None, _) => tx.list(LISTED_OF_PROVIDER, args![provider, rows]).await?,
        (Some(stored), Some(region)) if !stored.record.regions.iter().any(|listed| listed == region) => {
            tx.list(LISTED_IN_REGION, args![provider, region, rows]).await?
        }
        (Some(_), _) => return Ok(ForgetProgress::RegionReturned),
    };
    let is_last = listed.len() < BATCH_ROWS;
    forget_listed(tx, listed).await?;
    Ok(if is_last { ForgetProgress::Done } else { ForgetProgress::More })
}

/// Forgets the machines of a deleted provider: see [`forget_regions`].
pub async fn forget_provider(db: &Db, provider: ProviderId) {
    forget_removed(db, provider, vec![None]).await;
}

/// Forgets the machines of removed regions while the caller waits, so that they have left the list when they are told that it
/// is done. The removal is committed already: after a failure the lanes go on.
pub async fn forget_regions(db: &Db, provider: ProviderId, regions: Vec<String>) {
    forget_removed(db, provider, regions.into_iter().map(Some).collect()).await;
}

async fn forget_removed(db: &Db, provider: ProviderId, regions: Vec<Option<String>>) {
    let mut batches = 0;
    for region in regions {
        loop {
            let key = region.clone();
            let forgotten = match db.env().faults.check_outside_tx("cloud.forget").await {
                Ok(()) => db.write(async move |tx| forget_batch(tx, provider, key.as_deref()).await).await,
                Err(error) => Err(error),
            };
            batches += 1;
            match forgotten {
                Ok(ForgetProgress::More) if batches < CALLER_BATCHES_MAX => {}
                Ok(ForgetProgress::More) => return,
                Ok(ForgetProgress::Done | ForgetProgress::RegionReturned) => break,
                Err(error) => {
                    tracing::warn!(%error, %provider, region, "failed to forget removed machines; their lane will");
                    return;
                }
            }
        }
    }
}
