//! Cloud providers: a tenant's accounts at clouds, with the credentials for them.
//!
//! `input` parses request bodies, `verify` finds out what credentials may do, `catalog` lists what a cloud offers, `store` has
//! the SQL. Credentials are sealed, and shown only as a hint.

pub mod actions;
pub mod catalog;
pub mod catalog_cache;
pub mod feature;
pub mod input;
pub mod routes;
pub mod store;
/// Verifies providers.
pub mod verify {
    pub mod store;
}

use clouds::{AccessCheck, AccessResult, CloudKind, Verification};
use kernel::base::{ActorRef, Code, Id, Identified, Timestamp};
use kernel::events::EventKind;
use kernel::http::Record;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::cloud_text::clean_text;

pub const CLOUD_PROVIDER_VERIFIED: EventKind<CloudProvider> =
    EventKind::new("cloud.provider.verified", "A provider became `active`: its credentials may do all that is needed.");
pub const CLOUD_PROVIDER_FAILED: EventKind<CloudProvider> = EventKind::new(
    "cloud.provider.failed",
    "A provider is no longer `active`: its credentials were refused, lack a permission, or the cloud cannot be reached. \
     `verification` says what.",
);

pub const PROVIDER_UNSUPPORTED: Code = Code::new(
    422,
    "provider_unsupported",
    "This kind of cloud is not offered",
    "The detail lists the kinds that this server offers.",
    "Not valid: /kind. See errors for each.",
);

/// How many providers a tenant may have: one for each customer of a large service provider.
pub const PROVIDERS_MAX: i64 = 500;
pub const REGIONS_MAX: usize = 30;

pub type ProviderId = Id<CloudProvider>;

impl Identified for CloudProvider {
    const PREFIX: &'static str = "prv";
    const ABOUT: &'static str = "The provider to act on.";
}

kernel::string_enum! {
    /// Whether a provider can be worked with.
    #[schema(as = CloudProviderStatus)]
    pub enum ProviderStatus {
        /// Not verified yet.
        Unverified "unverified",
        Verifying "verifying",
        /// Every required check is allowed.
        Active "active",
        /// The identity is known, and a required check is not allowed.
        Degraded "degraded",
        /// The cloud refuses the credentials.
        Invalid "invalid",
        /// The cloud, or one of the regions, cannot be reached.
        Error "error",
        Disabled "disabled",
    }
}

/// A cloud account, without its credentials.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(example = json!({
    "id": "prv_01jd8z6v2mfkpb7h3q9xw5t4ra", "name": "Production", "kind": "aws", "regions": ["eu-central-1"], "enabled": true,
    "status": "active", "credentials_hint": "AKIA…MPLE", "last_verified_at": "2026-11-15T08:00:02.000Z",
    "verification": {"status": "active", "checked_at": "2026-11-15T08:00:02.000Z", "duration_ms": 412,
        "identity": {"account_id": "123456789012", "principal": "arn:aws:iam::123456789012:user/tenant-control"},
        "error": null,
        "checks": [{"capability": "list_machines", "action": "ec2:DescribeInstances", "region": "eu-central-1",
            "required": true, "result": "allowed", "method": "call", "code": null, "remediation": null}]},
    "last_sync_at": "2026-11-15T08:00:04.000Z", "last_sync_error": null,
    "created_by": {"type": "user", "id": "usr_01jd8z6v2mfkpb7h3q9xw5t4rb", "name": "Admin"},
    "version": 1, "created_at": "2026-11-15T08:00:00.000Z", "updated_at": "2026-11-15T08:00:00.000Z"
}))]
pub struct CloudProvider {
    #[schema(value_type = String)]
    pub id: ProviderId,
    pub name: String,
    #[schema(value_type = CloudKind)]
    pub kind: CloudKind,
    pub regions: Vec<String>,
    pub enabled: bool,
    pub status: ProviderStatus,
    /// Which credentials are stored, without anything secret of them.
    pub credentials_hint: String,
    #[schema(value_type = Option<String>, format = DateTime, required)]
    pub last_verified_at: Option<Timestamp>,
    /// The last verification; null before the first.
    #[schema(required)]
    pub verification: Option<VerificationReport>,
    /// When the last region of it was synced completely: everything shown of its machines is at least as new.
    #[schema(value_type = Option<String>, format = DateTime, required)]
    pub last_sync_at: Option<Timestamp>,
    /// Why the last sync of a region did not end, with the region; null if all did.
    #[schema(required)]
    pub last_sync_error: Option<String>,
    pub created_by: ActorRef,
    pub version: i64,
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    pub updated_at: Timestamp,
}

