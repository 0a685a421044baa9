//! SQL of the event feed.

use std::collections::HashMap;

use feature_kit::CUSTOM_KINDS;
use kernel::args;
use kernel::base::{Error, EventId, Result, Timestamp};
use kernel::store::{Db, FromRow, Row, Select, SortDirection};
use serde_json::value::RawValue;

use super::super::WEBHOOK_TEST;
use super::FeedSelection;

kernel::statements! {
    HEAD = "SELECT sequence FROM tenant_clocks WHERE tenant_id = $1";
    KEPT = "SELECT sequence FROM events WHERE tenant_id = $1 AND sequence <= $2 ORDER BY sequence DESC LIMIT 1";
    NEXT = "SELECT sequence, at FROM events WHERE tenant_id = $1 AND sequence > $2 ORDER BY sequence LIMIT 1";
    /// Short bodies are included; a long one is read once it is known to fit on the page.
    WINDOW = "SELECT sequence, at, CAST(octet_length(body) AS BIGINT),
            CASE WHEN octet_length(body) <= CAST($2 AS BIGINT) THEN body END, family, type
        FROM events WHERE tenant_id = $1";
    /// The same without a filter, for the reader that all waiters share.
    FRESH = kernel::sql![WINDOW, " AND sequence > $3 AND sequence <= $4 ORDER BY sequence LIMIT $5"];
    BODIES = "SELECT sequence, body FROM events WHERE tenant_id = $1";
    ONE = "SELECT body FROM events WHERE tenant_id = $1 AND id = $2";
}

/// Bodies up to this size are read with their rows: a whole page of them fits.
const SHORT_BYTES_MAX: i64 = 4 << 10;

/// A row of the feed, without its body if that is long.
pub struct FeedRow {
    pub sequence: i64,
    pub at: Timestamp,
    pub bytes: usize,
    pub family: String,
    pub kind: String,
    body: Option<String>,
}

impl FromRow for FeedRow {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        let bytes = usize::try_from(row.get::<i64>(2)?).map_err(Error::internal)?;
        Ok(FeedRow {
            sequence: row.get(0)?,
            at: row.get(1)?,
            bytes,
            family: row.get(4)?,
            kind: row.get(5)?,
            body: row.get(3)?,
        })
    }
}

/// The highest sequence of the tenant. Everything up to it is committed, because a tenant's writes are serialized.
pub async fn read_head(db: &Db) -> Result<i64> {
    Ok(db.find(HEAD, args![]).await?.unwrap_or(0))
}

/// Whether all events after this sequence are still kept. Events are deleted in order: while the very next one exists, or
/// any before it, none after it has been deleted.
pub async fn is_kept(db: &Db, after: i64) -> Result<bool> {
    Ok(db.find::<i64>(KEPT, args![after.saturating_add(1)]).await?.is_some())
}

/// The sequence and time of the first event after a sequence, of any kind.
pub async fn find_next_event(db: &Db, after: i64) -> Result<Option<(i64, Timestamp)>> {
    db.find(NEXT, args![after]).await
}

/// The body of one event, if it is of these families.
pub async fn get_event_body(db: &Db, families: &[&'static str], id: EventId) -> Result<Box<RawValue>> {
    let select = Select::new(ONE).bind_value(id).where_in("family", families.iter().copied()).limit(1);
    let bodies: Vec<String> = db.select(&select).await?;
    to_raw_json(bodies.into_iter().next().ok_or_else(Error::not_found)?)
}

/// The selected events of these families above `after` and up to `through`, in order.
pub async fn list_window(
    db: &Db,
    families: &[&'static str],
    selection: &FeedSelection,
    (after, through): (i64, i64),
    limit: usize,
) -> Result<Vec<FeedRow>> {
    let select = Select::new(WINDOW)
        .bind_value(SHORT_BYTES_MAX)
        .where_in("family", families.iter().copied())
        .append_sql("AND sequence > ? AND sequence <= ?", [after.into(), through.into()]);
    let select = match selection {
        FeedSelection::All => select,
        FeedSelection::AllButTests => select.append_sql("AND type <> ?", [WEBHOOK_TEST.name().into()]),
        FeedSelection::Kinds(kinds) => {
            let has_custom = kinds.iter().any(|kind| kind == CUSTOM_KINDS);
            let kind = if has_custom { "CASE WHEN family = 'custom' THEN 'custom.*' ELSE type END" } else { "type" };
            select.where_in(kind, kinds.iter().map(String::as_str))
        }
    };
    db.select(&select.order_by(&["sequence"], SortDirection::Ascending).limit(limit)).await
}

/// Every event above `after` and up to `through`, with its body; `None` if there are more than `events_max` or `bytes_max`.
pub async fn list_fresh(
    db: &Db,
    (after, through): (i64, i64),
    (events_max, bytes_max): (usize, usize),
) -> Result<Option<Vec<(FeedRow, Box<RawValue>)>>> {
    let limit = events_max as i64 + 1;
    let rows: Vec<FeedRow> = db.list(FRESH, args![SHORT_BYTES_MAX, after, through, limit]).await?;
    if rows.len() > events_max || rows.iter().map(|row| row.bytes).sum::<usize>() > bytes_max {
        return Ok(None);
    }
    attach_bodies(db, rows).await.map(Some)
}

/// The rows with their bodies, in order. A row whose body is missing has been cleaned away meanwhile and is left out.
pub async fn attach_bodies(db: &Db, rows: Vec<FeedRow>) -> Result<Vec<(FeedRow, Box<RawValue>)>> {
    let long: Vec<i64> = rows.iter().filter(|row| row.body.is_none()).map(|row| row.sequence).collect();
    let mut long_bodies: HashMap<i64, String> = HashMap::new();
    if !long.is_empty() {
        let limit = long.len();
        let loaded: Vec<(i64, String)> =
            db.select(&Select::new(BODIES).where_in("sequence", long).limit(limit)).await?;
        long_bodies.extend(loaded);
    }
    let bodies = rows.into_iter().filter_map(|mut row| {
        let body = row.body.take().or_else(|| long_bodies.remove(&row.sequence))?;
        Some(to_raw_json(body).map(|body| (row, body)))
    });
    bodies.collect()
}

fn to_raw_json(body: String) -> Result<Box<RawValue>> {
    RawValue::from_string(body).map_err(Error::internal)
}
