//! SQL that finds tickets: one step along each index.

use std::collections::HashMap;

use kernel::args;
use kernel::base::{Error, Result, TicketId, Timestamp, Word};
use kernel::store::{FromRow, Row, Select, Value};

use super::super::Ticket;
use super::super::store::FULL;
use super::super::stored::StoredTicket;
use super::race::Search;
use super::{Filter, Key, Order, SortBy};

/// Words that one beginning may stand for; more, and it is too short to follow each.
const EXPANDED_MAX: usize = 100;
/// A query that may read more index entries than this leaves the threads alone that serve requests.
const INLINE_MAX: usize = 2_000;

/// The columns of a [`Key`] in an order, along one index.
macro_rules! keys {
    ($value:literal, $where:literal, $order:literal $(, $and:literal)?) => {
        concat!(
            "SELECT ",
            $value,
            ", number FROM tickets WHERE tenant_id = $1 AND ",
            $($and,)?
            $where,
            " ORDER BY ",
            $order,
            " LIMIT $4"
        )
    };
}

/// The same among live tickets, which have indexes of their own.
macro_rules! live_keys {
    ($value:literal, $where:literal, $order:literal) => {
        keys!($value, $where, $order, "status IN ('new', 'open', 'in_progress', 'pending', 'on_hold') AND ")
    };
}

kernel::statements! {
    CREATED_UP = keys!("CAST(NULL AS BIGINT)", "number > $2 AND number < $3", "number");
    CREATED_DOWN = keys!("CAST(NULL AS BIGINT)", "number > $2 AND number < $3", "number DESC");
    UPDATED_UP = keys!("updated_at", "(updated_at, number) > ($2, $3)", "updated_at, number");
    UPDATED_DOWN = keys!("updated_at", "(updated_at, number) < ($2, $3) AND updated_at >= $5", "updated_at DESC, number DESC");
    PRIORITY_UP = keys!("priority", "(priority, number) > ($2, $3)", "priority, number");
    PRIORITY_DOWN = keys!("priority", "(priority, number) < ($2, $3)", "priority DESC, number DESC");
    DUE_UP = keys!("due_at", "(due_at, number) > ($2, $3)", "due_at, number");
    DUE_DOWN = keys!("due_at", "(due_at, number) < ($2, $3)", "due_at DESC, number DESC");
    // Ordered by the date that they do not have, lest PostgreSQL walks by number past all that have one.
    UNDATED_UP = keys!("due_at", "due_at IS NULL AND number > $2 AND number < $3", "due_at, number");
    UNDATED_DOWN = keys!("due_at", "due_at IS NULL AND number > $2 AND number < $3", "due_at DESC, number DESC");
    LIVE_UPDATED_UP = live_keys!("updated_at", "(updated_at, number) > ($2, $3)", "updated_at, number");
    LIVE_UPDATED_DOWN = live_keys!("updated_at", "(updated_at, number) < ($2, $3) AND updated_at >= $5", "updated_at DESC, number DESC");
    LIVE_PRIORITY_UP = live_keys!("priority", "(priority, number) > ($2, $3)", "priority, number");
    LIVE_PRIORITY_DOWN = live_keys!("priority", "(priority, number) < ($2, $3)", "priority DESC, number DESC");
    LIVE_DUE_UP = live_keys!("due_at", "(due_at, number) > ($2, $3)", "due_at, number");
    LIVE_DUE_DOWN = live_keys!("due_at", "(due_at, number) < ($2, $3)", "due_at DESC, number DESC");
    LIVE_UNDATED_UP = live_keys!("due_at", "due_at IS NULL AND number > $2 AND number < $3", "due_at, number");
    LIVE_UNDATED_DOWN = live_keys!("due_at", "due_at IS NULL AND number > $2 AND number < $3", "due_at DESC, number DESC");
    TERM_UP = "SELECT number FROM ticket_terms WHERE tenant_id = $1 AND term = $2 AND number > $3 AND number < $4
        ORDER BY number LIMIT $5";
    TERM_DOWN = "SELECT number FROM ticket_terms WHERE tenant_id = $1 AND term = $2 AND number > $3 AND number < $4
        ORDER BY number DESC LIMIT $5";
    /// The different terms with a beginning, from one to the next without looking at the tickets of each.
    EXPAND = "WITH RECURSIVE found (term) AS (
            SELECT MIN(t.term) FROM ticket_terms t WHERE t.tenant_id = $1 AND t.term >= $2 AND t.term < $3
            UNION ALL
            SELECT (SELECT MIN(t.term) FROM ticket_terms t WHERE t.tenant_id = $1 AND t.term > found.term AND t.term < $3)
            FROM found WHERE found.term IS NOT NULL)
        SELECT term FROM found WHERE term IS NOT NULL LIMIT $4";
    RANGE = "SELECT term, number FROM ticket_terms WHERE tenant_id = $1 AND (term, number) > ($2, $3) AND term < $4
        ORDER BY term, number LIMIT $5";
    BRIEF = "SELECT number, subject, tags, device_ids, external_id, created_at, updated_at, priority, due_at
        FROM tickets WHERE tenant_id = $1";
    LAST_AT = "SELECT last_at FROM tenant_clocks WHERE tenant_id = $1";
    FIRST_SINCE = "SELECT number FROM tickets WHERE tenant_id = $1 AND id >= $2 ORDER BY id LIMIT 1";
    BY_EXTERNAL_ID = "SELECT number FROM tickets WHERE tenant_id = $1";
}

