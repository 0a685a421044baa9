//! Identity providers as far as users refer to them: their ids, and which of them vouches for the addresses of a domain. All
//! else is single sign-on's (`sso`), which stands above users.

mod store;

pub use store::{STATEMENTS, find_domain_provider};

use kernel::base::{Id, Identified};

/// What ids of providers identify.
pub struct IdentityProvider;

pub type ProviderId = Id<IdentityProvider>;

impl Identified for IdentityProvider {
    const PREFIX: &'static str = "sso";
}

/// The part after the last `@`, in lower case.
pub fn email_domain(email: &str) -> Option<String> {
    let (name, domain) = email.rsplit_once('@')?;
    (!name.is_empty() && !domain.is_empty()).then(|| domain.to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_domain_is_behind_the_last_at() {
        assert_eq!(email_domain("a@b@Acme.TEST").as_deref(), Some("acme.test"));
        assert_eq!((email_domain("acme.test"), email_domain("@acme.test"), email_domain("a@")), (None, None, None));
    }
}
