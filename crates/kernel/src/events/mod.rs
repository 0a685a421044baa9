//! Events: what happened to a tenant's records, written in the transaction that made it happen.
//!
//! [`publish`] writes the event and, by one `INSERT … SELECT` over the subscriptions, one delivery for every endpoint
//! that wants it. So there is no outbox with a cursor that could skip: an event that is committed has its deliveries.
//! Sending them is the product's work; see its webhooks.

mod fit;
mod kind;

use std::fmt::Display;

use serde::Serialize;
use serde_json::value::RawValue;

use crate::base::{Error, EventId, Result, TenantId, Timestamp};
use crate::store::{Db, Tx, Value};

pub use kind::{Described, EventKind, family};

/// The kind of the lanes on which webhooks are sent.
pub const WEBHOOK_LANE: &str = "webhook";

/// A delivery is at most this large. What is told of a larger record is shortened; its reader fetches the rest.
pub const BODY_BYTES_MAX: usize = 256 << 10;

/// The endpoints that an event's three patterns match, numbered from here.
macro_rules! subscribers {
    ($first:literal, $second:literal, $third:literal) => {
        concat!(
            "(SELECT s.webhook_id FROM webhook_subscriptions s WHERE s.tenant_id = $1 AND s.pattern IN ($",
            $first,
            ", $",
            $second,
            ", $",
            $third,
            "))"
        )
    };
}

/// Before the deliveries, and whether or not the lane is due already: the lane's row stays locked until the commit, so
/// whoever settles the lane at the same time sees either none of this or all of it.
macro_rules! wake {
    ($which:expr) => {
        concat!(
            "UPDATE lanes SET due_at = CASE
                WHEN not_before > $2 AND (due_at IS NULL OR due_at > not_before) THEN not_before
                WHEN not_before > $2 THEN due_at
                WHEN due_at IS NULL OR due_at > $2 THEN $2
                ELSE due_at END
            WHERE kind = 'webhook' AND tenant_id = $1 AND key IN ",
            $which
        )
    };
}

/// The id of a delivery is that of its event with the endpoint's own four digits at the end.
macro_rules! deliver {
    ($which:expr) => {
        concat!(
            "INSERT INTO deliveries (tenant_id, id, webhook_id, event_sequence, event_id, event_type, record_id, status,
                skipped_reason, generation, next_attempt_at, tries, attempts, created_at)
            SELECT w.tenant_id, 'dlv_' || substr($2, 5, 22) || w.code, w.id, $3, $2, $4,
                CASE WHEN w.ordered THEN CAST($5 AS TEXT) END,
                CASE WHEN w.status = 'enabled' THEN 'pending' ELSE 'skipped' END,
                CASE WHEN w.status <> 'enabled' THEN w.status END,
                w.generation,
                CASE WHEN w.status <> 'enabled' THEN NULL
                    WHEN w.ordered AND EXISTS (SELECT 1 FROM deliveries e WHERE e.tenant_id = $1 AND e.webhook_id = w.id
                        AND e.record_id = $5 AND e.event_sequence < $3 AND e.status IN ('pending', 'delivering')) THEN NULL
                    ELSE CAST($6 AS BIGINT) END,
                0, 0, $7
            FROM webhooks w WHERE w.tenant_id = $1 AND w.id IN ",
            $which
        )
    };
}

crate::statements! {
    INSERT = "INSERT INTO events (tenant_id, sequence, id, type, family, record_id, at, body)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";
    WAKE = wake!(concat!(
        "(SELECT w.id FROM webhooks w WHERE w.tenant_id = $1 AND w.status = 'enabled' AND w.id IN ",
        subscribers!("3", "4", "5"),
        ")"
    ));
    WAKE_ONE = wake!("($3)");
    DELIVER = deliver!(subscribers!("8", "9", "10"));
    DELIVER_ONE = deliver!("($8)");
    /// The earliest first: times rise with the sequence, also if this ends half-way.
    BRING_BACK = "UPDATE events SET at = $2 WHERE tenant_id = $1 AND sequence IN
        (SELECT e.sequence FROM events e WHERE e.tenant_id = $1 AND e.at > $2 ORDER BY e.at, e.sequence LIMIT $3)";
}

