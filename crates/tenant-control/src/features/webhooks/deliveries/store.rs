//! SQL of the log of deliveries, and of sending again.

use std::collections::HashMap;

use kernel::args;
use kernel::audit::{self, Entry};
use kernel::base::{DeliveryId, Error, EventId, Result, TenantId, Timestamp, WebhookId};
use kernel::events::{self, WEBHOOK_LANE};
use kernel::jobs::lanes;
use kernel::store::{Db, Direction, FromRow, Row, Select, Tx, Value};

use super::super::{Recovery, Status as WebhookStatus, WEBHOOK_TEST, store as webhooks};
use super::{Attempt, Delivery, Status};

macro_rules! columns {
    ($more:literal) => {
        concat!(
            "SELECT d.id, d.webhook_id, d.event_id, d.event_type, d.status, d.skipped_reason, d.next_attempt_at, d.tries,
                d.created_at, s.paused_until, s.paused_reason
            FROM deliveries d LEFT JOIN webhook_states s ON s.tenant_id = d.tenant_id AND s.webhook_id = d.webhook_id
            WHERE d.tenant_id = $1",
            $more
        )
    };
}

kernel::statements! {
    LIST = columns!("");
    GET = columns!(" AND d.id = $2");
    ATTEMPTS = "SELECT delivery_id, at, status_code, error, response_body, address, duration_ms, timings
        FROM delivery_attempts WHERE tenant_id = $1";
    /// Whether what was sent is still kept.
    HAS_PAYLOAD = "SELECT e.sequence FROM deliveries d JOIN events e ON e.tenant_id = d.tenant_id AND e.sequence = d.event_sequence
        WHERE d.tenant_id = $1 AND d.id = $2";
    RESEND = "UPDATE deliveries SET status = 'pending', skipped_reason = NULL, tries = 0, next_attempt_at = $3,
            generation = (SELECT w.generation FROM webhooks w WHERE w.tenant_id = $1 AND w.id = deliveries.webhook_id)
        WHERE tenant_id = $1 AND id = $2";
    NEXT_TENANT = "SELECT MIN(tenant_id) FROM webhooks WHERE tenant_id > $1";
    CLEAN_ATTEMPTS = "DELETE FROM delivery_attempts WHERE tenant_id = $1 AND delivery_id IN
        (SELECT d.id FROM deliveries d WHERE d.tenant_id = $1 AND d.id < $2 ORDER BY d.id LIMIT $3)";
    CLEAN = "DELETE FROM deliveries WHERE tenant_id = $1 AND id IN
        (SELECT d.id FROM deliveries d WHERE d.tenant_id = $1 AND d.id < $2 ORDER BY d.id LIMIT $3)";
    CLEAN_WEBHOOKS = "DELETE FROM webhooks WHERE tenant_id = $1 AND deleted_at < $2 AND NOT EXISTS
        (SELECT 1 FROM lanes l WHERE l.kind = 'webhook' AND l.tenant_id = $1 AND l.key = webhooks.id)";
    WAITING = "SELECT COUNT(*) FROM deliveries WHERE status = 'pending'";
    FIRST_SINCE = "SELECT MIN(sequence) FROM events WHERE tenant_id = $1 AND at >= $2";
    RUNNING = "SELECT since FROM webhook_recoveries WHERE tenant_id = $1 AND webhook_id = $2 AND finished_at IS NULL";
    RECOVER = "INSERT INTO webhook_recoveries (tenant_id, webhook_id, since, until, position, examined, queued, started_at)
        VALUES ($1, $2, $3, $4, $5, 0, 0, $6)
        ON CONFLICT (tenant_id, webhook_id) DO UPDATE SET since = $3, until = $4, position = $5, examined = 0, queued = 0,
            started_at = $6, finished_at = NULL";
}

struct StoredDelivery {
    record: Delivery,
    tries: i64,
    paused_until: Option<Timestamp>,
    paused_reason: Option<String>,
}

impl FromRow for StoredDelivery {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        let status: String = row.get(4)?;
        let record = Delivery {
            id: row.get(0)?,
            webhook_id: row.get(1)?,
            event_id: row.get(2)?,
            event_type: row.get(3)?,
            status: Status::parse(&status).ok_or_else(|| Error::internal(format!("unknown status {status:?}")))?,
            skipped_reason: row.get(5)?,
            waiting_for: None,
            next_attempt_at: row.get(6)?,
            attempts: Vec::new(),
            created_at: row.get(8)?,
        };
        Ok(StoredDelivery { record, tries: row.get(7)?, paused_until: row.get(9)?, paused_reason: row.get(10)? })
    }
}

