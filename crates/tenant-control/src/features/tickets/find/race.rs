//! Walks along indexes of tickets, and their race.
//!
//! A walk goes along one index, in the wanted order where it can. If several could answer, they race: each goes a step
//! at a time, and the first that has filled the page, or has come to its end, answers. So the most selective one wins
//! without anybody having counted, and what none can answer within the budget is refused.

use std::collections::{HashMap, HashSet};

use kernel::base::{Code, Error, Result, Timestamp};
use kernel::http::LIMIT_MAX;
use kernel::store::Db;

use super::super::Ticket;
use super::super::input::CUSTOM_BYTES_MAX;
use super::{Filter, Key, Order, SortBy};

/// Tickets that one request may look at, over all its walks.
const ROWS_MAX: usize = 10_000;
/// A walk that has to look at each ticket starts with steps of this many, and doubles them up to the other.
const STEP_MIN: usize = 200;
const STEP_MAX: usize = 1_000;
/// A page ends before its limit when the texts of its tickets come to this; it is read in parts of so many.
const PAGE_BYTES_MAX: usize = 4 * 1024 * 1024;
const READ_ROWS: usize = 50;
/// So many entries of an index cost as much as a look at a ticket.
const ENTRIES_PER_ROW: usize = 8;
/// So many tickets a request looks at on the threads that serve requests; then it leaves them alone. So small lists wait
/// for nobody's large ones.
const INLINE_ROWS: usize = 2 * (LIMIT_MAX + 1);

/// A page of tickets, and where the next one starts.
pub struct Found {
    pub tickets: Vec<Ticket>,
    pub next: Option<Key>,
}

/// What is sought.
pub(super) struct Search<'a> {
    pub db: &'a Db,
    pub filter: &'a Filter,
    pub order: Order,
    after: Option<Key>,
    /// One more than the page, which tells whether there is another.
    want: usize,
    /// Every wanted ticket has a number above this one.
    pub above: i64,
    /// In the order of updates: nothing that changed later than this is shown; it comes again when the reader goes on.
    pub until: Option<Timestamp>,
}

