//! The keys that requests are signed with: the user's own, or those of a role that the user assumes.

use kernel::base::{MINUTE_MS, Timestamp};

use super::CLOUD;
use super::query::{AwsCall, AwsService, CallSender, read_answer};
use super::sign::SigningKeys;
use crate::credentials::AwsCredentials;
use crate::error::RequestEffect;
use crate::{CloudError, CloudErrorKind};

/// A session is renewed this long before it ends, so that it does not end during a call.
const RENEW_BEFORE_MS: i64 = 5 * MINUTE_MS;

pub struct RoleSession {
    pub keys: SigningKeys,
    expires_at: Timestamp,
}

impl RoleSession {
    pub fn is_fresh(&self, now: Timestamp) -> bool {
        self.expires_at > now.plus_ms(RENEW_BEFORE_MS)
    }
}

/// The keys of the user.
pub fn user_keys(credentials: &AwsCredentials) -> SigningKeys {
    SigningKeys {
        access_key_id: credentials.access_key_id.clone(),
        secret_access_key: credentials.secret_access_key.clone(),
        session_token: None,
    }
}

/// Assumes a role, in the region of the call, because accounts can forbid others.
pub async fn assume_role(
    sender: &CallSender,
    credentials: &AwsCredentials,
    (role_arn, region): (&str, &str),
    now: Timestamp,
) -> Result<RoleSession, CloudError> {
    let call = AwsCall::new(AwsService::Sts, region, "AssumeRole")
        .param("RoleArn", role_arn)
        .param("RoleSessionName", "tenant-control")
        .optional("ExternalId", credentials.external_id.as_deref());
    let keys = user_keys(credentials);
    let sent = sender.send_with(&call, (&keys, &credentials.secret_access_key), now).await;
    let response = sent.map_err(explain_refusal)?;
    let root = read_answer(&response, &call, &[], |_| {})?;
    let read = |name: &str| root.find_text(&["AssumeRoleResult", "Credentials", name]).map(str::to_owned);
    let session = || {
        Some(RoleSession {
            keys: SigningKeys {
                access_key_id: read("AccessKeyId")?,
                secret_access_key: read("SecretAccessKey")?,
                session_token: Some(read("SessionToken")?),
            },
            expires_at: Timestamp::parse(&read("Expiration")?)?,
        })
    };
    session().ok_or_else(|| CloudError::unreadable(CLOUD, response.status, RequestEffect::Read))
}

/// Keys that may not assume the role are of no use: to the caller, the credentials are refused.
fn explain_refusal(mut error: CloudError) -> CloudError {
    if error.kind == CloudErrorKind::Permission {
        error.kind = CloudErrorKind::Auth;
        error.detail = format!(
            "AWS does not let the access key assume the role. The user needs sts:AssumeRole on it, and its trust policy must \
             name the user and the external id. {}",
            error.detail
        );
    }
    error
}
