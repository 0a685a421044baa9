//! Events: what happened to a tenant's records, written in the transaction of the change.
//!
//! [`publish`] writes the event and runs the statements of its [`Followers`] in the same transaction. So there is no outbox
//! with a cursor that could skip: a committed event has its deliveries. The product declares the followers.

pub mod follow;
mod kind;
mod shorten;

use std::fmt::Display;

use serde::Serialize;
use serde_json::value::RawValue;

use crate::base::{Error, EventId, Result, TenantId, Timestamp, WorkflowChain};
use crate::store::{Db, Followers, NewEvent, Param, Tx, Value};

pub use kind::{EventKind, EventKindDescription, family_of};

/// The largest delivery. The data of a larger record is shortened, and the receiver fetches the rest.
pub const BODY_BYTES_MAX: usize = 256 << 10;

crate::statements! {
    INSERT = "INSERT INTO events (tenant_id, sequence, id, type, family, record_id, at, body, depth, root)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";
    /// The earliest first, so that times rise with the sequence even if this ends half-way.
    CLAMP_FUTURE_TIMESTAMPS = "UPDATE events SET at = $2 WHERE tenant_id = $1 AND sequence IN
        (SELECT e.sequence FROM events e WHERE e.tenant_id = $1 AND e.at > $2 ORDER BY e.at, e.sequence LIMIT $3)";
}

/// The identity of an event that was written.
#[derive(Clone, Copy, Debug)]
pub struct PublishedEvent {
    pub id: EventId,
    pub sequence: i64,
    pub at: Timestamp,
}

/// The JSON that endpoints receive.
#[derive(Serialize)]
struct DeliveryBody<'a> {
    id: EventId,
    r#type: &'a str,
    timestamp: Timestamp,
    tenant_id: TenantId,
    sequence: i64,
    data: &'a RawValue,
}

/// Writes an event and runs the statements of all followers. `record` is the id of the record in `data`, by which deliveries
/// are ordered.
pub async fn publish<T: Serialize>(
    tx: &mut Tx,
    kind: &EventKind<T>,
    record: impl Display,
    data: &T,
) -> Result<PublishedEvent> {
    let followers = tx.get_followers()?;
    publish_to(tx, kind, record, data, followers).await
}

/// Like [`publish`], for these followers only.
pub async fn publish_to<T: Serialize>(
    tx: &mut Tx,
    kind: &EventKind<T>,
    record: impl Display,
    data: &T,
    followers: Followers,
) -> Result<PublishedEvent> {
    write_event(tx, kind.name(), &record.to_string(), to_raw_json(data)?, followers).await
}

/// Like [`publish`], for a kind that a tenant has named itself.
pub async fn publish_named<T: Serialize>(
    tx: &mut Tx,
    name: &str,
    record: impl Display,
    data: &T,
) -> Result<PublishedEvent> {
    let followers = tx.get_followers()?;
    write_event(tx, name, &record.to_string(), to_raw_json(data)?, followers).await
}

fn to_raw_json<T: Serialize>(data: &T) -> Result<Box<RawValue>> {
    serde_json::value::to_raw_value(data).map_err(Error::internal)
}

async fn write_event(
    tx: &mut Tx,
    name: &str,
    record: &str,
    data: Box<RawValue>,
    followers: Followers,
) -> Result<PublishedEvent> {
    let at = tx.tick().await?.at;
    let sequence = tx.next_sequence().await?;
    let tenant_id = tx.tenant_id().ok_or_else(|| Error::internal("an event belongs to a tenant"))?;
    let id = EventId::new_at(tx.env(), at);
    let render = |data: &RawValue| {
        let body = DeliveryBody { id, r#type: name, timestamp: at, tenant_id, sequence, data };
        serde_json::to_string(&body).map_err(Error::internal)
    };
    let mut body = render(&data)?;
    if body.len() > BODY_BYTES_MAX {
        tracing::warn!(event = %id, bytes = body.len(), "event too large, data shortened");
        // The envelope around the data needs room, too.
        let room = BODY_BYTES_MAX.saturating_sub(body.len() - data.get().len());
        let data = serde_json::from_str(data.get()).map_err(Error::internal)?;
        let fits = |data: &serde_json::Value| serde_json::to_string(data).is_ok_and(|text| text.len() <= room);
        body = render(&to_raw_json(&shorten::shorten_data(data, record, fits))?)?;
    }
    let WorkflowChain { depth, root } = tx.actor().chain;
    let (first_values, last_values): (_, [Value; 4]) =
        ([sequence.into(), id.into(), name.into()], [at.into(), body.into(), depth.into(), root.into()]);
    let row = first_values.into_iter().chain([family_of(name).into(), record.into()]).chain(last_values).collect();
    tx.defer_exec(INSERT, row).await?;
    let event = NewEvent { id, sequence, kind: name, record, at, now: tx.env().now() };
    for follower in followers {
        if let Some((sql, bind)) = follower.only_if {
            let bound = bind(&event);
            let bound: Vec<&dyn Param> = bound.iter().map(|value| value as &dyn Param).collect();
            if !tx.is_worthwhile(sql, &bound).await? {
                continue;
            }
        }
        for (sql, bind) in follower.statements {
            tx.defer_exec(sql, bind(&event)).await?;
        }
    }
    tx.notify_after_commit();
    Ok(PublishedEvent { id, sequence, at })
}

/// Clamps event times to `now` before the tenant's clock is set back. Otherwise future events would outlive their retention,
/// and later ones would be cleaned before them. Delivery bodies keep their text.
pub async fn clamp_future_timestamps(db: &Db, now: Timestamp) -> Result<u64> {
    db.exec_in_batches(CLAMP_FUTURE_TIMESTAMPS, vec![now.into()]).await
}
