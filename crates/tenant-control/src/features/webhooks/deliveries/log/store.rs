//! SQL that finds deliveries.
//!
//! A tenant's endpoints are few, so that what is wanted of a kind or a status, of all endpoints, is an arm for each of them.

use std::collections::HashMap;

use kernel::args;
use kernel::base::{EventId, Result, Timestamp, Word};
use kernel::http::{PAGE_BYTES_MAX, PageBytes};
use kernel::store::{ARMS_MAX, Arm, Db, FromRow, Passed, Row, Select, Value, Walk};

use super::super::super::WebhookId;
use super::super::store::{ATTEMPTS_SHOWN, LIST, StoredDelivery, bound, complete};
use super::super::{Delivery, DeliveryId, RESPONSE_BYTES_KEPT, Status};

/// A piece of an index in the order of ids, which SQLite is told. Each value is asked for twice, in other words: however
/// alike PostgreSQL takes all deliveries to be, it then finds the index with the value cheaper than the one without.
macro_rules! arm {
    ($index:literal, $where:literal, $bounds:literal, $limit:literal) => {
        concat!(
            "SELECT id, webhook_id, event_id, event_type, status, attempts FROM deliveries",
            $index,
            " WHERE tenant_id = $1 AND ",
            $where,
            $bounds,
            " ORDER BY id DESC LIMIT ",
            $limit
        )
    };
}

kernel::statements! {
    BY_ID = arm!("", "", "id < $2 AND id >= $3", "$4");
    BY_WEBHOOK = arm!(
        " /* INDEXED BY deliveries_by_webhook */",
        "webhook_id = $2 AND webhook_id >= $2 AND ",
        "id < $3 AND id >= $4",
        "$5"
    );
    BY_TYPE = arm!(
        " /* INDEXED BY deliveries_by_type */",
        "webhook_id = $2 AND event_type = $3 AND webhook_id >= $2 AND event_type >= $3 AND ",
        "id < $4 AND id >= $5",
        "$6"
    );
    /// The index holds what has not succeeded.
    BY_STATUS = arm!(
        " /* INDEXED BY deliveries_by_status */",
        "webhook_id = $2 AND status = $3 AND webhook_id >= $2 AND status >= $3 AND status <> 'succeeded' AND ",
        "id < $4 AND id >= $5",
        "$6"
    );
    /// Deleted ones are among them for as long as their deliveries are.
    WEBHOOKS = "SELECT id FROM webhooks WHERE tenant_id = $1 ORDER BY id LIMIT $2";
}

/// Deliveries that are read at once, with their attempts, if those are few.
const READ_ROWS: usize = 64;
/// What an attempt takes at most, about.
const ATTEMPT_BYTES: usize = RESPONSE_BYTES_KEPT + 512;

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

/// As much of a delivery as the filters ask about.
struct Brief {
    id: DeliveryId,
    webhook_id: WebhookId,
    event_id: EventId,
    event_type: String,
    status: Status,
    attempts: i64,
}

impl FromRow for Brief {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        let (id, webhook_id, event_id, event_type) = (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
        let status = Status::stored(&row.get::<String>(4)?)?;
        Ok(Brief { id, webhook_id, event_id, event_type, status, attempts: row.get(5)? })
    }
}

impl Passed for Brief {
    type Key = DeliveryId;

    fn key(&self) -> DeliveryId {
        self.id
    }

    fn position(id: DeliveryId) -> Vec<Value> {
        vec![id.into()]
    }
}

/// The place that a cursor holds.
pub fn place(position: &[Value]) -> Option<DeliveryId> {
    match position {
        [Value::Text(id)] => id.parse().ok(),
        _ => None,
    }
}

/// Newest first, which their ids tell, and where the next page starts.
pub async fn list(
    db: &Db,
    filter: &Filter,
    after: Option<DeliveryId>,
    limit: usize,
) -> Result<(Vec<Delivery>, Option<DeliveryId>)> {
    let walk = filter.walk(db, after).await?;
    let found = walk.newest(db, limit + 1, |one: &Brief| filter.matches(one)).await?;
    let more = found.rows.len() > limit;
    let mut left: &[Brief] = &found.rows[..found.rows.len().min(limit)];
    let next = if more { left.last().map(Passed::key) } else { found.looked_to };
    let (mut deliveries, mut bytes, mut shown) = (Vec::new(), PageBytes::default(), after);
    while !left.is_empty() {
        let (part, rest) = left.split_at(readable(left));
        left = rest;
        for delivery in read(db, part).await?.into_iter().filter(|delivery| filter.still_matches(delivery)) {
            if !bytes.fits_record(&delivery)? {
                return Ok((deliveries, shown));
            }
            shown = Some(delivery.id);
            deliveries.push(delivery);
        }
    }
    Ok((deliveries, next))
}

