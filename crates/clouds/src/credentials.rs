//! Credentials per kind. `Debug` prints none of them.

mod fields;

use std::fmt;

use serde_json::{Value, json};

use crate::CloudKind;
use crate::aws_partition::is_supported_partition;
use fields::CredentialFields;
pub use fields::CredentialsFieldError;

/// What a tenant gives to a provider of a kind.
#[derive(Clone, PartialEq, Eq)]
pub enum CloudCredentials {
    Aws(AwsCredentials),
    Hetzner(ApiToken),
    Digitalocean(ApiToken),
    /// None: the host is the operator's. The owner is not from the tenant, and not stored.
    Libvirt {
        owner: Option<String>,
    },
}

/// With a role, the keys are only used to assume it.
#[derive(Clone, PartialEq, Eq)]
pub struct AwsCredentials {
    pub(crate) access_key_id: String,
    pub(crate) secret_access_key: String,
    pub(crate) role_arn: Option<String>,
    pub(crate) external_id: Option<String>,
}

#[derive(Clone, PartialEq, Eq)]
pub struct ApiToken(pub(crate) String);

impl CloudCredentials {
    /// Parses the object of a kind. Every field that cannot be used is reported; no report repeats a value.
    pub fn parse(kind: CloudKind, value: &Value) -> Result<CloudCredentials, Vec<CredentialsFieldError>> {
        let mut fields = CredentialFields::new(value);
        let credentials = match kind {
            CloudKind::Aws => read_aws(&mut fields).map(CloudCredentials::Aws),
            CloudKind::Hetzner => fields.read_secret("token").map(ApiToken).map(CloudCredentials::Hetzner),
            CloudKind::Digitalocean => fields.read_secret("token").map(ApiToken).map(CloudCredentials::Digitalocean),
            CloudKind::Libvirt => Some(CloudCredentials::Libvirt { owner: None }),
        };
        fields.finish(credentials)
    }

    /// For sealing: `parse` reads it back.
    pub fn to_json(&self) -> Value {
        match self {
            CloudCredentials::Aws(aws) => {
                let mut value = json!({
                    "access_key_id": aws.access_key_id,
                    "secret_access_key": aws.secret_access_key,
                });
                for (key, text) in [("role_arn", &aws.role_arn), ("external_id", &aws.external_id)] {
                    if let Some(text) = text {
                        value[key] = json!(text);
                    }
                }
                value
            }
            CloudCredentials::Hetzner(token) | CloudCredentials::Digitalocean(token) => json!({ "token": token.0 }),
            CloudCredentials::Libvirt { .. } => json!({}),
        }
    }

    /// The credentials of this owner. A role without an external id gets the owner's: so no role of one tenant can be assumed
    /// for another. And on the operator's host an owner sees no machines but their own.
    #[must_use]
    pub fn with_owner(mut self, owner_id: &str) -> Self {
        match &mut self {
            CloudCredentials::Aws(aws) if aws.role_arn.is_some() && aws.external_id.is_none() => {
                aws.external_id = Some(owner_id.to_owned());
            }
            CloudCredentials::Libvirt { owner } => *owner = Some(owner_id.to_owned()),
            _ => {}
        }
        self
    }

    pub fn kind(&self) -> CloudKind {
        match self {
            CloudCredentials::Aws(_) => CloudKind::Aws,
            CloudCredentials::Hetzner(_) => CloudKind::Hetzner,
            CloudCredentials::Digitalocean(_) => CloudKind::Digitalocean,
            CloudCredentials::Libvirt { .. } => CloudKind::Libvirt,
        }
    }

    /// A text by which people recognize the credentials, without a secret in it.
    pub fn hint(&self) -> String {
        match self {
            CloudCredentials::Aws(aws) => {
                let id = &aws.access_key_id;
                // The id is ASCII with 16 characters or more.
                let mut parts = vec![format!("{}…{}", &id[..4], &id[id.len() - 4..])];
                parts.extend(aws.role_arn.as_ref().map(|role_arn| format!("role {role_arn}")));
                parts.extend(aws.external_id.as_ref().map(|external_id| format!("external id {external_id}")));
                parts.join(", ")
            }
            CloudCredentials::Hetzner(token) | CloudCredentials::Digitalocean(token) => token.hint(),
            CloudCredentials::Libvirt { .. } => "none needed".to_owned(),
        }
    }
}

impl ApiToken {
    /// The last four characters, unless that would be a large part of the token.
    pub(crate) fn hint(&self) -> String {
        const LENGTH_MIN: usize = 16;
        let last_four = if self.0.len() < LENGTH_MIN { "" } else { &self.0[self.0.len() - 4..] };
        format!("…{last_four}")
    }
}

impl fmt::Debug for CloudCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

impl fmt::Debug for AwsCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

impl fmt::Debug for ApiToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

fn read_aws(fields: &mut CredentialFields<'_>) -> Option<AwsCredentials> {
    let access_key_id = fields.read_checked("access_key_id", check_access_key_id);
    let secret_access_key = fields.read_secret("secret_access_key");
    let role_arn = fields.read_optional("role_arn", check_role_arn);
    let external_id = fields.read_optional("external_id", check_external_id);
    if external_id.is_some() && !fields.has("role_arn") {
        fields.refuse("external_id", "is_unused", "is only used with role_arn");
    }
    Some(AwsCredentials { access_key_id: access_key_id?, secret_access_key: secret_access_key?, role_arn, external_id })
}

fn check_access_key_id(text: &str) -> Option<&'static str> {
    let is_id =
        (16..=128).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit());
    (!is_id).then_some("must be 16 to 128 upper-case letters and digits, such as AKIAIOSFODNN7EXAMPLE")
}

fn check_role_arn(text: &str) -> Option<&'static str> {
    const EXPECTED: &str = "must be the ARN of a role, such as arn:aws:iam::123456789012:role/tenant-control";
    const UNSUPPORTED: &str =
        "is in a partition of AWS that is not supported; supported are aws, aws-cn, aws-us-gov and aws-eusc";
    let mut parts = text.splitn(6, ':');
    let mut part = || parts.next().unwrap_or_default();
    let is_role = |text: &str| {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_+=,.@-/".contains(&byte);
        text.strip_prefix("role/").is_some_and(|name| !name.is_empty() && name.bytes().all(is_allowed))
    };
    let (scheme, partition) = (part(), part());
    let is_arn = scheme == "arn"
        && (partition == "aws" || partition.starts_with("aws-"))
        && part() == "iam"
        && part().is_empty()
        && matches!(part(), account if account.len() == 12 && account.bytes().all(|byte| byte.is_ascii_digit()))
        && is_role(part());
    if !is_arn || text.len() > 2_048 {
        return Some(EXPECTED);
    }
    if is_supported_partition(partition) { None } else { Some(UNSUPPORTED) }
}

fn check_external_id(text: &str) -> Option<&'static str> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_+=,.@:/-".contains(&byte);
    let is_id = (2..=1_224).contains(&text.len()) && text.bytes().all(is_allowed);
    (!is_id).then_some("must be 2 to 1224 letters, digits and _+=,.@:/-")
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests;
