//! SQL of policies.

use fleet::devices::{DEVICES, DeviceId};
use kernel::args;
use kernel::audit::{self, NewAuditEntry, changed_fields};
use kernel::base::{Error, Result, Timestamp};
use kernel::events;
use kernel::http::IfMatch;
use kernel::store::references::{self, RecordReference};
use kernel::store::{Db, FromRow, Row, Tx, from_json, to_json};
use people::organizations::OrganizationId;

use super::input::{BackupConfigInput, conflict_errors};
use super::{
    BACKUP_CONFIG_UPDATED, BackupConfig, BackupConfigChanges, BackupConfigId, ConfigOwner, UpdatedBackupConfig,
};
use crate::policy::{PolicyLevel, PolicySource, find_conflicts, resolve_policy};
use crate::posture::pending::store::apply_policy;

kernel::columns! {
    /// All columns of a level.
    struct ConfigColumns in "backup_configs" by owner_id { owner_id, id, level, policy, version, created_at, updated_at }
}

kernel::statements! {
    GET = kernel::sql![ConfigColumns::SELECT, " AND owner_id = $2"];
    INSERT = ConfigColumns::INSERT;
    UPDATE = ConfigColumns::UPDATE;
    ORGANIZATION = "SELECT id FROM organizations WHERE tenant_id = $1 AND id = $2";
    DEVICE = "SELECT organization_id FROM devices WHERE tenant_id = $1 AND id = $2 AND deleted_at IS NULL";
}

/// A level as it is stored.
struct StoredLevel {
    id: BackupConfigId,
    policy: PolicyLevel,
    version: i64,
    created_at: Timestamp,
    updated_at: Timestamp,
}

impl FromRow for StoredLevel {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        const AT: ConfigColumns<usize> = ConfigColumns::AT;
        Ok(kernel::read_record!(row, ConfigColumns => StoredLevel {
            id, version, created_at, updated_at;
            policy: from_json(&row.get::<String>(AT.policy)?)?,
        }))
    }
}

/// The levels that make the policy of an owner, the own one last.
struct OwnerLevels {
    tenant: Option<StoredLevel>,
    organization: Option<StoredLevel>,
    device: Option<StoredLevel>,
}

/// The policy of an owner. An unknown organization or device is not found.
pub async fn read_config(db: &Db, owner: ConfigOwner) -> Result<BackupConfig> {
    let organization: Option<OrganizationId> = match owner {
        ConfigOwner::Tenant => None,
        ConfigOwner::Organization(id) => Some(db.get_one(ORGANIZATION, args![id]).await?),
        ConfigOwner::Device(id) => {
            let (organization,) = db.get_one(DEVICE, args![id]).await?;
            organization
        }
    };
    let tenant = db.find(GET, args![""]).await?;
    let organization = match organization {
        Some(id) => db.find(GET, args![id.to_string()]).await?,
        None => None,
    };
    let device = match owner {
        ConfigOwner::Device(id) => db.find(GET, args![id.to_string()]).await?,
        _ => None,
    };
    Ok(build_config(owner, OwnerLevels { tenant, organization, device }))
}

/// The same within a transaction.
async fn get_config(tx: &mut Tx, owner: ConfigOwner) -> Result<BackupConfig> {
    let organization: Option<OrganizationId> = match owner {
        ConfigOwner::Tenant => None,
        ConfigOwner::Organization(id) => Some(tx.get_one(ORGANIZATION, args![id]).await?),
        ConfigOwner::Device(id) => {
            let (organization,) = tx.get_one(DEVICE, args![id]).await?;
            organization
        }
    };
    let tenant = tx.find(GET, args![""]).await?;
    let organization = match organization {
        Some(id) => tx.find(GET, args![id.to_string()]).await?,
        None => None,
    };
    let device = match owner {
        ConfigOwner::Device(id) => tx.find(GET, args![id.to_string()]).await?,
        _ => None,
    };
    Ok(build_config(owner, OwnerLevels { tenant, organization, device }))
}

