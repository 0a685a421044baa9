//! How the tickets of a page are found: along one index, or by reading the smallest of several sets whole.
//!
//! A walk in the wanted order that comes by nothing but what is wanted answers at once. Else a set that is small is read
//! whole, judged and sorted; and if none is, the walk goes on, judging what it comes by, until the page is full. What
//! neither can answer within the budget is refused, but for what is promised: that is followed to its end.

use std::collections::HashSet;

use kernel::base::{Code, Error, Result, Timestamp};
use kernel::http::{LIMIT_MAX, PageBytes};
use kernel::store::{Db, Tick};

use super::super::Ticket;
use super::{Among, Filter, Key, Order, SortBy};
use feature_kit::QUERY_TOO_BROAD;
use feature_kit::custom_fields::CUSTOM_BYTES_MAX;

/// Tickets that one request may look at along a walk, and the largest set that is read whole.
const ROWS_MAX: usize = 10_000;
/// The same for what is never refused: more than one customer has that are not done.
const PROMISED_ROWS_MAX: usize = 200_000;
/// A walk that has to look at each ticket starts with steps of this many, and doubles them up to the other.
const STEP_MIN: usize = 200;
const STEP_MAX: usize = 1_000;
/// A page is read in parts of so many: it may end before its limit, when its texts are long.
const READ_ROWS: usize = 50;
/// So many entries of an index cost as much as a look at a ticket.
const ENTRIES_PER_ROW: usize = 8;
/// So many tickets a request looks at on the threads that serve requests; then it leaves them alone. So small lists wait
/// for nobody's large ones.
pub(super) const INLINE_ROWS: usize = 2 * (LIMIT_MAX + 1);

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
    /// In the order of updates: nothing that changed behind this is shown; it comes when the reader goes on.
    pub until: Option<Tick>,
    /// How many tickets have been looked at, or entries that cost as much.
    pub looked: usize,
}

