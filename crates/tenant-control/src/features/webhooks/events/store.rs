//! SQL of the feed.

use kernel::args;
use kernel::base::{Error, EventId, Result, Timestamp};
use kernel::store::{Db, Direction, FromRow, Row, Select};
use serde_json::value::RawValue;

use super::super::WEBHOOK_TEST;
use super::Wanted;

kernel::statements! {
    HEAD = "SELECT sequence FROM tenant_clocks WHERE tenant_id = $1";
    KEPT = "SELECT sequence FROM events WHERE tenant_id = $1 AND sequence = $2";
    WINDOW = "SELECT sequence, at, body FROM events WHERE tenant_id = $1";
    ONE = "SELECT sequence, at, body FROM events WHERE tenant_id = $1 AND id = $2";
}

/// An event of the feed.
pub struct Told {
    pub sequence: i64,
    pub at: Timestamp,
    pub body: Box<RawValue>,
}

impl FromRow for Told {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        let body = RawValue::from_string(row.get(2)?).map_err(kernel::base::Error::internal)?;
        Ok(Told { sequence: row.get(0)?, at: row.get(1)?, body })
    }
}

/// The highest number that the tenant's writes have reached. Everything up to it is committed, because a tenant's
/// writes come one after the other.
pub async fn head(db: &Db) -> Result<i64> {
    Ok(db.find(HEAD, args![]).await?.unwrap_or(0))
}

/// Whether the event with this number is still there.
pub async fn is_kept(db: &Db, sequence: i64) -> Result<bool> {
    Ok(db.find::<i64>(KEPT, args![sequence]).await?.is_some())
}

/// One event of these families.
pub async fn get(db: &Db, families: &[&'static str], id: EventId) -> Result<Told> {
    let select = Select::new(ONE).bind(id).any("family", families.iter().copied()).limit(1);
    db.select(&select).await?.into_iter().next().ok_or_else(Error::not_found)
}

/// Events of these families that are wanted, above `after` and up to `through`, in their order.
pub async fn window(
    db: &Db,
    families: &[&'static str],
    wanted: &Wanted,
    (after, through): (i64, i64),
    limit: usize,
) -> Result<Vec<Told>> {
    let select = Select::new(WINDOW)
        .any("family", families.iter().copied())
        .raw("AND sequence > ? AND sequence <= ?", [after.into(), through.into()]);
    let select = match wanted {
        Wanted::All => select,
        Wanted::AllButTests => select.raw("AND type <> ?", [WEBHOOK_TEST.name().into()]),
        Wanted::Kinds(kinds) => select.any("type", kinds.iter().copied()),
    };
    db.select(&select.order(&["sequence"], Direction::Ascending).limit(limit)).await
}
