//! What credentials may do.

use crate::{CatalogItem, CloudError, CloudErrorKind};

kernel::string_enum! {
    /// The result of one check.
    #[schema(as = CloudAccessResult)]
    pub enum AccessResult {
        Allowed "allowed", Denied "denied",
        /// The cloud's answer says neither.
        Unknown "unknown",
        /// A check before it failed.
        Skipped "skipped",
        /// The cloud could not be reached or failed.
        Error "error",
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct AccessCheck {
    /// What the service does with it: `identity`, `list_machines`, `create_machines`, `tag_machines`, `read_catalog`.
    pub capability: &'static str,
    /// The cloud's own name of the permission, such as `ec2:RunInstances`.
    pub action: String,
    pub region: Option<String>,
    /// Whether the provider is degraded without it.
    pub required: bool,
    pub result: AccessResult,
    /// How it was found out: `call`, `dry_run` or `refused_request` (a request that cannot succeed for another reason).
    pub method: &'static str,
    /// The cloud's code.
    pub code: Option<String>,
    /// What to grant where it is denied; what the cloud said where the result is not clear.
    pub remediation: Option<String>,
}

/// What an account begins with that the cloud does not tell: the rest is a part of the token's hash.
pub(crate) const TOKEN_ACCOUNT: &str = "token-";

/// Whether this is the cloud's own name of an account. If not, another token of the same account has another.
pub fn names_account(account_id: &str) -> bool {
    !account_id.starts_with(TOKEN_ACCOUNT)
}

/// Whom the cloud takes the credentials for.
#[derive(Clone, Debug, PartialEq)]
pub struct CloudIdentity {
    /// The account or project, by which requests are paced.
    pub account_id: String,
    /// The user, role or token, as the cloud names it.
    pub principal: String,
}

/// `identity` is none if the credentials were refused or the cloud could not be reached: `failure` says which.
#[derive(Debug)]
pub struct Verification {
    pub identity: Option<CloudIdentity>,
    pub checks: Vec<AccessCheck>,
    pub failure: Option<CloudError>,
}

impl AccessCheck {
    /// A required check that was not made yet.
    pub(crate) fn new(capability: &'static str, action: &str, method: &'static str) -> Self {
        AccessCheck {
            capability,
            action: action.to_owned(),
            region: None,
            required: true,
            result: AccessResult::Skipped,
            method,
            code: None,
            remediation: None,
        }
    }

    pub(crate) fn in_region(mut self, region: &str) -> Self {
        self.region = Some(region.to_owned());
        self
    }

    pub(crate) fn optional(mut self) -> Self {
        self.required = false;
        self
    }

    pub(crate) fn allowed(mut self) -> Self {
        self.result = AccessResult::Allowed;
        self
    }

    pub(crate) fn denied(mut self, code: &str, remediation: impl Into<String>) -> Self {
        self.result = AccessResult::Denied;
        self.code = Some(code.to_owned());
        self.remediation = Some(remediation.into());
        self
    }

    pub(crate) fn unknown(mut self, remediation: impl Into<String>) -> Self {
        self.result = AccessResult::Unknown;
        self.remediation = Some(remediation.into());
        self
    }

    /// The result of a call that failed.
    pub(crate) fn failed(mut self, error: &CloudError, remediation: impl Into<String>) -> Self {
        self.result = match error.kind {
            CloudErrorKind::Auth | CloudErrorKind::Permission => AccessResult::Denied,
            kind if kind.is_passing() => AccessResult::Error,
            _ => AccessResult::Unknown,
        };
        self.code.clone_from(&error.code);
        let is_denied = self.result == AccessResult::Denied;
        self.remediation = Some(match is_denied {
            // Nothing can be granted against it. It may demand a tag that the check does not know.
            true if error.detail.contains("explicit deny") => {
                format!("A policy denies it, whatever is granted: {}", error.detail)
            }
            true => format!("{} {}", remediation.into(), error.detail),
            false => error.detail.clone(),
        });
        self
    }

    /// The result of a call.
    pub(crate) fn judged<T>(self, result: &Result<T, CloudError>, remediation: impl Into<String>) -> Self {
        match result {
            Ok(_) => self.allowed(),
            Err(error) => self.failed(error, remediation),
        }
    }
}

/// Whether the regions of a provider are among those of the cloud, where one call lists them all; `None` if it was not made.
/// Machines are read without that list, so the call is not required. A region that the cloud does not have is a mistake in the
/// provider, and counts.
pub(crate) fn check_regions(
    action: &str,
    regions: &[String],
    offered: Option<&Result<Vec<CatalogItem>, CloudError>>,
) -> Vec<AccessCheck> {
    let check = |region: &String| {
        let check = AccessCheck::new("read_catalog", action, "call").in_region(region);
        match offered {
            None => check.optional(),
            Some(Err(error)) => check.optional().failed(error, format!("Grant {action} to the token.")),
            Some(Ok(offered)) if offered.iter().any(|item| &item.id == region) => check.optional().allowed(),
            Some(Ok(offered)) => {
                let names: Vec<&str> = offered.iter().map(|item| item.id.as_str()).collect();
                let detail = format!("The cloud has no region {region:?}; it has {}.", names.join(", "));
                check.denied("unknown_region", detail)
            }
        }
    };
    regions.iter().map(check).collect()
}

/// The result of a request that cannot succeed: if its fields are refused, the credentials were not.
pub(crate) fn judge_refusal<T>(check: AccessCheck, result: &Result<T, CloudError>, remediation: &str) -> AccessCheck {
    match result {
        Err(error) if error.kind == CloudErrorKind::Invalid => check.allowed(),
        Err(error) => check.failed(error, remediation),
        Ok(_) => check.unknown("The cloud accepted a request that it had to refuse."),
    }
}
