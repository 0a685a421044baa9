//! SQL that keeps the order of a record's events: holds deliveries behind an earlier event, and fills in record ids. It is
//! written in a transaction that holds the lane's lease.
//!
//! A held delivery has no next attempt. Publishing does not hold deliveries, because only the lane knows whether the earlier
//! event is finished: a new delivery is due like any other, and held when the lane finds it.

use kernel::args;
use kernel::base::{Result, Timestamp};
use kernel::jobs::lanes::LeasedLane;

use super::super::super::WebhookId;
use super::super::super::deliveries::DeliveryId;
use super::super::outcome::DeliveryPosition;
use super::super::settle::store::HOLD_BEHIND;

kernel::statements! {
    WAITING = "SELECT d.id, d.next_attempt_at, d.event_sequence, d.record_id FROM deliveries d /* INDEXED BY deliveries_due */
        WHERE d.tenant_id = $1 AND d.webhook_id = $2 AND d.status = 'pending'
            AND (d.next_attempt_at, d.event_sequence) > ($3, $4)
        ORDER BY d.next_attempt_at, d.event_sequence LIMIT $5";
    /// A delivery whose event is no longer kept gets its own id as its record id.
    FILL_RECORD = "UPDATE deliveries SET record_id = COALESCE((SELECT e.record_id FROM events e
            WHERE e.tenant_id = $1 AND e.sequence = deliveries.event_sequence), id)
        WHERE tenant_id = $1 AND id = $2 AND record_id IS NULL";
    /// Only if the endpoint has not changed: if order was disabled and enabled meanwhile, deliveries in between have no
    /// record id.
    FILLED = "UPDATE webhook_states SET records_missing = FALSE WHERE tenant_id = $1 AND webhook_id = $2 AND EXISTS
        (SELECT 1 FROM webhooks w WHERE w.tenant_id = $1 AND w.id = $2 AND w.version = $3)";
}

/// Holds deliveries behind an earlier event of their record. False when the lease is lost.
pub async fn hold_behind(lane: &LeasedLane, behind: Vec<DeliveryId>) -> Result<bool> {
    let rows = behind.into_iter().map(|id| vec![id.into()]).collect();
    Ok(lane.write_if_held(async move |tx| tx.defer_exec_each(HOLD_BEHIND, rows).await).await?.is_some())
}

/// Deliveries that one step examines.
const STEP_ROWS: usize = 500;

/// The result of one step of filling in record ids.
pub enum FillProgress {
    /// Another node has the lane's lease.
    Lost,
    /// There may be more after this position.
    UpTo(DeliveryPosition),
    All,
}

/// Sets the record id of deliveries that were created while the endpoint was unordered. One step, from a position on.
pub async fn fill_records(
    lane: &LeasedLane,
    (id, version): (WebhookId, i64),
    (at, sequence): DeliveryPosition,
) -> Result<FillProgress> {
    let held = lane.clone();
    lane.db()
        .write(async move |tx| {
            let holding = held.defer_lease_extension(tx).await?;
            let page = args![id, at, sequence, STEP_ROWS as i64];
            let waiting: Vec<(DeliveryId, Timestamp, i64, Option<String>)> = tx.list(WAITING, page).await?;
            if !holding.is_held(tx).await? {
                return Ok(FillProgress::Lost);
            }
            let missing = waiting.iter().filter(|(.., record)| record.is_none());
            tx.defer_exec_each(FILL_RECORD, missing.map(|(id, ..)| vec![(*id).into()]).collect()).await?;
            match waiting.last() {
                Some((_, at, sequence, _)) if waiting.len() == STEP_ROWS => Ok(FillProgress::UpTo((*at, *sequence))),
                _ => tx.defer_exec(FILLED, vec![id.into(), version.into()]).await.map(|()| FillProgress::All),
            }
        })
        .await
}
