//! SQL of the delivery log, and of resends, recoveries and tests.

use std::collections::HashMap;

use feature_kit::subscription::{check_subscription, is_for_one_endpoint, matching_patterns};
use kernel::args;
use kernel::audit::{self, NewAuditEntry};
use kernel::auth::Rights;
use kernel::base::{Error, EventId, RecordId, Result, StringEnum, TenantId, Timestamp};
use kernel::events;
use kernel::jobs::lanes::{self, LeasedLane};
use kernel::store::{Db, FromRow, Row, Select, Tx, Value};

use super::super::follow::store::SINGLE_ENDPOINT;
use super::super::{WEBHOOK_LANE, WEBHOOK_TEST, WebhookId, WebhookRecovery, WebhookStatus, store as webhooks};
use super::{Delivery, DeliveryAttempt, DeliveryId, DeliveryStatus};

kernel::columns! {
    struct DeliveryColumns {
        id = "d.id", webhook_id = "d.webhook_id", event_id = "d.event_id", event_type = "d.event_type", status = "d.status",
        skipped_reason = "d.skipped_reason", next_attempt_at = "d.next_attempt_at", tries = "d.tries",
        created_at = "d.created_at", paused_until = "s.paused_until", paused_reason = "s.paused_reason",
        attempts = "d.attempts",
    }
}

kernel::columns! {
    pub struct AttemptColumns in "delivery_attempts" {
        delivery_id, at, status_code, error, response_body, address, duration_ms, timings, number,
    }
}