pub async fn find(db: &Db, filter: &Filter, order: Order, after: Option<Key>, limit: usize) -> Result<Found> {
    let mut search = Search { db, filter, order, after, want: limit + 1, above: 0, until: None, looked: 0 };
    if order.follows() {
        let last = db.last_tick().await?;
        // Only a clock that was set back leaves a reader there: it would wait for a time that may be far.
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

/// How much the texts of a ticket take that may be long, about, as JSON writes them.
fn long_bytes(ticket: &Ticket) -> usize {
    let custom = if ticket.custom_fields.is_empty() { 0 } else { CUSTOM_BYTES_MAX };
    let description = ticket.description.as_deref().unwrap_or_default();
    written(description) + custom + ticket.tags.iter().map(|tag| written(tag)).sum::<usize>()
}

/// What a text takes at most when it is written. Counted in two runs, which the processor does for many bytes at once.
fn written(text: &str) -> usize {
    let of_six = text.bytes().filter(u8::is_ascii_control).count();
    let of_two = text.bytes().filter(|byte| matches!(byte, b'"' | b'\\')).count();
    text.len() + 5 * of_six + of_two
}

/// Tickets that can be read whole, without regard to the order.
pub(super) enum Set {
    /// What has any of these terms.
    Terms(Vec<String>),
    /// What has a term that starts so: for beginnings that very many words have.
    Starts(Vec<String>),
    /// What changed since the moment that is asked for.
    Changed(Among),
    /// What was created since the moment that is asked for.
    Created,
}

/// Tickets that come by in the wanted order.
enum Walk {
    /// Along an index of tickets.
    Index(Among),
    /// What has a term of each of these, in the order of numbers.
    Terms(Vec<Vec<String>>),
}

struct Plan {
    walk: Walk,
    /// Whether it comes by nothing but what is wanted.
    exact: bool,
    sets: Vec<Set>,
    /// Whether a word is so short that it stands for very many.
    short_word: bool,
}

/// What came by in one step, and how far it went.
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

/// How far a walk has come, what is wanted of all that it has come by, and how far its next step goes.
struct Walked {
    at: Option<Key>,
    found: Vec<Key>,
    rows: usize,
}

impl Search<'_> {
    /// The first of what is wanted, in order, behind where the page starts.
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
        // What is frequent fills the page in a step or two.
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

    /// The indexes that could answer.
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
        // What bounds a walk in its own order needs no look at the ticket.
        let bounded = (filter.updated_since.is_none() || by == SortBy::UpdatedAt)
            && (filter.created_since.is_none() || by == SortBy::CreatedAt);
        let conditions = filter.conditions();
        let in_numbers = by == SortBy::CreatedAt && !terms.is_empty();
        let owners = owners().filter(|_| by == SortBy::UpdatedAt);
        let exact = bounded && (conditions == 0 || conditions == 1 && !short_word && (in_numbers || owners.is_some()));
        let walk = if in_numbers {
            // It needs no set of them: it is led by what is rare, and ends where that ends.
            Walk::Terms(terms)
        } else {
            sets.extend(terms.into_iter().map(Set::Terms));
            Walk::Index(owners.unwrap_or(if by == SortBy::CreatedAt { Among::All } else { filter.all() }))
        };
        Ok(Plan { walk, exact, sets, short_word })
    }

    /// The smallest of these, if it has no more than so many. Each is read no further than the smallest before it.
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

    /// What is wanted of all these.
    async fn whole(&mut self, numbers: Vec<i64>) -> Result<Vec<Key>> {
        let keys: Vec<Key> = numbers.into_iter().map(Key::of).collect();
        let mut found = Vec::new();
        for keys in keys.chunks(STEP_MAX) {
            found.extend(self.judge(keys, self.order).await?);
        }
        Ok(self.sorted(found))
    }

    /// Goes on until the page is full or nothing more comes, which is true; or until so many have been looked at.
    async fn walk(&mut self, walk: &Walk, walked: &mut Walked, most: usize) -> Result<bool> {
        while self.looked < most {
            let step = self.step(walk, walked.at, walked.rows).await?;
            for keys in step.keys.chunks(STEP_MAX) {
                let wanted = self.judge(keys, Order { by: SortBy::CreatedAt, ..self.order }).await?;
                let wanted: HashSet<i64> = wanted.iter().map(|key| key.number).collect();
                // The place is where the walk came by, even if the ticket has moved since.
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

    /// Of steps from one place: that of the rarest terms, but for what another has passed without coming by it. It has
    /// come to the end with the fewest, or it has come furthest.
    fn met(&self, mut steps: Vec<Step>) -> Step {
        let ended = (0..steps.len()).filter(|at| steps[*at].ended).min_by_key(|at| steps[*at].keys.len());
        let placed = steps.iter().enumerate().filter_map(|(at, step)| Some((at, step.last?)));
        let furthest = placed.max_by(|(_, a), (_, b)| self.order.compare(*a, *b)).map(|(at, _)| at);
        let mut lead = steps.swap_remove(ended.or(furthest).unwrap_or(0));
        for other in steps {
            // One that has ended has passed everything.
            let passed = other.last.filter(|_| !other.ended);
            let numbers: HashSet<i64> = other.keys.iter().map(|key| key.number).collect();
            let ahead = |key: &Key| passed.is_some_and(|passed| self.order.compare(*key, passed).is_gt());
            lead.keys.retain(|key| numbers.contains(&key.number) || ahead(key));
        }
        lead
    }

    /// What is never refused, though the budget is used up: the changes of a customer or a technician in the order of
    /// numbers, and what of theirs is not done in any order. Both are followed to their end, and the best are kept.
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

    /// Whether this is no change behind what every statement sees.
    fn is_seen(&self, key: Key) -> bool {
        let place = |at: i64| Tick { at: Timestamp::from_millis(at), sequence: key.sequence };
        self.until.is_none_or(|until| key.value.is_some_and(|at| place(at) <= until))
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

/// Each of many parts is read as far as all of them are, so that many go in smaller steps.
fn most_of(parts: usize, want: usize) -> usize {
    (ROWS_MAX / parts.max(1)).max(want)
}

fn too_broad(suggestion: &str) -> Error {
    let detail =
        format!("More than {ROWS_MAX} tickets would have to be looked at one by one. Add a filter: {suggestion}.");
    Error::new(QUERY_TOO_BROAD, detail)
}
