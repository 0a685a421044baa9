//! Fields of a merge patch (RFC 7396), which distinguishes null from an absent field.

use super::fields::{Field, Fields};

/// A field of a patch: absent, null, or set.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Patch<T> {
    #[default]
    Keep,
    Clear,
    Set(T),
}

impl<T> Patch<T> {
    /// Changes a nullable field.
    pub fn apply(self, field: &mut Option<T>) {
        match self {
            Patch::Keep => {}
            Patch::Clear => *field = None,
            Patch::Set(value) => *field = Some(value),
        }
    }

    /// Changes a field for which null means the default.
    pub fn apply_or_default(self, field: &mut T)
    where
        T: Default,
    {
        match self {
            Patch::Keep => {}
            Patch::Clear => *field = T::default(),
            Patch::Set(value) => *field = value,
        }
    }
}

impl Fields {
    /// Reads a field that may be absent or null.
    pub fn nullable<T>(&mut self, name: &str, parse: impl FnOnce(&mut Field<'_>) -> Option<T>) -> Option<Patch<T>> {
        let given = self.optional(name, |field| field.or_null(parse))?;
        Some(match given {
            None => Patch::Keep,
            Some(None) => Patch::Clear,
            Some(Some(value)) => Patch::Set(value),
        })
    }
}
