//! The filter of the user list.

pub mod store;

use kernel::auth::Role;
use kernel::base::{Timestamp, UserId};
use kernel::store::ListKey;
use search_language::text_words::{QueryWord, TextWords};

use super::{User, UserStatus};

/// Which users to list; `None` matches all.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// The folded address.
    pub email: Option<String>,
    pub role: Option<Vec<Role>>,
    pub status: Option<Vec<UserStatus>>,
    /// The words of `q`.
    pub words: Vec<QueryWord>,
    pub updated_since: Option<Timestamp>,
}

impl Filter {
    pub fn matches_user(&self, user: &User) -> bool {
        self.email.as_ref().is_none_or(|email| *email == user.email)
            && self.role.as_ref().is_none_or(|any| any.contains(&user.role))
            && self.status.as_ref().is_none_or(|any| any.contains(&user.status))
            && self.updated_since.is_none_or(|since| user.updated_at >= since)
            && self.has_words(user)
    }

    /// Whether every user matches.
    pub fn is_all(&self) -> bool {
        self.email.is_none()
            && self.role.is_none()
            && self.status.is_none()
            && self.words.is_empty()
            && self.updated_since.is_none()
    }

    fn has_words(&self, user: &User) -> bool {
        if self.words.is_empty() {
            return true;
        }
        let fields = [&user.name, &user.email].map(|text| TextWords::new(text));
        self.words.iter().all(|word| word.is_in_any(&fields))
    }
}

/// A position in the list.
pub type UserListKey = ListKey<(Timestamp, UserId), UserId>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_the_beginning_of_one_of_the_name_or_the_address() {
        let fields = ["Ann-Marie O'Neill", "amo@mail.acme.test"];
        let fields = fields.map(TextWords::new);
        let is_found = |word: &str| QueryWord::parse(word).is_some_and(|word| word.is_in_any(&fields));
        for word in
            ["ann", "MARIE", "ann-ma", "o'n", "neill", "amo", "amo@mail", "mail.ac", "test", "oneill", "annmarie"]
        {
            assert!(is_found(word), "{word}");
        }
        for word in ["nn", "marie-ann", "amo@acme", "anna", "-"] {
            assert!(!is_found(word), "{word}");
        }
    }
}
