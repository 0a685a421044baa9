//! SQL of the sender. Every write for a lane is in a transaction that holds the lane's lease.

use std::collections::BTreeMap;

use bytes::Bytes;
use kernel::args;
use kernel::base::seal::SealedValue;
use kernel::base::{Error, Result, Secrets, StringEnum, TenantId, Timestamp};
use kernel::events;
use kernel::jobs::lanes::LeasedLane;
use kernel::outbound::Target;
use kernel::store::{Db, FromRow, Row, from_json};

use super::super::deliveries::DeliveryId;
use super::super::deliveries::store::can_recover;
use super::super::store::{SEALED_HEADERS, SEALED_SECRETS, auto_disable};
use super::super::{WEBHOOK_AUTO_DISABLED, WebhookId, WebhookStatus};
use super::endpoint::{Endpoint, EndpointState, PauseReason, SigningSecret, build_base_headers, pause_columns};
use super::outcome::{DeliveryPosition, DueDelivery};
use super::sign;

kernel::columns! {
    struct EndpointColumns {
        version = "w.version", url = "w.url", status = "w.status", headers = "w.headers",
        headers_version = "w.headers_version", rate_limit_per_second = "w.rate_limit_per_second", ordered = "w.ordered",
        generation = "w.generation", deleted_at = "w.deleted_at", events = "w.events",
        consecutive_failures = "s.consecutive_failures", failing_since = "s.failing_since", paused_until = "s.paused_until",
        paused_reason = "s.paused_reason", drained = "s.drained", records_missing = "s.records_missing",
        recovery_position = "r.position",
    }
}

/// Due deliveries after a position, with whether an earlier event of the record is unfinished, and with the payload if it is
/// small: reading it for each attempt would take as long as sending it.
macro_rules! due {
    ($is_behind:literal) => {
        concat!(
            "SELECT d.id, d.event_id, d.event_sequence, d.record_id, d.tries, d.attempts, d.resends, d.next_attempt_at,
                (SELECT e.body FROM events e WHERE e.tenant_id = d.tenant_id AND e.sequence = d.event_sequence
                    AND octet_length(e.body) <= CAST($5 AS BIGINT)), ",
            $is_behind,
            " FROM deliveries d /* INDEXED BY deliveries_due */
            WHERE d.tenant_id = $1 AND d.webhook_id = $2 AND d.status = 'pending' AND d.next_attempt_at <= $3
                AND (d.next_attempt_at, d.event_sequence) > ($6, $7)
            ORDER BY d.next_attempt_at, d.event_sequence LIMIT $4"
        )
    };
}

