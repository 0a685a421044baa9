//! Finding the tickets of a page: by a walk along one index, or by reading the smallest of several sets whole.
//!
//! A walk in the requested order on which every ticket matches answers at once. Otherwise a small set is read whole,
//! filtered and sorted. If no set is small, the walk filters tickets until the page is full. A query that neither can answer
//! within the row budget is refused, except the guaranteed queries (`search_guaranteed`), which have a larger budget.

use std::collections::HashSet;

use feature_kit::QUERY_TOO_BROAD;
use feature_kit::custom_fields::CUSTOM_BYTES_MAX;
use kernel::base::{Error, Result, Timestamp};
use kernel::http::{LIMIT_MAX, load_records};
use kernel::store::delta::check_cursor;
use kernel::store::{Db, PostingStep, Tick, find_smallest_set};

use super::super::Ticket;
use super::{Filter, IndexScope, SortBy, TicketOrder, TicketSortKey};

/// The row budget of a walk, and the largest set that is read whole.
const ROWS_MAX: usize = 10_000;
/// The row budget of guaranteed queries: more live tickets than one customer has.
const GUARANTEED_ROWS_MAX: usize = 200_000;
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
pub struct TicketPage {
    pub tickets: Vec<Ticket>,
    pub next: Option<TicketSortKey>,
}

/// One search and its progress.
pub(super) struct TicketSearch<'a> {
    pub db: &'a Db,
    pub filter: &'a Filter,
    pub order: TicketOrder,
    after: Option<TicketSortKey>,
    /// One more than the page, to see whether there is another page.
    rows_wanted: usize,
    /// Every matching ticket has a higher number than this.
    pub above_number: i64,
    /// In the order of updates, the last change that is shown. Later ones come when the reader continues.
    pub until: Option<Tick>,
    /// Rows examined so far, with index entries at their cost in rows.
    pub rows_examined: usize,
}

pub async fn search_tickets(
    db: &Db,
    filter: &Filter,
    order: TicketOrder,
    after: Option<TicketSortKey>,
    limit: usize,
) -> Result<TicketPage> {
    let mut search = TicketSearch {
        db,
        filter,
        order,
        after,
        rows_wanted: limit + 1,
        above_number: 0,
        until: None,
        rows_examined: 0,
    };
    if order.follows_updates() {
        let last = db.last_tick().await?;
        if let Some(at) = after.and_then(|key| key.value) {
            check_cursor(Timestamp::from_millis(at), last)?;
        }
        search.until = Some(last);
    }
    if let Some(since) = filter.created_since {
        let Some(first) = search.find_first_since(since).await? else {
            return Ok(TicketPage { tickets: Vec::new(), next: None });
        };
        search.above_number = first - 1;
    }
    let mut keys = search.search_keys().await?;
    keys.retain(|key| search.is_visible(*key));
    let more = keys.len() > limit;
    keys.truncate(limit);
    let next = keys.last().copied().filter(|_| more);
    let size = |ticket: &Ticket| Ok(long_text_bytes(ticket));
    let (tickets, next) = load_records(&keys, next, |_| READ_ROWS, size, |part| search.load_tickets(part)).await?;
    Ok(TicketPage { tickets, next })
}

/// An estimate of the JSON size of a ticket's long texts.
fn long_text_bytes(ticket: &Ticket) -> usize {
    let custom = if ticket.custom_fields.is_empty() { 0 } else { CUSTOM_BYTES_MAX };
    let description = ticket.description.as_deref().unwrap_or_default();
    json_bytes_max(description) + custom + ticket.tags.iter().map(|tag| json_bytes_max(tag)).sum::<usize>()
}

/// The largest JSON size of a text. Two passes, because each is vectorized.
fn json_bytes_max(text: &str) -> usize {
    let of_six = text.bytes().filter(u8::is_ascii_control).count();
    let of_two = text.bytes().filter(|byte| matches!(byte, b'"' | b'\\')).count();
    text.len() + 5 * of_six + of_two
}

/// A set of tickets that is read whole, in any order.
pub(super) enum TicketSet {
    /// Tickets with any of these terms.
    Terms(Vec<String>),
    /// Tickets with a term of any of these prefixes, where a prefix has too many terms to list.
    Prefixes(Vec<String>),
    /// Tickets changed since `updated_since`.
    Changed(IndexScope),
    /// Tickets created since `created_since`.
    Created,
}

/// A source of tickets in the requested order.
enum TicketWalk {
    /// Along an index of tickets.
    Index(IndexScope),
    /// Tickets with a term of each of these sets, in the order of numbers.
    Terms(Vec<Vec<String>>),
}

struct TicketQueryPlan {
    walk: TicketWalk,
    /// Whether every ticket of the walk matches.
    exact: bool,
    sets: Vec<TicketSet>,
    /// Whether a word is so short that it is the prefix of very many.
    short_word: bool,
}

/// The keys of one step of a walk, and how far it went.
struct WalkStep {
    keys: Vec<TicketSortKey>,
    last: Option<TicketSortKey>,
    ended: bool,
}

