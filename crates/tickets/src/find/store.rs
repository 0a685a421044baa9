//! SQL of the ticket search: one step along each index, and the members of a set.

use kernel::args;
use kernel::base::{Error, Result, StringEnum, Timestamp};
use kernel::store::{ArmSql, Compare, FromRow, PostingStep, Postings, Row, Select, Tick, Value, pair_rows, prefix_end};

use super::super::Ticket;
use super::super::stored::StoredTicket;
use super::super::stored::TicketColumns;
use super::search::{INLINE_ROWS, TicketSearch, TicketSet};
use super::{Filter, IndexScope, OwnerFilter, SortBy, TicketOrder, TicketSortKey};

/// A query that may read more index entries than this does not run on the threads that serve requests.
const INLINE_ENTRIES_MAX: usize = 2_000;

/// Live tickets have partial indexes with this condition.
const LIVE: &str = "AND status IN ('new', 'open', 'in_progress', 'pending', 'on_hold')";

const TERMS: ArmSql = ArmSql::new("number", "ticket_terms", &["number"]).where_equal(&["term"]);
const POSTINGS: Postings = Postings { ascending: BY_TERM_ASCENDING, descending: BY_TERM, expand: EXPAND };

kernel::statements! {
    // The columns of a sort key, along the index of each order.
    NUMBERS = "SELECT CAST(NULL AS BIGINT), CAST(0 AS BIGINT), number FROM tickets WHERE tenant_id = $1";
    UPDATES = "SELECT updated_at, sequence, number FROM tickets WHERE tenant_id = $1";
    PRIORITIES = "SELECT priority, CAST(0 AS BIGINT), number FROM tickets WHERE tenant_id = $1";
    DATES = "SELECT due_at, CAST(0 AS BIGINT), number FROM tickets WHERE tenant_id = $1";
    BY_TERM = kernel::arm!(TERMS);
    BY_TERM_ASCENDING = kernel::arm!(TERMS.ascending());
    EXPAND = kernel::expand_terms!("ticket_terms");
    RANGE = "SELECT number FROM ticket_terms WHERE tenant_id = $1 AND term >= $2 AND term < $3
        ORDER BY term, number LIMIT $4";
    LIST_SUMMARIES = "SELECT number, subject, tags, device_ids, external_id, created_at, updated_at, priority, due_at,
        CAST(0 AS BIGINT) FROM tickets WHERE tenant_id = $1";
    /// The sequence is stored after the long texts of a row, so it is read only in the order of updates.
    LIST_CHANGED_SUMMARIES = "SELECT number, subject, tags, device_ids, external_id, created_at, updated_at, priority, due_at,
        sequence FROM tickets WHERE tenant_id = $1";
    /// Bisects the numbers, which have no gaps and rise with the times. Ids do not: they keep the time of a wrong clock.
    FIRST_SINCE = "WITH RECURSIVE bounds(low, high) AS (
            SELECT CAST(1 AS BIGINT), ticket_number + 1 FROM tenant_clocks WHERE tenant_id = $1
            UNION ALL
            SELECT CASE WHEN (SELECT created_at < $2 FROM tickets WHERE tenant_id = $1 AND number = (low + high) / 2)
                    THEN (low + high) / 2 + 1 ELSE low END,
                CASE WHEN (SELECT created_at < $2 FROM tickets WHERE tenant_id = $1 AND number = (low + high) / 2)
                    THEN high ELSE (low + high) / 2 END
            FROM bounds WHERE low < high)
        SELECT number FROM tickets WHERE tenant_id = $1 AND number = (SELECT MAX(low) FROM bounds)";
    BY_EXTERNAL_ID = "SELECT number FROM tickets WHERE tenant_id = $1";
}

impl FromRow for TicketSortKey {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        Ok(TicketSortKey { value: row.get(0)?, sequence: row.get(1)?, number: row.get(2)? })
    }
}

/// The columns of a ticket that filtering and sorting need.
struct TicketSummaryRow {
    number: i64,
    subject: String,
    tags: String,
    device_ids: String,
    external_id: Option<String>,
    created_at: Timestamp,
    updated_at: Timestamp,
    priority: i64,
    due_at: Option<Timestamp>,
    sequence: i64,
}

impl FromRow for TicketSummaryRow {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        Ok(TicketSummaryRow {
            number: row.get(0)?,
            subject: row.get(1)?,
            tags: row.get(2)?,
            device_ids: row.get(3)?,
            external_id: row.get(4)?,
            created_at: row.get(5)?,
            updated_at: row.get(6)?,
            priority: row.get(7)?,
            due_at: row.get(8)?,
            sequence: row.get(9)?,
        })
    }
}