/// How many of these can be read at once: as many as fit on a page with the longest of answers, and one at least.
fn readable(rows: &[Brief]) -> usize {
    let mut bytes = 0;
    let fits = |row: &&Brief| {
        bytes += ATTEMPT_BYTES * usize::try_from(row.attempts).unwrap_or_default().min(ATTEMPTS_SHOWN);
        bytes <= PAGE_BYTES_MAX
    };
    rows.iter().take(READ_ROWS).take_while(fits).count().max(1)
}

/// Records in the order of the list; what is not there any more has been cleaned away meanwhile.
async fn read(db: &Db, rows: &[Brief]) -> Result<Vec<Delivery>> {
    let select = Select::new(LIST).any("d.id", rows.iter().map(|row| row.id)).limit(rows.len());
    let found: Vec<StoredDelivery> = db.select(&select).await?;
    let records = complete(db, found).await?;
    let mut records: HashMap<DeliveryId, Delivery> = records.into_iter().map(|one| (one.id, one)).collect();
    Ok(rows.iter().filter_map(|row| records.remove(&row.id)).collect())
}

impl Filter {
    fn matches(&self, one: &Brief) -> bool {
        self.webhook_id.as_ref().is_none_or(|any| any.contains(&one.webhook_id))
            && self.event_id.as_ref().is_none_or(|any| any.contains(&one.event_id))
            && self.event_type.as_ref().is_none_or(|any| any.contains(&one.event_type))
            && self.status.as_ref().is_none_or(|any| any.contains(&one.status))
    }

    /// The status may have changed since the walk came by.
    fn still_matches(&self, delivery: &Delivery) -> bool {
        self.status.as_ref().is_none_or(|any| any.contains(&delivery.status))
    }

    /// Along which index: an event has as many deliveries as there are endpoints; what has not succeeded is usually little;
    /// then a kind; then an endpoint alone.
    async fn walk(&self, db: &Db, after: Option<DeliveryId>) -> Result<Walk<DeliveryId>> {
        let end = self.until.unwrap_or(Timestamp::from_millis(AFTER_ALL_MS));
        let below = after.unwrap_or_else(|| DeliveryId::first_at(end));
        let least = DeliveryId::first_at(self.since.unwrap_or(Timestamp::from_millis(0)));
        let walk = |text, values: Vec<Vec<Value>>, exact: bool| {
            let arms = values.into_iter().map(|values| Arm { values, below, least }).collect();
            Walk { text, arms, exact }
        };
        let given = [self.webhook_id.is_some(), self.event_type.is_some(), self.status.is_some()];
        let given = given.into_iter().filter(|given| *given).count();
        if let Some(events) = &self.event_id {
            let arm = |event: EventId| -> Option<Arm<DeliveryId>> {
                // The id of a delivery starts like that of its event.
                let (first, last) = (bound(event, '0').parse().ok()?, bound(event, 'z').parse().ok()?);
                Some(Arm { values: Vec::new(), below: below.min(last), least: least.max(first) })
            };
            let arms = distinct(events.iter().copied()).into_iter().filter_map(arm).collect();
            return Ok(Walk { text: BY_ID, arms, exact: given == 0 });
        }
        let unfinished = self.status.as_ref().filter(|any| !any.contains(&Status::Succeeded));
        let second: Option<(&'static str, Vec<Value>)> = match (unfinished, &self.event_type) {
            (Some(any), _) => Some((BY_STATUS, values(distinct(any.iter().map(|status| status.as_str()))))),
            (None, Some(any)) => Some((BY_TYPE, values(distinct(any.iter().map(String::as_str))))),
            (None, None) => None,
        };
        let named = self.webhook_id.as_ref().map(|any| distinct(any.iter().copied()));
        if let Some((text, second)) = second {
            let webhooks_max = ARMS_MAX / second.len().max(1);
            let webhooks = match &named {
                Some(named) => named.clone(),
                None => db.list(WEBHOOKS, args![i64::try_from(webhooks_max + 1).unwrap_or(i64::MAX)]).await?,
            };
            if webhooks.len() <= webhooks_max {
                let of = |webhook: &WebhookId| {
                    second.iter().map(|value| vec![(*webhook).into(), value.clone()]).collect::<Vec<_>>()
                };
                let pairs: Vec<Vec<Value>> = webhooks.iter().flat_map(of).collect();
                return Ok(walk(text, pairs, given == 1 + usize::from(named.is_some())));
            }
        }
        Ok(match named {
            Some(named) => walk(BY_WEBHOOK, values(named).into_iter().map(|id| vec![id]).collect(), given == 1),
            None => walk(BY_ID, vec![Vec::new()], given == 0),
        })
    }
}

/// Behind every id that is ever made: the last moment that an id can hold.
const AFTER_ALL_MS: i64 = (1 << 48) - 1;

fn values(any: Vec<impl Into<Value>>) -> Vec<Value> {
    any.into_iter().map(Into::into).collect()
}

/// Each once, or its rows would come by twice.
fn distinct<T: Ord>(any: impl Iterator<Item = T>) -> Vec<T> {
    let mut all: Vec<T> = any.collect();
    all.sort();
    all.dedup();
    all
}
