//! SQL that lists deliveries by filter.
//!
//! A tenant has few endpoints, so a filter by kind or status over all endpoints becomes one arm of the walk per endpoint.

use kernel::args;
use kernel::base::{EventId, Result, StringEnum, Timestamp};
use kernel::http::{PAGE_BYTES_MAX, json_size, load_records};
use kernel::store::{ARMS_MAX, Arm, ArmSql, Db, FromRow, IndexWalk, Row, Select, Value, pair_rows};

use super::super::super::WebhookId;
use super::super::store::{ATTEMPTS_SHOWN, LIST, StoredDelivery, attach_attempts, delivery_id_bound};
use super::super::{Delivery, DeliveryId, DeliveryStatus, RESPONSE_BYTES_KEPT};

/// The columns that filters compare.
const DELIVERIES: ArmSql = ArmSql::new("id, webhook_id, event_id, event_type, status, attempts", "deliveries", &["id"]);

kernel::statements! {
    BY_ID = kernel::arm!(DELIVERIES);
    BY_WEBHOOK = kernel::arm!(DELIVERIES.use_index("deliveries_by_webhook").where_equal(&["webhook_id"]));
    BY_TYPE = kernel::arm!(DELIVERIES.use_index("deliveries_by_type").where_equal(&["webhook_id", "event_type"]));
    /// The index holds only deliveries that have not succeeded.
    BY_STATUS = kernel::arm!(
        DELIVERIES.use_index("deliveries_by_status").where_equal(&["webhook_id", "status"]).where_condition("status <> 'succeeded'")
    );
    /// Deleted endpoints are included as long as their deliveries are kept.
    WEBHOOKS = "SELECT id FROM webhooks WHERE tenant_id = $1 ORDER BY id LIMIT $2";
}

/// Deliveries that are read at once with their attempts, if those are few.
const READ_ROWS: usize = 64;
/// About the largest size of one attempt.
const ATTEMPT_BYTES: usize = RESPONSE_BYTES_KEPT + 512;

/// Which deliveries to list; `None` means all.
#[derive(Default)]
pub struct Filter {
    pub webhook_id: Option<Vec<WebhookId>>,
    pub event_id: Option<Vec<EventId>>,
    pub event_type: Option<Vec<String>>,
    pub status: Option<Vec<DeliveryStatus>>,
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
}

/// A row of [`DELIVERIES`].
struct DeliveryFilterRow {
    id: DeliveryId,
    webhook_id: WebhookId,
    event_id: EventId,
    event_type: String,
    status: DeliveryStatus,
    attempts: i64,
}

impl FromRow for DeliveryFilterRow {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        let (id, webhook_id, event_id, event_type) = (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
        let status = DeliveryStatus::from_stored(&row.get::<String>(4)?)?;
        Ok(DeliveryFilterRow { id, webhook_id, event_id, event_type, status, attempts: row.get(5)? })
    }
}

/// A page of deliveries, newest first (ids order by time), and where the next page starts.
pub async fn list_deliveries(
    db: &Db,
    filter: &Filter,
    after: Option<DeliveryId>,
    limit: usize,
) -> Result<(Vec<Delivery>, Option<DeliveryId>)> {
    let walk = filter.plan_walk(db, after).await?;
    let (rows, next) =
        walk.load_page(db, limit, |row: &DeliveryFilterRow| row.id, |row| filter.matches_row(row)).await?;
    load_records(&rows, next, count_readable, json_size, |part| async move {
        let deliveries = read_deliveries(db, part).await?.into_iter();
        Ok(deliveries.filter(|one| filter.still_matches(one)).map(|one| (one.id, one)).collect())
    })
    .await
}

/// How many of these rows to read at once: as many as fit on a page with the longest response bodies, and at least one.
fn count_readable(rows: &[DeliveryFilterRow]) -> usize {
    let mut bytes = 0;
    let fits = |row: &&DeliveryFilterRow| {
        bytes += ATTEMPT_BYTES * usize::try_from(row.attempts).unwrap_or_default().min(ATTEMPTS_SHOWN);
        bytes <= PAGE_BYTES_MAX
    };
    rows.iter().take(READ_ROWS).take_while(fits).count().max(1)
}

