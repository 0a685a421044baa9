//! Which tickets are wanted, in which order, and by which terms they can be found.
//!
//! Every ticket has a row in `ticket_terms` for each thing it can be found by. A term of a property starts with whether
//! the ticket is live or done: of the tickets of a technician or a customer, those that are live are few, however many
//! there have been.

pub mod race;
pub mod store;

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::fmt;

use kernel::base::{DeviceId, OrganizationId, RecordId, Timestamp, UserId, Word};
use kernel::store::Value;

use super::{Priority, Status, Ticket, Type};

/// More words than this in `q` are a mistake.
pub const WORDS_MAX: usize = 10;
pub const Q_CHARS_MAX: usize = 200;

/// Which tickets are wanted; `None` is all.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    pub status: Option<Vec<Status>>,
    pub priority: Option<Vec<Priority>>,
    pub r#type: Option<Vec<Type>>,
    /// Among them perhaps nobody.
    pub assignee_id: Option<Vec<IdOrNone<UserId>>>,
    pub organization_id: Option<Vec<IdOrNone<OrganizationId>>>,
    pub device_id: Option<Vec<DeviceId>>,
    pub tag: Option<Vec<String>>,
    pub external_id: Option<Vec<String>>,
    pub number: Option<Vec<i64>>,
    pub created_since: Option<Timestamp>,
    pub updated_since: Option<Timestamp>,
    /// Each is the beginning of a word of the subject.
    pub words: Vec<String>,
}

/// An id, or that there is none: what is assigned to nobody can be sought too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdOrNone<I>(pub Option<I>);

const NONE: &str = "none";

impl<I: RecordId> IdOrNone<I> {
    pub fn parse(text: &str) -> Option<Self> {
        if text == NONE { Some(IdOrNone(None)) } else { text.parse().ok().map(|id| IdOrNone(Some(id))) }
    }
}

impl<I: RecordId> fmt::Display for IdOrNone<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(id) => id.fmt(f),
            None => f.write_str(NONE),
        }
    }
}

impl Filter {
    pub fn matches(&self, ticket: &Ticket) -> bool {
        fn any<T: PartialEq>(wanted: Option<&Vec<T>>, value: &T) -> bool {
            wanted.is_none_or(|wanted| wanted.contains(value))
        }
        fn any_of<T: PartialEq>(wanted: Option<&Vec<T>>, values: &[T]) -> bool {
            wanted.is_none_or(|wanted| values.iter().any(|value| wanted.contains(value)))
        }
        any(self.status.as_ref(), &ticket.status)
            && any(self.priority.as_ref(), &ticket.priority)
            && any(self.r#type.as_ref(), &ticket.r#type)
            && any(self.assignee_id.as_ref(), &IdOrNone(ticket.assignee_id))
            && any(self.organization_id.as_ref(), &IdOrNone(ticket.organization_id))
            && any_of(self.device_id.as_ref(), &ticket.device_ids)
            && any_of(self.tag.as_ref(), &ticket.tags)
            && any_of(self.external_id.as_ref(), ticket.external_id.as_slice())
            && any(self.number.as_ref(), &ticket.number)
            && self.created_since.is_none_or(|since| ticket.created_at >= since)
            && self.updated_since.is_none_or(|since| ticket.updated_at >= since)
            && self.has_words(&ticket.subject)
    }

    /// Whether every word sought is the beginning of one of the subject's.
    fn has_words(&self, subject: &str) -> bool {
        let spoken = if self.words.is_empty() { BTreeSet::new() } else { words(subject) };
        self.words.iter().all(|start| spoken.iter().any(|word| word.starts_with(start.as_str())))
    }

    /// How many conditions there are, but for the two that bound a walk in their own order.
    fn conditions(&self) -> usize {
        let given = [
            self.status.is_some(),
            self.priority.is_some(),
            self.r#type.is_some(),
            self.assignee_id.is_some(),
            self.organization_id.is_some(),
            self.device_id.is_some(),
            self.tag.is_some(),
            self.external_id.is_some(),
            self.number.is_some(),
        ];
        given.into_iter().filter(|given| *given).count() + self.words.len()
    }

    /// A filter that would narrow this one down.
    fn suggestion(&self, short_word: bool) -> &'static str {
        let longer = "a longer word in q";
        let candidates = [
            (self.organization_id.is_none(), "organization_id"),
            (self.assignee_id.is_none(), "assignee_id"),
            (self.created_since.is_none(), "created_since"),
            (self.status.is_none(), "status"),
            (self.tag.is_none(), "tag"),
            (self.updated_since.is_none(), "updated_since"),
        ];
        if short_word {
            return longer;
        }
        candidates.into_iter().find(|(missing, _)| *missing).map_or(longer, |(_, name)| name)
    }

    /// The sets of terms of which a wanted ticket has at least one each, and the beginnings of further ones.
    fn terms(&self) -> (Vec<Vec<String>>, Vec<Vec<String>>) {
        let lives = self.lives();
        let both = |letter: char, values: Vec<String>| -> Vec<String> {
            lives.iter().flat_map(|live| values.iter().map(move |value| term(*live, letter, value))).collect()
        };
        let sets = [
            self.status.as_ref().map(|any| any.iter().map(|status| status_term(*status)).collect()),
            self.priority.as_deref().map(|any| both(PRIORITY, spelt(any))),
            self.r#type.as_deref().map(|any| both(TYPE, spelt(any))),
            self.assignee_id.as_deref().map(|any| both(ASSIGNEE, texts(any))),
            self.organization_id.as_deref().map(|any| both(ORGANIZATION, texts(any))),
            self.device_id.as_deref().map(|any| both(DEVICE, texts(any))),
            self.tag.as_deref().map(|any| both(TAG, texts(any))),
        ];
        let starts = self.words.iter().map(|word| both(WORD, vec![word.clone()]));
        (sets.into_iter().flatten().collect(), starts.collect())
    }