impl TicketSummaryRow {
    /// Checks the conditions that the SQL does not.
    fn matches_filter(&self, filter: &Filter) -> bool {
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

impl TicketSearch<'_> {
    /// The number of the first ticket that was created at this moment or later.
    pub async fn find_first_since(&self, since: Timestamp) -> Result<Option<i64>> {
        self.db.find(FIRST_SINCE, args![since]).await
    }

    /// The numbers of the tickets that the filter names by number or external id; `None` if it names none.
    pub async fn find_named_numbers(&self) -> Result<Option<Vec<i64>>> {
        let mut numbers = match (&self.filter.number, &self.filter.external_id) {
            (Some(numbers), _) => numbers.clone(),
            (None, Some(ids)) => {
                let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
                let most = ids.len();
                self.db.select(&Select::new(BY_EXTERNAL_ID).where_in("external_id", ids).limit(most)).await?
            }
            (None, None) => return Ok(None),
        };
        numbers.sort_unstable();
        numbers.dedup();
        Ok(Some(numbers))
    }

    pub async fn expand_prefixes(&self, starts: &[String]) -> Result<Option<Vec<String>>> {
        POSTINGS.expand_prefixes(self.db, starts).await
    }

    /// The next keys after a position in an order, and the number of index entries read. Indexes by owner exist only in the
    /// order of updates; `rows` keys are read of each owner.
    pub async fn walk_index(
        &self,
        order: TicketOrder,
        scope: &IndexScope,
        at: Option<TicketSortKey>,
        rows: usize,
    ) -> Result<(Vec<TicketSortKey>, usize)> {
        let undated = at.is_some_and(|key| key.value.is_none()) && order.by == SortBy::DueAt;
        let since = self.filter.updated_since.map(Timestamp::as_millis);
        let (mut keys, mut entries) = (Vec::new(), 0);
        let arms = index_arms(order.by, scope, rows, &|| walk_select(order, at, since, self.above_number));
        if !undated {
            let inline = arms.len() * rows <= INLINE_ENTRIES_MAX;
            let select = if let [one] = arms.as_slice() { one.clone() } else { Select::union_selects(arms) };
            keys = self.db.select_or_scan(&select, inline).await?;
            entries = keys.len();
            keys.sort_by(|a, b| order.compare_keys(*a, *b));
            keys.dedup();
            keys.truncate(rows);
        }
        // Tickets without a due date come last.
        if order.by == SortBy::DueAt && keys.len() < rows {
            let at = at.filter(|_| undated);
            let select = undated_walk_select(order, matches!(scope, IndexScope::Live), at, rows - keys.len());
            let rest: Vec<TicketSortKey> = self.db.select(&select).await?;
            entries += rest.len();
            keys.extend(rest);
        }
        Ok((keys, entries))
    }

    /// At most `most` numbers of a set; may contain duplicates.
    pub async fn load_set_numbers(&self, set: &TicketSet, most: usize) -> Result<Vec<i64>> {
        match set {
            TicketSet::Terms(terms) => POSTINGS.list_numbers(self.db, terms, self.above_number, most).await,
            TicketSet::Prefixes(starts) => {
                let mut numbers = Vec::new();
                for start in starts {
                    let limit = most - numbers.len();
                    let select = Select::new(RANGE)
                        .bind_value(start.as_str())
                        .bind_value(prefix_end(start))
                        .bind_value(to_limit(limit)?);
                    numbers.extend(self.db.select_or_scan::<i64>(&select, most <= INLINE_ENTRIES_MAX).await?);
                }
                Ok(numbers)
            }
            TicketSet::Changed(scope) => {
                let updates = TicketOrder { by: SortBy::UpdatedAt, descending: false };
                let since = self.filter.updated_since.map(Timestamp::as_millis);
                let arms =
                    index_arms(updates.by, scope, most, &|| walk_select(updates, None, since, self.above_number));
                // Any rows will do, so that many owners read no more than one.
                let select =
                    if let [one] = arms.as_slice() { one.clone() } else { Select::union_selects(arms).limit(most) };
                let keys: Vec<TicketSortKey> = self.db.select_or_scan(&select, most <= INLINE_ENTRIES_MAX).await?;
                Ok(keys.into_iter().map(|key| key.number).collect())
            }
            TicketSet::Created => {
                let numbers = TicketOrder { by: SortBy::CreatedAt, descending: false };
                let (keys, _) = self.walk_index(numbers, &IndexScope::All, None, most).await?;
                Ok(keys.into_iter().map(|key| key.number).collect())
            }
        }
    }

    /// Tickets with any of these terms, in the order of numbers: `rows` of each term are read.
    pub async fn walk_terms(&self, terms: &[String], at: Option<TicketSortKey>, rows: usize) -> Result<PostingStep> {
        let after = at.map(|key| key.number);
        POSTINGS.walk_terms(self.db, terms, self.order.direction(), after, self.above_number, rows).await
    }

    /// Examines these tickets and returns the matching ones with their current sort keys.
    pub async fn filter_keys(&mut self, keys: &[TicketSortKey], order: TicketOrder) -> Result<Vec<TicketSortKey>> {
        self.rows_examined += keys.len();
        let inline = self.rows_examined <= INLINE_ROWS;
        let rows: Vec<TicketSummaryRow> = self.db.select_or_scan(&self.summary_select(keys, order), inline).await?;
        let matches = rows.iter().filter(|row| row.matches_filter(self.filter));
        let changed = |row: &TicketSummaryRow| Tick { at: row.updated_at, sequence: row.sequence };
        Ok(matches.map(|row| order.sort_key(row.number, changed(row), row.priority, row.due_at)).collect())
    }

    /// Selects those of these tickets that meet the conditions that SQL can check.
    fn summary_select(&self, keys: &[TicketSortKey], order: TicketOrder) -> Select {
        let filter = self.filter;
        let text = if order.by == SortBy::UpdatedAt { LIST_CHANGED_SUMMARIES } else { LIST_SUMMARIES };
        let mut select = Select::new(text).where_in("number", keys.iter().map(|key| key.number));
        if let Some(any) = &filter.status {
            // In COALESCE, so that PostgreSQL does not prefer the index of live tickets to the numbers.
            select = select.where_in("COALESCE(status, '')", any.iter().map(|status| status.as_str()));
        }
        if let Some(any) = &filter.priority {
            select = select.where_in("priority", any.iter().map(|priority| priority.rank()));
        }
        if let Some(any) = &filter.r#type {
            select = select.where_in("type", any.iter().map(|kind| kind.as_str()));
        }
        if let Some(any) = &filter.assignee_id {
            select = select.where_in("COALESCE(assignee_id, 'none')", any.iter().map(ToString::to_string));
        }
        if let Some(any) = &filter.organization_id {
            select = select.where_in("COALESCE(organization_id, 'none')", any.iter().map(ToString::to_string));
        }
        // Without the times: SQLite would prefer their index to the numbers.
        select.limit(keys.len())
    }