impl FromRow for Key {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        Ok(Key { value: row.get(0)?, number: row.get(1)? })
    }
}

/// What is needed of a ticket to judge and to sort it.
struct Brief {
    number: i64,
    subject: String,
    tags: String,
    device_ids: String,
    external_id: Option<String>,
    created_at: Timestamp,
    updated_at: Timestamp,
    priority: i64,
    due_at: Option<Timestamp>,
}

impl FromRow for Brief {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        Ok(Brief {
            number: row.get(0)?,
            subject: row.get(1)?,
            tags: row.get(2)?,
            device_ids: row.get(3)?,
            external_id: row.get(4)?,
            created_at: row.get(5)?,
            updated_at: row.get(6)?,
            priority: row.get(7)?,
            due_at: row.get(8)?,
        })
    }
}

impl Brief {
    /// What the database has not judged.
    fn matches(&self, filter: &Filter) -> bool {
        let list = |text: &str| serde_json::from_str::<Vec<String>>(text).unwrap_or_default();
        filter.tag.as_ref().is_none_or(|any| list(&self.tags).iter().any(|tag| any.contains(tag)))
            && filter
                .device_id
                .as_ref()
                .is_none_or(|any| list(&self.device_ids).iter().any(|id| any.iter().any(|one| one.to_string() == *id)))
            && filter
                .external_id
                .as_ref()
                .is_none_or(|any| self.external_id.as_ref().is_some_and(|id| any.contains(id)))
            && filter.created_since.is_none_or(|since| self.created_at >= since)
            && filter.updated_since.is_none_or(|since| self.updated_at >= since)
            && filter.has_words(&self.subject)
    }
}

