//! Figures by what they are broken down by.

use std::collections::{BTreeMap, HashMap};

use super::{Dimension, Figures, Undecodable, codec};

/// Figures by dimension and member, to which stored ones are added without a copy: an answer adds tens of thousands.
#[derive(Clone, Debug, Default)]
pub struct FigureGroups(HashMap<Dimension, HashMap<String, Figures>>);

impl FigureGroups {
    /// Adds to the figures of a member; its name is copied only when it is new.
    pub fn add_with<R>(&mut self, dimension: Dimension, member: &str, add: impl FnOnce(&mut Figures) -> R) -> R {
        let members = self.0.entry(dimension).or_default();
        if let Some(figures) = members.get_mut(member) {
            return add(figures);
        }
        add(members.entry(member.to_owned()).or_default())
    }

    /// Adds what [`entries_to_bytes`](crate::entries_to_bytes) made, of some dimensions.
    pub fn add_bytes_of(&mut self, mut bytes: &[u8], keep: impl Fn(Dimension) -> bool) -> Result<(), Undecodable> {
        codec::read_all(&mut bytes, |bytes| codec::add_entries(bytes, self, keep))
    }

    pub fn get(&self, dimension: Dimension, member: &str) -> Option<&Figures> {
        self.0.get(&dimension)?.get(member)
    }

    /// All members of a dimension.
    pub fn into_members(mut self, dimension: Dimension) -> BTreeMap<String, Figures> {
        self.0.remove(&dimension).unwrap_or_default().into_iter().collect()
    }
}
