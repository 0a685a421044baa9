//! SQL of policies.

use fleet::devices::{DEVICES, DeviceId};
use kernel::args;
use kernel::audit::{self, NewAuditEntry, changed_fields};
use kernel::base::{Error, FieldError, Result, StringEnum, Timestamp};
use kernel::events;
use kernel::http::IfMatch;
use kernel::store::references::{self, RecordReference};
use kernel::store::{Db, FromRow, Row, Select, Tx, Value, from_json, to_json};
use people::organizations::OrganizationId;

use super::input::{BackupConfigInput, conflict_errors};
use super::lower::{LevelChange, LowerLevel};
use super::{
    BACKUP_CONFIG_UPDATED, BackupConfig, BackupConfigChanges, BackupConfigId, ConfigLevel, ConfigOwner,
    UpdatedBackupConfig,
};
use crate::policy::{GapMeter, PolicyLevel, PolicySource, find_conflicts, resolve_policy};
use crate::posture::pending::store::apply_policy;

kernel::columns! {
    /// All columns of a level.
    pub struct ConfigColumns in "backup_configs" by owner_id { owner_id, id, level, policy, version, created_at, updated_at }
}

kernel::statements! {
    /// The levels of the tenant, an organization and a device, each by its owner.
    LEVELS = kernel::sql![ConfigColumns::SELECT, " AND owner_id IN ($2, $3, $4) ORDER BY owner_id LIMIT 3"];
    INSERT = ConfigColumns::INSERT;
    UPDATE = ConfigColumns::UPDATE;
    /// The organization whose level an owner inherits from.
    OF_TENANT = "SELECT CAST(NULL AS TEXT) FROM tenants WHERE id = $1 AND CAST($2 AS TEXT) = ''";
    OF_ORGANIZATION = "SELECT id FROM organizations WHERE tenant_id = $1 AND id = $2";
    OF_DEVICE = "SELECT organization_id FROM devices WHERE tenant_id = $1 AND id = $2 AND deleted_at IS NULL";
    /// The levels of organizations and devices whose ids are below `$2`, with what they are of: nothing, if that is gone.
    LOWER = "SELECT owner_id, level, policy,
            (SELECT o.name FROM organizations o WHERE o.tenant_id = $1 AND o.id = backup_configs.owner_id),
            (SELECT COALESCE(d.hostname, d.display_name, '') FROM devices d
                WHERE d.tenant_id = $1 AND d.id = backup_configs.owner_id AND d.deleted_at IS NULL),
            (SELECT d.organization_id FROM devices d WHERE d.tenant_id = $1 AND d.id = backup_configs.owner_id)
        FROM backup_configs WHERE tenant_id = $1 AND owner_id > '' AND owner_id < $2 ORDER BY owner_id LIMIT $3";
}

/// Levels below one that a change of it is checked with. Beyond them it is not checked, because it would take too long.
const LOWER_MAX: usize = 200;
/// After the ids of devices, and after those of all.
const DEVICE_IDS_END: &str = "e";
const ALL_IDS_END: &str = "~";

/// A level as it is stored.
pub struct StoredLevel {
    pub id: BackupConfigId,
    pub level: ConfigLevel,
    pub policy: PolicyLevel,
    pub version: i64,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

impl FromRow for StoredLevel {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        const AT: ConfigColumns<usize> = ConfigColumns::AT;
        Ok(kernel::read_record!(row, ConfigColumns => StoredLevel {
            id, version, created_at, updated_at;
            level: ConfigLevel::from_stored(&row.get::<String>(AT.level)?)?,
            policy: from_json(&row.get::<String>(AT.policy)?)?,
        }))
    }
}

impl StoredLevel {
    /// The row of an owner: see [`ConfigOwner::to_key`].
    pub fn to_values(&self, owner: &str) -> Result<Vec<Value>> {
        let columns = ConfigColumns {
            owner_id: owner.into(),
            id: self.id.into(),
            level: self.level.as_str().into(),
            policy: to_json(&self.policy)?.into(),
            version: self.version.into(),
            created_at: self.created_at.into(),
            updated_at: self.updated_at.into(),
        };
        Ok(columns.into_vec())
    }
}

/// A row of [`LOWER`].
struct LowerRow(Option<LowerLevel>);

impl FromRow for LowerRow {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        let (organization_name, device_name): (Option<String>, Option<String>) = (row.get(3)?, row.get(4)?);
        let Some(name) = organization_name.or(device_name) else { return Ok(LowerRow(None)) };
        let lower = LowerLevel {
            owner: row.get(0)?,
            level: ConfigLevel::from_stored(&row.get::<String>(1)?)?,
            policy: from_json(&row.get::<String>(2)?)?,
            name,
            organization: row.get(5)?,
        };
        Ok(LowerRow(Some(lower)))
    }
}

/// The policy of an owner. An unknown organization or device is not found.
pub async fn read_config(db: &Db, owner: ConfigOwner) -> Result<BackupConfig> {
    let key = owner.to_key();
    let (organization,): (Option<String>,) = db.get_one(find_organization(owner), args![key]).await?;
    let levels = db.list(LEVELS, args!["", organization.unwrap_or_default(), key]).await?;
    Ok(build_config(owner, levels))
}

/// The same within a transaction.
async fn get_config(tx: &mut Tx, owner: ConfigOwner) -> Result<BackupConfig> {
    let key = owner.to_key();
    let (organization,): (Option<String>,) = tx.get_one(find_organization(owner), args![key]).await?;
    let levels = tx.list(LEVELS, args!["", organization.unwrap_or_default(), key]).await?;
    Ok(build_config(owner, levels))
}