impl StoredDelivery {
    /// Says why it is not sent yet, from what is known at this moment.
    fn at(mut self, now: Timestamp) -> Delivery {
        let record = &mut self.record;
        if record.status != Status::Pending {
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
    attempt: Attempt,
}

impl FromRow for StoredAttempt {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        let attempt = Attempt {
            at: row.get(1)?,
            status_code: row.get(2)?,
            error: row.get(3)?,
            response_body: row.get(4)?,
            address: row.get(5)?,
            duration_ms: row.get(6)?,
            timings: serde_json::from_str(&row.get::<String>(7)?).map_err(Error::internal)?,
        };
        Ok(StoredAttempt { delivery_id: row.get(0)?, attempt })
    }
}

/// Which deliveries are wanted; `None` is all.
#[derive(Default)]
pub struct Filter {
    pub webhook_id: Option<Vec<WebhookId>>,
    pub event_id: Option<Vec<EventId>>,
    pub event_type: Option<Vec<String>>,
    pub status: Option<Vec<Status>>,
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
}

/// Newest first, which their ids tell.
pub async fn list(db: &Db, filter: &Filter, after: Option<Vec<Value>>, limit: usize) -> Result<Vec<Delivery>> {
    let mut select = Select::new(LIST);
    if let Some(any) = &filter.webhook_id {
        select = select.any("d.webhook_id", any.iter().copied());
    }
    if let Some(any) = &filter.event_id {
        select = select.any("d.event_id", any.iter().copied());
        // The id of a delivery starts like that of its event, and the key is ordered by it.
        if let (Some(first), Some(last)) = (any.iter().min(), any.iter().max()) {
            select = select.raw("AND d.id >= ? AND d.id <= ?", [bound(*first, '0').into(), bound(*last, 'z').into()]);
        }
    }
    if let Some(any) = &filter.event_type {
        select = select.any("d.event_type", any.iter().map(String::as_str));
    }
    if let Some(any) = &filter.status {
        select = select.any("d.status", any.iter().map(|status| status.as_str()));
        // Said in so many words, the index of what has not succeeded can be used.
        if !any.contains(&Status::Succeeded) {
            select = select.raw("AND d.status <> 'succeeded'", []);
        }
    }
    if let Some(since) = filter.since {
        select = select.raw("AND d.id >= ?", [DeliveryId::first_at(since).into()]);
    }
    if let Some(until) = filter.until {
        select = select.raw("AND d.id < ?", [DeliveryId::first_at(until).into()]);
    }
    let order = ["d.id"];
    if let Some(position) = after {
        select = select.after(&order, Direction::Descending, position);
    }
    let rows: Vec<StoredDelivery> = db.scan(&select.order(&order, Direction::Descending).limit(limit)).await?;
    let now = db.world().now();
    let mut deliveries: Vec<Delivery> = rows.into_iter().map(|row| row.at(now)).collect();
    add_attempts(db, &mut deliveries).await?;
    Ok(deliveries)
}

/// The first or last id that a delivery of this event can have.
fn bound(event: EventId, digit: char) -> String {
    let text = event.to_string();
    let shared = text.strip_prefix(EventId::PREFIX).and_then(|rest| rest.get(..rest.len() - 4)).unwrap_or_default();
    format!("{}{shared}{}", DeliveryId::PREFIX, String::from(digit).repeat(4))
}

pub async fn get(db: &Db, id: DeliveryId) -> Result<Delivery> {
    let mut found = [db.one::<StoredDelivery>(GET, args![id]).await?.at(db.world().now())];
    add_attempts(db, &mut found).await?;
    let [delivery] = found;
    Ok(delivery)
}

/// Attempts of one page that are read at most: ten and more each, with some that were sent again and again.
const ATTEMPTS_MAX: usize = 20_000;

async fn add_attempts(db: &Db, deliveries: &mut [Delivery]) -> Result<()> {
    let select = attempts_of(deliveries);
    file(deliveries, db.select(&select).await?);
    Ok(())
}

fn attempts_of(deliveries: &[Delivery]) -> Select {
    Select::new(ATTEMPTS)
        .any("delivery_id", deliveries.iter().map(|delivery| delivery.id))
        .order(&["delivery_id", "number"], Direction::Ascending)
        .limit(ATTEMPTS_MAX)
}

fn file(deliveries: &mut [Delivery], attempts: Vec<StoredAttempt>) {
    let mut by_delivery: HashMap<DeliveryId, Vec<Attempt>> = HashMap::new();
    for StoredAttempt { delivery_id, attempt } in attempts {
        by_delivery.entry(delivery_id).or_default().push(attempt);
    }
    for delivery in deliveries {
        delivery.attempts = by_delivery.remove(&delivery.id).unwrap_or_default();
    }
}

async fn read(tx: &mut Tx, id: DeliveryId) -> Result<Delivery> {
    let now = tx.world().now();
    let mut found = [tx.one::<StoredDelivery>(GET, args![id]).await?.at(now)];
    let select = attempts_of(&found);
    file(&mut found, tx.select(&select).await?);
    let [delivery] = found;
    Ok(delivery)
}

/// The next tenant that has or had endpoints, in the order of their ids.
pub async fn tenant_after(db: &Db, after: Option<TenantId>) -> Result<Option<TenantId>> {
    let after = after.map(|tenant| tenant.to_string()).unwrap_or_default();
    db.one(NEXT_TENANT, args![after]).await
}

/// Rows of one step of cleaning.
const CLEAN_ROWS: i64 = 500;

/// Removes the oldest deliveries of a tenant that are of events before this moment. Whether there may be more.
pub async fn clean(tx: &mut Tx, before: Timestamp) -> Result<bool> {
    let first_kept = DeliveryId::first_at(before);
    tx.exec(CLEAN_ATTEMPTS, args![first_kept, CLEAN_ROWS]).await?;
    let removed = tx.exec(CLEAN, args![first_kept, CLEAN_ROWS]).await?;
    tx.exec(CLEAN_WEBHOOKS, args![before]).await?;
    Ok(removed == CLEAN_ROWS.unsigned_abs())
}

/// How many deliveries of all tenants wait.
pub async fn waiting(db: &Db) -> Result<i64> {
    let counted: Vec<i64> = db.scan(&Select::system(WAITING)).await?;
    Ok(counted.first().copied().unwrap_or(0))
}

/// Only an endpoint that is switched on can be sent to.
async fn require_enabled(tx: &mut Tx, id: WebhookId) -> Result<super::super::Webhook> {
    let now = tx.tick().await?.at;
    let webhook = webhooks::read(tx, id).await?.at(now);
    match webhook.status {
        WebhookStatus::Enabled => Ok(webhook),
        _ => Err(Error::conflict("The endpoint is disabled. Enable it first, with PUT and enabled: true.")),
    }
}

/// Makes a delivery pending again, due now, with the whole schedule before it.
pub async fn resend(tx: &mut Tx, id: DeliveryId) -> Result<Delivery> {
    let now = tx.tick().await?.at;
    let delivery = read(tx, id).await?;
    match require_enabled(tx, delivery.webhook_id).await {
        Err(error) if error.code() == kernel::base::Code::NotFound => {
            return Err(Error::conflict("The endpoint of this delivery has been deleted."));
        }
        other => other.map(drop)?,
    }
    if delivery.status == Status::Delivering {
        return Err(Error::conflict("An attempt of this delivery is under way. Wait for what becomes of it."));
    }
    if tx.find::<i64>(HAS_PAYLOAD, args![id]).await?.is_none() {
        return Err(Error::conflict("The payload is no longer kept, so it cannot be sent again."));
    }
    let lane = delivery.webhook_id.to_string();
    lanes::wake(tx, WEBHOOK_LANE, &lane, now).await?;
    tx.exec(RESEND, args![id, now]).await?;
    audit::record(tx, Entry::new("webhook.resend", "delivery", id)).await?;
    read(tx, id).await
}

/// Starts a recovery; the sender goes through the window a few events at a time.
pub async fn recover(tx: &mut Tx, webhook: WebhookId, since: Timestamp, until: Option<Timestamp>) -> Result<Recovery> {
    let now = tx.tick().await?.at;
    require_enabled(tx, webhook).await?;
    if tx.find::<Timestamp>(RUNNING, args![webhook]).await?.is_some() {
        return Err(Error::conflict("A recovery of this endpoint is under way; its record shows how far it has come."));
    }
    let until = until.map_or(now.plus(1), |until| until.min(now.plus(1)));
    let first: Option<i64> = tx.one(FIRST_SINCE, args![since]).await?;
    let position = first.map_or(i64::MAX, |first| first - 1);
    lanes::wake(tx, WEBHOOK_LANE, &webhook.to_string(), now).await?;
    tx.exec(RECOVER, args![webhook, since, until, position, now]).await?;
    audit::record(tx, Entry::new("webhook.recover", "webhook", webhook)).await?;
    let recovery = webhooks::read(tx, webhook).await?.at(now).recovery;
    recovery.ok_or_else(|| Error::internal("a recovery that was just written is missing"))
}

/// Sends a test event to one endpoint.
pub async fn test(tx: &mut Tx, id: WebhookId) -> Result<Delivery> {
    let webhook = require_enabled(tx, id).await?;
    let published = events::publish_to(tx, &WEBHOOK_TEST, id, &webhook, id).await?;
    audit::record(tx, Entry::new("webhook.test", "webhook", id)).await?;
    let select = Select::new(LIST)
        .any("d.webhook_id", [id])
        .raw("AND d.id >= ? AND d.id <= ?", [bound(published.id, '0').into(), bound(published.id, 'z').into()])
        .limit(1);
    let made = tx.select::<StoredDelivery>(&select).await?.into_iter().next();
    let made = made.ok_or_else(|| Error::internal("a test made no delivery"))?;
    Ok(made.at(published.at))
}