    /// The current tickets of a page. A ticket that has changed and no longer matches is left out.
    pub async fn load_tickets(&self, keys: &[TicketSortKey]) -> Result<Vec<(TicketSortKey, Ticket)>> {
        let select =
            Select::new(TicketColumns::SELECT).where_in("number", keys.iter().map(|key| key.number)).limit(keys.len());
        let rows: Vec<StoredTicket> = self.db.select(&select).await?;
        let now = self.db.env().now();
        let found = pair_rows(keys, |key| key.number, rows, StoredTicket::number).filter(|(key, row)| {
            let moved = self.order.follows_updates() && self.order.sort_key_of(row) != **key;
            !moved && self.filter.matches_ticket(&row.ticket)
        });
        Ok(found.map(|(key, row)| (*key, row.into_ticket_at(now))).collect())
    }
}

/// The index of an order and scope. The order of numbers is that of the table itself.
fn index_name(by: SortBy, scope: &IndexScope) -> Option<&'static str> {
    Some(match (by, scope) {
        (SortBy::CreatedAt, _) => return None,
        (_, IndexScope::Owners(owners)) if owners.column == "organization_id" => "tickets_by_organization",
        (_, IndexScope::Owners(_)) => "tickets_by_assignee",
        (SortBy::UpdatedAt, IndexScope::All) => "tickets_by_update",
        (SortBy::UpdatedAt, IndexScope::Live) => "tickets_live_by_update",
        (SortBy::Priority, IndexScope::All) => "tickets_by_priority",
        (SortBy::Priority, IndexScope::Live) => "tickets_live_by_priority",
        (SortBy::DueAt, IndexScope::All) => "tickets_by_due_date",
        (SortBy::DueAt, IndexScope::Live) => "tickets_live_by_due_date",
    })
}

