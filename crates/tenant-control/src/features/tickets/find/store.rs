//! SQL that finds tickets.
//!
//! A walk goes along one index, in the wanted order where it can. If several could answer, they race: each goes a step
//! at a time, and the first that has filled the page, or has come to its end, answers. So the most selective one wins
//! without anybody having counted, and what none can answer within the budget is refused.

use std::collections::HashMap;

use kernel::args;
use kernel::base::{Code, Error, Result, TicketId, Timestamp, Word};
use kernel::http::LIMIT_MAX;
use kernel::store::{Compare, Db, FromRow, Row, Select, Value};

use super::super::Ticket;
use super::super::input::CUSTOM_BYTES_MAX;
use super::super::store::{FULL, StoredTicket};
use super::{Filter, Key, Order, SortBy};

/// Tickets that one request may look at, over all its walks.
const ROWS_MAX: usize = 20_000;
/// A walk that has to look at each ticket starts with steps of this many, and doubles them up to the other.
const STEP_MIN: usize = 200;
const STEP_MAX: usize = 1_000;
/// Words that one beginning may stand for; more, and the beginning is too short to find anything by.
const EXPANDED_MAX: usize = 100;

/// A page ends before its limit when the texts of its tickets come to this; it is read in parts of so many.
const PAGE_BYTES_MAX: usize = 4 * 1024 * 1024;
const READ_ROWS: usize = 50;
/// So many entries of an index cost as much as a look at a ticket.
const ENTRIES_PER_ROW: usize = 8;
/// A query that may read more index entries than this leaves the threads alone that serve requests.
const INLINE_MAX: usize = 2_000;
/// So many tickets a request looks at on those threads, so that small lists wait for nobody's large ones.
const INLINE_ROWS: usize = 2 * (LIMIT_MAX + 1);

