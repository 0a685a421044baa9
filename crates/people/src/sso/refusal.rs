//! Why a sign-on is refused: a code for the audit trail and the log, and a message for the person. The message never reveals
//! which users exist.

use std::collections::HashMap;

use kernel::base::{Error, MINUTE_MS, Timestamp};
use serde_json::{Map, Value};

use crate::users::fold_email;

/// Why a sign-on is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SignOnRefusal {
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
pub enum RefusalMessage {
    /// Begin the sign-on again.
    TryAgain,
    /// The provider failed or refused, or is set up wrong.
    Provider,
    /// The account may not sign in; the administrator can change that.
    NotAllowed,
    /// This service cannot answer right now.
    Unavailable,
}

impl SignOnRefusal {
    pub fn as_str(self) -> &'static str {
        match self {
            SignOnRefusal::FlowUsed => "flow_used",
            SignOnRefusal::FlowExpired => "flow_expired",
            SignOnRefusal::OtherIssuer => "other_issuer",
            SignOnRefusal::ProviderRefused => "provider_refused",
            SignOnRefusal::ProviderUnreachable => "provider_unreachable",
            SignOnRefusal::ProviderBroken => "provider_broken",
            SignOnRefusal::TokenInvalid => "token_invalid",
            SignOnRefusal::NoEmail => "no_email",
            SignOnRefusal::EmailNotVerified => "email_not_verified",
            SignOnRefusal::ForeignDomain => "foreign_domain",
            SignOnRefusal::DomainOfOtherProvider => "domain_of_other_provider",
            SignOnRefusal::ProviderDisabled => "provider_disabled",
            SignOnRefusal::ProviderChanged => "provider_changed",
            SignOnRefusal::UserDisabled => "user_disabled",
            SignOnRefusal::OtherIdentity => "other_identity",
            SignOnRefusal::NoRole => "no_role",
        }
    }

    pub fn user_message(self) -> RefusalMessage {
        match self {
            SignOnRefusal::FlowUsed | SignOnRefusal::FlowExpired | SignOnRefusal::ProviderChanged => {
                RefusalMessage::TryAgain
            }
            SignOnRefusal::OtherIssuer
            | SignOnRefusal::ProviderRefused
            | SignOnRefusal::ProviderUnreachable
            | SignOnRefusal::ProviderBroken
            | SignOnRefusal::TokenInvalid => RefusalMessage::Provider,
            SignOnRefusal::NoEmail
            | SignOnRefusal::EmailNotVerified
            | SignOnRefusal::ForeignDomain
            | SignOnRefusal::DomainOfOtherProvider
            | SignOnRefusal::ProviderDisabled
            | SignOnRefusal::UserDisabled
            | SignOnRefusal::OtherIdentity
            | SignOnRefusal::NoRole => RefusalMessage::NotAllowed,
        }
    }
}

/// Refusals of one kind at one provider that enter the tenant's audit trail, per minute and node, so that strangers cannot
/// fill it. The log has all of them.
const TRAIL_MAX: u64 = 60;

/// Refused sign-ons at one provider, by kind.
#[derive(Default)]
pub struct RefusalCounts(HashMap<SignOnRefusal, MinuteCount>);

#[derive(Clone, Copy)]
struct MinuteCount {
    start: Timestamp,
    count: u64,
}

impl RefusalCounts {
    /// `Some` if the refusal enters the audit trail, with the number of its kind that were left out before it: those of the
    /// last minute with too many.
    pub fn count_refusal(&mut self, refusal: SignOnRefusal, now: Timestamp) -> Option<u64> {
        let minute = self.0.entry(refusal).or_insert(MinuteCount { start: now, count: 0 });
        let mut left_out = 0;
        if now < minute.start || now >= minute.start.plus_ms(MINUTE_MS) {
            left_out = minute.count.saturating_sub(TRAIL_MAX);
            *minute = MinuteCount { start: now, count: 0 };
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
    pub fn from_claims(claims: &Map<String, Value>) -> Self {
        let text = |name: &str| claims.get(name).and_then(Value::as_str);
        VouchedPerson {
            subject: text("sub").unwrap_or_default().to_owned(),
            email: text("email").and_then(|email| fold_email(email).ok()),
        }
    }
}

/// A refusal with its detail for the log. The detail contains no credentials.
#[derive(Clone, Debug)]
pub struct RefusedSignOn {
    pub refusal: SignOnRefusal,
    pub detail: String,
    /// The person, once the token is verified: for the audit trail only.
    pub person: Option<Box<VouchedPerson>>,
}

impl RefusedSignOn {
    pub fn new(refusal: SignOnRefusal, detail: impl Into<String>) -> Self {
        RefusedSignOn { refusal, detail: detail.into(), person: None }
    }

    #[must_use]
    pub fn with_person(self, person: &VouchedPerson) -> Self {
        RefusedSignOn { person: Some(Box::new(person.clone())), ..self }
    }
}

impl From<SignOnRefusal> for RefusedSignOn {
    fn from(refusal: SignOnRefusal) -> Self {
        RefusedSignOn::new(refusal, "")
    }
}

/// Why there is no session: the sign-on was refused, or this service failed.
pub enum SignOnError {
    Refused(RefusedSignOn),
    Failed(Error),
}

impl From<RefusedSignOn> for SignOnError {
    fn from(refused: RefusedSignOn) -> Self {
        SignOnError::Refused(refused)
    }
}

impl From<SignOnRefusal> for SignOnError {
    fn from(refusal: SignOnRefusal) -> Self {
        SignOnError::Refused(refusal.into())
    }
}

impl From<Error> for SignOnError {
    fn from(error: Error) -> Self {
        SignOnError::Failed(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_told_by_the_next() {
        let (mut refusals, start) = (RefusalCounts::default(), Timestamp::from_millis(1_768_471_200_000));
        let mut count = |refusal: SignOnRefusal, ms: i64| refusals.count_refusal(refusal, start.plus_ms(ms));
        for _ in 0..TRAIL_MAX {
            assert_eq!(count(SignOnRefusal::FlowUsed, 0), Some(0));
        }
        for _ in 0..3 {
            assert_eq!(count(SignOnRefusal::FlowUsed, MINUTE_MS - 1), None);
        }
        assert_eq!(count(SignOnRefusal::NoEmail, MINUTE_MS - 1), Some(0), "each kind by itself");
        assert_eq!(count(SignOnRefusal::FlowUsed, MINUTE_MS), Some(3));
        assert_eq!(count(SignOnRefusal::FlowUsed, MINUTE_MS), Some(0), "once");
        assert_eq!(count(SignOnRefusal::FlowUsed, 0), Some(0), "a clock that was set back");
    }
}
