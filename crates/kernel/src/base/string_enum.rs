//! Enums whose values are written as the same strings in JSON, in queries and in columns.

use super::{Error, Result};

/// An enum whose values are written as strings.
pub trait StringEnum: Copy + PartialEq + Sized + 'static {
    const ALL: &'static [Self];

    fn as_str(self) -> &'static str;

    fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|word| word.as_str() == text)
    }

    /// Parses the value of a column. An unknown string is an internal error, because the service itself wrote it.
    fn from_stored(text: &str) -> Result<Self> {
        Self::parse(text).ok_or_else(|| Error::internal(format!("unknown value {text:?} in the database")))
    }

    /// "a, b or c", for messages.
    fn expected_names() -> String {
        let words: Vec<&str> = Self::ALL.iter().map(|word| word.as_str()).collect();
        match words.split_last() {
            Some((last, first)) if !first.is_empty() => format!("{} or {last}", first.join(", ")),
            _ => words.join(""),
        }
    }
}

/// Longer than any name in use.
const DOTTED_BYTES_MAX: usize = 100;

/// Whether a text has the form of an event kind or audit action, such as `ticket.created`: at least two words of lower-case
/// letters, digits and `_`, separated by dots. No event kind or audit action ever has another form.
pub fn is_dotted(text: &str) -> bool {
    let is_word = |word: &str| {
        !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
    };
    text.len() <= DOTTED_BYTES_MAX && text.contains('.') && text.split('.').all(is_word)
}

/// Declares an enum that implements [`StringEnum`](crate::base::StringEnum). Each string is the name of its variant in
/// snake_case.
///
/// ```
/// kernel::string_enum! {
///     /// How bad it is.
///     pub enum Level { Low "low", High "high" }
/// }
/// use kernel::base::StringEnum;
/// assert_eq!(Level::parse("high"), Some(Level::High));
/// assert_eq!(Level::expected_names(), "low or high");
/// ```
#[macro_export]
macro_rules! string_enum {
    ($(#[$meta:meta])* pub enum $name:ident { $($(#[$about:meta])* $variant:ident $word:literal),+ $(,)? }) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, utoipa::ToSchema)]
        #[serde(rename_all = "snake_case")]
        $(#[$meta])*
        pub enum $name {
            $($(#[$about])* $variant),+
        }

        impl $crate::base::StringEnum for $name {
            const ALL: &'static [Self] = &[$($name::$variant),+];

            fn as_str(self) -> &'static str {
                match self { $($name::$variant => $word),+ }
            }
        }
    };
}