kernel::statements! {
    LIST = kernel::sql![
        "SELECT ",
        DeliveryColumns::LIST,
        " FROM deliveries d LEFT JOIN webhook_states s ON s.tenant_id = d.tenant_id AND s.webhook_id = d.webhook_id
        WHERE d.tenant_id = $1"
    ];
    GET = kernel::sql![LIST, " AND d.id = $2"];
    ATTEMPTS = kernel::sql![AttemptColumns::SELECT, " AND delivery_id = $2 ORDER BY number DESC LIMIT $3"];
    /// Finds the event of a delivery, if its payload is still kept.
    HAS_PAYLOAD = "SELECT e.sequence FROM events e WHERE e.tenant_id = $1 AND e.sequence =
        (SELECT d.event_sequence FROM deliveries d WHERE d.tenant_id = $1 AND d.id = $2)";
    /// The delivery is held, like any other, while an earlier event of its record is unfinished.
    RESEND = "UPDATE deliveries SET status = 'pending', skipped_reason = NULL, tries = 0, resends = resends + 1,
            next_attempt_at = CASE WHEN EXISTS (SELECT 1 FROM deliveries e WHERE e.tenant_id = $1
                AND e.webhook_id = deliveries.webhook_id AND e.record_id = deliveries.record_id
                AND e.event_sequence < deliveries.event_sequence AND e.status IN ('pending', 'delivering')) THEN NULL
                ELSE CAST($3 AS BIGINT) END,
            generation = (SELECT w.generation FROM webhooks w WHERE w.tenant_id = $1 AND w.id = deliveries.webhook_id)
        WHERE tenant_id = $1 AND id = $2";
    /// For a delivery that was created while the endpoint was unordered.
    FILL_RECORD = "UPDATE deliveries SET record_id = (SELECT e.record_id FROM events e
            WHERE e.tenant_id = $1 AND e.sequence = deliveries.event_sequence)
        WHERE tenant_id = $1 AND id = $2 AND record_id IS NULL";
    RECORD = "SELECT record_id, event_sequence FROM deliveries WHERE tenant_id = $1 AND id = $2 AND record_id IS NOT NULL";
    /// Later events of a record wait while an earlier one is pending again.
    HOLD_LATER = "UPDATE deliveries /* INDEXED BY deliveries_in_order */ SET next_attempt_at = NULL
        WHERE tenant_id = $1 AND webhook_id = $2 AND record_id = $3 AND event_sequence > $4 AND status = 'pending'
            AND status IN ('pending', 'delivering')";
    NEXT_TENANT = "SELECT MIN(tenant_id) FROM webhooks WHERE tenant_id > $1";
    CLEAN_ATTEMPTS = "DELETE FROM delivery_attempts WHERE tenant_id = $1 AND delivery_id IN
        (SELECT d.id FROM deliveries d WHERE d.tenant_id = $1 AND d.id < $2 AND d.status NOT IN ('pending', 'delivering')
            ORDER BY d.id LIMIT $3)";
    /// Unfinished deliveries stay, however old they are.
    CLEAN = "DELETE FROM deliveries WHERE tenant_id = $1 AND id IN
        (SELECT d.id FROM deliveries d WHERE d.tenant_id = $1 AND d.id < $2 AND d.status NOT IN ('pending', 'delivering')
            ORDER BY d.id LIMIT $3)";
    CLEAN_WEBHOOKS = "DELETE FROM webhooks WHERE tenant_id = $1 AND deleted_at < $2 AND NOT EXISTS
        (SELECT 1 FROM lanes l WHERE l.kind = 'webhook' AND l.tenant_id = $1 AND l.key = webhooks.id)";
    WAITING = "SELECT COUNT(*) FROM (SELECT 1 AS one FROM deliveries WHERE status = 'pending' LIMIT $1) counted";
    FIRST_SINCE = "SELECT sequence FROM events WHERE tenant_id = $1 AND at >= $2 ORDER BY at, sequence LIMIT 1";
    LAST_BEFORE = "SELECT sequence FROM events WHERE tenant_id = $1 AND at < $2 ORDER BY at DESC, sequence DESC LIMIT 1";
    RUNNING = "SELECT since FROM webhook_recoveries WHERE tenant_id = $1 AND webhook_id = $2 AND finished_at IS NULL";
    RECOVER = "INSERT INTO webhook_recoveries (tenant_id, webhook_id, since, until, position, through, examined, queued,
            started_at)
        VALUES ($1, $2, $3, $4, $5, $6, 0, 0, $7)
        ON CONFLICT (tenant_id, webhook_id) DO UPDATE SET since = $3, until = $4, position = $5, through = $6, examined = 0,
            queued = 0, started_at = $7, finished_at = NULL, cancelled = FALSE";
    COUNT_DUE = "SELECT COUNT(*) FROM (SELECT 1 AS one FROM deliveries /* INDEXED BY deliveries_due */
        WHERE tenant_id = $1 AND webhook_id = $2 AND status = 'pending' AND next_attempt_at <= $3 LIMIT $4) counted";
    RECOVERY = "SELECT position, through FROM webhook_recoveries
        WHERE tenant_id = $1 AND webhook_id = $2 AND finished_at IS NULL";
    RECOVERABLE = "SELECT sequence, id, type, record_id, at FROM events
        WHERE tenant_id = $1 AND sequence > $2 AND sequence <= $3 ORDER BY sequence LIMIT $4";
    /// A delivery that succeeded, is due or is being sent stays as it is; so does one that is held for order, which follows
    /// the event before it. One that waits for its next attempt is due now.
    REQUEUE = "INSERT INTO deliveries (tenant_id, id, webhook_id, event_sequence, event_id, event_type, record_id, status,
            generation, next_attempt_at, tries, attempts, created_at)
        SELECT w.tenant_id, 'dlv_' || substr($3, 5, 22) || w.code, w.id, $4, $3, $5,
            CASE WHEN w.ordered THEN CAST($6 AS TEXT) END, 'pending', w.generation,
            CASE WHEN w.ordered AND EXISTS (SELECT 1 FROM deliveries e WHERE e.tenant_id = $1 AND e.webhook_id = w.id
                AND e.record_id = $6 AND e.event_sequence < $4 AND e.status IN ('pending', 'delivering')) THEN NULL
                ELSE CAST($7 AS BIGINT) END,
            0, 0, CAST($8 AS BIGINT)
        FROM webhooks w WHERE w.tenant_id = $1 AND w.id = $2 AND w.status = 'enabled' AND w.deleted_at IS NULL
        ON CONFLICT (tenant_id, id) DO UPDATE SET status = 'pending', skipped_reason = NULL, tries = 0,
            next_attempt_at = excluded.next_attempt_at, generation = excluded.generation, record_id = excluded.record_id
        WHERE deliveries.succeeded_at IS NULL AND (deliveries.status IN ('skipped', 'failed')
            OR (deliveries.status = 'pending' AND deliveries.next_attempt_at > $7))";
    RECOVERED = "UPDATE webhook_recoveries SET position = $3, examined = examined + $4, queued = queued + $5, finished_at = $6
        WHERE tenant_id = $1 AND webhook_id = $2";
}