pub async fn find(db: &Db, filter: &Filter, order: Order, after: Option<Key>, limit: usize) -> Result<Found> {
    let mut search = Search { db, filter, order, after, want: limit + 1, above: 0, until: None };
    // Several statements do not see one state. What they could see differently is left to the next page or poll: shown
    // now, it would lead a reader who goes on from its time past what an earlier statement did not see yet.
    if (order == Order { by: SortBy::UpdatedAt, descending: false }) {
        search.until = Some(search.last_at().await?);
    }
    if let Some(since) = filter.created_since {
        let Some(first) = search.first_since(since).await? else {
            return Ok(Found { tickets: Vec::new(), next: None });
        };
        search.above = first - 1;
    }
    let mut keys = search.race().await?;
    if let Some(until) = search.until {
        keys.retain(|key| key.value.is_some_and(|at| at <= until.as_millis()));
    }
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
    /// How far it has come, and what it came by in its last step.
    at: Option<Key>,
    fresh: Vec<Key>,
    ended: bool,
    /// What is wanted of all that it has come by.
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
                walk.ended = keys.len() < rows;
                walk.at = keys.last().copied().or(walk.at);
                walk.fresh = keys;
                budget = budget.saturating_sub(entries / ENTRIES_PER_ROW);
            }
            self.strike_out(&mut walks);
            for walk in self.worth_a_look(&mut walks) {
                let inline = ROWS_MAX - budget <= INLINE_ROWS;
                budget = budget.saturating_sub(walk.fresh.len());
                self.sift(walk, inline).await?;
                if walk.ended || walk.ordered && walk.found.len() >= self.want {
                    return Ok(self.sorted(std::mem::take(&mut walk.found)));
                }
            }
            if budget == 0 {
                return Err(too_broad(self.filter.suggestion(short_word)));
            }
            self.catch_up(&mut walks);
            step = (2 * step).min(STEP_MAX);
        }
    }

    /// What a walk in the wanted order has come by and another has passed without coming by it, is not wanted. They
    /// have started from one place, so no ticket has to be looked at for that.
    fn strike_out(&self, walks: &mut [Walk]) {
        let passed: Vec<(usize, Option<Key>, HashSet<i64>)> = walks
            .iter()
            .enumerate()
            .filter(|(_, walk)| walk.ordered && matches!(walk.path, Path::Terms(_)))
            .map(|(at, walk)| {
                // One that has ended has passed everything.
                let until = walk.at.filter(|_| !walk.ended);
                (at, until, walk.fresh.iter().map(|key| key.number).collect())
            })
            .collect();
        for (at, walk) in walks.iter_mut().enumerate().filter(|(_, walk)| walk.ordered) {
            walk.fresh.retain(|key| {
                passed.iter().filter(|(other, ..)| *other != at).all(|(_, until, numbers)| {
                    numbers.contains(&key.number) || until.is_some_and(|until| self.order.compare(*key, until).is_gt())
                })
            });
        }
    }

    /// The walks whose last step has to be looked at: of those that have come to their end the shortest alone. Else of
    /// those in the wanted order the one that has come furthest, and all others, which have to come to their end.
    fn worth_a_look<'w>(&self, walks: &'w mut [Walk]) -> Vec<&'w mut Walk> {
        let shortest = (0..walks.len()).filter(|at| walks[*at].ended).min_by_key(|at| walks[*at].fresh.len());
        if let Some(at) = shortest {
            return vec![&mut walks[at]];
        }
        let furthest = self.furthest(walks);
        walks
            .iter_mut()
            .enumerate()
            .filter(|(at, walk)| !walk.ordered || Some(*at) == furthest)
            .map(|(_, walk)| walk)
            .collect()
    }

    fn furthest(&self, walks: &[Walk]) -> Option<usize> {
        let ordered = walks.iter().enumerate().filter(|(_, walk)| walk.ordered);
        let placed = ordered.filter_map(|(at, walk)| Some((at, walk.at?)));
        placed.max_by(|(_, a), (_, b)| self.order.compare(*a, *b)).map(|(at, _)| at)
    }

    /// Whoever walks in the wanted order and has come furthest has found all there is until there; the others go on
    /// from the same place.
    fn catch_up(&self, walks: &mut [Walk]) {
        let Some(first) = self.furthest(walks) else { return };
        let (at, found) = (walks[first].at, walks[first].found.clone());
        for walk in walks.iter_mut().filter(|walk| walk.ordered) {
            (walk.at, walk.found) = (at, found.clone());
        }
    }

    /// The indexes that could answer, and whether a word is so short that it stands for very many.
    async fn walks(&self) -> Result<(Vec<Walk>, bool)> {
        let walk = |path, ordered, exact| {
            let at = self.after.filter(|_| ordered);
            Walk { path, ordered, exact, at, fresh: Vec::new(), ended: false, found: Vec::new() }
        };
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

    /// Keeps what is wanted of the keys that a walk came by.
    async fn sift(&self, walk: &mut Walk, inline: bool) -> Result<()> {
        let keys = std::mem::take(&mut walk.fresh);
        if walk.exact {
            walk.found.extend(keys);
            return Ok(());
        }
        for keys in keys.chunks(STEP_MAX) {
            let wanted: HashMap<i64, Key> =
                self.judge(keys, inline).await?.into_iter().map(|key| (key.number, key)).collect();
            // In the wanted order the place is where the walk came by, even if the ticket has moved since.
            let places = keys.iter().filter_map(|key| Some((key, wanted.get(&key.number)?)));
            walk.found.extend(places.map(|(key, now)| if walk.ordered { *key } else { *now }));
        }
        Ok(())
    }

    /// The first of what was found, in order, behind where the page starts.
    fn sorted(&self, mut keys: Vec<Key>) -> Vec<Key> {
        keys.sort_by(|a, b| self.order.compare(*a, *b));
        keys.dedup();
        keys.retain(|key| self.after.is_none_or(|after| self.order.compare(*key, after).is_gt()));
        keys.truncate(self.want);
        keys
    }
}

fn too_broad(suggestion: &str) -> Error {
    let detail =
        format!("More than {ROWS_MAX} tickets would have to be looked at one by one. Add a filter: {suggestion}.");
    Error::new(Code::QueryTooBroad, detail)
}