/// An event as it is written down.
#[derive(Clone, Copy, Debug)]
pub struct Published {
    pub id: EventId,
    pub sequence: i64,
    pub at: Timestamp,
}

/// What is delivered.
#[derive(Serialize)]
struct Body<'a> {
    id: EventId,
    r#type: &'a str,
    timestamp: Timestamp,
    tenant_id: TenantId,
    sequence: i64,
    data: &'a RawValue,
}

/// Tells every endpoint that wants to know. `record` is whose order counts: the record in `data`.
pub async fn publish<T: Serialize>(
    tx: &mut Tx,
    kind: &EventKind<T>,
    record: impl Display,
    data: &T,
) -> Result<Published> {
    write(tx, kind.name(), &record.to_string(), raw(data)?, None).await
}

/// Tells this endpoint alone, whatever it or others have subscribed to.
pub async fn publish_to<T: Serialize>(
    tx: &mut Tx,
    kind: &EventKind<T>,
    record: impl Display,
    data: &T,
    webhook: impl Display,
) -> Result<Published> {
    write(tx, kind.name(), &record.to_string(), raw(data)?, Some(webhook.to_string())).await
}

fn raw<T: Serialize>(data: &T) -> Result<Box<RawValue>> {
    serde_json::value::to_raw_value(data).map_err(Error::internal)
}

/// Whether events of this kind go to one endpoint alone, and so to no subscriber.
pub fn is_for_one(name: &str) -> bool {
    name == kind::TEST
}

/// Which patterns an event matches: its kind, its family, and everything but tests.
pub fn patterns(name: &str) -> [String; 3] {
    let everything = if is_for_one(name) { name } else { "*" };
    [name.to_owned(), format!("{}.*", family(name)), everything.to_owned()]
}

async fn write(tx: &mut Tx, name: &str, record: &str, data: Box<RawValue>, to: Option<String>) -> Result<Published> {
    let at = tx.tick().await?.at;
    let sequence = tx.next_sequence().await?;
    let tenant_id = tx.tenant_id().ok_or_else(|| Error::internal("an event belongs to a tenant"))?;
    let id = EventId::new_at(tx.world(), at);
    let render = |data: &RawValue| {
        let body = Body { id, r#type: name, timestamp: at, tenant_id, sequence, data };
        serde_json::to_string(&body).map_err(Error::internal)
    };
    let mut body = render(&data)?;
    if body.len() > BODY_BYTES_MAX {
        tracing::warn!(event = %id, bytes = body.len(), "an event is too large and is told shortened");
        // With room for what stands around the data.
        let room = BODY_BYTES_MAX.saturating_sub(body.len() - data.get().len());
        let data = serde_json::from_str(data.get()).map_err(Error::internal)?;
        let fits = |data: &serde_json::Value| serde_json::to_string(data).is_ok_and(|text| text.len() <= room);
        body = render(&raw(&fit::shorten(data, record, fits))?)?;
    }
    let row = vec![sequence.into(), id.into(), name.into(), family(name).into(), record.into(), at.into(), body.into()];
    tx.later(INSERT, row).await?;
    // Due by this node's clock: the tenant's is at least as late, and ahead of it for as long as another node once was.
    let now = tx.world().now();
    let event: [Value; 6] = [id.into(), sequence.into(), name.into(), record.into(), now.into(), at.into()];
    if let Some(webhook) = to {
        tx.later(WAKE_ONE, vec![now.into(), webhook.clone().into()]).await?;
        tx.later(DELIVER_ONE, event.into_iter().chain([webhook.into()]).collect()).await?;
    } else {
        let patterns: [Value; 3] = patterns(name).map(Into::into);
        tx.later(WAKE, [now.into()].into_iter().chain(patterns.clone()).collect()).await?;
        tx.later(DELIVER, event.into_iter().chain(patterns).collect()).await?;
    }
    tx.announce();
    Ok(Published { id, sequence, at })
}

/// Takes events out of the future, before the tenant's clock is set back: otherwise they would be kept until then and
/// longer, and those after them would be gone before them. What is delivered stays the same text.
pub async fn bring_back(db: &Db, now: Timestamp) -> Result<u64> {
    db.exec_in_steps(BRING_BACK, vec![now.into()]).await
}