pub(super) struct StoredDelivery {
    pub record: Delivery,
    tries: i64,
    paused_until: Option<Timestamp>,
    paused_reason: Option<String>,
    attempts: i64,
}

impl FromRow for StoredDelivery {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        const AT: DeliveryColumns<usize> = DeliveryColumns::AT;
        let record = kernel::read_record!(row, DeliveryColumns => Delivery {
            id, webhook_id, event_id, event_type, skipped_reason, next_attempt_at, created_at;
            status: DeliveryStatus::from_stored(&row.get::<String>(AT.status)?)?,
            waiting_for: None,
            attempts: Vec::new(),
        });
        Ok(kernel::read_record!(row, DeliveryColumns => StoredDelivery {
            tries, paused_until, paused_reason, attempts;
            record,
        }))
    }
}

impl StoredDelivery {
    /// The delivery as shown at `now`, with the reason why it is not sent yet.
    fn into_delivery(mut self, now: Timestamp) -> Delivery {
        let record = &mut self.record;
        if record.status != DeliveryStatus::Pending {
            record.next_attempt_at = None;
            return self.record;
        }
        let paused = self.paused_until.filter(|until| *until > now);
        let waiting_for = match (record.next_attempt_at, paused) {
            (None, _) => "earlier_event",
            (Some(at), Some(until)) if until > at => {
                record.next_attempt_at = Some(until);
                self.paused_reason.as_deref().unwrap_or("failing")
            }
            (Some(at), _) if at > now || self.tries > 0 => "retry",
            _ => "turn",
        };
        record.waiting_for = Some(waiting_for.to_owned());
        self.record
    }
}

struct StoredAttempt {
    delivery_id: DeliveryId,
    number: i64,
    attempt: DeliveryAttempt,
}

impl FromRow for StoredAttempt {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        const AT: AttemptColumns<usize> = AttemptColumns::AT;
        let attempt = kernel::read_record!(row, AttemptColumns => DeliveryAttempt {
            at, status_code, error, response_body, address, duration_ms;
            timings: row.get_json(AT.timings)?,
        });
        Ok(StoredAttempt { delivery_id: row.get(AT.delivery_id)?, number: row.get(AT.number)?, attempt })
    }
}

/// The lowest (`'0'`) or highest (`'z'`) id that a delivery of this event can have.
pub(super) fn delivery_id_bound(event: EventId, digit: char) -> String {
    let text = event.to_string();
    let shared = text.strip_prefix(EventId::PREFIX).and_then(|rest| rest.get(..rest.len() - 4)).unwrap_or_default();
    format!("{}{shared}{}", DeliveryId::PREFIX, String::from(digit).repeat(4))
}

pub async fn get_delivery(db: &Db, id: DeliveryId) -> Result<Delivery> {
    let stored = vec![db.get_one::<StoredDelivery>(GET, args![id]).await?];
    attach_attempts(db, stored).await?.pop().ok_or_else(Error::not_found)
}

