//! Finding the tickets of a page: by a walk along one index, or by reading the smallest of several sets whole.
//!
//! A walk in the requested order on which every ticket matches answers at once. Otherwise a small set is read whole,
//! filtered and sorted. If no set is small, the walk filters tickets until the page is full. A query that neither can answer
//! within the row budget is refused, except the guaranteed queries (`search_guaranteed`), which have a larger budget.

use std::collections::HashSet;

use kernel::base::{Code, Error, Result, Timestamp};
use kernel::http::{LIMIT_MAX, PageBytes};
use kernel::store::{Db, Tick};

use super::super::Ticket;
use super::{Among, Filter, Key, Order, SortBy};
use feature_kit::QUERY_TOO_BROAD;
use feature_kit::custom_fields::CUSTOM_BYTES_MAX;

/// The row budget of a walk, and the largest set that is read whole.
const ROWS_MAX: usize = 10_000;
/// The row budget of guaranteed queries: more live tickets than one customer has.
const PROMISED_ROWS_MAX: usize = 200_000;
/// A walk that filters tickets starts with steps of `STEP_MIN` rows and doubles them up to `STEP_MAX`.
const STEP_MIN: usize = 200;
const STEP_MAX: usize = 1_000;
/// Rows of a page that are read at once: a page with long texts may end before its limit.
const READ_ROWS: usize = 50;
/// Index entries that cost as much as examining one ticket.
const ENTRIES_PER_ROW: usize = 8;
/// Rows that a request examines on the threads that serve requests. Beyond that it runs elsewhere, so that small lists do
/// not wait for large ones.
pub(super) const INLINE_ROWS: usize = 2 * (LIMIT_MAX + 1);

/// A page of tickets, and the key after which the next page starts.
pub struct Found {
    pub tickets: Vec<Ticket>,
    pub next: Option<Key>,
}

/// One search and its progress.
pub(super) struct Search<'a> {
    pub db: &'a Db,
    pub filter: &'a Filter,
    pub order: Order,
    after: Option<Key>,
    /// One more than the page, to see whether there is another page.
    want: usize,
    /// Every matching ticket has a higher number than this.
    pub above: i64,
    /// In the order of updates, the last change that is shown. Later ones come when the reader continues.
    pub until: Option<Tick>,
    /// Rows examined so far, with index entries at their cost in rows.
    pub looked: usize,
}

pub async fn find(db: &Db, filter: &Filter, order: Order, after: Option<Key>, limit: usize) -> Result<Found> {
    let mut search = Search { db, filter, order, after, want: limit + 1, above: 0, until: None, looked: 0 };
    if order.follows() {
        let last = db.last_tick().await?;
        // The cursor is in the future because the tenant's clock was set back. The reader would wait until then.
        if after.and_then(|key| key.value).is_some_and(|at| at > last.at.as_millis()) {
            let detail =
                "The cursor is behind all changes: the tenant's clock was set back. Start again without a cursor.";
            return Err(Error::new(Code::InvalidCursor, detail));
        }
        search.until = Some(last);
    }
    if let Some(since) = filter.created_since {
        let Some(first) = search.first_since(since).await? else {
            return Ok(Found { tickets: Vec::new(), next: None });
        };
        search.above = first - 1;
    }
    let mut keys = search.keys().await?;
    keys.retain(|key| search.is_seen(*key));
    let more = keys.len() > limit;
    keys.truncate(limit);
    let (mut tickets, mut bytes, mut last) = (Vec::new(), PageBytes::default(), None);
    for part in keys.chunks(READ_ROWS) {
        for ticket in search.read(part).await? {
            if !bytes.fits(long_bytes(&ticket)) {
                return Ok(Found { tickets, next: last });
            }
            last = part.iter().find(|key| key.number == ticket.number).copied();
            tickets.push(ticket);
        }
        last = part.last().copied();
    }
    Ok(Found { tickets, next: last.filter(|_| more) })
}

