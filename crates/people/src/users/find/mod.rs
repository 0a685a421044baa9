//! The filter of the user list, and positions in its two orders.

pub mod store;

use feature_kit::split_words;
use kernel::auth::Role;
use kernel::base::{Timestamp, UserId};
use kernel::store::{CursorKey, Value};

use super::store::StoredUser;
use super::{User, UserStatus};

/// Which users to list; `None` matches all.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// The folded address.
    pub email: Option<String>,
    pub role: Option<Vec<Role>>,
    pub status: Option<Vec<UserStatus>>,
    /// The words of `q`, unfolded.
    pub words: Vec<String>,
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
        let fields: [Vec<String>; 2] = [&user.name, &user.email].map(|text| split_words(text).collect());
        self.words.iter().all(|word| is_prefix_match(word, &fields))
    }
}

/// Whether a word of `q` is a prefix of a word in these fields, or of consecutive words, such as `ann@acme`.
fn is_prefix_match(word: &str, fields: &[Vec<String>]) -> bool {
    let parts: Vec<String> = split_words(word).collect();
    let Some((last, before)) = parts.split_last() else { return false };
    let in_a_row = |field: &Vec<String>| {
        field
            .windows(parts.len())
            .any(|some| some.split_last().is_some_and(|(end, start)| start == before && end.starts_with(last.as_str())))
    };
    fields.iter().any(in_a_row)
}

/// A position in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserListKey {
    /// Newest first: when the user was created.
    Created(Timestamp, UserId),
    /// In the order of changes: the time and sequence of the last write.
    Changed(Timestamp, i64, UserId),
}

impl UserListKey {
    fn from_change(stored: &StoredUser) -> Self {
        UserListKey::Changed(stored.user.updated_at, stored.sequence, stored.user.id)
    }
}

impl CursorKey for UserListKey {
    fn to_position(self) -> Vec<Value> {
        match self {
            UserListKey::Created(at, id) => vec![at.into(), id.into()],
            UserListKey::Changed(at, sequence, id) => vec![at.into(), sequence.into(), id.into()],
        }
    }

    fn from_position(position: &[Value]) -> Option<Self> {
        match position {
            [Value::Int(at), Value::Text(id)] => {
                Some(UserListKey::Created(Timestamp::from_millis(*at), id.parse().ok()?))
            }
            [Value::Int(at), Value::Int(sequence), Value::Text(id)] => {
                Some(UserListKey::Changed(Timestamp::from_millis(*at), *sequence, id.parse().ok()?))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_the_beginning_of_one_of_the_name_or_the_address() {
        let fields = ["Ann-Marie O'Neill", "amo@mail.acme.test"];
        let words: [Vec<String>; 2] = fields.map(|text| split_words(text).collect());
        for word in ["ann", "MARIE", "ann-ma", "o'n", "neill", "amo", "amo@mail", "mail.ac", "test"] {
            assert!(is_prefix_match(word, &words), "{word}");
        }
        for word in ["nn", "marie-ann", "amo@acme", "anna", "-"] {
            assert!(!is_prefix_match(word, &words), "{word}");
        }
    }
}
