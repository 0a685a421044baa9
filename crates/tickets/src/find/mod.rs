//! The filter of the ticket list, and the terms of the inverted index.
//!
//! Every ticket has a posting in `ticket_terms` for each value it can be found by. The term of a property starts with
//! whether the ticket is live or done, because a technician or customer has few live tickets, however many there have been.

mod order;
pub mod search;
pub mod store;

use std::collections::BTreeSet;

use feature_kit::{IdOrNone, NO_ID, StoredWord, stored_words};
use fleet::devices::DeviceId;
use kernel::base::{StringEnum, Timestamp, UserId};
use people::organizations::OrganizationId;
use search_language::text_words::TextWords;

use super::{Priority, Ticket, TicketStatus, TicketType};

pub use order::{SortBy, TicketOrder, TicketSortKey};

/// Which tickets to list; `None` matches all.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    pub status: Option<Vec<TicketStatus>>,
    pub priority: Option<Vec<Priority>>,
    pub r#type: Option<Vec<TicketType>>,
    /// May include "none": assigned to nobody.
    pub assignee_id: Option<Vec<IdOrNone<UserId>>>,
    pub organization_id: Option<Vec<IdOrNone<OrganizationId>>>,
    pub device_id: Option<Vec<DeviceId>>,
    pub tag: Option<Vec<String>>,
    pub external_id: Option<Vec<String>>,
    pub number: Option<Vec<i64>>,
    pub created_since: Option<Timestamp>,
    pub updated_since: Option<Timestamp>,
    /// The words of `q`, each of which the subject must have.
    pub words: Vec<StoredWord>,
}