/// An estimate of the JSON size of a ticket's long texts.
fn long_bytes(ticket: &Ticket) -> usize {
    let custom = if ticket.custom_fields.is_empty() { 0 } else { CUSTOM_BYTES_MAX };
    let description = ticket.description.as_deref().unwrap_or_default();
    written(description) + custom + ticket.tags.iter().map(|tag| written(tag)).sum::<usize>()
}

/// The largest JSON size of a text. Two passes, because each is vectorized.
fn written(text: &str) -> usize {
    let of_six = text.bytes().filter(u8::is_ascii_control).count();
    let of_two = text.bytes().filter(|byte| matches!(byte, b'"' | b'\\')).count();
    text.len() + 5 * of_six + of_two
}

/// A set of tickets that is read whole, in any order.
pub(super) enum Set {
    /// Tickets with any of these terms.
    Terms(Vec<String>),
    /// Tickets with a term of any of these prefixes, where a prefix has too many terms to list.
    Starts(Vec<String>),
    /// Tickets changed since `updated_since`.
    Changed(Among),
    /// Tickets created since `created_since`.
    Created,
}

/// A source of tickets in the requested order.
enum Walk {
    /// Along an index of tickets.
    Index(Among),
    /// Tickets with a term of each of these sets, in the order of numbers.
    Terms(Vec<Vec<String>>),
}

struct Plan {
    walk: Walk,
    /// Whether every ticket of the walk matches.
    exact: bool,
    sets: Vec<Set>,
    /// Whether a word is so short that it is the prefix of very many.
    short_word: bool,
}

/// The keys of one step of a walk, and how far it went.
struct Step {
    keys: Vec<Key>,
    last: Option<Key>,
    ended: bool,
}

impl Step {
    fn new(keys: Vec<Key>, rows: usize) -> Self {
        Step { last: keys.last().copied(), ended: keys.len() < rows, keys }
    }
}

/// The position of a walk, the matching keys so far, and the size of its next step.
struct Walked {
    at: Option<Key>,
    found: Vec<Key>,
    rows: usize,
}

