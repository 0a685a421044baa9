//! The keys of keyset cursors.

use super::row::{Column, FromRow, Row};
use super::{Tick, Value};
use crate::base::{Id, Identified, Result, Timestamp};

/// The sort key of a record in a list. No two records of the list share one.
pub trait CursorKey: Clone {
    /// The values of the list's sort columns.
    fn to_position(self) -> Vec<Value>;

    /// Reads a key from a cursor that we have signed; an older version may have written it.
    fn from_position(position: &[Value]) -> Option<Self>;
}

impl CursorKey for i64 {
    fn to_position(self) -> Vec<Value> {
        vec![self.into()]
    }

    fn from_position(position: &[Value]) -> Option<Self> {
        match position {
            [Value::Int(number)] => Some(*number),
            _ => None,
        }
    }
}

impl<R: Identified> CursorKey for Id<R> {
    fn to_position(self) -> Vec<Value> {
        vec![self.into()]
    }

    fn from_position(position: &[Value]) -> Option<Self> {
        match position {
            [Value::Text(id)] => id.parse().ok(),
            _ => None,
        }
    }
}

impl<R: Identified> CursorKey for (Timestamp, Id<R>) {
    fn to_position(self) -> Vec<Value> {
        vec![self.0.into(), self.1.into()]
    }

    fn from_position(position: &[Value]) -> Option<Self> {
        match position {
            [Value::Int(at), Value::Text(id)] => Some((Timestamp::from_millis(*at), id.parse().ok()?)),
            _ => None,
        }
    }
}

/// A position in the order of changes: see [`delta`](super::delta).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChangeKey<K> {
    pub at: Timestamp,
    pub sequence: i64,
    pub key: K,
}

impl<K> ChangeKey<K> {
    pub fn new(changed: Tick, key: K) -> Self {
        ChangeKey { at: changed.at, sequence: changed.sequence, key }
    }
}

impl<K: CursorKey> CursorKey for ChangeKey<K> {
    fn to_position(self) -> Vec<Value> {
        let mut position = vec![self.at.into(), self.sequence.into()];
        position.extend(self.key.to_position());
        position
    }

    fn from_position(position: &[Value]) -> Option<Self> {
        match position {
            [Value::Int(at), Value::Int(sequence), key @ ..] => {
                Some(ChangeKey { at: Timestamp::from_millis(*at), sequence: *sequence, key: K::from_position(key)? })
            }
            _ => None,
        }
    }
}

/// Read from the first three columns.
impl<K: Column> FromRow for ChangeKey<K> {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        Ok(ChangeKey { at: row.get(0)?, sequence: row.get(1)?, key: row.get(2)? })
    }
}

/// A position in a list with two orders: newest first, or with `updated_since` by changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListKey<N, K> {
    Newest(N),
    Change(ChangeKey<K>),
}

impl<N: CursorKey, K: CursorKey> ListKey<N, K> {
    pub fn newest(self) -> Option<N> {
        match self {
            ListKey::Newest(key) => Some(key),
            ListKey::Change(_) => None,
        }
    }

    pub fn change(self) -> Option<ChangeKey<K>> {
        match self {
            ListKey::Newest(_) => None,
            ListKey::Change(key) => Some(key),
        }
    }
}

impl<N: CursorKey, K: CursorKey> CursorKey for ListKey<N, K> {
    fn to_position(self) -> Vec<Value> {
        match self {
            ListKey::Newest(key) => key.to_position(),
            ListKey::Change(key) => key.to_position(),
        }
    }

    fn from_position(position: &[Value]) -> Option<Self> {
        let newest = N::from_position(position).map(ListKey::Newest);
        newest.or_else(|| ChangeKey::from_position(position).map(ListKey::Change))
    }
}