    /// Whether live tickets are wanted, done ones, or both.
    fn lives(&self) -> Vec<bool> {
        let wanted = |live: bool| self.status.as_ref().is_none_or(|any| any.iter().any(|one| one.is_done() != live));
        [true, false].into_iter().filter(|live| wanted(*live)).collect()
    }
}

fn texts<T: ToString>(values: &[T]) -> Vec<String> {
    values.iter().map(ToString::to_string).collect()
}

fn spelt<W: Word>(values: &[W]) -> Vec<String> {
    values.iter().map(|value| value.as_str().to_owned()).collect()
}

const PRIORITY: char = 'p';
const TYPE: char = 't';
const ASSIGNEE: char = 'a';
const ORGANIZATION: char = 'o';
const DEVICE: char = 'd';
const TAG: char = 'g';
const WORD: char = 'w';

fn status_term(status: Status) -> String {
    format!("s:{}", status.as_str())
}

fn term(live: bool, letter: char, value: &str) -> String {
    format!("{}{letter}:{value}", if live { '+' } else { '-' })
}

/// Everything a ticket can be found by.
pub fn terms_of(ticket: &Ticket) -> BTreeSet<String> {
    let live = !ticket.status.is_done();
    let mut terms = BTreeSet::from([
        status_term(ticket.status),
        term(live, PRIORITY, ticket.priority.as_str()),
        term(live, TYPE, ticket.r#type.as_str()),
        term(live, ASSIGNEE, &IdOrNone(ticket.assignee_id).to_string()),
        term(live, ORGANIZATION, &IdOrNone(ticket.organization_id).to_string()),
    ]);
    terms.extend(ticket.device_ids.iter().map(|id| term(live, DEVICE, &id.to_string())));
    terms.extend(ticket.tags.iter().map(|tag| term(live, TAG, tag)));
    terms.extend(words(&ticket.subject).iter().map(|word| term(live, WORD, word)));
    terms
}

/// The words of a text, in small letters.
pub fn words(text: &str) -> BTreeSet<String> {
    let parts = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    // Letter by letter: a beginning must not depend on what follows it, and a sigma is one wherever it stands.
    let small = |c: char| c.to_lowercase().map(|c| if c == 'ς' { 'σ' } else { c });
    parts.map(|word| word.chars().flat_map(small).collect()).collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SortBy {
    /// The order of numbers, too.
    CreatedAt,
    UpdatedAt,
    Priority,
    DueAt,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    pub by: SortBy,
    pub descending: bool,
}

impl Order {
    pub fn parse(text: &str) -> Result<Self, String> {
        let (name, descending) = text.strip_prefix('-').map_or((text, false), |name| (name, true));
        let by = match name {
            "created_at" => SortBy::CreatedAt,
            "updated_at" => SortBy::UpdatedAt,
            "priority" => SortBy::Priority,
            "due_at" => SortBy::DueAt,
            _ => {
                return Err(
                    "must be created_at, updated_at, priority or due_at, with - before it to descend".to_owned()
                );
            }
        };
        Ok(Order { by, descending })
    }

    /// Newest first; with `updated_since` in the order of the updates, so that a reader can go on from the last one.
    pub fn default_of(filter: &Filter) -> Self {
        match filter.updated_since {
            Some(_) => Order { by: SortBy::UpdatedAt, descending: false },
            None => Order { by: SortBy::CreatedAt, descending: true },
        }
    }

    /// Where a ticket stands in this order.
    fn key(self, ticket: &Ticket) -> Key {
        self.key_of(ticket.number, ticket.updated_at, ticket.priority.rank(), ticket.due_at)
    }

    /// Where a ticket stands of which no more is known than what can be sorted by.
    fn key_of(self, number: i64, updated_at: Timestamp, rank: i64, due_at: Option<Timestamp>) -> Key {
        let value = match self.by {
            SortBy::CreatedAt => None,
            SortBy::UpdatedAt => Some(updated_at.as_millis()),
            SortBy::Priority => Some(rank),
            SortBy::DueAt => due_at.map(Timestamp::as_millis),
        };
        Key { value, number }
    }

    /// Missing dates come last in either direction.
    fn compare(self, a: Key, b: Key) -> Ordering {
        let (values, numbers) = (a.value.cmp(&b.value), a.number.cmp(&b.number));
        let turned = |ordering: Ordering| if self.descending { ordering.reverse() } else { ordering };
        let missing = a.value.is_none().cmp(&b.value.is_none());
        missing.then(turned(values)).then(turned(numbers))
    }
}

/// As the query spells it.
impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.by {
            SortBy::CreatedAt => "created_at",
            SortBy::UpdatedAt => "updated_at",
            SortBy::Priority => "priority",
            SortBy::DueAt => "due_at",
        };
        write!(f, "{}{name}", if self.descending { "-" } else { "" })
    }
}

/// A place in an order: what it is sorted by, and the ticket's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    value: Option<i64>,
    number: i64,
}

impl Key {
    pub fn to_position(self) -> Vec<Value> {
        vec![self.value.into(), self.number.into()]
    }

    /// From a cursor that we have signed.
    pub fn from_position(position: &[Value]) -> Option<Self> {
        match position {
            [Value::Null, Value::Int(number)] => Some(Key { value: None, number: *number }),
            [Value::Int(value), Value::Int(number)] => Some(Key { value: Some(*value), number: *number }),
            _ => None,
        }
    }
}
