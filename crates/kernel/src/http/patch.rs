//! Fields of a merge patch (RFC 7396), where null is not the same as nothing.

use super::fields::{Field, Fields};

/// A field of a patch: left out, set to null, or set.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Patch<T> {
    #[default]
    Keep,
    Clear,
    Set(T),
}

impl<T> Patch<T> {
    /// What a field that may be null becomes.
    pub fn apply(self, field: &mut Option<T>) {
        match self {
            Patch::Keep => {}
            Patch::Clear => *field = None,
            Patch::Set(value) => *field = Some(value),
        }
    }

    /// What a field becomes for which null means its default.
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
    /// A field for which null is a value.
    pub fn nullable<T>(&mut self, name: &str, parse: impl FnOnce(&mut Field<'_>) -> Option<T>) -> Option<Patch<T>> {
        let given = self.optional(name, |field| field.or_null(parse))?;
        Some(match given {
            None => Patch::Keep,
            Some(None) => Patch::Clear,
            Some(Some(value)) => Patch::Set(value),
        })
    }
}
