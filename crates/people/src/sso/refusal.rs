//! Why somebody is not signed in: a word for the trail and the log, and apart from it what they are told. That never says who
//! exists here.

use std::collections::HashMap;

use kernel::base::{Error, MINUTE_MS, Timestamp};
use serde_json::{Map, Value};

use crate::users::fold_email;

/// Why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// Somebody has come back with it before.
    FlowUsed,
    FlowExpired,
    /// The answer is of another provider than was asked.
    OtherIssuer,
    /// The provider says no.
    ProviderRefused,
    /// The provider cannot be reached, or not in time.
    ProviderUnreachable,
    /// What the provider answers is not as it must be.
    ProviderBroken,
    /// Its word is not believed.
    TokenInvalid,
    NoEmail,
    EmailNotVerified,
    /// The e-mail address is of no domain that is known to be the tenant's.
    ForeignDomain,
    /// The domain of the e-mail address leads to another provider of the tenant, which alone vouches for it.
    DomainOfOtherProvider,
    ProviderDisabled,
    /// The operator has changed the provider since the sign-on began, and what it began with counts no more.
    ProviderChanged,
    UserDisabled,
    /// The user with this e-mail address is somebody else where they sign in.
    OtherIdentity,
    /// No rule fits, and there is no default role.
    NoRole,
}

/// What people are told, and so what they can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// Begin again.
    Again,
    /// The provider is at fault, or was not asked right.
    Provider,
    /// They may not; who may is the administrator's to say.
    NotAllowed,
    /// It is our own fault, and passes.
    Unavailable,
}

impl Refusal {
    pub fn as_str(self) -> &'static str {
        match self {
            Refusal::FlowUsed => "flow_used",
            Refusal::FlowExpired => "flow_expired",
            Refusal::OtherIssuer => "other_issuer",
            Refusal::ProviderRefused => "provider_refused",
            Refusal::ProviderUnreachable => "provider_unreachable",
            Refusal::ProviderBroken => "provider_broken",
            Refusal::TokenInvalid => "token_invalid",
            Refusal::NoEmail => "no_email",
            Refusal::EmailNotVerified => "email_not_verified",
            Refusal::ForeignDomain => "foreign_domain",
            Refusal::DomainOfOtherProvider => "domain_of_other_provider",
            Refusal::ProviderDisabled => "provider_disabled",
            Refusal::ProviderChanged => "provider_changed",
            Refusal::UserDisabled => "user_disabled",
            Refusal::OtherIdentity => "other_identity",
            Refusal::NoRole => "no_role",
        }
    }

    pub fn told(self) -> Told {
        match self {
            Refusal::FlowUsed | Refusal::FlowExpired | Refusal::ProviderChanged => Told::Again,
            Refusal::OtherIssuer
            | Refusal::ProviderRefused
            | Refusal::ProviderUnreachable
            | Refusal::ProviderBroken
            | Refusal::TokenInvalid => Told::Provider,
            Refusal::NoEmail
            | Refusal::EmailNotVerified
            | Refusal::ForeignDomain
            | Refusal::DomainOfOtherProvider
            | Refusal::ProviderDisabled
            | Refusal::UserDisabled
            | Refusal::OtherIdentity
            | Refusal::NoRole => Told::NotAllowed,
        }
    }
}

/// Refusals of one kind at one provider that are in the tenant's trail, each minute and on each node: strangers must not fill
/// it. All of them are in the log.
const TRAIL_MAX: u64 = 60;

/// How often a provider's people were refused, by kind.
#[derive(Default)]
pub struct Refusals(HashMap<Refusal, Minute>);

#[derive(Clone, Copy)]
struct Minute {
    start: Timestamp,
    count: u64,
}

impl Refusals {
    /// Whether one goes into the trail, and then how many of its kind have been left out before it: those of the last minute in
    /// which there were too many.
    pub fn count(&mut self, refusal: Refusal, now: Timestamp) -> Option<u64> {
        let minute = self.0.entry(refusal).or_insert(Minute { start: now, count: 0 });
        let mut left_out = 0;
        if now < minute.start || now >= minute.start.plus(MINUTE_MS) {
            left_out = minute.count.saturating_sub(TRAIL_MAX);
            *minute = Minute { start: now, count: 0 };
        }
        minute.count += 1;
        (minute.count <= TRAIL_MAX).then_some(left_out)
    }
}

/// Whom a provider has vouched for, as the audit trail names them. Whether the address is theirs may be what is refused.
#[derive(Clone, Debug)]
pub struct VouchedPerson {
    pub subject: String,
    pub email: Option<String>,
}

impl VouchedPerson {
    /// Of the claims of a token that was verified. An e-mail claim that is no address is not repeated.
    pub fn of(claims: &Map<String, Value>) -> Self {
        let text = |name: &str| claims.get(name).and_then(Value::as_str);
        VouchedPerson {
            subject: text("sub").unwrap_or_default().to_owned(),
            email: text("email").and_then(|email| fold_email(email).ok()),
        }
    }
}

/// A refusal with what the log is told of it. Nothing that anybody could sign in with is among that.
#[derive(Clone, Debug)]
pub struct Trouble {
    pub refusal: Refusal,
    pub detail: String,
    /// Who is refused, once that is known: for the audit trail alone.
    pub person: Option<Box<VouchedPerson>>,
}

impl Trouble {
    pub fn new(refusal: Refusal, detail: impl Into<String>) -> Self {
        Trouble { refusal, detail: detail.into(), person: None }
    }

    #[must_use]
    pub fn about(self, person: &VouchedPerson) -> Self {
        Trouble { person: Some(Box::new(person.clone())), ..self }
    }
}

impl From<Refusal> for Trouble {
    fn from(refusal: Refusal) -> Self {
        Trouble::new(refusal, "")
    }
}

/// Why there is no session: somebody is refused, or we have failed.
pub enum Stop {
    Refused(Trouble),
    Failed(Error),
}

impl From<Trouble> for Stop {
    fn from(trouble: Trouble) -> Self {
        Stop::Refused(trouble)
    }
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        Stop::Refused(refusal.into())
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Stop::Failed(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_told_by_the_next() {
        let (mut refusals, start) = (Refusals::default(), Timestamp::from_millis(1_768_471_200_000));
        let mut count = |refusal: Refusal, ms: i64| refusals.count(refusal, start.plus(ms));
        for _ in 0..TRAIL_MAX {
            assert_eq!(count(Refusal::FlowUsed, 0), Some(0));
        }
        for _ in 0..3 {
            assert_eq!(count(Refusal::FlowUsed, MINUTE_MS - 1), None);
        }
        assert_eq!(count(Refusal::NoEmail, MINUTE_MS - 1), Some(0), "each kind by itself");
        assert_eq!(count(Refusal::FlowUsed, MINUTE_MS), Some(3));
        assert_eq!(count(Refusal::FlowUsed, MINUTE_MS), Some(0), "once");
        assert_eq!(count(Refusal::FlowUsed, 0), Some(0), "a clock that was set back");
    }
}
