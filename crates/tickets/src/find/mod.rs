//! Which tickets are wanted, in which order, and by which terms they can be found.
//!
//! Every ticket has a row in `ticket_terms` for each thing it can be found by. A term of a property starts with whether
//! the ticket is live or done: of the tickets of a technician or a customer, those that are live are few, however many
//! there have been.

mod order;
pub mod search;
pub mod store;

use std::collections::BTreeSet;

use feature_kit::{IdOrNone, NO_ID, word_set};
use kernel::base::{Timestamp, UserId, Word};

use super::{Priority, Status, Ticket, Type};
use fleet::devices::DeviceId;
use people::organizations::OrganizationId;

pub use order::{Key, Order, SortBy};

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
        let spoken = if self.words.is_empty() { BTreeSet::new() } else { word_set(subject) };
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

    /// The sets of terms of which a wanted ticket has at least one each.
    fn terms(&self) -> Vec<Vec<String>> {
        let sets = [
            self.status.as_ref().map(|any| any.iter().map(|status| status_term(*status)).collect()),
            self.priority.as_deref().map(|any| self.spell(PRIORITY, &spelt(any))),
            self.r#type.as_deref().map(|any| self.spell(TYPE, &spelt(any))),
            self.assignee_id.as_deref().map(|any| self.spell(ASSIGNEE, &texts(any))),
            self.organization_id.as_deref().map(|any| self.spell(ORGANIZATION, &texts(any))),
            self.device_id.as_deref().map(|any| self.spell(DEVICE, &texts(any))),
            self.tag.as_deref().map(|any| self.spell(TAG, &texts(any))),
        ];
        sets.into_iter().flatten().collect()
    }

    /// The beginnings of further terms, for each word that is sought.
    fn starts(&self) -> Vec<Vec<String>> {
        self.words.iter().map(|word| self.spell(WORD, std::slice::from_ref(word))).collect()
    }

    /// These values of live tickets, of done ones, or of both.
    fn spell(&self, letter: char, values: &[String]) -> Vec<String> {
        let lives = self.lives();
        lives.iter().flat_map(|live| values.iter().map(|value| term(*live, letter, value))).collect()
    }

    /// The tickets of the customers that are asked for, or else of the technicians.
    fn owners(&self) -> Option<Owners> {
        let of = |column, letter, values: Vec<String>| {
            let ids = values.iter().map(|value| Some(value.clone()).filter(|value| value != NO_ID)).collect();
            Owners { column, ids, terms: self.spell(letter, &values) }
        };
        let organizations = self.organization_id.as_deref().map(|any| of("organization_id", ORGANIZATION, texts(any)));
        organizations.or_else(|| self.assignee_id.as_deref().map(|any| of("assignee_id", ASSIGNEE, texts(any))))
    }

    /// The smallest index that has everything wanted, whatever else is asked for.
    fn all(&self) -> Among {
        if self.is_live() { Among::Live } else { Among::All }
    }

    /// Whether nothing is wanted that is done.
    fn is_live(&self) -> bool {
        self.lives() == [true]
    }

    /// Whether live tickets are wanted, done ones, or both.
    fn lives(&self) -> Vec<bool> {
        let wanted = |live: bool| self.status.as_ref().is_none_or(|any| any.iter().any(|one| one.is_done() != live));
        [true, false].into_iter().filter(|live| wanted(*live)).collect()
    }
}

/// Which tickets an index in some order has.
enum Among {
    All,
    Live,
    /// In the order of updates alone.
    Owners(Owners),
}

/// Customers or technicians whose tickets are wanted.
struct Owners {
    column: &'static str,
    /// None: what has none.
    ids: Vec<Option<String>>,
    terms: Vec<String>,
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
    terms.extend(word_set(&ticket.subject).iter().map(|word| term(live, WORD, word)));
    terms
}
