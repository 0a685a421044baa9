//! Events: what happened to a tenant's records, written in the transaction that made it happen.
//!
//! [`publish`] writes the event, and whoever follows (see [`Followers`]) writes what it makes of it, in the same transaction.
//! So there is no outbox with a cursor that could skip: an event that is committed has its deliveries. Who follows is the
//! product's to say.

mod fit;
pub mod follow;
mod kind;

use std::fmt::Display;

use serde::Serialize;
use serde_json::value::RawValue;

use crate::base::{Chain, Error, EventId, Result, TenantId, Timestamp};
use crate::store::{Db, Followers, Happening, Param, Tx, Value};

pub use kind::{Described, EventKind, family};

/// A delivery is at most this large. What is told of a larger record is shortened; its reader fetches the rest.
pub const BODY_BYTES_MAX: usize = 256 << 10;

crate::statements! {
    INSERT = "INSERT INTO events (tenant_id, sequence, id, type, family, record_id, at, body, depth, root)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";
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

/// Writes an event down and tells whoever follows. `record` is whose order counts: the record in `data`.
pub async fn publish<T: Serialize>(
    tx: &mut Tx,
    kind: &EventKind<T>,
    record: impl Display,
    data: &T,
) -> Result<Published> {
    let followers = tx.followers()?;
    publish_to(tx, kind, record, data, followers).await
}

/// Writes an event down and tells these alone.
pub async fn publish_to<T: Serialize>(
    tx: &mut Tx,
    kind: &EventKind<T>,
    record: impl Display,
    data: &T,
    followers: Followers,
) -> Result<Published> {
    write(tx, kind.name(), &record.to_string(), raw(data)?, followers).await
}

/// Writes an event down whose kind a tenant has named itself, and tells whoever follows.
pub async fn publish_named<T: Serialize>(tx: &mut Tx, name: &str, record: impl Display, data: &T) -> Result<Published> {
    let followers = tx.followers()?;
    write(tx, name, &record.to_string(), raw(data)?, followers).await
}

fn raw<T: Serialize>(data: &T) -> Result<Box<RawValue>> {
    serde_json::value::to_raw_value(data).map_err(Error::internal)
}

async fn write(tx: &mut Tx, name: &str, record: &str, data: Box<RawValue>, followers: Followers) -> Result<Published> {
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
    let Chain { depth, root } = tx.actor().chain;
    let (known, told): (_, [Value; 4]) =
        ([sequence.into(), id.into(), name.into()], [at.into(), body.into(), depth.into(), root.into()]);
    let row = known.into_iter().chain([family(name).into(), record.into()]).chain(told).collect();
    tx.later(INSERT, row).await?;
    let event = Happening { id, sequence, kind: name, record, at, now: tx.world().now() };
    for follower in followers {
        if let Some((sql, bind)) = follower.only_if {
            let bound = bind(&event);
            let bound: Vec<&dyn Param> = bound.iter().map(|value| value as &dyn Param).collect();
            if !tx.is_worthwhile(sql, &bound).await? {
                continue;
            }
        }
        for (sql, bind) in follower.statements {
            tx.later(sql, bind(&event)).await?;
        }
    }
    tx.announce();
    Ok(Published { id, sequence, at })
}

/// Takes events out of the future, before the tenant's clock is set back: otherwise they would be kept until then and
/// longer, and those after them would be gone before them. What is delivered stays the same text.
pub async fn bring_back(db: &Db, now: Timestamp) -> Result<u64> {
    db.exec_in_steps(BRING_BACK, vec![now.into()]).await
}
