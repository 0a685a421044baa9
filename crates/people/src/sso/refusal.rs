//! Why a sign-on is refused: a code for the audit trail and the log, and a message for the person. The message never reveals
//! which users exist.

use std::collections::HashMap;

use kernel::base::{Error, MINUTE_MS, Timestamp};
use serde_json::{Map, Value};

use crate::users::fold_email;

/// Why a sign-on is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The callback of this sign-on was used before.
    FlowUsed,
    FlowExpired,
    /// The answer is from another issuer than the provider's.
    OtherIssuer,
    /// The provider answered with an error.
    ProviderRefused,
    /// The provider did not answer in time.
    ProviderUnreachable,
    /// The provider's answer is invalid.
    ProviderBroken,
    /// The ID token failed verification.
    TokenInvalid,
    NoEmail,
    EmailNotVerified,
    /// The domain of the e-mail address is not a verified domain of the tenant.
    ForeignDomain,
    /// Another provider of the tenant vouches for the domain of the e-mail address.
    DomainOfOtherProvider,
    ProviderDisabled,
    /// The operator changed the provider after the sign-on began.
    ProviderChanged,
    UserDisabled,
    /// The user with this e-mail address has another identity.
    OtherIdentity,
    /// No role rule fits, and there is no default role.
    NoRole,
}

/// The message for the person, by what they can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// Begin the sign-on again.
    Again,
    /// The provider failed or refused, or is set up wrong.
    Provider,
    /// The account may not sign in; the administrator can change that.
    NotAllowed,
    /// This service cannot answer right now.
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

/// Refusals of one kind at one provider that enter the tenant's audit trail, per minute and node, so that strangers cannot
/// fill it. The log has all of them.
const TRAIL_MAX: u64 = 60;

/// Refused sign-ons at one provider, by kind.
#[derive(Default)]
pub struct Refusals(HashMap<Refusal, Minute>);

#[derive(Clone, Copy)]
struct Minute {
    start: Timestamp,
    count: u64,
}

impl Refusals {
    /// `Some` if the refusal enters the audit trail, with the number of its kind that were left out before it: those of the
    /// last minute with too many.
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

/// A person whom a provider has vouched for, for the audit trail. The address may be unverified.
#[derive(Clone, Debug)]
pub struct VouchedPerson {
    pub subject: String,
    pub email: Option<String>,
}

impl VouchedPerson {
    /// Takes the person from the claims of a verified token. An e-mail claim that is no address is left out.
    pub fn of(claims: &Map<String, Value>) -> Self {
        let text = |name: &str| claims.get(name).and_then(Value::as_str);
        VouchedPerson {
            subject: text("sub").unwrap_or_default().to_owned(),
            email: text("email").and_then(|email| fold_email(email).ok()),
        }
    }
}

/// A refusal with its detail for the log. The detail contains no credentials.
#[derive(Clone, Debug)]
pub struct Trouble {
    pub refusal: Refusal,
    pub detail: String,
    /// The person, once the token is verified: for the audit trail only.
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

/// Why there is no session: the sign-on was refused, or this service failed.
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
