//! Keys of maps.

use std::cmp::Ordering;

use super::{CelText, CelValue};

/// A key of a map that an expression creates. Numbers are compared by value: `1`, `1u` and `1.0` are the same key.
#[derive(Clone, Debug)]
pub enum MapKey<'a> {
    Bool(bool),
    Int(i64),
    Uint(u64),
    Text(CelText<'a>),
}

impl<'a> MapKey<'a> {
    pub fn to_value(&self) -> CelValue<'a> {
        match self {
            MapKey::Bool(yes) => CelValue::Bool(*yes),
            MapKey::Int(int) => CelValue::Int(*int),
            MapKey::Uint(uint) => CelValue::Uint(*uint),
            MapKey::Text(text) => CelValue::Text(text.clone()),
        }
    }

    /// The key in JSON.
    pub fn to_name(&self) -> String {
        match self {
            MapKey::Bool(yes) => yes.to_string(),
            MapKey::Int(int) => int.to_string(),
            MapKey::Uint(uint) => uint.to_string(),
            MapKey::Text(text) => text.to_string(),
        }
    }

    fn number(&self) -> Option<i128> {
        match self {
            MapKey::Int(int) => Some(i128::from(*int)),
            MapKey::Uint(uint) => Some(i128::from(*uint)),
            MapKey::Bool(_) | MapKey::Text(_) => None,
        }
    }

    fn rank(&self) -> u8 {
        match self {
            MapKey::Bool(_) => 0,
            MapKey::Int(_) | MapKey::Uint(_) => 1,
            MapKey::Text(_) => 2,
        }
    }
}

impl Ord for MapKey<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (MapKey::Bool(one), MapKey::Bool(two)) => one.cmp(two),
            (MapKey::Text(one), MapKey::Text(two)) => str::cmp(one, two),
            _ => self.rank().cmp(&other.rank()).then_with(|| self.number().cmp(&other.number())),
        }
    }
}

impl PartialOrd for MapKey<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for MapKey<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for MapKey<'_> {}