fn build_config(owner: ConfigOwner, stored: OwnerLevels) -> BackupConfig {
    let levels = [
        (PolicySource::Tenant, &stored.tenant),
        (PolicySource::Organization, &stored.organization),
        (PolicySource::Device, &stored.device),
    ];
    let levels: Vec<_> =
        levels.into_iter().filter_map(|(source, level)| level.as_ref().map(|level| (source, &level.policy))).collect();
    let (effective, sources) = resolve_policy(&levels);
    let own = match owner {
        ConfigOwner::Tenant => stored.tenant,
        ConfigOwner::Organization(_) => stored.organization,
        ConfigOwner::Device(_) => stored.device,
    };
    BackupConfig {
        id: own.as_ref().map(|own| own.id),
        level: owner.level(),
        organization_id: owner.organization_id(),
        device_id: owner.device_id(),
        effective,
        sources,
        version: own.as_ref().map_or(0, |own| own.version),
        created_at: own.as_ref().map(|own| own.created_at),
        updated_at: own.as_ref().map(|own| own.updated_at),
        set: own.map(|own| own.policy).unwrap_or_default(),
    }
}

/// Replaces what a level sets. Without a difference nothing changes.
pub async fn replace_config(
    tx: &mut Tx,
    owner: ConfigOwner,
    if_match: &IfMatch,
    input: BackupConfigInput,
    named: &[RecordReference],
) -> Result<BackupConfig> {
    let at = tx.tick().await?.at;
    let before = get_config(tx, owner).await?;
    if_match.check_version(before.version)?;
    let set = input.0;
    check_excluded(tx, &before.set, named).await?;
    let key = owner.to_key();
    if set == before.set {
        return Ok(before);
    }
    let values = ConfigColumns {
        owner_id: key.as_str().into(),
        id: before.id.unwrap_or_else(|| BackupConfigId::new(tx.env())).into(),
        level: kernel::base::StringEnum::as_str(owner.level()).into(),
        policy: to_json(&set)?.into(),
        version: (before.version + 1).into(),
        created_at: before.created_at.unwrap_or(at).into(),
        updated_at: at.into(),
    };
    tx.defer_exec(if before.version == 0 { INSERT } else { UPDATE }, values.into_vec()).await?;
    let after = get_config(tx, owner).await?;
    let conflicts = find_conflicts(&after.effective, &after.set);
    if !conflicts.is_empty() {
        return Err(Error::invalid_fields(conflict_errors(conflicts)));
    }
    save_change(tx, &key, &before, &after).await?;
    apply_policy(tx, &key).await?;
    Ok(after)
}

async fn save_change(tx: &mut Tx, key: &str, before: &BackupConfig, after: &BackupConfig) -> Result<()> {
    let changes = changed_fields(&before.set, &after.set, &[])?;
    let mut audited = audit::AuditChanges::default();
    for (field, change) in &changes {
        audited.add_shortened(field, &change.from, &change.to)?;
    }
    let id = after.id.map(|id| id.to_string()).unwrap_or_default();
    let entry = NewAuditEntry::new("backup_config.update", "backup_config", &id).with_changes(audited);
    audit::record_entry(tx, entry).await?;
    let record = if key.is_empty() { id } else { key.to_owned() };
    let updated = UpdatedBackupConfig { config: after.clone(), changes: BackupConfigChanges(changes) };
    events::publish(tx, &BACKUP_CONFIG_UPDATED, record, &updated).await.map(drop)
}

/// A device that was excluded before may have been deleted since: only new ones have to be there.
async fn check_excluded(tx: &mut Tx, before: &PolicyLevel, named: &[RecordReference]) -> Result<()> {
    let is_known = |id: &str| {
        let id: Option<DeviceId> = id.parse().ok();
        before.excluded_devices.iter().flatten().any(|excluded| Some(excluded.id) == id)
    };
    let new: Vec<RecordReference> = named.iter().filter(|one| !is_known(&one.id)).cloned().collect();
    references::check_references(tx, &[DEVICES], &new).await
}
