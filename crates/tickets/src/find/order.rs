//! Sort orders of the ticket list, and sort keys in them.

use std::cmp::Ordering;
use std::fmt;

use kernel::base::Timestamp;
use kernel::store::{CursorKey, SortDirection, Tick, Value};

use super::super::stored::StoredTicket;
use super::Filter;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SortBy {
    /// The same order as by number.
    CreatedAt,
    UpdatedAt,
    Priority,
    DueAt,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TicketOrder {
    pub by: SortBy,
    pub descending: bool,
}

impl TicketOrder {
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
        Ok(TicketOrder { by, descending })
    }

    /// Newest first; with `updated_since` in the order of updates, so that a reader can continue from the last one.
    pub fn default_for(filter: &Filter) -> Self {
        match filter.updated_since {
            Some(_) => TicketOrder { by: SortBy::UpdatedAt, descending: false },
            None => TicketOrder { by: SortBy::CreatedAt, descending: true },
        }
    }

    /// The sort key of a ticket, from the values that lists can be sorted by.
    pub fn sort_key(self, number: i64, changed: Tick, rank: i64, due_at: Option<Timestamp>) -> TicketSortKey {
        let (value, sequence) = match self.by {
            SortBy::CreatedAt => (None, 0),
            SortBy::UpdatedAt => (Some(changed.at.as_millis()), changed.sequence),
            SortBy::Priority => (Some(rank), 0),
            SortBy::DueAt => (due_at.map(Timestamp::as_millis), 0),
        };
        TicketSortKey { value, sequence, number }
    }

    pub fn sort_key_of(self, stored: &StoredTicket) -> TicketSortKey {
        let (ticket, sequence) = (&stored.ticket, stored.sequence);
        let changed = Tick { at: ticket.updated_at, sequence };
        self.sort_key(ticket.number, changed, ticket.priority.rank(), ticket.due_at)
    }

    /// Missing dates come last in either direction.
    pub fn compare_keys(self, a: TicketSortKey, b: TicketSortKey) -> Ordering {
        let ordering = (a.value, a.sequence, a.number).cmp(&(b.value, b.sequence, b.number));
        let missing = a.value.is_none().cmp(&b.value.is_none());
        missing.then(if self.descending { ordering.reverse() } else { ordering })
    }

    pub fn direction(self) -> SortDirection {
        if self.descending { SortDirection::Descending } else { SortDirection::Ascending }
    }

    /// Whether a reader can follow updates in this order.
    pub fn follows_updates(self) -> bool {
        self.by == SortBy::UpdatedAt && !self.descending
    }
}

/// The value of the `sort` parameter.
impl fmt::Display for TicketOrder {
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

/// The position of a ticket in an order: the sorted value, the sequence of its last change in the order of updates, and its
/// number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TicketSortKey {
    pub value: Option<i64>,
    /// 0 in every other order.
    pub sequence: i64,
    pub number: i64,
}

impl TicketSortKey {
    /// The key of a ticket in the order of numbers.
    pub fn from_number(number: i64) -> Self {
        TicketSortKey { value: None, sequence: 0, number }
    }
}

impl CursorKey for TicketSortKey {
    fn to_position(self) -> Vec<Value> {
        vec![self.value.into(), self.sequence.into(), self.number.into()]
    }

    fn from_position(position: &[Value]) -> Option<Self> {
        let (value, sequence, number) = match position {
            [value, Value::Int(sequence), Value::Int(number)] => (value, *sequence, *number),
            // A cursor from before there were sequences: changes of that millisecond are shown again.
            [value, Value::Int(number)] => (value, 0, *number),
            _ => return None,
        };
        match value {
            Value::Null => Some(TicketSortKey { value: None, sequence, number }),
            Value::Int(value) => Some(TicketSortKey { value: Some(*value), sequence, number }),
            _ => None,
        }
    }
}