/// The arms of a walk: one, or one for each owner.
fn index_arms(by: SortBy, scope: &IndexScope, rows: usize, walk: &dyn Fn() -> Select) -> Vec<Select> {
    let along = || index_name(by, scope).into_iter().fold(walk().limit(rows), Select::use_index);
    let IndexScope::Owners(OwnerFilter { column, ids, .. }) = scope else {
        return vec![if matches!(scope, IndexScope::Live) { along().append_sql(LIVE, []) } else { along() }];
    };
    along().split_by(column, ids)
}

/// Selects along the index of an order, from its start or after a position.
fn walk_select(order: TicketOrder, at: Option<TicketSortKey>, since: Option<i64>, above: i64) -> Select {
    let edge = if order.descending { i64::MAX } else { i64::MIN };
    let at = at.unwrap_or(TicketSortKey { value: Some(edge), sequence: edge, number: edge });
    let value = at.value.unwrap_or(edge);
    let (text, fields, mut seek_position): (_, &[&'static str], _) = match order.by {
        SortBy::CreatedAt => (NUMBERS, &["number"], vec![at.number]),
        SortBy::UpdatedAt => (UPDATES, &["updated_at", "sequence", "number"], vec![value, at.sequence, at.number]),
        SortBy::Priority => (PRIORITIES, &["priority", "number"], vec![value, at.number]),
        SortBy::DueAt => (DATES, &["due_at", "number"], vec![value, at.number]),
    };
    // One lower bound only: of two, SQLite might seek by the wrong one.
    let (mut select, first) = (Select::new(text), fields[0]);
    let bound = match order.by {
        SortBy::CreatedAt => Some(vec![above]),
        SortBy::UpdatedAt => since.map(|since| vec![since - 1, i64::MAX, i64::MAX]),
        SortBy::Priority | SortBy::DueAt => None,
    };
    match bound {
        Some(bound) if order.descending => select = select.where_compare(first, Compare::Above, bound[0]),
        Some(bound) => seek_position = seek_position.max(bound),
        None => {}
    }
    select
        .seek_after(fields, order.direction(), seek_position.into_iter().map(Value::Int).collect())
        .order_by(fields, order.direction())
}

/// Selects tickets without a due date, in the order of numbers.
fn undated_walk_select(order: TicketOrder, live: bool, at: Option<TicketSortKey>, rows: usize) -> Select {
    let edge = if order.descending { i64::MAX } else { i64::MIN };
    let number = Value::Int(at.map_or(edge, |key| key.number));
    let select = Select::new(DATES).where_null("due_at").seek_after(&["number"], order.direction(), vec![number]);
    let select = if live { select.append_sql(LIVE, []) } else { select };
    let scope = if live { IndexScope::Live } else { IndexScope::All };
    let select = index_name(SortBy::DueAt, &scope).into_iter().fold(select, Select::use_index);
    select.order_by(&["number"], order.direction()).lead_order_by("due_at").limit(rows)
}

fn to_limit(rows: usize) -> Result<i64> {
    i64::try_from(rows).map_err(Error::internal)
}

/// Every walk with its index, for the test that checks the query plans of both engines.
pub fn all_walks() -> Vec<(Option<&'static str>, Select)> {
    let owners = |column| {
        IndexScope::Owners(OwnerFilter { column, ids: vec![Some("org_".to_owned()), None], terms: Vec::new() })
    };
    let at = TicketSortKey { value: Some(1), sequence: 1, number: 1 };
    let mut all = Vec::new();
    for descending in [false, true] {
        let mut add = |by, scope: IndexScope| {
            let arms =
                index_arms(by, &scope, 50, &|| walk_select(TicketOrder { by, descending }, Some(at), Some(0), 0));
            all.extend(arms.into_iter().map(|arm| (index_name(by, &scope), arm)));
        };
        add(SortBy::UpdatedAt, owners("organization_id"));
        add(SortBy::UpdatedAt, owners("assignee_id"));
        add(SortBy::CreatedAt, IndexScope::All);
        for by in [SortBy::UpdatedAt, SortBy::Priority, SortBy::DueAt] {
            add(by, IndexScope::All);
            add(by, IndexScope::Live);
        }
        let dates = TicketOrder { by: SortBy::DueAt, descending };
        for (live, scope) in [(false, IndexScope::All), (true, IndexScope::Live)] {
            all.push((index_name(dates.by, &scope), undated_walk_select(dates, live, Some(at), 50)));
        }
    }
    all
}