impl Search<'_> {
    /// The keys of the page and one more, in order.
    async fn keys(&mut self) -> Result<Vec<Key>> {
        if let Some(numbers) = self.named().await? {
            return self.whole(numbers).await;
        }
        let plan = self.plan().await?;
        if plan.exact {
            let step = self.step(&plan.walk, self.after, self.want).await?;
            return Ok(self.sorted(step.keys));
        }
        if let Some(numbers) = self.smallest(&plan.sets, INLINE_ROWS).await? {
            return self.whole(numbers).await;
        }
        // If most tickets match, a step or two fill the page.
        let mut walked = Walked { at: self.after, found: Vec::new(), rows: STEP_MIN.max(2 * self.want) };
        if self.walk(&plan.walk, &mut walked, INLINE_ROWS).await? {
            return Ok(self.sorted(walked.found));
        }
        if let Some(numbers) = self.smallest(&plan.sets, ROWS_MAX).await? {
            return self.whole(numbers).await;
        }
        if self.walk(&plan.walk, &mut walked, ROWS_MAX).await? {
            return Ok(self.sorted(walked.found));
        }
        match self.promised().await? {
            Some(keys) => Ok(keys),
            None => Err(too_broad(self.filter.suggestion(plan.short_word))),
        }
    }

    /// Chooses the walk and the sets that could answer the query.
    async fn plan(&self) -> Result<Plan> {
        let (filter, by) = (self.filter, self.order.by);
        let (mut terms, mut starts) = (filter.terms(), Vec::new());
        for start in filter.starts() {
            match self.expand(&start).await? {
                Some(words) => terms.push(words),
                None => starts.push(start),
            }
        }
        let short_word = !starts.is_empty();
        let mut sets: Vec<Set> = starts.into_iter().map(Set::Starts).collect();
        let owners = || filter.owners().map(Among::Owners);
        if filter.updated_since.is_some() && by != SortBy::UpdatedAt {
            sets.push(Set::Changed(owners().unwrap_or(filter.all())));
        }
        if filter.created_since.is_some() && by != SortBy::CreatedAt {
            sets.push(Set::Created);
        }
        // A bound in the walk's own order is checked without examining the ticket.
        let bounded = (filter.updated_since.is_none() || by == SortBy::UpdatedAt)
            && (filter.created_since.is_none() || by == SortBy::CreatedAt);
        let conditions = filter.conditions();
        let in_numbers = by == SortBy::CreatedAt && !terms.is_empty();
        let owners = owners().filter(|_| by == SortBy::UpdatedAt);
        let exact = bounded && (conditions == 0 || conditions == 1 && !short_word && (in_numbers || owners.is_some()));
        let walk = if in_numbers {
            // The terms need no sets: the walk follows the rarest of them, and ends where that ends.
            Walk::Terms(terms)
        } else {
            sets.extend(terms.into_iter().map(Set::Terms));
            Walk::Index(owners.unwrap_or(if by == SortBy::CreatedAt { Among::All } else { filter.all() }))
        };
        Ok(Plan { walk, exact, sets, short_word })
    }

    /// The numbers of the smallest set, if it has at most `most`. Each set is read no further than the smallest before it.
    async fn smallest(&self, sets: &[Set], most: usize) -> Result<Option<Vec<i64>>> {
        let (mut rows, mut smallest) = (most + 1, None);
        for set in sets {
            let numbers = self.members(set, rows).await?;
            if numbers.len() < rows {
                rows = numbers.len().max(1);
                smallest = Some(numbers);
            }
        }
        Ok(smallest)
    }

    /// The sorted keys of those of these tickets that match.
    async fn whole(&mut self, numbers: Vec<i64>) -> Result<Vec<Key>> {
        let keys: Vec<Key> = numbers.into_iter().map(Key::of).collect();
        let mut found = Vec::new();
        for keys in keys.chunks(STEP_MAX) {
            found.extend(self.judge(keys, self.order).await?);
        }
        Ok(self.sorted(found))
    }

    /// Continues the walk. True if the page is full or the walk has ended; false if `most` rows have been examined.
    async fn walk(&mut self, walk: &Walk, walked: &mut Walked, most: usize) -> Result<bool> {
        while self.looked < most {
            let step = self.step(walk, walked.at, walked.rows).await?;
            for keys in step.keys.chunks(STEP_MAX) {
                let wanted = self.judge(keys, Order { by: SortBy::CreatedAt, ..self.order }).await?;
                let wanted: HashSet<i64> = wanted.iter().map(|key| key.number).collect();
                // The key is the one that the walk saw, even if the ticket has moved since.
                walked.found.extend(keys.iter().filter(|key| wanted.contains(&key.number)));
            }
            if step.ended || walked.found.len() >= self.want {
                return Ok(true);
            }
            walked.at = step.last;
            walked.rows = (2 * walked.rows).min(STEP_MAX);
        }
        Ok(false)
    }

    async fn step(&mut self, walk: &Walk, at: Option<Key>, rows: usize) -> Result<Step> {
        match walk {
            Walk::Index(among) => {
                let rows = match among {
                    Among::Owners(owners) => rows.min(most_of(owners.ids.len(), self.want)),
                    _ => rows,
                };
                let mut step = Step::new(self.along(self.order, among, at, rows).await?, rows);
                step.ended |= step.last.is_some_and(|last| !self.is_seen(last));
                Ok(step)
            }
            Walk::Terms(sets) => {
                let mut steps = Vec::new();
                for terms in sets {
                    let rows = rows.min(most_of(terms.len(), self.want));
                    let (keys, entries) = self.among(terms, at, rows).await?;
                    self.looked += entries / ENTRIES_PER_ROW;
                    steps.push(Step::new(keys, rows));
                }
                Ok(self.met(steps))
            }
        }
    }

    /// Intersects steps that start at one position. The step of the rarest terms leads: the one that ended with the fewest
    /// keys, or else the one that went furthest. Keys that another step has passed without finding them are removed.
    fn met(&self, mut steps: Vec<Step>) -> Step {
        let ended = (0..steps.len()).filter(|at| steps[*at].ended).min_by_key(|at| steps[*at].keys.len());
        let placed = steps.iter().enumerate().filter_map(|(at, step)| Some((at, step.last?)));
        let furthest = placed.max_by(|(_, a), (_, b)| self.order.compare(*a, *b)).map(|(at, _)| at);
        let mut lead = steps.swap_remove(ended.or(furthest).unwrap_or(0));
        for other in steps {
            // A step that has ended has passed every key.
            let passed = other.last.filter(|_| !other.ended);
            let numbers: HashSet<i64> = other.keys.iter().map(|key| key.number).collect();
            let ahead = |key: &Key| passed.is_some_and(|passed| self.order.compare(*key, passed).is_gt());
            lead.keys.retain(|key| numbers.contains(&key.number) || ahead(key));
        }
        lead
    }

    /// Answers queries that are never refused: the changes of a customer or technician in the order of numbers, and their
    /// live tickets in any order. Both are read to the end, and the first keys of the order are kept.
    async fn promised(&mut self) -> Result<Option<Vec<Key>>> {
        let filter = self.filter;
        let Some(owners) = filter.owners() else { return Ok(None) };
        let changes = filter.conditions() == 1 && filter.created_since.is_none() && self.order.by == SortBy::CreatedAt;
        if !changes && !filter.is_live() {
            return Ok(None);
        }
        let updates = Order { by: SortBy::UpdatedAt, descending: false };
        let terms = owners.terms.clone();
        let rows =
            if changes { most_of(owners.ids.len(), self.want) } else { most_of(terms.len(), self.want).min(STEP_MAX) };
        let among = Among::Owners(owners);
        let (mut at, mut found, mut budget) = (None, Vec::new(), PROMISED_ROWS_MAX);
        while budget > 0 {
            let step = if changes {
                let (keys, entries) = self.along_counted(updates, &among, at, rows).await?;
                found.extend(keys.iter().map(|key| Key::of(key.number)));
                budget = budget.saturating_sub(entries.div_ceil(ENTRIES_PER_ROW));
                Step::new(keys, rows)
            } else {
                let (keys, entries) = self.among(&terms, at, rows).await?;
                found.extend(self.judge(&keys, self.order).await?);
                budget = budget.saturating_sub(keys.len().max(entries.div_ceil(ENTRIES_PER_ROW)));
                Step::new(keys, rows)
            };
            found = self.sorted(found);
            if step.ended {
                return Ok(Some(found));
            }
            at = step.last;
        }
        Ok(None)
    }

    /// Whether the change is not newer than `until`, up to which every statement sees all changes.
    fn is_seen(&self, key: Key) -> bool {
        let place = |at: i64| Tick { at: Timestamp::from_millis(at), sequence: key.sequence };
        self.until.is_none_or(|until| key.value.is_some_and(|at| place(at) <= until))
    }

    /// The first of these keys after the start of the page, sorted and without duplicates.
    fn sorted(&self, mut keys: Vec<Key>) -> Vec<Key> {
        keys.sort_by(|a, b| self.order.compare(*a, *b));
        keys.dedup();
        keys.retain(|key| self.after.is_none_or(|after| self.order.compare(*key, after).is_gt()));
        keys.truncate(self.want);
        keys
    }
}

/// Rows per step for each of `parts`: every part is read to this limit, so more parts take smaller steps.
fn most_of(parts: usize, want: usize) -> usize {
    (ROWS_MAX / parts.max(1)).max(want)
}

fn too_broad(suggestion: &str) -> Error {
    let detail =
        format!("More than {ROWS_MAX} tickets would have to be looked at one by one. Add a filter: {suggestion}.");
    Error::new(QUERY_TOO_BROAD, detail)
}