/// How many attempts of one delivery are shown. A schedule has ten; a delivery that is resent often has more.
pub const ATTEMPTS_SHOWN: usize = 100;

/// Loads the attempts of these deliveries.
pub(super) async fn attach_attempts(db: &Db, stored: Vec<StoredDelivery>) -> Result<Vec<Delivery>> {
    let attempts = match attempts_query(&stored) {
        Some(select) => db.select(&select).await?,
        None => Vec::new(),
    };
    Ok(assemble_deliveries(stored, attempts, db.env().now()))
}

/// Selects the newest attempts of each delivery; `None` when none has been attempted.
fn attempts_query(stored: &[StoredDelivery]) -> Option<Select> {
    let arm = |id: DeliveryId, rows: usize| vec![id.into(), Value::Int(rows as i64)];
    let attempted: Vec<DeliveryId> =
        stored.iter().filter(|delivery| delivery.attempts > 0).map(|delivery| delivery.record.id).collect();
    let arms = attempted.iter().map(|id| arm(*id, ATTEMPTS_SHOWN)).collect();
    Some(Select::union_arms(ATTEMPTS, arms, arm(*attempted.first()?, 0)))
}

fn assemble_deliveries(stored: Vec<StoredDelivery>, attempts: Vec<StoredAttempt>, now: Timestamp) -> Vec<Delivery> {
    let mut by_delivery: HashMap<DeliveryId, Vec<(i64, DeliveryAttempt)>> = HashMap::new();
    for StoredAttempt { delivery_id, number, attempt } in attempts {
        by_delivery.entry(delivery_id).or_default().push((number, attempt));
    }
    let with_attempts = |delivery: StoredDelivery| {
        let mut attempts = by_delivery.remove(&delivery.record.id).unwrap_or_default();
        attempts.sort_by_key(|(number, _)| *number);
        Delivery { attempts: attempts.into_iter().map(|(_, attempt)| attempt).collect(), ..delivery.into_delivery(now) }
    };
    stored.into_iter().map(with_attempts).collect()
}

async fn read_delivery(tx: &mut Tx, id: DeliveryId) -> Result<Delivery> {
    let now = tx.env().now();
    let stored = vec![tx.get_one::<StoredDelivery>(GET, args![id]).await?];
    let attempts = match attempts_query(&stored) {
        Some(select) => tx.select(&select).await?,
        None => Vec::new(),
    };
    assemble_deliveries(stored, attempts, now).pop().ok_or_else(Error::not_found)
}

/// The next tenant, by id, that has or had endpoints.
pub async fn find_tenant_after(db: &Db, after: Option<TenantId>) -> Result<Option<TenantId>> {
    let after = after.map(|tenant| tenant.to_string()).unwrap_or_default();
    db.get_one(NEXT_TENANT, args![after]).await
}

/// Rows that one cleaning step deletes.
const CLEAN_ROWS: i64 = 500;

/// Deletes the oldest deliveries of a tenant whose events were before this time. Returns whether there may be more.
pub async fn clean_deliveries(tx: &mut Tx, before: Timestamp) -> Result<bool> {
    let first_kept = DeliveryId::first_at(before);
    tx.exec(CLEAN_ATTEMPTS, args![first_kept, CLEAN_ROWS]).await?;
    let removed = tx.exec(CLEAN, args![first_kept, CLEAN_ROWS]).await?;
    let more = removed == CLEAN_ROWS.unsigned_abs();
    // Endpoints are deleted last, because a tenant without endpoints is no longer cleaned.
    if !more {
        tx.exec(CLEAN_WEBHOOKS, args![before]).await?;
    }
    Ok(more)
}

/// Counts the pending deliveries of all tenants, up to `max`.
pub async fn count_waiting(db: &Db, max: i64) -> Result<i64> {
    let counted: Vec<i64> = db.scan(&Select::for_system(WAITING).bind_value(max)).await?;
    Ok(counted.first().copied().unwrap_or(0))
}

