//! What went wrong, in the same words for every cloud.

use std::fmt;

use crate::TransportFailure;
use crate::message::{clean_code, clean_message};

/// What a failure means to the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloudErrorKind {
    /// The cloud does not accept the credentials.
    Auth,
    /// The credentials are good, and may not do this.
    Permission,
    NotFound,
    /// The cloud refuses a value of the request.
    Invalid,
    /// A limit of the account.
    Quota,
    /// The cloud has no such machine to give at the moment.
    Capacity,
    RateLimited,
    /// Something of this name or token exists already.
    Conflict,
    /// The cloud cannot be reached or failed. The request did nothing.
    Unavailable,
    /// There is no answer, or none that can be read, and the request may have taken effect.
    Ambiguous,
}

impl CloudErrorKind {
    /// Whether the failure says nothing of the credentials, and the same question may be answered soon.
    pub(crate) const fn is_passing(self) -> bool {
        matches!(self, CloudErrorKind::RateLimited | CloudErrorKind::Unavailable | CloudErrorKind::Ambiguous)
    }

    /// The name that users see.
    pub const fn as_str(self) -> &'static str {
        match self {
            CloudErrorKind::Auth => "auth",
            CloudErrorKind::Permission => "permission",
            CloudErrorKind::NotFound => "not_found",
            CloudErrorKind::Invalid => "invalid",
            CloudErrorKind::Quota => "quota",
            CloudErrorKind::Capacity => "capacity",
            CloudErrorKind::RateLimited => "rate_limited",
            CloudErrorKind::Conflict => "conflict",
            CloudErrorKind::Unavailable => "unavailable",
            CloudErrorKind::Ambiguous => "ambiguous",
        }
    }
}

/// `detail` is for people and never has a secret in it.
#[derive(Clone, Debug)]
pub struct CloudError {
    pub kind: CloudErrorKind,
    /// The cloud's own code, where it has one.
    pub code: Option<String>,
    pub detail: String,
    /// When the cloud says how long to wait.
    pub retry_after_ms: Option<i64>,
}

impl fmt::Display for CloudError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

impl std::error::Error for CloudError {}

/// What a request does if it arrives, which decides what a lost answer means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestEffect {
    Read,
    Create,
}

impl RequestEffect {
    /// The kind of a failure after which the request may have been carried out.
    pub fn kind_when_lost(self) -> CloudErrorKind {
        match self {
            RequestEffect::Read => CloudErrorKind::Unavailable,
            RequestEffect::Create => CloudErrorKind::Ambiguous,
        }
    }
}

impl CloudError {
    pub(crate) fn new(kind: CloudErrorKind, detail: impl Into<String>) -> Self {
        CloudError { kind, code: None, detail: detail.into(), retry_after_ms: None }
    }

    pub(crate) fn invalid(detail: impl Into<String>) -> Self {
        CloudError::new(CloudErrorKind::Invalid, detail)
    }

    pub(crate) fn from_transport(cloud: &str, failure: &TransportFailure, effect: RequestEffect) -> Self {
        let kind = if failure.may_have_arrived { effect.kind_when_lost() } else { CloudErrorKind::Unavailable };
        CloudError::new(kind, explain(kind, cloud, &clean_message(&failure.detail, &[])))
    }

    /// An answer that is not one of the cloud, or is cut off.
    pub(crate) fn unreadable(cloud: &str, status: u16, effect: RequestEffect) -> Self {
        let kind = effect.kind_when_lost();
        let message = format!("the answer with the status {status} is cut off or is none of {cloud}.");
        CloudError::new(kind, explain(kind, cloud, &message))
    }

    /// The cloud's own error, without secrets that its message may repeat.
    pub(crate) fn from_cloud(
        cloud: &str,
        kind: CloudErrorKind,
        (code, message): (&str, &str),
        secrets: &[&str],
    ) -> Self {
        let message = clean_message(message, secrets);
        let message = if message.is_empty() { "it gives no reason.".to_owned() } else { message };
        let detail = explain(kind, cloud, &message);
        CloudError { kind, code: clean_code(code, secrets), detail, retry_after_ms: None }
    }
}

/// A sentence that says what a kind means, and then what the cloud said.
fn explain(kind: CloudErrorKind, cloud: &str, message: &str) -> String {
    match kind {
        CloudErrorKind::Auth => format!("{cloud} does not accept the credentials: {message}"),
        CloudErrorKind::Permission => format!("The credentials may not do this at {cloud}: {message}"),
        CloudErrorKind::NotFound => format!("{cloud} does not have it: {message}"),
        CloudErrorKind::Invalid => format!("{cloud} refuses the request: {message}"),
        CloudErrorKind::Quota => format!("A limit of the account at {cloud} is reached: {message}"),
        CloudErrorKind::Capacity => format!("{cloud} has no such machine to give at the moment: {message}"),
        CloudErrorKind::RateLimited => format!("{cloud} accepts no more requests for now: {message}"),
        CloudErrorKind::Conflict => format!("{cloud} has something of this name or token already: {message}"),
        CloudErrorKind::Unavailable => format!("{cloud} cannot be reached or failed: {message}"),
        CloudErrorKind::Ambiguous => {
            format!("{cloud} gave no clear answer, and the machine may have been created: {message}")
        }
    }
}
