//! Fields of a merge patch (RFC 7396), which distinguishes null from an absent field.

use super::fields::{BodyField, BodyFields};

/// A field of a patch: absent, null, or set.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum PatchField<T> {
    #[default]
    Keep,
    Clear,
    Set(T),
}

impl<T> PatchField<T> {
    /// Changes a nullable field.
    pub fn apply_to(self, field: &mut Option<T>) {
        match self {
            PatchField::Keep => {}
            PatchField::Clear => *field = None,
            PatchField::Set(value) => *field = Some(value),
        }
    }

    /// Changes a field for which null means the default.
    pub fn apply_or_default(self, field: &mut T)
    where
        T: Default,
    {
        match self {
            PatchField::Keep => {}
            PatchField::Clear => *field = T::default(),
            PatchField::Set(value) => *field = value,
        }
    }
}

impl BodyFields {
    /// Reads a field that may be absent or null.
    pub fn read_nullable<T>(
        &mut self,
        name: &str,
        parse: impl FnOnce(&mut BodyField<'_>) -> Option<T>,
    ) -> Option<PatchField<T>> {
        let given = self.read_optional(name, |field| field.read_or_null(parse))?;
        Some(match given {
            None => PatchField::Keep,
            Some(None) => PatchField::Clear,
            Some(Some(value)) => PatchField::Set(value),
        })
    }
}
