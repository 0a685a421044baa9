//! The keys of keyset cursors.

use super::Value;
use crate::base::{Id, Identified, Timestamp};

/// The sort key of a record in a list. No two records of the list share one.
pub trait CursorKey: Copy {
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
