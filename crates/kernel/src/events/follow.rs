//! Followers that read committed events: each has a name and a feed position, and reads in the order of the tenant's
//! sequence.
//!
//! The sequence is assigned under the tenant's clock, which stays locked until the commit. So no gap is filled later, and a
//! position never skips an event. A position is advanced in the transaction that saves the work made of the events, and only
//! from its expected value: of two readers of the same follower, one is refused. A follower without capacity does not
//! advance.
//!
//! A follower at the end of the feed has `behind = FALSE`. The first event it subscribes to sets its position just before
//! that event; earlier events are never read.

use crate::base::{EventId, Result, Timestamp, WorkflowChain};
use crate::store::{Db, FromRow, Row, Tx};

crate::statements! {
    BEGIN = "INSERT INTO followers (tenant_id, name, position, behind) VALUES ($1, $2, $3, FALSE)
        ON CONFLICT (tenant_id, name) DO UPDATE SET position = $3, behind = FALSE";
    POSITION = "SELECT position FROM followers WHERE tenant_id = $1 AND name = $2 AND behind";
    HEADS = "SELECT sequence, id, type, at, depth, root FROM events WHERE tenant_id = $1 AND sequence > $2
        ORDER BY sequence LIMIT $3";
    BODY = "SELECT body FROM events WHERE tenant_id = $1 AND sequence = $2";
    /// Not `EXISTS`: PostgreSQL would drop the order, and with it the index that finds the row immediately.
    ADVANCE = "UPDATE followers SET position = $4, behind = (SELECT e.sequence FROM events e WHERE e.tenant_id = $1
            AND e.sequence > $4 ORDER BY e.sequence LIMIT 1) IS NOT NULL
        WHERE tenant_id = $1 AND name = $2 AND position = $3 AND behind";
}

/// An event without its body.
#[derive(Clone, Debug)]
pub struct EventHead {
    pub sequence: i64,
    pub id: EventId,
    pub kind: String,
    pub at: Timestamp,
    /// The chain of the workflow run that caused it.
    pub chain: WorkflowChain,
}

impl FromRow for EventHead {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        let (sequence, id, kind) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let chain = WorkflowChain { depth: row.get(4)?, root: row.get(5)? };
        Ok(EventHead { sequence, id, kind, at: row.get(3)?, chain })
    }
}

/// Sets the follower's position to the end of the feed, whether or not the follower existed before.
pub async fn begin_following(tx: &mut Tx, name: &str) -> Result<()> {
    let sequence = tx.tick().await?.sequence;
    tx.exec(BEGIN, crate::args![name, sequence]).await.map(drop)
}

/// The follower's position; none if it is not behind, or never began.
pub async fn find_position(db: &Db, name: &str) -> Result<Option<i64>> {
    db.find(POSITION, crate::args![name]).await
}

/// The same in a transaction.
pub async fn find_position_in_tx(tx: &mut Tx, name: &str) -> Result<Option<i64>> {
    tx.find(POSITION, crate::args![name]).await
}

/// The next events after a position.
pub async fn list_next(db: &Db, position: i64, limit: i64) -> Result<Vec<EventHead>> {
    db.list(HEADS, crate::args![position, limit]).await
}

/// The delivery body of an event; none when its retention has ended.
pub async fn find_body(db: &Db, sequence: i64) -> Result<Option<String>> {
    db.find(BODY, crate::args![sequence]).await
}

/// Advances the position in the transaction that saves the work made of the events in between; false if another reader did.
/// The tenant's clock is locked, so no event is published between the check whether this was the last one and the commit.
pub async fn advance_position(tx: &mut Tx, name: &str, from: i64, to: i64) -> Result<bool> {
    Ok(tx.exec(ADVANCE, crate::args![name, from, to]).await? == 1)
}