/// The endpoint, or 409 if it is disabled.
async fn require_enabled(tx: &mut Tx, id: WebhookId) -> Result<super::super::Webhook> {
    let now = tx.tick().await?.at;
    let webhook = webhooks::read_webhook(tx, id).await?.into_webhook(now);
    match webhook.status {
        WebhookStatus::Enabled => Ok(webhook),
        _ => Err(Error::conflict("The endpoint is disabled. Enable it first, with PUT and enabled: true.")),
    }
}

/// Makes a delivery pending again, due now and with the whole retry schedule. An attempt that is just under way does not
/// count as the resend: `save_outcomes` sees that `resends` has risen.
pub async fn resend_delivery(tx: &mut Tx, rights: &Rights, id: DeliveryId) -> Result<Delivery> {
    let delivery = read_delivery(tx, id).await?;
    let webhook = match require_enabled(tx, delivery.webhook_id).await {
        Err(error) if error.code() == kernel::base::Code::NotFound => {
            return Err(Error::conflict("The endpoint of this delivery has been deleted."));
        }
        result => result?,
    };
    // The endpoint's events may have changed since, and with them what its readers may see.
    if !is_subscribed(&webhook.events, &delivery.event_type) && delivery.event_type != WEBHOOK_TEST.name() {
        check_subscription(rights, std::slice::from_ref(&delivery.event_type))?;
    }
    if delivery.status == DeliveryStatus::Delivering {
        return Err(Error::conflict("An attempt of this delivery is under way. Wait until it has finished."));
    }
    if tx.find::<i64>(HAS_PAYLOAD, args![id]).await?.is_none() {
        return Err(Error::conflict("The payload is no longer kept, so it cannot be sent again."));
    }
    let lane = delivery.webhook_id.to_string();
    lanes::wake_lane(tx, WEBHOOK_LANE, &lane).await?;
    let due = tx.env().now();
    if webhook.ordered {
        tx.defer_exec(FILL_RECORD, vec![id.into()]).await?;
    }
    tx.exec(RESEND, args![id, due]).await?;
    if let Some((record, sequence)) = tx.find::<(String, i64)>(RECORD, args![id]).await? {
        hold_later_events(tx, delivery.webhook_id, &record, sequence).await?;
    }
    audit::record_entry(tx, NewAuditEntry::new("webhook.resend", "delivery", id)).await?;
    read_delivery(tx, id).await
}

/// Holds the later events of a record whose earlier event is pending again.
pub async fn hold_later_events(tx: &mut Tx, webhook: WebhookId, record: &str, sequence: i64) -> Result<()> {
    tx.exec(HOLD_LATER, args![webhook, record, sequence]).await.map(drop)
}

/// Starts a recovery; the sender goes through the window a few events at a time.
pub async fn start_recovery(
    tx: &mut Tx,
    webhook: WebhookId,
    since: Timestamp,
    until: Option<Timestamp>,
) -> Result<WebhookRecovery> {
    let now = tx.tick().await?.at;
    require_enabled(tx, webhook).await?;
    if tx.find::<Timestamp>(RUNNING, args![webhook]).await?.is_some() {
        return Err(Error::conflict("A recovery of this endpoint is under way; its record shows how far it has come."));
    }
    let until = until.map_or(now.plus_ms(1), |until| until.min(now.plus_ms(1)));
    // Event times rise with the sequence, so a time window is a range of sequences.
    let first: Option<i64> = tx.find(FIRST_SINCE, args![since]).await?;
    let through: Option<i64> = tx.find(LAST_BEFORE, args![until]).await?;
    let (position, through) = (first.map_or(i64::MAX, |first| first - 1), through.unwrap_or(0));
    lanes::wake_lane(tx, WEBHOOK_LANE, &webhook.to_string()).await?;
    tx.exec(RECOVER, args![webhook, since, until, position, through, now]).await?;
    audit::record_entry(tx, NewAuditEntry::new("webhook.recover", "webhook", webhook)).await?;
    let recovery = webhooks::read_webhook(tx, webhook).await?.into_webhook(now).recovery;
    recovery.ok_or_else(|| Error::internal("a recovery that was just written is missing"))
}