/// The records in the order of `rows`. A missing record has been cleaned away meanwhile.
async fn read_deliveries(db: &Db, rows: &[DeliveryFilterRow]) -> Result<Vec<Delivery>> {
    let select = Select::new(LIST).where_in("d.id", rows.iter().map(|row| row.id)).limit(rows.len());
    let stored: Vec<StoredDelivery> = db.select(&select).await?;
    let records = attach_attempts(db, stored).await?;
    Ok(pair_rows(rows, |row| row.id, records, |delivery| delivery.id).map(|(_, delivery)| delivery).collect())
}

impl Filter {
    fn matches_row(&self, row: &DeliveryFilterRow) -> bool {
        self.webhook_id.as_ref().is_none_or(|any| any.contains(&row.webhook_id))
            && self.event_id.as_ref().is_none_or(|any| any.contains(&row.event_id))
            && self.event_type.as_ref().is_none_or(|any| any.contains(&row.event_type))
            && self.status.as_ref().is_none_or(|any| any.contains(&row.status))
    }

    /// The status may have changed since the walk read it.
    fn still_matches(&self, delivery: &Delivery) -> bool {
        self.status.as_ref().is_none_or(|any| any.contains(&delivery.status))
    }

    /// Chooses the index by selectivity: an event has one delivery per endpoint; deliveries that have not succeeded are
    /// usually few; then by kind; then by endpoint alone.
    async fn plan_walk(&self, db: &Db, after: Option<DeliveryId>) -> Result<IndexWalk<DeliveryId>> {
        let below = after.or(self.until.map(DeliveryId::first_at)).unwrap_or_else(DeliveryId::after_all);
        let least = DeliveryId::first_at(self.since.unwrap_or(Timestamp::from_millis(0)));
        let walk = |text, values: Vec<Vec<Value>>, exact: bool| IndexWalk::new(text, values, least..below, exact);
        let given = [self.webhook_id.is_some(), self.event_type.is_some(), self.status.is_some()];
        let given = given.into_iter().filter(|given| *given).count();
        if let Some(events) = &self.event_id {
            let arm = |event: EventId| -> Option<Arm<DeliveryId>> {
                // A delivery's id starts like its event's id.
                let (first, last) =
                    (delivery_id_bound(event, '0').parse().ok()?, delivery_id_bound(event, 'z').parse().ok()?);
                Some(Arm { values: Vec::new(), below: below.min(last), least: least.max(first) })
            };
            let arms = events.iter().copied().filter_map(arm).collect();
            return Ok(IndexWalk { text: BY_ID, arms, exact: given == 0 });
        }
        let unfinished = self.status.as_ref().filter(|any| !any.contains(&DeliveryStatus::Succeeded));
        let second: Option<(&'static str, Vec<Value>)> = match (unfinished, &self.event_type) {
            (Some(any), _) => Some((BY_STATUS, to_values(any.iter().map(|status| status.as_str())))),
            (None, Some(any)) => Some((BY_TYPE, to_values(any.iter().map(String::as_str)))),
            (None, None) => None,
        };
        let webhook_ids = &self.webhook_id;
        if let Some((text, second)) = second {
            let webhooks_max = ARMS_MAX / second.len().max(1);
            let webhooks = match webhook_ids {
                Some(webhook_ids) => webhook_ids.clone(),
                None => db.list(WEBHOOKS, args![i64::try_from(webhooks_max + 1).unwrap_or(i64::MAX)]).await?,
            };
            if webhooks.len() <= webhooks_max {
                let of = |webhook: &WebhookId| {
                    second.iter().map(|value| vec![(*webhook).into(), value.clone()]).collect::<Vec<_>>()
                };
                let pairs: Vec<Vec<Value>> = webhooks.iter().flat_map(of).collect();
                return Ok(walk(text, pairs, given == 1 + usize::from(webhook_ids.is_some())));
            }
        }
        Ok(match webhook_ids {
            Some(webhook_ids) => {
                walk(BY_WEBHOOK, webhook_ids.iter().map(|id| vec![(*id).into()]).collect(), given == 1)
            }
            None => walk(BY_ID, vec![Vec::new()], given == 0),
        })
    }
}

fn to_values(any: impl Iterator<Item = impl Into<Value>>) -> Vec<Value> {
    any.map(Into::into).collect()
}