impl WalkStep {
    fn new(keys: Vec<TicketSortKey>, rows: usize) -> Self {
        WalkStep { last: keys.last().copied(), ended: keys.len() < rows, keys }
    }

    fn from_postings(step: PostingStep) -> Self {
        let keys = step.numbers.into_iter().map(TicketSortKey::from_number).collect();
        WalkStep { keys, last: step.last.map(TicketSortKey::from_number), ended: step.ended }
    }
}

/// The position of a walk, the matching keys so far, and the size of its next step.
struct WalkProgress {
    at: Option<TicketSortKey>,
    found: Vec<TicketSortKey>,
    rows: usize,
}

impl TicketSearch<'_> {
    /// The keys of the page and one more, in order.
    async fn search_keys(&mut self) -> Result<Vec<TicketSortKey>> {
        if let Some(numbers) = self.find_named_numbers().await? {
            return self.filter_numbers(numbers).await;
        }
        let plan = self.plan_query().await?;
        if plan.exact {
            let step = self.take_step(&plan.walk, self.after, self.rows_wanted).await?;
            return Ok(self.sort_and_truncate(step.keys));
        }
        if let Some(numbers) = self.find_smallest_set(&plan.sets, INLINE_ROWS).await? {
            return self.filter_numbers(numbers).await;
        }
        // If most tickets match, a step or two fill the page.
        let mut walked = WalkProgress { at: self.after, found: Vec::new(), rows: STEP_MIN.max(2 * self.rows_wanted) };
        if self.continue_walk(&plan.walk, &mut walked, INLINE_ROWS).await? {
            return Ok(self.sort_and_truncate(walked.found));
        }
        if let Some(numbers) = self.find_smallest_set(&plan.sets, ROWS_MAX).await? {
            return self.filter_numbers(numbers).await;
        }
        if self.continue_walk(&plan.walk, &mut walked, ROWS_MAX).await? {
            return Ok(self.sort_and_truncate(walked.found));
        }
        match self.search_guaranteed().await? {
            Some(keys) => Ok(keys),
            None => Err(too_broad(self.filter.suggest_filter(plan.short_word))),
        }
    }

    /// Chooses the walk and the sets that could answer the query.
    async fn plan_query(&self) -> Result<TicketQueryPlan> {
        let (filter, by) = (self.filter, self.order.by);
        let (mut terms, mut starts) = (filter.required_terms(), Vec::new());
        for start in filter.word_prefixes() {
            match self.expand_prefixes(&start).await? {
                Some(words) => terms.push(words),
                None => starts.push(start),
            }
        }
        let short_word = !starts.is_empty();
        let mut sets: Vec<TicketSet> = starts.into_iter().map(TicketSet::Prefixes).collect();
        let owners = || filter.find_owners().map(IndexScope::Owners);
        if filter.updated_since.is_some() && by != SortBy::UpdatedAt {
            sets.push(TicketSet::Changed(owners().unwrap_or(filter.index_scope())));
        }
        if filter.created_since.is_some() && by != SortBy::CreatedAt {
            sets.push(TicketSet::Created);
        }
        // A bound in the walk's own order is checked without examining the ticket.
        let bounded = (filter.updated_since.is_none() || by == SortBy::UpdatedAt)
            && (filter.created_since.is_none() || by == SortBy::CreatedAt);
        let conditions = filter.count_conditions();
        let in_numbers = by == SortBy::CreatedAt && !terms.is_empty();
        let owners = owners().filter(|_| by == SortBy::UpdatedAt);
        let exact = bounded && (conditions == 0 || conditions == 1 && !short_word && (in_numbers || owners.is_some()));
        let walk = if in_numbers {
            // The terms need no sets: the walk follows the rarest of them, and ends where that ends.
            TicketWalk::Terms(terms)
        } else {
            sets.extend(terms.into_iter().map(TicketSet::Terms));
            TicketWalk::Index(owners.unwrap_or(if by == SortBy::CreatedAt {
                IndexScope::All
            } else {
                filter.index_scope()
            }))
        };
        Ok(TicketQueryPlan { walk, exact, sets, short_word })
    }

    async fn find_smallest_set(&self, sets: &[TicketSet], most: usize) -> Result<Option<Vec<i64>>> {
        find_smallest_set(sets, most, |set, most| self.load_set_numbers(set, most)).await
    }

    /// The sorted keys of those of these tickets that match.
    async fn filter_numbers(&mut self, numbers: Vec<i64>) -> Result<Vec<TicketSortKey>> {
        let keys: Vec<TicketSortKey> = numbers.into_iter().map(TicketSortKey::from_number).collect();
        let mut found = Vec::new();
        for keys in keys.chunks(STEP_MAX) {
            found.extend(self.filter_keys(keys, self.order).await?);
        }
        Ok(self.sort_and_truncate(found))
    }

    /// Continues the walk. True if the page is full or the walk has ended; false if `most` rows have been examined.
    async fn continue_walk(&mut self, walk: &TicketWalk, walked: &mut WalkProgress, most: usize) -> Result<bool> {
        while self.rows_examined < most {
            let step = self.take_step(walk, walked.at, walked.rows).await?;
            for keys in step.keys.chunks(STEP_MAX) {
                let matches = self.filter_keys(keys, TicketOrder { by: SortBy::CreatedAt, ..self.order }).await?;
                let matches: HashSet<i64> = matches.iter().map(|key| key.number).collect();
                // The key is the one that the walk saw, even if the ticket has moved since.
                walked.found.extend(keys.iter().filter(|key| matches.contains(&key.number)));
            }
            if step.ended || walked.found.len() >= self.rows_wanted {
                return Ok(true);
            }
            walked.at = step.last;
            walked.rows = (2 * walked.rows).min(STEP_MAX);
        }
        Ok(false)
    }

    async fn take_step(&mut self, walk: &TicketWalk, at: Option<TicketSortKey>, rows: usize) -> Result<WalkStep> {
        match walk {
            TicketWalk::Index(scope) => {
                let rows = match scope {
                    IndexScope::Owners(owners) => rows.min(rows_per_part(owners.ids.len(), self.rows_wanted)),
                    _ => rows,
                };
                let mut step = WalkStep::new(self.walk_index(self.order, scope, at, rows).await?.0, rows);
                step.ended |= step.last.is_some_and(|last| !self.is_visible(last));
                Ok(step)
            }
            TicketWalk::Terms(sets) => {
                let mut steps = Vec::new();
                for terms in sets {
                    let rows = rows.min(rows_per_part(terms.len(), self.rows_wanted));
                    steps.push(self.walk_terms(terms, at, rows).await?);
                }
                let step = PostingStep::intersect_steps(steps, self.order.direction());
                self.rows_examined += step.postings / ENTRIES_PER_ROW;
                Ok(WalkStep::from_postings(step))
            }
        }
    }

    /// Answers queries that are never refused: the changes of a customer or technician in the order of numbers, and their
    /// live tickets in any order. Both are read to the end, and the first keys of the order are kept.
    async fn search_guaranteed(&mut self) -> Result<Option<Vec<TicketSortKey>>> {
        let filter = self.filter;
        let Some(owners) = filter.find_owners() else { return Ok(None) };
        let changes =
            filter.count_conditions() == 1 && filter.created_since.is_none() && self.order.by == SortBy::CreatedAt;
        if !changes && !filter.is_live_only() {
            return Ok(None);
        }
        let updates = TicketOrder { by: SortBy::UpdatedAt, descending: false };
        let terms = owners.terms.clone();
        let rows = if changes {
            rows_per_part(owners.ids.len(), self.rows_wanted)
        } else {
            rows_per_part(terms.len(), self.rows_wanted).min(STEP_MAX)
        };
        let scope = IndexScope::Owners(owners);
        let (mut at, mut found, mut budget) = (None, Vec::new(), GUARANTEED_ROWS_MAX);
        while budget > 0 {
            let step = if changes {
                let (keys, entries) = self.walk_index(updates, &scope, at, rows).await?;
                found.extend(keys.iter().map(|key| TicketSortKey::from_number(key.number)));
                budget = budget.saturating_sub(entries.div_ceil(ENTRIES_PER_ROW));
                WalkStep::new(keys, rows)
            } else {
                let postings = self.walk_terms(&terms, at, rows).await?;
                let cost = postings.numbers.len().max(postings.postings.div_ceil(ENTRIES_PER_ROW));
                budget = budget.saturating_sub(cost);
                let step = WalkStep::from_postings(postings);
                found.extend(self.filter_keys(&step.keys, self.order).await?);
                step
            };
            found = self.sort_and_truncate(found);
            if step.ended {
                return Ok(Some(found));
            }
            at = step.last;
        }
        Ok(None)
    }

    /// Whether the change is not newer than `until`, up to which every statement sees all changes.
    fn is_visible(&self, key: TicketSortKey) -> bool {
        let to_tick = |at: i64| Tick { at: Timestamp::from_millis(at), sequence: key.sequence };
        self.until.is_none_or(|until| key.value.is_some_and(|at| to_tick(at) <= until))
    }

    /// The first of these keys after the start of the page, sorted and without duplicates.
    fn sort_and_truncate(&self, mut keys: Vec<TicketSortKey>) -> Vec<TicketSortKey> {
        keys.sort_by(|a, b| self.order.compare_keys(*a, *b));
        keys.dedup();
        keys.retain(|key| self.after.is_none_or(|after| self.order.compare_keys(*key, after).is_gt()));
        keys.truncate(self.rows_wanted);
        keys
    }
}

/// Rows per step for each of `parts`: every part is read to this limit, so more parts take smaller steps.
fn rows_per_part(parts: usize, want: usize) -> usize {
    (ROWS_MAX / parts.max(1)).max(want)
}

fn too_broad(suggestion: &str) -> Error {
    let detail =
        format!("More than {ROWS_MAX} tickets would have to be checked one by one. Add a filter: {suggestion}.");
    Error::new(QUERY_TOO_BROAD, detail)
}