/// A recovery pauses while this many deliveries are due.
const RECOVERY_AHEAD: i64 = 100;
/// Events that one recovery step examines.
const RECOVERY_STEP: i64 = 100;

/// Whether few enough deliveries are due for a recovery to add more. Deliveries that wait for a retry do not count: they may
/// wait for hours.
pub async fn can_recover(tx: &mut Tx, id: WebhookId) -> Result<bool> {
    let now = tx.env().now();
    let due: i64 = tx.get_one(COUNT_DUE, args![id, now, RECOVERY_AHEAD]).await?;
    Ok(due < RECOVERY_AHEAD)
}

/// The result of one recovery step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecoveryProgress {
    /// Enough deliveries are due already.
    Full,
    More,
    Done,
}

/// Runs one recovery step: makes the next events of the window due that match and have not been delivered. `None` when the
/// lease is lost.
pub async fn run_recovery_step(
    lane: &LeasedLane,
    id: WebhookId,
    patterns: Vec<String>,
    ordered: bool,
) -> Result<Option<RecoveryProgress>> {
    let step = lane.write_if_held(async move |tx| {
        let running: Option<(i64, i64)> = tx.find(RECOVERY, args![id]).await?;
        let Some((position, through)) = running else { return Ok(RecoveryProgress::Done) };
        if !can_recover(tx, id).await? {
            return Ok(RecoveryProgress::Full);
        }
        let now = tx.env().now();
        let window = args![position, through, RECOVERY_STEP];
        let events: Vec<(i64, EventId, String, String, Timestamp)> = tx.list(RECOVERABLE, window).await?;
        let (mut last, mut queued) = (position, 0);
        for (sequence, event, kind, record, at) in &events {
            last = *sequence;
            if !is_subscribed(&patterns, kind) {
                continue;
            }
            let requeued = tx.exec(REQUEUE, args![id, event, *sequence, kind, record, now, *at]).await?;
            if ordered && requeued > 0 {
                hold_later_events(tx, id, record, *sequence).await?;
            }
            queued += requeued;
        }
        let done = (events.len() as i64) < RECOVERY_STEP;
        let finished_at = done.then_some(now);
        let (examined, queued) = (events.len() as i64, queued.cast_signed());
        tx.exec(RECOVERED, args![id, last, examined, queued, finished_at]).await?;
        Ok(if done { RecoveryProgress::Done } else { RecoveryProgress::More })
    });
    step.await
}

/// Whether an endpoint with these patterns receives events of this kind.
fn is_subscribed(subscribed: &[String], kind: &str) -> bool {
    !is_for_one_endpoint(kind) && matching_patterns(kind).iter().any(|pattern| subscribed.contains(pattern))
}

/// Sends a test event to one endpoint.
pub async fn send_test(tx: &mut Tx, id: WebhookId) -> Result<Delivery> {
    let webhook = require_enabled(tx, id).await?;
    let published = events::publish_to(tx, &WEBHOOK_TEST, id, &webhook, &[SINGLE_ENDPOINT]).await?;
    audit::record_entry(tx, NewAuditEntry::new("webhook.test", "webhook", id)).await?;
    let select = Select::new(LIST)
        .where_in("d.webhook_id", [id])
        .append_sql(
            "AND d.id >= ? AND d.id <= ?",
            [delivery_id_bound(published.id, '0').into(), delivery_id_bound(published.id, 'z').into()],
        )
        .limit(1);
    let delivery = tx.select::<StoredDelivery>(&select).await?.into_iter().next();
    let delivery = delivery.ok_or_else(|| Error::internal("a test made no delivery"))?;
    Ok(delivery.into_delivery(published.at))
}