/// The columns of a [`Key`] in an order, along one index.
macro_rules! keys {
    ($value:literal, $where:literal, $order:literal) => {
        concat!(
            "SELECT ",
            $value,
            ", number FROM tickets WHERE tenant_id = $1 AND ",
            $where,
            " ORDER BY ",
            $order,
            " LIMIT $4"
        )
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
    BRIEF = "SELECT number, subject, tags, device_ids, external_id, updated_at, priority, due_at
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
    updated_at: i64,
    priority: i64,
    due_at: Option<i64>,
}

impl FromRow for Brief {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        Ok(Brief {
            number: row.get(0)?,
            subject: row.get(1)?,
            tags: row.get(2)?,
            device_ids: row.get(3)?,
            external_id: row.get(4)?,
            updated_at: row.get(5)?,
            priority: row.get(6)?,
            due_at: row.get(7)?,
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
            && filter.has_words(&self.subject)
    }

    fn key(&self, order: Order) -> Key {
        let value = match order.by {
            SortBy::CreatedAt => None,
            SortBy::UpdatedAt => Some(self.updated_at),
            SortBy::Priority => Some(self.priority),
            SortBy::DueAt => self.due_at,
        };
        Key { value, number: self.number }
    }
}

/// A page of tickets, and where the next one starts.
pub struct Found {
    pub tickets: Vec<Ticket>,
    pub next: Option<Key>,
}

/// What is sought.
struct Search<'a> {
    db: &'a Db,
    filter: &'a Filter,
    order: Order,
    after: Option<Key>,
    /// One more than the page, which tells whether there is another.
    want: usize,
    /// Every wanted ticket has a number above this one.
    above: i64,
    /// In the order of updates: nothing that changed later than this is shown; it comes again when the reader goes on.
    until: Option<Timestamp>,
}

pub async fn find(db: &Db, filter: &Filter, order: Order, after: Option<Key>, limit: usize) -> Result<Found> {
    let mut search = Search { db, filter, order, after, want: limit + 1, above: 0, until: None };
    // Several statements do not see one state. What they could see differently is left to the next page or poll: shown
    // now, it would lead a reader who goes on from its time past what an earlier statement did not see yet.
    if (order == Order { by: SortBy::UpdatedAt, descending: false }) {
        search.until = Some(db.find(LAST_AT, args![]).await?.unwrap_or(Timestamp::from_millis(0)));
    }
    if let Some(since) = filter.created_since {
        let first: Option<i64> = db.find(FIRST_SINCE, args![TicketId::first_at(since)]).await?;
        let Some(first) = first else { return Ok(Found { tickets: Vec::new(), next: None }) };
        search.above = first - 1;
    }
    let mut keys = search.race().await?;
    let mut more = keys.len() > limit;
    keys.truncate(limit);
    let (mut tickets, mut bytes, mut last) = (Vec::new(), 0, None);
    for part in keys.chunks(READ_ROWS) {
        if bytes > PAGE_BYTES_MAX {
            more = true;
            break;
        }
        let read = search.read(part).await?;
        bytes += read.iter().map(long_bytes).sum::<usize>();
        tickets.extend(read);
        last = part.last().copied();
    }
    Ok(Found { tickets, next: last.filter(|_| more) })
}

/// How much the texts of a ticket take that may be long, about.
fn long_bytes(ticket: &Ticket) -> usize {
    let custom = if ticket.custom_fields.is_empty() { 0 } else { CUSTOM_BYTES_MAX };
    let description = ticket.description.as_deref().unwrap_or_default();
    // As JSON writes them.
    let escapes = description.bytes().filter(|byte| byte.is_ascii_control()).count() * 5;
    let tags: usize = ticket.tags.iter().map(String::len).sum();
    description.len() + escapes + custom + tags
}

/// Where a walk goes along.
enum Path {
    /// An index of tickets.
    Order(Order),
    /// What has any of these terms, in the order of numbers.
    Terms(Vec<String>),
    /// What has a term that starts so, in the order of terms: for beginnings that very many words have.
    Ranges { starts: Vec<String>, behind: Option<(String, i64)> },
    /// These.
    Numbers(Vec<i64>),
}

struct Walk {
    path: Path,
    /// Whether it comes by in the wanted order; else it has to come to its end.
    ordered: bool,
    /// Whether it comes by nothing but what is wanted.
    exact: bool,
    at: Option<Key>,
    found: Vec<Key>,
}

impl Walk {
    /// Each of many terms is read as far as all of them are, so that many go in smaller steps.
    fn rows_max(&self, want: usize) -> usize {
        match &self.path {
            Path::Terms(terms) => (ROWS_MAX / terms.len().max(1)).max(want),
            _ => ROWS_MAX,
        }
    }
}

impl Search<'_> {
    async fn race(&self) -> Result<Vec<Key>> {
        let (mut walks, short_word) = self.walks().await?;
        let (mut budget, mut step) = (ROWS_MAX, STEP_MIN.max(2 * self.want));
        loop {
            for walk in &mut walks {
                let rows = if walk.exact && walk.ordered { self.want } else { step.min(walk.rows_max(self.want)) };
                let (keys, entries) = self.advance(walk, rows).await?;
                let ended = keys.len() < rows;
                walk.at = keys.last().copied().or(walk.at);
                let inline = ROWS_MAX - budget <= INLINE_ROWS;
                budget = budget.saturating_sub(keys.len() + entries / ENTRIES_PER_ROW);
                self.sift(walk, keys, inline).await?;
                if ended || walk.ordered && walk.found.len() >= self.want {
                    return Ok(self.sorted(std::mem::take(&mut walk.found)));
                }
                if budget == 0 {
                    return Err(too_broad(self.filter.suggestion(short_word)));
                }
            }
            self.catch_up(&mut walks);
            step = (2 * step).min(STEP_MAX);
        }
    }

    /// Whoever walks in the wanted order and has come furthest has found all there is until there; the others go on
    /// from the same place.
    fn catch_up(&self, walks: &mut [Walk]) {
        let ordered = walks.iter().filter(|walk| walk.ordered);
        let furthest = ordered.filter_map(|walk| walk.at).max_by(|a, b| self.order.compare(*a, *b));
        let Some(first) = walks.iter().find(|walk| walk.ordered && walk.at == furthest) else { return };
        let found = first.found.clone();
        for walk in walks.iter_mut().filter(|walk| walk.ordered && walk.at != furthest) {
            (walk.at, walk.found) = (furthest, found.clone());
        }
    }

    /// The indexes that could answer, and whether a word is so short that it stands for very many.
    async fn walks(&self) -> Result<(Vec<Walk>, bool)> {
        let walk =
            |path, ordered, exact| Walk { path, ordered, exact, at: self.after.filter(|_| ordered), found: Vec::new() };
        if let Some(numbers) = self.named().await? {
            return Ok((vec![walk(Path::Numbers(numbers), false, false)], false));
        }
        let in_numbers = self.order.by == SortBy::CreatedAt;
        let updates = Order { by: SortBy::UpdatedAt, descending: false };
        // What bounds a walk in its own order needs no look at the ticket.
        let bounded = |by: SortBy| {
            (self.filter.updated_since.is_none() || by == SortBy::UpdatedAt)
                && (self.filter.created_since.is_none() || by == SortBy::CreatedAt)
        };
        let alone = self.filter.conditions() == 1 && bounded(SortBy::CreatedAt);
        let (mut sets, starts) = self.filter.terms();
        let mut ranges = Vec::new();
        for start in starts {
            match self.expand(&start).await? {
                Some(terms) => sets.push(terms),
                None => ranges.push(start),
            }
        }
        let short_word = !ranges.is_empty();
        let mut walks: Vec<Walk> = Vec::new();
        // In the order of numbers a set of terms is as good a guide as all tickets, or a better one.
        if !in_numbers || sets.is_empty() {
            let exact = self.filter.conditions() == 0 && bounded(self.order.by);
            walks.push(walk(Path::Order(self.order), true, exact));
        }
        walks.extend(sets.into_iter().map(|terms| walk(Path::Terms(terms), in_numbers, alone && in_numbers)));
        walks.extend(ranges.into_iter().map(|starts| walk(Path::Ranges { starts, behind: None }, false, false)));
        if self.filter.updated_since.is_some() && self.order.by != SortBy::UpdatedAt {
            walks.push(walk(Path::Order(updates), false, false));
        }
        if self.filter.created_since.is_some() && !in_numbers {
            let numbers = Order { by: SortBy::CreatedAt, descending: true };
            walks.push(walk(Path::Order(numbers), false, false));
        }
        Ok((walks, short_word))
    }

    /// The numbers of tickets that are named one by one.
    async fn named(&self) -> Result<Option<Vec<i64>>> {
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
    async fn expand(&self, starts: &[String]) -> Result<Option<Vec<String>>> {
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

    /// The next keys along a walk, and how many entries of an index were read for them beyond their own.
    async fn advance(&self, walk: &mut Walk, rows: usize) -> Result<(Vec<Key>, usize)> {
        match &mut walk.path {
            Path::Order(order) => Ok((self.along(*order, walk.at, rows).await?, 0)),
            Path::Terms(terms) => self.among(terms, walk.at, rows).await,
            Path::Ranges { starts, behind } => Ok((self.within(starts, behind, rows).await?, 0)),
            Path::Numbers(numbers) => {
                let taken = rows.min(numbers.len());
                Ok((numbers.drain(..taken).map(|number| Key { value: None, number }).collect(), 0))
            }
        }
    }

    async fn along(&self, order: Order, at: Option<Key>, rows: usize) -> Result<Vec<Key>> {
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
        let db = self.db;
        match (order.by, order.descending) {
            (SortBy::CreatedAt, true) => db.list(CREATED_DOWN, args![above, below, limit]).await,
            (SortBy::CreatedAt, false) => db.list(CREATED_UP, args![above, below, limit]).await,
            (SortBy::UpdatedAt, true) => db.list(UPDATED_DOWN, args![behind.0, behind.1, limit, lowest]).await,
            (SortBy::UpdatedAt, false) => {
                let (value, number) = behind.max((lowest, i64::MIN));
                db.list(UPDATED_UP, args![value, number, limit]).await
            }
            (SortBy::Priority, true) => db.list(PRIORITY_DOWN, args![behind.0, behind.1, limit]).await,
            (SortBy::Priority, false) => db.list(PRIORITY_UP, args![behind.0, behind.1, limit]).await,
            (SortBy::DueAt, _) => self.along_dates(order, at, behind, rows).await,
        }
    }

    /// First what has a date, then what has none.
    async fn along_dates(&self, order: Order, at: Option<Key>, behind: (i64, i64), rows: usize) -> Result<Vec<Key>> {
        let limit = |rows: usize| i64::try_from(rows).map_err(Error::internal);
        let mut keys: Vec<Key> = Vec::new();
        let in_dates = at.is_none_or(|key| key.value.is_some());
        if in_dates {
            let dated = if order.descending { DUE_DOWN } else { DUE_UP };
            keys = self.db.list(dated, args![behind.0, behind.1, limit(rows)?]).await?;
        }
        if keys.len() < rows {
            let number = at.filter(|_| !in_dates).map(|key| key.number);
            let (above, below) =
                if order.descending { (0, number.unwrap_or(i64::MAX)) } else { (number.unwrap_or(0), i64::MAX) };
            let undated = if order.descending { UNDATED_DOWN } else { UNDATED_UP };
            keys.extend(self.db.list::<Key>(undated, args![above, below, limit(rows - keys.len())?]).await?);
        }
        Ok(keys)
    }

    /// What has a term that starts so; a ticket may come by several times.
    async fn within(
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
    async fn among(&self, terms: &[String], at: Option<Key>, rows: usize) -> Result<(Vec<Key>, usize)> {
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

    /// Keeps what is wanted of the keys that a walk came by.
    async fn sift(&self, walk: &mut Walk, keys: Vec<Key>, inline: bool) -> Result<()> {
        if walk.exact {
            walk.found.extend(keys);
            return Ok(());
        }
        for keys in keys.chunks(STEP_MAX) {
            let select = self.brief(keys);
            let rows: Vec<Brief> = if inline { self.db.select(&select).await? } else { self.db.scan(&select).await? };
            let found = rows.into_iter().filter(|row| row.matches(self.filter));
            let wanted: HashMap<i64, Key> = found.map(|row| (row.number, row.key(self.order))).collect();
            // In the wanted order the place is where the walk came by, even if the ticket has moved since.
            let places = keys.iter().filter_map(|key| Some((key, wanted.get(&key.number)?)));
            walk.found.extend(places.map(|(key, now)| if walk.ordered { *key } else { *now }));
        }
        Ok(())
    }

    /// Those of these tickets that the database finds to be wanted, with what it cannot judge.
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
        if let Some(since) = filter.created_since {
            select = select.compare("created_at", Compare::AtLeast, since);
        }
        if let Some(since) = filter.updated_since {
            select = select.compare("updated_at", Compare::AtLeast, since);
        }
        select.limit(keys.len())
    }

    /// The first of what was found, in order, behind where the page starts.
    fn sorted(&self, mut keys: Vec<Key>) -> Vec<Key> {
        keys.sort_by(|a, b| self.order.compare(*a, *b));
        keys.dedup();
        keys.retain(|key| self.after.is_none_or(|after| self.order.compare(*key, after).is_gt()));
        keys.truncate(self.want);
        keys
    }

    /// The tickets of a page, as they are now; one that has changed and is not wanted any more is left out.
    async fn read(&self, keys: &[Key]) -> Result<Vec<Ticket>> {
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

fn too_broad(suggestion: &str) -> Error {
    let detail =
        format!("More than {ROWS_MAX} tickets would have to be looked at one by one. Add a filter: {suggestion}.");
    Error::new(Code::QueryTooBroad, detail)
}
