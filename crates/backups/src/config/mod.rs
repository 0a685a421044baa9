//! `/api/backup/config`: the policy of a tenant, an organization or a device, with what is inherited.

pub mod feature;
pub mod input;
pub mod lower;
pub mod routes;
pub mod store;

use std::collections::BTreeMap;

use fleet::devices::DeviceId;
use kernel::audit::FieldChange;
use kernel::base::{Id, Identified, Timestamp};
use kernel::events::EventKind;
use kernel::http::Record;
use people::organizations::OrganizationId;
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::policy::{BackupPolicy, PolicyLevel, PolicySource, PolicySources};

pub const BACKUP_CONFIG_UPDATED: EventKind<UpdatedBackupConfig> = EventKind::new(
    "backup.config.updated",
    "The policy of the tenant, an organization or a device was changed; `changes` says what of its own fields.",
);

pub type BackupConfigId = Id<BackupConfig>;

impl Identified for BackupConfig {
    const PREFIX: &'static str = "bcf";
    const ABOUT: &'static str = "The policy.";
}

kernel::string_enum! {
    /// Whom a policy is of.
    #[schema(as = BackupConfigLevel)]
    pub enum ConfigLevel { Tenant "tenant", Organization "organization", Device "device" }
}

impl From<ConfigLevel> for PolicySource {
    fn from(level: ConfigLevel) -> Self {
        match level {
            ConfigLevel::Tenant => PolicySource::Tenant,
            ConfigLevel::Organization => PolicySource::Organization,
            ConfigLevel::Device => PolicySource::Device,
        }
    }
}

/// Whom a request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigOwner {
    Tenant,
    Organization(OrganizationId),
    Device(DeviceId),
}

impl ConfigOwner {
    pub fn level(self) -> ConfigLevel {
        match self {
            ConfigOwner::Tenant => ConfigLevel::Tenant,
            ConfigOwner::Organization(_) => ConfigLevel::Organization,
            ConfigOwner::Device(_) => ConfigLevel::Device,
        }
    }

    pub fn organization_id(self) -> Option<OrganizationId> {
        match self {
            ConfigOwner::Organization(id) => Some(id),
            _ => None,
        }
    }

    pub fn device_id(self) -> Option<DeviceId> {
        match self {
            ConfigOwner::Device(id) => Some(id),
            _ => None,
        }
    }

    /// As it is stored; the tenant is the empty text.
    pub fn to_key(self) -> String {
        match self {
            ConfigOwner::Tenant => String::new(),
            ConfigOwner::Organization(id) => id.to_string(),
            ConfigOwner::Device(id) => id.to_string(),
        }
    }
}

/// The policy of a level.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(example = example_config)]
pub struct BackupConfig {
    /// Null until something is set on this level.
    #[schema(value_type = Option<String>, required)]
    pub id: Option<BackupConfigId>,
    pub level: ConfigLevel,
    #[schema(value_type = Option<String>, required)]
    pub organization_id: Option<OrganizationId>,
    #[schema(value_type = Option<String>, required)]
    pub device_id: Option<DeviceId>,
    /// What is in force.
    pub effective: BackupPolicy,
    /// The level that each field in force comes from.
    pub sources: PolicySources,
    /// What this level sets itself; null is inherited.
    pub set: PolicyLevel,
    /// 0 until something is set on this level.
    pub version: i64,
    #[schema(value_type = Option<String>, format = DateTime, required)]
    pub created_at: Option<Timestamp>,
    #[schema(value_type = Option<String>, format = DateTime, required)]
    pub updated_at: Option<Timestamp>,
}

impl Record for BackupConfig {
    fn version(&self) -> i64 {
        self.version
    }
}

/// A policy with what has just changed in it.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(example = example_updated_config)]
pub struct UpdatedBackupConfig {
    #[serde(flatten)]
    pub config: BackupConfig,
    pub changes: BackupConfigChanges,
}

/// Fields of the level before and after.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(transparent)]
pub struct BackupConfigChanges(pub BTreeMap<String, FieldChange>);

fn example_config() -> Value {
    let schedule = json!({"cron": "0 22 * * *", "timezone": "Europe/Berlin"});
    let targets = json!([
        {"name": "nas", "type": "nas", "media": "disk", "offsite": false, "immutable": false, "immutable_days": null},
        {"name": "b2", "type": "s3", "media": "object", "offsite": true, "immutable": true, "immutable_days": 30}
    ]);
    json!({
        "id": "bcf_01jd8z6v2mfkpb7h3q9xw5t4ra", "level": "organization",
        "organization_id": "org_01jd8z6v2mfkpb7h3q9xw5t4rb", "device_id": null,
        "effective": {
            "enabled": true, "schedule": schedule, "rpo_hours": {"server": 26, "workstation": 72},
            "retention": {"keep_last": 0, "hourly": 0, "daily": 14, "weekly": 8, "monthly": 12, "yearly": 0},
            "targets": targets, "encryption_required": false,
            "verification": {"every_days": 30, "restore_test_every_days": 90}, "alert_after_failures": 1,
            "excluded_devices": []
        },
        "sources": {
            "enabled": "default", "schedule": "tenant", "rpo_hours": "default", "retention": "default",
            "targets": "organization", "encryption_required": "default", "verification": "default",
            "alert_after_failures": "default", "excluded_devices": "default"
        },
        "set": {
            "enabled": null, "schedule": null, "rpo_hours": null, "retention": null, "targets": targets,
            "encryption_required": null, "verification": null, "alert_after_failures": null, "excluded_devices": null
        },
        "version": 1, "created_at": "2026-11-15T08:00:00.000Z", "updated_at": "2026-11-15T08:00:00.000Z"
    })
}

fn example_updated_config() -> Value {
    let mut example = example_config();
    example["changes"] = json!({"targets": {"from": null, "to": example["set"]["targets"]}});
    example
}
