//! Following events behind their commits: whoever has a name reads them in the order of the tenant's sequence, from where
//! it has come to.
//!
//! The sequence is given out under the tenant's clock, which stays locked until the commit. So what is seen of it has no
//! gap that is filled later, and a position never skips an event. It moves in the transaction of what was made of the
//! events, and only from where it was: of two that read the same, one is refused. Whoever cannot take more just stays
//! where it is.
//!
//! A follower that has come to the end is not behind, and what nobody wants does not make it so. The first event that
//! somebody does want sets it right before that event, in the transaction that publishes it: what has happened meanwhile is
//! never read, however much it is.

use crate::base::{Chain, EventId, Result, Timestamp};
use crate::store::{Db, FromRow, Row, Tx};

crate::statements! {
    BEGIN = "INSERT INTO followers (tenant_id, name, position, behind) VALUES ($1, $2, $3, FALSE)
        ON CONFLICT (tenant_id, name) DO UPDATE SET position = $3, behind = FALSE";
    POSITION = "SELECT position FROM followers WHERE tenant_id = $1 AND name = $2 AND behind";
    HEADS = "SELECT sequence, id, type, at, depth, root FROM events WHERE tenant_id = $1 AND sequence > $2
        ORDER BY sequence LIMIT $3";
    BODY = "SELECT body FROM events WHERE tenant_id = $1 AND sequence = $2";
    /// Not `EXISTS`: PostgreSQL would drop the order, and with it the index that answers this at once.
    ADVANCE = "UPDATE followers SET position = $4, behind = (SELECT e.sequence FROM events e WHERE e.tenant_id = $1
            AND e.sequence > $4 ORDER BY e.sequence LIMIT 1) IS NOT NULL
        WHERE tenant_id = $1 AND name = $2 AND position = $3 AND behind";
}

/// An event without its body.
#[derive(Clone, Debug)]
pub struct Head {
    pub sequence: i64,
    pub id: EventId,
    pub kind: String,
    pub at: Timestamp,
    /// Of the run that caused it.
    pub chain: Chain,
}

impl FromRow for Head {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        let (sequence, id, kind) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let chain = Chain { depth: row.get(4)?, root: row.get(5)? };
        Ok(Head { sequence, id, kind, at: row.get(3)?, chain })
    }
}

/// Starts behind everything that has happened, whether or not the name has followed before.
pub async fn begin(tx: &mut Tx, name: &str) -> Result<()> {
    let sequence = tx.tick().await?.sequence;
    tx.exec(BEGIN, crate::args![name, sequence]).await.map(drop)
}

/// How far it has come; none if it is not behind, or never began.
pub async fn position(db: &Db, name: &str) -> Result<Option<i64>> {
    db.find(POSITION, crate::args![name]).await
}

/// What comes next behind a position.
pub async fn next(db: &Db, position: i64, limit: i64) -> Result<Vec<Head>> {
    db.list(HEADS, crate::args![position, limit]).await
}

/// What was delivered of an event; none when it is no longer kept.
pub async fn body(db: &Db, sequence: i64) -> Result<Option<String>> {
    db.find(BODY, crate::args![sequence]).await
}

/// Moves on, in the transaction of what was made of the events in between; false if somebody else did. The tenant's clock is
/// held, so nothing happens between the look at whether that was the last and the commit.
pub async fn advance(tx: &mut Tx, name: &str, from: i64, to: i64) -> Result<bool> {
    Ok(tx.exec(ADVANCE, crate::args![name, from, to]).await? == 1)
}