impl Filter {
    pub fn matches_ticket(&self, ticket: &Ticket) -> bool {
        fn is_any<T: PartialEq>(accepted: Option<&Vec<T>>, value: &T) -> bool {
            accepted.is_none_or(|accepted| accepted.contains(value))
        }
        fn has_any<T: PartialEq>(accepted: Option<&Vec<T>>, values: &[T]) -> bool {
            accepted.is_none_or(|accepted| values.iter().any(|value| accepted.contains(value)))
        }
        is_any(self.status.as_ref(), &ticket.status)
            && is_any(self.priority.as_ref(), &ticket.priority)
            && is_any(self.r#type.as_ref(), &ticket.r#type)
            && is_any(self.assignee_id.as_ref(), &IdOrNone(ticket.assignee_id))
            && is_any(self.organization_id.as_ref(), &IdOrNone(ticket.organization_id))
            && has_any(self.device_id.as_ref(), &ticket.device_ids)
            && has_any(self.tag.as_ref(), &ticket.tags)
            && has_any(self.external_id.as_ref(), ticket.external_id.as_slice())
            && is_any(self.number.as_ref(), &ticket.number)
            && self.created_since.is_none_or(|since| ticket.created_at >= since)
            && self.updated_since.is_none_or(|since| ticket.updated_at >= since)
            && self.has_words(&ticket.subject)
    }

    /// Whether every word of the filter is a prefix of a word of the subject. Its parts may be anywhere, or in a row in any
    /// spelling.
    fn has_words(&self, subject: &str) -> bool {
        if self.words.is_empty() {
            return true;
        }
        let subject = TextWords::new(subject);
        self.words.iter().all(|word| word.has_parts_in(&subject))
    }

    /// The number of conditions, without the two times, which bound a walk in their own order.
    fn count_conditions(&self) -> usize {
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
        // A word of several parts is as many conditions.
        let parts = self.words.iter().map(|word| word.rows().iter().map(Vec::len).max().unwrap_or_default());
        given.into_iter().filter(|given| *given).count() + parts.sum::<usize>()
    }

    /// A filter parameter that would narrow this filter down.
    fn suggest_filter(&self, short_word: bool) -> &'static str {
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
    fn required_terms(&self) -> Vec<Vec<String>> {
        let sets = [
            self.status.as_ref().map(|any| any.iter().map(|status| status_term(*status)).collect()),
            self.priority.as_deref().map(|any| self.terms_for_values(PRIORITY, &to_names(any))),
            self.r#type.as_deref().map(|any| self.terms_for_values(TYPE, &to_names(any))),
            self.assignee_id.as_deref().map(|any| self.terms_for_values(ASSIGNEE, &to_texts(any))),
            self.organization_id.as_deref().map(|any| self.terms_for_values(ORGANIZATION, &to_texts(any))),
            self.device_id.as_deref().map(|any| self.terms_for_values(DEVICE, &to_texts(any))),
            self.tag.as_deref().map(|any| self.terms_for_values(TAG, &to_texts(any))),
        ];
        sets.into_iter().flatten().collect()
    }

    /// Sets of term prefixes. A matching ticket has at least one term of each set: every part of a word that has no other
    /// spelling, or else the first part of one of its rows, and the last.
    fn word_prefixes(&self) -> Vec<Vec<String>> {
        let mut sets: Vec<Vec<String>> = Vec::new();
        for word in &self.words {
            match word.rows() {
                [parts] => sets.extend(parts.iter().map(|part| vec![part.clone()])),
                rows => {
                    let parts = [<[String]>::first, <[String]>::last];
                    sets.extend(parts.map(|part| rows.iter().filter_map(|row| part(row)).cloned().collect()));
                }
            }
        }
        sets.dedup();
        sets.iter().map(|values| self.terms_for_values(WORD, values)).collect()
    }

    /// The terms of these values for live tickets, done ones or both, as the status filter needs them.
    fn terms_for_values(&self, letter: char, values: &[String]) -> Vec<String> {
        let lives = self.wanted_liveness();
        lives.iter().flat_map(|live| values.iter().map(|value| property_term(*live, letter, value))).collect()
    }

    /// The organizations of the filter, or else its assignees.
    fn find_owners(&self) -> Option<OwnerFilter> {
        let of = |column, letter, values: Vec<String>| {
            let ids = values.iter().map(|value| Some(value.clone()).filter(|value| value != NO_ID)).collect();
            OwnerFilter { column, ids, terms: self.terms_for_values(letter, &values) }
        };
        let organizations =
            self.organization_id.as_deref().map(|any| of("organization_id", ORGANIZATION, to_texts(any)));
        organizations.or_else(|| self.assignee_id.as_deref().map(|any| of("assignee_id", ASSIGNEE, to_texts(any))))
    }

    /// The smallest index that has every matching ticket.
    fn index_scope(&self) -> IndexScope {
        if self.is_live_only() { IndexScope::Live } else { IndexScope::All }
    }

    /// Whether only live tickets match.
    fn is_live_only(&self) -> bool {
        self.wanted_liveness() == [true]
    }

    /// `true` for live tickets, `false` for done ones, or both.
    fn wanted_liveness(&self) -> Vec<bool> {
        let matches_liveness =
            |live: bool| self.status.as_ref().is_none_or(|any| any.iter().any(|one| one.is_done() != live));
        [true, false].into_iter().filter(|live| matches_liveness(*live)).collect()
    }
}

/// Which tickets an index contains.
enum IndexScope {
    All,
    Live,
    /// Only in the order of updates.
    Owners(OwnerFilter),
}

/// The organizations or assignees of a filter.
struct OwnerFilter {
    column: &'static str,
    /// `None` matches tickets without an owner.
    ids: Vec<Option<String>>,
    terms: Vec<String>,
}

fn to_texts<T: ToString>(values: &[T]) -> Vec<String> {
    values.iter().map(ToString::to_string).collect()
}

fn to_names<W: StringEnum>(values: &[W]) -> Vec<String> {
    values.iter().map(|value| value.as_str().to_owned()).collect()
}

const PRIORITY: char = 'p';
const TYPE: char = 't';
const ASSIGNEE: char = 'a';
const ORGANIZATION: char = 'o';
const DEVICE: char = 'd';
const TAG: char = 'g';
const WORD: char = 'w';

fn status_term(status: TicketStatus) -> String {
    format!("s:{}", status.as_str())
}

fn property_term(live: bool, letter: char, value: &str) -> String {
    format!("{}{letter}:{value}", if live { '+' } else { '-' })
}

/// The terms of all postings of a ticket.
pub fn index_terms(ticket: &Ticket) -> BTreeSet<String> {
    let live = !ticket.status.is_done();
    let mut terms = BTreeSet::from([
        status_term(ticket.status),
        property_term(live, PRIORITY, ticket.priority.as_str()),
        property_term(live, TYPE, ticket.r#type.as_str()),
        property_term(live, ASSIGNEE, &IdOrNone(ticket.assignee_id).to_string()),
        property_term(live, ORGANIZATION, &IdOrNone(ticket.organization_id).to_string()),
    ]);
    terms.extend(ticket.device_ids.iter().map(|id| property_term(live, DEVICE, &id.to_string())));
    terms.extend(ticket.tags.iter().map(|tag| property_term(live, TAG, tag)));
    terms.extend(stored_words(&ticket.subject).iter().map(|word| property_term(live, WORD, word)));
    terms
}
