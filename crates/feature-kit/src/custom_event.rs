//! Kinds of events that tenants name themselves: `custom.` and words of their own.

use kernel::base::is_dotted;

pub const CUSTOM_PREFIX: &str = "custom.";
/// Subscribes to all of them, and stands for them in the catalogue.
pub const CUSTOM_KINDS: &str = "custom.*";
/// With the prefix before it, a name is not longer than names of events can be.
pub const CUSTOM_NAME_BYTES_MAX: usize = 90;
pub const CUSTOM_KIND_BYTES_MAX: usize = CUSTOM_PREFIX.len() + CUSTOM_NAME_BYTES_MAX;

/// Whether tenants can emit events of this kind: `custom.` and words that each begin with a letter.
pub fn is_custom_kind(kind: &str) -> bool {
    kind.strip_prefix(CUSTOM_PREFIX).is_some_and(|name| {
        let starts_with_letter = |word: &str| word.starts_with(|first: char| first.is_ascii_lowercase());
        name.len() <= CUSTOM_NAME_BYTES_MAX && is_dotted(kind) && name.split('.').all(starts_with_letter)
    })
}