kernel::statements! {
    ENDPOINT = kernel::sql![
        "SELECT ",
        EndpointColumns::LIST,
        " FROM webhooks w JOIN webhook_states s ON s.tenant_id = w.tenant_id AND s.webhook_id = w.id
        LEFT JOIN webhook_recoveries r ON r.tenant_id = w.tenant_id AND r.webhook_id = w.id AND r.finished_at IS NULL
        WHERE w.tenant_id = $1 AND w.id = $2"
    ];
    SECRETS = "SELECT number, secret, valid_until FROM webhook_secrets WHERE tenant_id = $1 AND webhook_id = $2
        ORDER BY number DESC LIMIT 2";
    DUE = due!("FALSE");
    DUE_IN_ORDER = due!("EXISTS (SELECT 1 FROM deliveries o WHERE o.tenant_id = d.tenant_id AND o.webhook_id = d.webhook_id
            AND o.record_id = d.record_id AND o.event_sequence < d.event_sequence AND o.status IN ('pending', 'delivering'))");
    NEXT = "SELECT MIN(next_attempt_at) FROM deliveries /* INDEXED BY deliveries_due */
        WHERE tenant_id = $1 AND webhook_id = $2 AND status = 'pending'";
    BODY = "SELECT body FROM events WHERE tenant_id = $1 AND sequence = $2";
    UPDATE_PAUSE = "UPDATE webhook_states SET paused_until = $3, paused_reason = $4 WHERE tenant_id = $1 AND webhook_id = $2";
    MARK = "UPDATE deliveries SET status = 'delivering' WHERE tenant_id = $1 AND id = $2 AND status = 'pending'";
    MARKED = "SELECT id FROM deliveries /* INDEXED BY deliveries_under_way */
        WHERE tenant_id = $1 AND webhook_id = $2 AND status = 'delivering' LIMIT 1";
    UNMARK = "UPDATE deliveries /* INDEXED BY deliveries_under_way */ SET status = 'pending'
        WHERE tenant_id = $1 AND webhook_id = $2 AND status = 'delivering'";
    /// Deliveries that were pending when the endpoint was disabled.
    DRAIN = "UPDATE deliveries SET status = 'skipped', skipped_reason = $3, next_attempt_at = NULL
        WHERE tenant_id = $1 AND id IN (SELECT d.id FROM deliveries d /* INDEXED BY deliveries_due */
            WHERE d.tenant_id = $1 AND d.webhook_id = $2 AND d.status = 'pending' AND d.generation < $4 LIMIT $5)";
    /// Newer deliveries that were held behind one that is now skipped.
    RELEASE_HELD = "UPDATE deliveries /* INDEXED BY deliveries_due */ SET next_attempt_at = $3
        WHERE tenant_id = $1 AND webhook_id = $2 AND status = 'pending' AND next_attempt_at IS NULL
            AND NOT EXISTS (SELECT 1 FROM deliveries e WHERE e.tenant_id = $1 AND e.webhook_id = $2
                AND e.record_id = deliveries.record_id AND e.event_sequence < deliveries.event_sequence
                AND e.status IN ('pending', 'delivering'))";
    DRAINED = "UPDATE webhook_states SET drained = $3 WHERE tenant_id = $1 AND webhook_id = $2";
    /// Deliveries that were held while the endpoint was ordered, which it no longer is.
    RELEASE_ALL_HELD = "UPDATE deliveries SET next_attempt_at = $3, record_id = NULL
        WHERE tenant_id = $1 AND id IN (SELECT d.id FROM deliveries d /* INDEXED BY deliveries_due */
            WHERE d.tenant_id = $1 AND d.webhook_id = $2 AND d.status = 'pending' AND d.next_attempt_at IS NULL LIMIT $4)";
    HELD = "SELECT id FROM deliveries /* INDEXED BY deliveries_due */ WHERE tenant_id = $1 AND webhook_id = $2 AND status = 'pending'
        AND next_attempt_at IS NULL LIMIT 1";
    DELETE_STATE = "DELETE FROM webhook_states WHERE tenant_id = $1 AND webhook_id = $2";
    DELETE_RECOVERY = "DELETE FROM webhook_recoveries WHERE tenant_id = $1 AND webhook_id = $2";
    CURRENT_VERSION = "SELECT w.version, r.position FROM webhooks w
        LEFT JOIN webhook_recoveries r ON r.tenant_id = w.tenant_id AND r.webhook_id = w.id AND r.finished_at IS NULL
        WHERE w.tenant_id = $1 AND w.id = $2";
}

impl FromRow for DueDelivery {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        Ok(DueDelivery {
            id: row.get(0)?,
            event_id: row.get(1)?,
            event_sequence: row.get(2)?,
            record_id: row.get(3)?,
            tries: row.get(4)?,
            attempts: row.get(5)?,
            resends: row.get(6)?,
            next_attempt_at: row.get(7)?,
            body: row.get::<Option<String>>(8)?.map(Bytes::from),
            is_behind: row.get(9)?,
        })
    }
}

struct StoredEndpoint {
    url: String,
    status: String,
    headers: SealedValue,
    headers_version: i64,
    events: String,
    endpoint: Endpoint,
}

impl FromRow for StoredEndpoint {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        const AT: EndpointColumns<usize> = EndpointColumns::AT;
        let endpoint = kernel::read_record!(row, EndpointColumns => Endpoint {
            version, rate_limit_per_second, ordered, generation;
            target: None,
            headers: None,
            secrets: Vec::new(),
            deleted: row.get::<Option<Timestamp>>(AT.deleted_at)?.is_some(),
            events: Vec::new(),
            skip_reason: "disabled",
            recovering: row.get::<Option<i64>>(AT.recovery_position)?.is_some(),
            state: EndpointState {
                consecutive_failures: row.get(AT.consecutive_failures)?,
                failing_since: row.get(AT.failing_since)?,
                paused: to_pause(row.get(AT.paused_until)?, row.get(AT.paused_reason)?),
                drained: row.get(AT.drained)?,
                records_missing: row.get(AT.records_missing)?,
            },
        });
        Ok(kernel::read_record!(row, EndpointColumns => StoredEndpoint {
            url, status, headers, headers_version, events;
            endpoint,
        }))
    }
}

fn to_pause(until: Option<Timestamp>, reason: Option<String>) -> Option<(Timestamp, PauseReason)> {
    Some((until?, PauseReason::find_stored(&reason?)?))
}