fn find_organization(owner: ConfigOwner) -> &'static str {
    match owner {
        ConfigOwner::Tenant => OF_TENANT,
        ConfigOwner::Organization(_) => OF_ORGANIZATION,
        ConfigOwner::Device(_) => OF_DEVICE,
    }
}

fn build_config(owner: ConfigOwner, mut stored: Vec<StoredLevel>) -> BackupConfig {
    // From the tenant down.
    stored.sort_by_key(|one| one.level as usize);
    let levels: Vec<_> = stored.iter().map(|one| (PolicySource::from(one.level), &one.policy)).collect();
    let (effective, sources) = resolve_policy(&levels);
    let own = stored.into_iter().find(|one| one.level == owner.level());
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
    check_excluded(tx, owner, &before.set, &set, named).await?;
    let key = owner.to_key();
    if set == before.set {
        return Ok(before);
    }
    let stored = StoredLevel {
        id: before.id.unwrap_or_else(|| BackupConfigId::new(tx.env())),
        level: owner.level(),
        policy: set,
        version: before.version + 1,
        created_at: before.created_at.unwrap_or(at),
        updated_at: at,
    };
    tx.defer_exec(if before.version == 0 { INSERT } else { UPDATE }, stored.to_values(&key)?).await?;
    let after = get_config(tx, owner).await?;
    let conflicts = find_conflicts(&after.effective, &after.set, &mut GapMeter::default());
    if !conflicts.is_empty() {
        return Err(Error::invalid_fields(conflict_errors(conflicts)));
    }
    check_lower(tx, owner, &before.set, &after.set).await?;
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

/// Refuses a change that levels below would contradict: they are to be changed first.
async fn check_lower(tx: &mut Tx, owner: ConfigOwner, before: &PolicyLevel, after: &PolicyLevel) -> Result<()> {
    let (end, organization) = match owner {
        ConfigOwner::Tenant => (ALL_IDS_END, None),
        ConfigOwner::Organization(id) => (DEVICE_IDS_END, Some(id.to_string())),
        ConfigOwner::Device(_) => return Ok(()),
    };
    let mut change = LevelChange { level: owner.level(), above: None, before, after };
    if !change.may_contradict() {
        return Ok(());
    }
    let rows: Vec<LowerRow> = tx.list(LOWER, args![end, LOWER_MAX as i64 + 1]).await?;
    if rows.len() > LOWER_MAX {
        return Ok(());
    }
    let mut lower: Vec<LowerLevel> = rows.into_iter().filter_map(|row| row.0).collect();
    let mut above = None;
    if organization.is_some() {
        lower.retain(|one| one.organization == organization);
        let of_tenant: Option<StoredLevel> = tx.find(LEVELS, args!["", "", ""]).await?;
        above = of_tenant.map(|stored| stored.policy);
    }
    change.above = above.as_ref();
    let caused = change.find_caused(&lower);
    if caused.is_empty() { Ok(()) } else { Err(Error::invalid_fields(caused)) }
}

/// A list of a device would hide that of its organization, and exclude nothing else. A device that was excluded before may have
/// moved or been deleted since: only new ones have to be there, and to belong to the organization.
async fn check_excluded(
    tx: &mut Tx,
    owner: ConfigOwner,
    before: &PolicyLevel,
    set: &PolicyLevel,
    named: &[RecordReference],
) -> Result<()> {
    if owner.level() == ConfigLevel::Device && set.excluded_devices.is_some() {
        let detail = "belongs in the policy of the organization, or of the tenant: the policy of a device excludes nothing. To \
                      switch off the backups of this device alone, set enabled to false.";
        return Err(Error::invalid("/excluded_devices", "not_allowed", detail));
    }
    let is_known = |id: &str| {
        let id: Option<DeviceId> = id.parse().ok();
        before.excluded_devices.iter().flatten().any(|excluded| Some(excluded.id) == id)
    };
    let new: Vec<RecordReference> = named.iter().filter(|one| !is_known(&one.id)).cloned().collect();
    references::check_references(tx, &[DEVICES], &new).await?;
    match owner {
        ConfigOwner::Organization(id) if !new.is_empty() => check_own_devices(tx, id, &new).await,
        _ => Ok(()),
    }
}

/// Devices that one statement looks for: SQLite takes 500.
const DEVICES_READ: usize = 100;

/// Fails with an error for each device that is not one of the organization.
async fn check_own_devices(tx: &mut Tx, organization: OrganizationId, named: &[RecordReference]) -> Result<()> {
    let mut foreign = Vec::new();
    for part in named.chunks(DEVICES_READ) {
        let arms = part.iter().map(|one| vec![Value::from(one.id.as_str())]).collect();
        let found: Vec<(Option<OrganizationId>, i64)> =
            tx.select(&Select::union_arms(OF_DEVICE, arms, vec![Value::from("")])).await?;
        for (_, arm) in found.into_iter().filter(|(of, _)| *of != Some(organization)) {
            let one = usize::try_from(arm).ok().and_then(|arm| part.get(arm));
            foreign.extend(one.map(|one| {
                FieldError {
                    pointer: one.pointer.clone(),
                    code: "not_allowed",
                    detail:
                        "is not a device of this organization: exclude it in the policy of its own, or of the tenant"
                            .to_owned(),
                }
            }));
        }
    }
    if foreign.is_empty() { Ok(()) } else { Err(Error::invalid_fields(foreign)) }
}
