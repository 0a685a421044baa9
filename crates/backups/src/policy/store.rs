//! SQL of the levels of a policy.

use std::collections::HashMap;

use kernel::args;
use kernel::base::Result;
use kernel::store::{Tx, from_json};
use people::organizations::OrganizationId;

use super::{BackupPolicy, PolicyLevel, PolicySource, resolve_policy};

kernel::statements! {
    LEVEL = "SELECT policy FROM backup_configs WHERE tenant_id = $1 AND owner_id = $2";
}

/// The owner of the tenant's level.
pub const TENANT_OWNER: &str = "";

/// The policies that one transaction needs, each level read once.
#[derive(Default)]
pub struct PolicyCache(HashMap<String, Option<PolicyLevel>>);

impl PolicyCache {
    /// The policy of an organization (`OrganizationId::NONE` for none).
    pub async fn get_of_organization(&mut self, tx: &mut Tx, organization: OrganizationId) -> Result<BackupPolicy> {
        let organization = organization.to_string();
        self.load_level(tx, TENANT_OWNER).await?;
        self.load_level(tx, &organization).await?;
        Ok(self.resolve(&organization, None))
    }

    /// The policy of a device.
    pub async fn get_of_device(
        &mut self,
        tx: &mut Tx,
        organization: OrganizationId,
        device: &str,
    ) -> Result<BackupPolicy> {
        let organization = organization.to_string();
        self.load_level(tx, TENANT_OWNER).await?;
        self.load_level(tx, &organization).await?;
        self.load_level(tx, device).await?;
        Ok(self.resolve(&organization, Some(device)))
    }

    /// Whether a device's own level switches backups off.
    pub fn disables_device(&self, device: &str) -> bool {
        self.find_level(device).is_some_and(|level| level.enabled == Some(false))
    }

    fn resolve(&self, organization: &str, device: Option<&str>) -> BackupPolicy {
        let levels = [
            (PolicySource::Tenant, self.find_level(TENANT_OWNER)),
            (PolicySource::Organization, self.find_level(organization)),
            (PolicySource::Device, device.and_then(|key| self.find_level(key))),
        ];
        let levels: Vec<_> =
            levels.into_iter().filter_map(|(source, level)| level.map(|level| (source, level))).collect();
        resolve_policy(&levels).0
    }

    fn find_level(&self, owner: &str) -> Option<&PolicyLevel> {
        self.0.get(owner).and_then(Option::as_ref)
    }

    async fn load_level(&mut self, tx: &mut Tx, owner: &str) -> Result<()> {
        if !self.0.contains_key(owner) {
            let text: Option<String> = tx.find(LEVEL, args![owner]).await?;
            let level = text.as_deref().map(from_json).transpose()?;
            self.0.insert(owner.to_owned(), level);
        }
        Ok(())
    }
}