/// The result of reloading the endpoint of a lane.
pub enum EndpointLookup {
    Unchanged,
    /// With its secrets opened.
    Changed(Box<Endpoint>),
    /// The endpoint has been deleted for good.
    Gone,
}

/// Loads the endpoint of a lane, if it differs from `current`.
pub async fn load_endpoint(
    db: &Db,
    secrets: &Secrets,
    tenant: TenantId,
    id: WebhookId,
    current: Option<&Endpoint>,
) -> Result<EndpointLookup> {
    let Some(stored) = db.find::<StoredEndpoint>(ENDPOINT, args![id]).await? else { return Ok(EndpointLookup::Gone) };
    let mut endpoint = stored.endpoint;
    let same = |current: &Endpoint| {
        let progress = |state: &EndpointState| (state.drained, state.records_missing);
        let drained = progress(&current.state) == progress(&endpoint.state);
        current.version == endpoint.version && current.recovering == endpoint.recovering && drained
    };
    if current.is_some_and(same) {
        return Ok(EndpointLookup::Unchanged);
    }
    endpoint.skip_reason = match stored.status.as_str() {
        _ if endpoint.deleted => "deleted",
        "auto_disabled" => "auto_disabled",
        _ => "disabled",
    };
    if endpoint.deleted || stored.status != WebhookStatus::Enabled.as_str() {
        return Ok(EndpointLookup::Changed(Box::new(endpoint)));
    }
    endpoint.target = Some(Target::parse(&stored.url).map_err(|_| Error::internal("a stored URL is not one"))?);
    endpoint.events = from_json(&stored.events)?;
    let headers = SEALED_HEADERS.cell_for(tenant, id, stored.headers_version).open(secrets, &stored.headers)?;
    let headers: BTreeMap<String, String> = serde_json::from_slice(&headers).map_err(Error::internal)?;
    endpoint.headers = build_base_headers(&headers);
    for (number, sealed, valid_until) in db.list::<(i64, SealedValue, Option<Timestamp>)>(SECRETS, args![id]).await? {
        let plain = SEALED_SECRETS.cell_for(tenant, id, number).open(secrets, &sealed)?;
        let text = String::from_utf8(plain).map_err(Error::internal)?;
        let key = sign::decode_secret(&text).ok_or_else(|| Error::internal("a stored secret is not one"))?;
        endpoint.secrets.push(SigningSecret { key, valid_until });
    }
    Ok(EndpointLookup::Changed(Box::new(endpoint)))
}

/// Payloads up to this size, which most are, are loaded with their delivery. Larger ones are read by each attempt, so that a
/// queue holds at most some hundred kilobytes of payloads.
const SMALL_BODY_BYTES: i64 = 2 * 1024;

/// The first due deliveries after a position. On an ordered endpoint, `is_behind` is set.
pub async fn load_due_deliveries(
    db: &Db,
    id: WebhookId,
    ordered: bool,
    now: Timestamp,
    (at, sequence): DeliveryPosition,
    limit: usize,
) -> Result<Vec<DueDelivery>> {
    let sql = if ordered { DUE_IN_ORDER } else { DUE };
    db.list(sql, args![id, now, limit as i64, SMALL_BODY_BYTES, at, sequence]).await
}

/// When the next delivery of an endpoint is due; the time may be past.
pub async fn find_next_attempt(db: &Db, id: WebhookId) -> Result<Option<Timestamp>> {
    db.get_one(NEXT, args![id]).await
}

/// The payload of an event; `None` when it is no longer kept.
pub async fn find_body(db: &Db, sequence: i64) -> Result<Option<String>> {
    db.find(BODY, args![sequence]).await
}

/// Extends the lease, and marks slow attempts as `delivering`. False when the lease is lost.
pub async fn mark_delivering(lane: &LeasedLane, ids: Vec<DeliveryId>) -> Result<bool> {
    let rows = ids.into_iter().map(|id| vec![id.into()]).collect();
    Ok(lane.write_if_held(async move |tx| tx.defer_exec_each(MARK, rows).await).await?.is_some())
}

/// Resets deliveries that a dead node left as `delivering` to pending. False when the lease is lost.
pub async fn reset_delivering(lane: &LeasedLane, id: WebhookId) -> Result<bool> {
    if lane.db().find::<DeliveryId>(MARKED, args![id]).await?.is_none() {
        return Ok(true);
    }
    Ok(lane.write_if_held(async move |tx| tx.exec(UNMARK, args![id]).await).await?.is_some())
}

