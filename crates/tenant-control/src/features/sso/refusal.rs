//! Why somebody is not signed in: a word for the trail and the log, and apart from it what they are told. That never says who
//! exists here.

use kernel::base::Error;

/// Why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Somebody has come back with it before.
    FlowUsed,
    FlowExpired,
    /// The browser is not the one that began.
    OtherBrowser,
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
    ProviderDisabled,
    UserDisabled,
    /// The user with this e-mail address is somebody else where they sign in.
    OtherIdentity,
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
            Refusal::OtherBrowser => "other_browser",
            Refusal::OtherIssuer => "other_issuer",
            Refusal::ProviderRefused => "provider_refused",
            Refusal::ProviderUnreachable => "provider_unreachable",
            Refusal::ProviderBroken => "provider_broken",
            Refusal::TokenInvalid => "token_invalid",
            Refusal::NoEmail => "no_email",
            Refusal::EmailNotVerified => "email_not_verified",
            Refusal::ForeignDomain => "foreign_domain",
            Refusal::ProviderDisabled => "provider_disabled",
            Refusal::UserDisabled => "user_disabled",
            Refusal::OtherIdentity => "other_identity",
        }
    }

    pub fn told(self) -> Told {
        match self {
            Refusal::FlowUsed | Refusal::FlowExpired | Refusal::OtherBrowser => Told::Again,
            Refusal::OtherIssuer
            | Refusal::ProviderRefused
            | Refusal::ProviderUnreachable
            | Refusal::ProviderBroken
            | Refusal::TokenInvalid => Told::Provider,
            Refusal::NoEmail
            | Refusal::EmailNotVerified
            | Refusal::ForeignDomain
            | Refusal::ProviderDisabled
            | Refusal::UserDisabled
            | Refusal::OtherIdentity => Told::NotAllowed,
        }
    }
}

/// A refusal with what the log is told of it. Nothing that anybody could sign in with is among that.
#[derive(Debug)]
pub struct Trouble {
    pub refusal: Refusal,
    pub detail: String,
}

impl Trouble {
    pub fn new(refusal: Refusal, detail: impl Into<String>) -> Self {
        Trouble { refusal, detail: detail.into() }
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