impl Record for CloudProvider {
    fn version(&self) -> i64 {
        self.version
    }
}

/// What a verification has found out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = CloudVerification, example = json!({
    "status": "degraded", "checked_at": "2026-11-15T08:00:02.000Z", "duration_ms": 412,
    "identity": {"account_id": "123456789012", "principal": "arn:aws:iam::123456789012:user/tenant-control"}, "error": null,
    "checks": [{"capability": "create_machines", "action": "ec2:RunInstances", "region": "eu-central-1", "required": true,
        "result": "denied", "method": "dry_run", "code": "UnauthorizedOperation",
        "remediation": "Grant ec2:RunInstances in eu-central-1."}]
}))]
pub struct VerificationReport {
    #[schema(value_type = ProviderStatus)]
    pub status: String,
    #[schema(format = DateTime)]
    pub checked_at: String,
    pub duration_ms: i64,
    /// Whom the cloud takes the credentials for; null if it refuses them or cannot be reached.
    #[schema(required)]
    pub identity: Option<ReportedIdentity>,
    /// Why there is no identity.
    #[schema(required)]
    pub error: Option<ReportedError>,
    pub checks: Vec<ReportedCheck>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = CloudIdentity)]
pub struct ReportedIdentity {
    pub account_id: String,
    pub principal: String,
}

/// A failure in plain words.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = CloudFailure)]
pub struct ReportedError {
    /// What kind of failure it is, such as `auth`, `permission`, `quota` or `unavailable`.
    pub code: String,
    pub detail: String,
}

/// One permission that was checked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = CloudAccessCheck)]
pub struct ReportedCheck {
    /// What the service does with it.
    pub capability: String,
    /// The cloud's own name of the permission.
    pub action: String,
    #[schema(required)]
    pub region: Option<String>,
    /// Whether the provider is `degraded` without it.
    pub required: bool,
    #[schema(value_type = AccessResult)]
    pub result: String,
    /// How it was found out: `call`, `dry_run` or `refused_request`.
    pub method: String,
    /// The cloud's own code.
    #[schema(required)]
    pub code: Option<String>,
    /// What to grant where it is denied.
    #[schema(required)]
    pub remediation: Option<String>,
}

/// It may name the regions that the cloud has.
const REMEDIATION_CHARS_MAX: usize = 1_000;

impl From<AccessCheck> for ReportedCheck {
    fn from(check: AccessCheck) -> Self {
        use kernel::base::StringEnum;
        ReportedCheck {
            capability: check.capability.to_owned(),
            action: check.action,
            region: check.region,
            required: check.required,
            result: check.result.as_str().to_owned(),
            method: check.method.to_owned(),
            code: check.code,
            remediation: check.remediation.map(|text| clean_text(&text, REMEDIATION_CHARS_MAX)),
        }
    }
}

/// The status that a verification leads to.
pub fn judge_verification(verification: &Verification) -> ProviderStatus {
    use clouds::CloudErrorKind;
    match (&verification.identity, &verification.failure) {
        (Some(_), _) => {
            let required = || verification.checks.iter().filter(|check| check.required).map(|check| check.result);
            // A check that could not be made says nothing of the credentials.
            if required().all(|result| result == AccessResult::Allowed) {
                ProviderStatus::Active
            } else if required().all(|result| matches!(result, AccessResult::Allowed | AccessResult::Error)) {
                ProviderStatus::Error
            } else {
                ProviderStatus::Degraded
            }
        }
        (None, Some(failure)) if matches!(failure.kind, CloudErrorKind::Auth | CloudErrorKind::Permission) => {
            ProviderStatus::Invalid
        }
        (None, _) => ProviderStatus::Error,
    }
}
