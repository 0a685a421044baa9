//! Scopes: the rights of a credential.

use crate::base::{Error, Result};

macro_rules! scopes {
    ($($variant:ident $family:literal $action:literal)*) => {
        /// One right that can be granted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Scope { $($variant),* }

        impl Scope {
            pub const ALL: &[Scope] = &[$(Scope::$variant),*];

            pub fn name(self) -> &'static str {
                match self { $(Scope::$variant => concat!($family, ":", $action)),* }
            }

            pub fn family(self) -> &'static str {
                match self { $(Scope::$variant => $family),* }
            }
        }
    };
}

scopes! {
    ApiKeysRead "api_keys" "read"
    ApiKeysWrite "api_keys" "write"
    WebhooksRead "webhooks" "read"
    WebhooksWrite "webhooks" "write"
    OrganizationsRead "organizations" "read"
    OrganizationsWrite "organizations" "write"
    UsersRead "users" "read"
    UsersWrite "users" "write"
    TicketsRead "tickets" "read"
    TicketsWrite "tickets" "write"
    WorkflowsRead "workflows" "read"
    WorkflowsWrite "workflows" "write"
    SearchRead "search" "read"
    InventoryRead "inventory" "read"
    CloudRead "cloud" "read"
    CloudWrite "cloud" "write"
    BackupRead "backup" "read"
    BackupWrite "backup" "write"
    AnalyticsRead "analytics" "read"
    AuditRead "audit" "read"
    PlatformRead "platform" "read"
}

/// A set of scopes, and the words they were granted by, such as `tickets:*`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scopes {
    granted: Vec<String>,
    held: u32,
}

impl Scopes {
    /// More than the number of existing words.
    pub const WORDS_MAX: usize = 50;

    /// Refuses unknown words; a repeated word counts once.
    pub fn parse<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let mut scopes = Scopes::default();
        for word in words {
            let bits = bits_of(word).ok_or_else(|| format!("{word:?} is not a scope"))?;
            scopes.held |= bits;
            if !scopes.granted.iter().any(|granted| granted == word) {
                scopes.granted.push(word.to_owned());
            }
        }
        Ok(scopes)
    }

    /// Parses the stored form, a JSON array of words.
    pub fn from_json(json: &str) -> Result<Self> {
        let words: Vec<String> = serde_json::from_str(json).map_err(Error::internal)?;
        Scopes::parse(words.iter().map(String::as_str)).map_err(Error::internal)
    }

    pub fn is_known(word: &str) -> bool {
        bits_of(word).is_some()
    }

    /// Every word that can be granted.
    pub fn grantable_words() -> Vec<String> {
        let mut words = vec!["*".to_owned()];
        for scope in Scope::ALL {
            let family = format!("{}:*", scope.family());
            if bits_of(&family).is_some() && !words.contains(&family) {
                words.push(family);
            }
            words.push(scope.name().to_owned());
        }
        words
    }

    pub fn granted_words(&self) -> &[String] {
        &self.granted
    }

    pub fn has_scope(&self, scope: Scope) -> bool {
        self.held & scope_bit(scope) != 0
    }

    /// The first scope of `required` that this set does not have.
    pub fn find_missing(&self, required: &Scopes) -> Option<Scope> {
        Scope::ALL.iter().copied().find(|scope| required.has_scope(*scope) && !self.has_scope(*scope))
    }

    pub fn is_empty(&self) -> bool {
        self.held == 0
    }

    /// The scopes that both sets have, in the words of either. Of two words, either one includes the other or they have
    /// nothing in common, so the narrower word of each pair is their intersection.
    #[must_use]
    pub fn intersect(&self, other: &Scopes) -> Self {
        let mut shared = Scopes::default();
        for (words, bound) in [(&self.granted, other), (&other.granted, self)] {
            for word in words {
                let bits = bits_of(word).unwrap_or(0);
                if bits & !bound.held == 0 && bits & !shared.held != 0 {
                    shared.held |= bits;
                    shared.granted.push(word.clone());
                }
            }
        }
        shared
    }

    #[must_use]
    pub fn without_scope(mut self, scope: Scope) -> Self {
        self.held &= !scope_bit(scope);
        self.granted.retain(|word| word != scope.name());
        self
    }
}

fn scope_bit(scope: Scope) -> u32 {
    1 << scope as u32
}

fn bits_of(word: &str) -> Option<u32> {
    let bits_where = |matches: &dyn Fn(Scope) -> bool| {
        let bits = Scope::ALL.iter().filter(|scope| matches(**scope)).fold(0, |bits, scope| bits | scope_bit(*scope));
        (bits != 0).then_some(bits)
    };
    match word.strip_suffix(":*") {
        // `*` never includes `platform:read`, and there is no `platform:*`.
        _ if word == "*" => bits_where(&|scope| scope != Scope::PlatformRead),
        Some(family) => bits_where(&|scope| scope.family() == family && scope != Scope::PlatformRead),
        None => bits_where(&|scope| scope.name() == word),
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn scopes(words: &[&str]) -> Scopes {
        Scopes::parse(words.iter().copied()).unwrap()
    }

    #[test]
    fn a_star_is_everything_but_the_platform() {
        let all = scopes(&["*"]);
        for scope in Scope::ALL {
            assert_eq!(all.has_scope(*scope), *scope != Scope::PlatformRead, "{}", scope.name());
        }
    }

    #[test]
    fn write_does_not_include_read() {
        let write = scopes(&["api_keys:write"]);
        assert!(write.has_scope(Scope::ApiKeysWrite) && !write.has_scope(Scope::ApiKeysRead));
        assert_eq!(write.find_missing(&scopes(&["api_keys:*"])), Some(Scope::ApiKeysRead));
    }

    #[test]
    fn what_two_sets_share_is_told_in_their_own_words() {
        for (one, other, shared) in [
            (vec!["*"], vec!["tickets:*", "search:read"], vec!["tickets:*", "search:read"]),
            (vec!["tickets:*"], vec!["*"], vec!["tickets:*"]),
            (vec!["tickets:*", "cloud:read"], vec!["cloud:*", "tickets:read"], vec!["cloud:read", "tickets:read"]),
            (vec!["tickets:*"], vec!["tickets:read", "tickets:write"], vec!["tickets:*"]),
            (vec!["*", "platform:read"], vec!["*"], vec!["*"]),
            (vec!["tickets:read"], vec!["tickets:write"], vec![]),
        ] {
            let found = scopes(&one).intersect(&scopes(&other));
            assert_eq!(found.granted_words(), shared, "{one:?} and {other:?}");
            assert_eq!(found.is_empty(), shared.is_empty());
        }
    }

    #[test]
    fn what_two_words_share_is_what_both_hold() {
        let words = Scopes::grantable_words();
        for one in &words {
            for other in &words {
                let (one, other) = (scopes(&[one, "users:read"]), scopes(&[other, "cloud:*"]));
                assert_eq!(one.intersect(&other).held, one.held & other.held, "{one:?} and {other:?}");
            }
        }
    }

    #[test]
    fn unknown_words_are_refused() {
        for word in ["", "**", "api_keys", "api_keys:", "search:write", "platform:*", "Tickets:read", "tickets:read "] {
            assert!(Scopes::parse([word]).is_err(), "{word}");
        }
    }
}
