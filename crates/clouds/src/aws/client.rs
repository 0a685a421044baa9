//! Sends calls as the user, or as the role that the user assumes.

use std::sync::{Arc, Mutex};

use kernel::base::{Timestamp, lock_unpoisoned};

use super::query::{AwsCall, AwsService, CallSender};
use super::session::{RoleSession, assume_role, user_keys};
use super::sign::SigningKeys;
use crate::aws_partition::find_fallback_region;
use crate::credentials::AwsCredentials;
use crate::{CloudError, CloudErrorKind, CloudResponse, Transport};

pub struct AwsClient {
    credentials: AwsCredentials,
    /// Of the role, if there is one.
    session: Mutex<Option<RoleSession>>,
    sender: CallSender,
}

impl AwsClient {
    pub fn new(credentials: AwsCredentials, endpoint: Option<String>, transport: Arc<dyn Transport>) -> Self {
        AwsClient { credentials, session: Mutex::new(None), sender: CallSender::new(endpoint, transport) }
    }

    /// Sends a call with the keys of the user, or of the role if there is one. The answer is read with `read_answer`.
    pub async fn send(&self, call: &AwsCall<'_>, now: Timestamp) -> Result<CloudResponse, CloudError> {
        self.check_region(call.region)?;
        let keys = self.load_keys(call.region, now).await?;
        let result = self.sender.send_with(call, (&keys, &self.credentials.secret_access_key), now).await;
        if result.as_ref().is_err_and(|error| error.kind == CloudErrorKind::Auth) {
            // A session that AWS refuses is not used again: the role may have been changed meanwhile.
            *lock_unpoisoned(&self.session) = None;
        }
        result
    }

    /// Whether calls can be sent to a region, without asking it.
    pub fn check_region(&self, region: &str) -> Result<(), CloudError> {
        self.sender.find_url(AwsService::Ec2, region).map(drop)
    }

    /// The keys to sign with.
    async fn load_keys(&self, region: &str, now: Timestamp) -> Result<SigningKeys, CloudError> {
        let Some(role_arn) = &self.credentials.role_arn else { return Ok(user_keys(&self.credentials)) };
        let cached = lock_unpoisoned(&self.session)
            .as_ref()
            .filter(|session| session.is_fresh(now))
            .map(|session| session.keys.clone());
        if let Some(keys) = cached {
            return Ok(keys);
        }
        let session = match assume_role(&self.sender, &self.credentials, (role_arn, region), now).await {
            // A region that is not enabled in the user's own account may be in that of the role.
            Err(error) if is_unknown_in_region(&error) => match find_fallback_region(region) {
                Some(fallback) => assume_role(&self.sender, &self.credentials, (role_arn, fallback), now).await?,
                None => return Err(error),
            },
            assumed => assumed?,
        };
        let keys = session.keys.clone();
        *lock_unpoisoned(&self.session) = Some(session);
        Ok(keys)
    }
}

/// Whether the region's own STS does not know the keys, as where the region is not enabled in their account.
fn is_unknown_in_region(error: &CloudError) -> bool {
    matches!(error.code.as_deref(), Some("InvalidClientTokenId" | "RegionDisabledException"))
}