impl Search<'_> {
    /// Up to when all of the tenant's changes can be seen.
    pub async fn last_at(&self) -> Result<Timestamp> {
        Ok(self.db.find(LAST_AT, args![]).await?.unwrap_or(Timestamp::from_millis(0)))
    }

    /// The number of the first ticket from this moment on.
    pub async fn first_since(&self, since: Timestamp) -> Result<Option<i64>> {
        self.db.find(FIRST_SINCE, args![TicketId::first_at(since)]).await
    }

    /// The numbers of tickets that are named one by one.
    pub async fn named(&self) -> Result<Option<Vec<i64>>> {
        let mut numbers = match (&self.filter.number, &self.filter.external_id) {
            (Some(numbers), _) => numbers.clone(),
            (None, Some(ids)) => {
                let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
                let most = ids.len();
                self.db.select(&Select::new(BY_EXTERNAL_ID).any("external_id", ids).limit(most)).await?
            }
            (None, None) => return Ok(None),
        };
        numbers.sort_unstable();
        numbers.dedup();
        Ok(Some(numbers))
    }

    /// The terms that start so, unless there are too many to follow each.
    pub async fn expand(&self, starts: &[String]) -> Result<Option<Vec<String>>> {
        let mut all = Vec::new();
        for start in starts {
            let most = i64::try_from(EXPANDED_MAX + 1).map_err(Error::internal)?;
            let terms: Vec<String> = self.db.list(EXPAND, args![start, end_of(start), most]).await?;
            if terms.len() > EXPANDED_MAX {
                return Ok(None);
            }
            all.extend(terms);
        }
        Ok(Some(all))
    }

    pub async fn along(&self, order: Order, at: Option<Key>, rows: usize) -> Result<Vec<Key>> {
        let (number, limit) = (at.map(|key| key.number), i64::try_from(rows).map_err(Error::internal)?);
        let value = at.and_then(|key| key.value);
        let lowest = self.filter.updated_since.map_or(i64::MIN, Timestamp::as_millis);
        // Between which numbers, or behind which place.
        let (above, below) = if order.descending {
            (self.above, number.unwrap_or(i64::MAX))
        } else {
            (number.unwrap_or(self.above), i64::MAX)
        };
        let start = if order.descending { i64::MAX } else { i64::MIN };
        let behind = (value.unwrap_or(start), number.unwrap_or(start));
        let (live, db) = (self.live(), self.db);
        let text = |all: &'static str, among_live: &'static str| if live { among_live } else { all };
        match (order.by, order.descending) {
            (SortBy::CreatedAt, true) => db.list(CREATED_DOWN, args![above, below, limit]).await,
            (SortBy::CreatedAt, false) => db.list(CREATED_UP, args![above, below, limit]).await,
            (SortBy::UpdatedAt, true) => {
                let sql = text(UPDATED_DOWN, LIVE_UPDATED_DOWN);
                db.list(sql, args![behind.0, behind.1, limit, lowest]).await
            }
            (SortBy::UpdatedAt, false) => {
                let (value, number) = behind.max((lowest, i64::MIN));
                db.list(text(UPDATED_UP, LIVE_UPDATED_UP), args![value, number, limit]).await
            }
            (SortBy::Priority, true) => {
                db.list(text(PRIORITY_DOWN, LIVE_PRIORITY_DOWN), args![behind.0, behind.1, limit]).await
            }
            (SortBy::Priority, false) => {
                db.list(text(PRIORITY_UP, LIVE_PRIORITY_UP), args![behind.0, behind.1, limit]).await
            }
            (SortBy::DueAt, _) => self.along_dates(order, at, behind, rows).await,
        }
    }

    /// Whether nothing is wanted that is done.
    fn live(&self) -> bool {
        self.filter.status.as_ref().is_some_and(|any| any.iter().all(|status| !status.is_done()))
    }

    /// First what has a date, then what has none.
    async fn along_dates(&self, order: Order, at: Option<Key>, behind: (i64, i64), rows: usize) -> Result<Vec<Key>> {
        let limit = |rows: usize| i64::try_from(rows).map_err(Error::internal);
        let mut keys: Vec<Key> = Vec::new();
        let in_dates = at.is_none_or(|key| key.value.is_some());
        if in_dates {
            let dated = match (order.descending, self.live()) {
                (false, false) => DUE_UP,
                (false, true) => LIVE_DUE_UP,
                (true, false) => DUE_DOWN,
                (true, true) => LIVE_DUE_DOWN,
            };
            keys = self.db.list(dated, args![behind.0, behind.1, limit(rows)?]).await?;
        }
        if keys.len() < rows {
            let number = at.filter(|_| !in_dates).map(|key| key.number);
            let (above, below) =
                if order.descending { (0, number.unwrap_or(i64::MAX)) } else { (number.unwrap_or(0), i64::MAX) };
            let undated = match (order.descending, self.live()) {
                (false, false) => UNDATED_UP,
                (false, true) => LIVE_UNDATED_UP,
                (true, false) => UNDATED_DOWN,
                (true, true) => LIVE_UNDATED_DOWN,
            };
            keys.extend(self.db.list::<Key>(undated, args![above, below, limit(rows - keys.len())?]).await?);
        }
        Ok(keys)
    }

    /// What has a term that starts so; a ticket may come by several times.
    pub async fn within(
        &self,
        starts: &mut Vec<String>,
        behind: &mut Option<(String, i64)>,
        rows: usize,
    ) -> Result<Vec<Key>> {
        let mut keys = Vec::new();
        while let Some(start) = starts.last() {
            let limit = i64::try_from(rows - keys.len()).map_err(Error::internal)?;
            let (term, number) = behind.clone().unwrap_or_else(|| (start.clone(), i64::MIN));
            let found: Vec<(String, i64)> = self.db.list(RANGE, args![term, number, end_of(start), limit]).await?;
            keys.extend(found.iter().map(|(_, number)| Key { value: None, number: *number }));
            *behind = found.last().cloned().or(behind.take());
            if keys.len() == rows {
                break;
            }
            starts.pop();
            *behind = None;
        }
        Ok(keys)
    }

    /// What has any of these terms, in the order of numbers: as many of each as are wanted of all.
    pub async fn among(&self, terms: &[String], at: Option<Key>, rows: usize) -> Result<(Vec<Key>, usize)> {
        if terms.is_empty() {
            return Ok((Vec::new(), 0));
        }
        let down = self.order.descending;
        let (above, below) = match (at, down) {
            (Some(key), true) => (self.above, key.number),
            (Some(key), false) => (key.number.max(self.above), i64::MAX),
            (None, _) => (self.above, i64::MAX),
        };
        let arm = |term: &str| -> Vec<Value> { vec![term.into(), above.into(), below.into(), Value::Int(rows as i64)] };
        // Arms that find nothing keep the number of different texts small.
        let mut arms: Vec<Vec<Value>> = terms.iter().map(|term| arm(term)).collect();
        arms.resize(terms.len().next_power_of_two(), arm(""));
        let (inline, select) =
            (arms.len() * rows <= INLINE_MAX, Select::union_all(if down { TERM_DOWN } else { TERM_UP }, arms));
        let mut numbers: Vec<i64> = if inline { self.db.select(&select).await? } else { self.db.scan(&select).await? };
        let entries = numbers.len();
        numbers.sort_unstable();
        if down {
            numbers.reverse();
        }
        numbers.dedup();
        numbers.truncate(rows);
        Ok((numbers.into_iter().map(|number| Key { value: None, number }).collect(), entries))
    }

    /// Those of these tickets that are wanted, with where they stand now.
    pub async fn judge(&self, keys: &[Key], inline: bool) -> Result<Vec<Key>> {
        let select = self.brief(keys);
        let rows: Vec<Brief> = if inline { self.db.select(&select).await? } else { self.db.scan(&select).await? };
        Ok(rows
            .iter()
            .filter(|row| row.matches(self.filter))
            .map(|row| self.order.key_of(row.number, row.updated_at, row.priority, row.due_at))
            .collect())
    }

    /// Those that the database finds to be wanted, with what it cannot judge.
    fn brief(&self, keys: &[Key]) -> Select {
        let filter = self.filter;
        let mut select = Select::new(BRIEF).any("number", keys.iter().map(|key| key.number));
        if let Some(any) = &filter.status {
            select = select.any("status", any.iter().map(|status| status.as_str()));
        }
        if let Some(any) = &filter.priority {
            select = select.any("priority", any.iter().map(|priority| priority.rank()));
        }
        if let Some(any) = &filter.r#type {
            select = select.any("type", any.iter().map(|kind| kind.as_str()));
        }
        if let Some(any) = &filter.assignee_id {
            select = select.any("COALESCE(assignee_id, 'none')", any.iter().map(ToString::to_string));
        }
        if let Some(any) = &filter.organization_id {
            select = select.any("COALESCE(organization_id, 'none')", any.iter().map(ToString::to_string));
        }
        // Not the times: SQLite would take them for a better start than the numbers, and walk by them.
        select.limit(keys.len())
    }

    /// The tickets of a page, as they are now; one that has changed and is not wanted any more is left out.
    pub async fn read(&self, keys: &[Key]) -> Result<Vec<Ticket>> {
        let select = Select::new(FULL).any("number", keys.iter().map(|key| key.number)).limit(keys.len());
        let rows: Vec<StoredTicket> = self.db.select(&select).await?;
        let now = self.db.world().now();
        let mut tickets: HashMap<i64, Ticket> = rows.into_iter().map(|row| (row.number(), row.at(now))).collect();
        let here = |key: &Key, ticket: &Ticket| {
            self.until.is_none_or(|until| ticket.updated_at <= until && self.order.key(ticket) == *key)
        };
        let found = keys.iter().filter_map(|key| {
            tickets.get(&key.number).filter(|ticket| here(key, ticket) && self.filter.matches(ticket))?;
            tickets.remove(&key.number)
        });
        Ok(found.collect())
    }
}

/// Behind everything that starts so.
fn end_of(start: &str) -> String {
    format!("{start}{}", char::MAX)
}