/// Rows of one step.
const STEP_ROWS: i64 = 500;

/// One step of skipping the deliveries that were pending when the endpoint was disabled. Returns whether there are more, or
/// `None` when the lease is lost.
pub async fn drain_step(
    lane: &LeasedLane,
    id: WebhookId,
    generation: i64,
    reason: &'static str,
) -> Result<Option<bool>> {
    let drain = lane.write_if_held(async move |tx| {
        let drained = tx.exec(DRAIN, args![id, reason, generation, STEP_ROWS]).await?;
        let more = drained == STEP_ROWS.unsigned_abs();
        if !more {
            let now = tx.env().now();
            tx.exec(RELEASE_HELD, args![id, now]).await?;
            tx.exec(DRAINED, args![id, generation]).await?;
        }
        Ok(more)
    });
    drain.await
}

/// One step of releasing deliveries that were held for order. Returns whether there are more, or `None` when the lease is
/// lost.
pub async fn release_held_step(lane: &LeasedLane, id: WebhookId) -> Result<Option<bool>> {
    if lane.db().find::<DeliveryId>(HELD, args![id]).await?.is_none() {
        return Ok(Some(false));
    }
    let release = lane.write_if_held(async move |tx| {
        let now = tx.env().now();
        let released = tx.exec(RELEASE_ALL_HELD, args![id, now, STEP_ROWS]).await?;
        Ok(released == STEP_ROWS.unsigned_abs())
    });
    release.await
}

/// Removes the lane of a deleted endpoint without pending deliveries.
pub async fn remove_lane(lane: &LeasedLane, id: WebhookId) -> Result<()> {
    let held = lane.clone();
    let remove = lane.write_if_held(async move |tx| {
        tx.exec(DELETE_STATE, args![id]).await?;
        tx.exec(DELETE_RECOVERY, args![id]).await?;
        held.delete_lane(tx).await
    });
    remove.await.map(drop)
}

/// Releases the lane's lease. The next due time is read while the lane is locked, so that no event published meanwhile is
/// missed. If the endpoint's version or its recovery has changed since it was loaded, the lane is due at once.
pub async fn release_lane(
    lane: &LeasedLane,
    id: WebhookId,
    (version, recovering): (i64, bool),
    pause: Option<(Timestamp, PauseReason)>,
) -> Result<()> {
    let held = lane.clone();
    lane.db()
        .write(async move |tx| {
            let holding = held.defer_lease_extension(tx).await?;
            let next = tx.defer_query::<Option<Timestamp>>(NEXT, vec![id.into()]).await?;
            let version_query = tx.defer_query::<(i64, Option<i64>)>(CURRENT_VERSION, vec![id.into()]).await?;
            if !holding.is_held(tx).await? {
                return Ok(());
            }
            let now = tx.env().now();
            // Not earlier than now: this lane goes behind the lanes that already wait.
            let next = tx.await_rows(next).await?.pop().flatten();
            let mut due_at = next.map(|at| at.max(now));
            if recovering && can_recover(tx, id).await? {
                due_at = Some(now);
            }
            let current = tx.await_rows(version_query).await?.pop();
            // A pause of an older version does not apply to this one.
            let pause = pause.filter(|_| current.is_some_and(|(stored_version, _)| stored_version == version));
            let mut not_before = pause.map(|(until, _)| until);
            if let (Some(at), Some(until)) = (due_at, not_before) {
                due_at = Some(at.max(until));
                let (paused_until, paused_reason) = pause_columns(pause);
                tx.exec(UPDATE_PAUSE, args![id, paused_until, paused_reason]).await?;
            }
            if current
                .is_none_or(|(stored_version, position)| (stored_version, position.is_some()) != (version, recovering))
            {
                (due_at, not_before) = (Some(now), None);
            }
            held.release_lease(tx, due_at, not_before).await.map(drop)
        })
        .await
}

/// Disables the endpoint and publishes an event, unless it has changed since the version that gave the reason.
pub async fn auto_disable_endpoint(
    lane: &LeasedLane,
    id: WebhookId,
    endpoint_version: i64,
    reason: &'static str,
) -> Result<()> {
    let disable = lane.tick_and_write_if_held(async move |tx| {
        if let Some(webhook) = auto_disable(tx, id, endpoint_version, reason).await? {
            events::publish(tx, &WEBHOOK_AUTO_DISABLED, id, &webhook).await?;
        }
        Ok(())
    });
    disable.await.map(drop)
}
