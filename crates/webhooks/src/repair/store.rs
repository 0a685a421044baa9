//! SQL that clamps future timestamps of endpoints and deliveries, left by a clock that was ahead.

use kernel::args;
use kernel::base::{HOUR_MS, Result, Timestamp};
use kernel::jobs::lanes;
use kernel::store::{BATCH_ROWS, Db, Tx};

use super::super::sender::WAIT_MAX_MS;
use super::super::{OVERLAP_HOURS_MAX, WEBHOOK_LANE, WebhookId};

kernel::statements! {
    /// Deleted endpoints are included: their deliveries may still wait to be marked as skipped.
    NEXT_ENDPOINT = "SELECT id FROM webhooks WHERE tenant_id = $1 AND id > $2 ORDER BY id LIMIT 1";
    CHANGED_AT = "SELECT updated_at FROM webhooks WHERE tenant_id = $1 AND id = $2";
    CLAMP_ENDPOINT = "UPDATE webhooks SET updated_at = $3,
            created_at = CASE WHEN created_at > $3 THEN $3 ELSE created_at END,
            deleted_at = CASE WHEN deleted_at > $3 THEN $3 ELSE deleted_at END
        WHERE tenant_id = $1 AND id = $2 AND updated_at > $3";
    /// An overlap that ends later than any rotation until now could have set ($5) is moved back by $3, the time by which the
    /// endpoint's last change is ahead of now ($4), but not to before now.
    CLAMP_OVERLAP = "UPDATE webhook_secrets SET valid_until = CASE WHEN valid_until - $3 < $4 THEN $4
            WHEN valid_until - $3 > $5 THEN $5 ELSE valid_until - $3 END
        WHERE tenant_id = $1 AND webhook_id = $2 AND valid_until > $5";
    CLAMP_STATE = "UPDATE webhook_states SET
            last_success_at = CASE WHEN last_success_at > $3 THEN $3 ELSE last_success_at END,
            last_failure_at = CASE WHEN last_failure_at > $3 THEN $3 ELSE last_failure_at END,
            failing_since = CASE WHEN failing_since > $3 THEN $3 ELSE failing_since END,
            paused_reason = CASE WHEN paused_until > $4 THEN NULL ELSE paused_reason END,
            paused_until = CASE WHEN paused_until > $4 THEN NULL ELSE paused_until END
        WHERE tenant_id = $1 AND webhook_id = $2";
    /// Attempts that were under way when their node died, only a few; they become pending again when the lane is next
    /// leased.
    CLAMP_IN_FLIGHT = "UPDATE deliveries /* INDEXED BY deliveries_under_way */ SET next_attempt_at = $3
        WHERE tenant_id = $1 AND webhook_id = $2 AND status = 'delivering' AND next_attempt_at > $4";
    CLAMP_PENDING = "UPDATE deliveries SET next_attempt_at = $3 WHERE tenant_id = $1 AND id IN
        (SELECT d.id FROM deliveries d /* INDEXED BY deliveries_due */ WHERE d.tenant_id = $1
            AND d.webhook_id = $2 AND d.status = 'pending' AND d.next_attempt_at > $4 ORDER BY d.next_attempt_at, d.event_sequence LIMIT $5)";
}

/// Clamps future timestamps of a tenant's endpoints and deliveries, before the tenant's clock is set back. A delivery that
/// waits longer than any retry can is due now. Returns how many deliveries changed.
pub async fn clamp_future_timestamps(db: &Db, now: Timestamp) -> Result<u64> {
    let mut total = 0;
    let mut after = String::new();
    while let Some(id) = db.find::<WebhookId>(NEXT_ENDPOINT, args![after]).await? {
        total += db.write_in_batches(BATCH_ROWS, async move |tx| clamp_endpoint(tx, id, now).await).await?;
        after = id.to_string();
    }
    Ok(total)
}

/// One batch of one endpoint. The lock order is: endpoint, lane, state, deliveries.
async fn clamp_endpoint(tx: &mut Tx, id: WebhookId, now: Timestamp) -> Result<u64> {
    let (latest, overlap_end) = (now.plus_ms(WAIT_MAX_MS), now.plus_ms(OVERLAP_HOURS_MAX * HOUR_MS));
    let lane = id.to_string();
    // The endpoint may have been removed meanwhile.
    let Some(changed_at) = tx.find::<Timestamp>(CHANGED_AT, args![id]).await? else { return Ok(0) };
    let ahead_ms = (changed_at.as_millis() - now.as_millis()).max(0);
    tx.exec(CLAMP_ENDPOINT, args![id, now]).await?;
    tx.exec(CLAMP_OVERLAP, args![id, ahead_ms, now, overlap_end]).await?;
    lanes::clamp_future_timestamps(tx, WEBHOOK_LANE, &lane, now, latest).await?;
    tx.exec(CLAMP_STATE, args![id, now, latest]).await?;
    let in_flight = tx.exec(CLAMP_IN_FLIGHT, args![id, now, latest]).await?;
    let clamped = tx.exec(CLAMP_PENDING, args![id, now, latest, BATCH_ROWS]).await?;
    if clamped + in_flight > 0 {
        lanes::wake_lane(tx, WEBHOOK_LANE, &lane).await?;
    }
    Ok(clamped)
}
