//! Where a list goes on, as its cursor holds it.

use super::Value;
use crate::base::{Id, Identified, Timestamp};

/// A place in a list. No two records of the list have the same.
pub trait CursorKey: Copy {
    /// As the values of the list's order.
    fn to_position(self) -> Vec<Value>;

    /// From a cursor that we have signed; it may be of an older version.
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
