//! What one change contributes to figures.

use super::{Cell, Dimension, Figures, Samples};

/// A member of a dimension, such as one API key.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Group {
    pub dimension: Dimension,
    pub member: String,
}

impl Group {
    /// Of figures that are not broken down.
    pub const ALL: Group = Group { dimension: Dimension::NONE, member: String::new() };

    pub fn new(dimension: Dimension, member: impl Into<String>) -> Self {
        Group { dimension, member: member.into() }
    }
}

/// What one change contributes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fact {
    /// In milliseconds.
    pub at: i64,
    /// When the record was created that the fact is of, if its figures are also asked for by that.
    pub born_at: Option<i64>,
    pub entries: Vec<(Group, Figures)>,
}

impl Fact {
    pub fn new(at: i64) -> Self {
        Fact { at, ..Fact::default() }
    }

    pub fn is_empty(&self) -> bool {
        self.entries.iter().all(|(_, figures)| figures.is_empty())
    }

    /// The figures of a group.
    pub fn group_mut(&mut self, group: Group) -> &mut Figures {
        let at = self.entries.iter().position(|(other, _)| *other == group).unwrap_or_else(|| {
            self.entries.push((group, Figures::default()));
            self.entries.len() - 1
        });
        &mut self.entries[at].1
    }

    /// What the fact counts of a group.
    pub fn count(&self, group: &Group, cell: Cell) -> i64 {
        self.entries.iter().find(|(other, _)| other == group).map_or(0, |(_, figures)| figures.count(cell))
    }

    pub fn add_count(&mut self, cell: Cell, by: i64) {
        self.group_mut(Group::ALL).add_count(cell, by);
    }

    pub fn add_sample(&mut self, cell: Cell, value: i64) {
        self.group_mut(Group::ALL).add_sample(cell, value);
    }

    pub fn add_samples(&mut self, cell: Cell, samples: &Samples) {
        self.group_mut(Group::ALL).add_samples(cell, samples);
    }

    /// Moves one from a member of a dimension to another; either may be none.
    pub fn move_count(&mut self, dimension: Dimension, cell: Cell, from: Option<String>, to: Option<String>) {
        if from == to {
            return;
        }
        for (member, by) in [(from, -1), (to, 1)] {
            if let Some(member) = member {
                self.group_mut(Group::new(dimension, member)).add_count(cell, by);
            }
        }
    }
}
