//! The filter of the ticket list, and the terms of the inverted index.
//!
//! Every ticket has a posting in `ticket_terms` for each value it can be found by. The term of a property starts with
//! whether the ticket is live or done, because a technician or customer has few live tickets, however many there have been.

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

/// Which tickets to list; `None` matches all.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    pub status: Option<Vec<Status>>,
    pub priority: Option<Vec<Priority>>,
    pub r#type: Option<Vec<Type>>,
    /// May include "none": assigned to nobody.
    pub assignee_id: Option<Vec<IdOrNone<UserId>>>,
    pub organization_id: Option<Vec<IdOrNone<OrganizationId>>>,
    pub device_id: Option<Vec<DeviceId>>,
    pub tag: Option<Vec<String>>,
    pub external_id: Option<Vec<String>>,
    pub number: Option<Vec<i64>>,
    pub created_since: Option<Timestamp>,
    pub updated_since: Option<Timestamp>,
    /// Prefixes; each must match a word of the subject.
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

    /// Whether every word of the filter is a prefix of a word of the subject.
    fn has_words(&self, subject: &str) -> bool {
        let spoken = if self.words.is_empty() { BTreeSet::new() } else { word_set(subject) };
        self.words.iter().all(|start| spoken.iter().any(|word| word.starts_with(start.as_str())))
    }

    /// The number of conditions, without the two times, which bound a walk in their own order.
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

    /// A filter parameter that would narrow this filter down.
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

    /// Sets of terms. A matching ticket has at least one term of each set.
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

    /// The term prefixes for each word of the filter.
    fn starts(&self) -> Vec<Vec<String>> {
        self.words.iter().map(|word| self.spell(WORD, std::slice::from_ref(word))).collect()
    }

    /// The terms of these values for live tickets, done ones or both, as the status filter needs them.
    fn spell(&self, letter: char, values: &[String]) -> Vec<String> {
        let lives = self.lives();
        lives.iter().flat_map(|live| values.iter().map(|value| term(*live, letter, value))).collect()
    }

    /// The organizations of the filter, or else its assignees.
    fn owners(&self) -> Option<Owners> {
        let of = |column, letter, values: Vec<String>| {
            let ids = values.iter().map(|value| Some(value.clone()).filter(|value| value != NO_ID)).collect();
            Owners { column, ids, terms: self.spell(letter, &values) }
        };
        let organizations = self.organization_id.as_deref().map(|any| of("organization_id", ORGANIZATION, texts(any)));
        organizations.or_else(|| self.assignee_id.as_deref().map(|any| of("assignee_id", ASSIGNEE, texts(any))))
    }

    /// The smallest index that has every matching ticket.
    fn all(&self) -> Among {
        if self.is_live() { Among::Live } else { Among::All }
    }

    /// Whether only live tickets match.
    fn is_live(&self) -> bool {
        self.lives() == [true]
    }

    /// `true` for live tickets, `false` for done ones, or both.
    fn lives(&self) -> Vec<bool> {
        let wanted = |live: bool| self.status.as_ref().is_none_or(|any| any.iter().any(|one| one.is_done() != live));
        [true, false].into_iter().filter(|live| wanted(*live)).collect()
    }
}

/// Which tickets an index contains.
enum Among {
    All,
    Live,
    /// Only in the order of updates.
    Owners(Owners),
}

/// The organizations or assignees of a filter.
struct Owners {
    column: &'static str,
    /// `None` matches tickets without an owner.
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

/// The terms of all postings of a ticket.
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
