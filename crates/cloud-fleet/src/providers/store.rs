//! SQL of providers. What verifying and syncing find out moves neither `version` nor `updated_at`.

use clouds::{CloudCredentials, CloudKind};
use kernel::args;
use kernel::audit::{self, AuditChanges, NewAuditEntry};
use kernel::base::seal::{SealedCell, SealedColumn, SealedValue};
use kernel::base::{Code, Error, Result, Secrets, StringEnum, TenantId, Timestamp};
use kernel::http::IfMatch;
use kernel::jobs::lanes;
use kernel::keyring::{RewrapStatements, SealedColumnStatements};
use kernel::store::{Db, FromRow, Row, Select, SortDirection, Tx, Value, to_json};
use serde_json::json;

use super::input::ProviderInput;
use super::{CloudProvider, PROVIDERS_MAX, ProviderId, ProviderStatus};
use crate::CLOUD_LANE;
use crate::vms::store as vms;

kernel::columns! {
    /// A provider with the state of its regions: the oldest sync, and the first error.
    struct ProviderColumns {
        id = "p.id", name = "p.name", kind = "p.kind", regions = "p.regions", enabled = "p.enabled", status = "p.status",
        credentials = "p.credentials", credentials_version = "p.credentials_version",
        credentials_hint = "p.credentials_hint", account_id = "p.account_id", verification = "p.verification",
        last_verified_at = "p.last_verified_at", verify_at = "p.verify_at", verify_failures = "p.verify_failures",
        created_by_type = "p.created_by_type",
        created_by_id = "p.created_by_id", created_by_name = "p.created_by_name", version = "p.version",
        created_at = "p.created_at", updated_at = "p.updated_at",
        unsynced = "(SELECT COUNT(*) FROM cloud_regions r WHERE r.tenant_id = p.tenant_id AND r.provider_id = p.id
            AND r.last_sync_at IS NULL)",
        last_sync_at = "(SELECT MIN(r.last_sync_at) FROM cloud_regions r WHERE r.tenant_id = p.tenant_id
            AND r.provider_id = p.id)",
        last_sync_error = "(SELECT r.region || ': ' || r.last_sync_error FROM cloud_regions r WHERE r.tenant_id = p.tenant_id
            AND r.provider_id = p.id AND r.last_sync_error IS NOT NULL ORDER BY r.region LIMIT 1)",
    }
}

kernel::columns! {
    struct NewProviderColumns in "cloud_providers" {
        id, name, kind, credentials, credentials_version, credentials_hint, regions, enabled, status, verify_at,
        created_by_type, created_by_id, created_by_name, version, created_at, updated_at,
    }
}

kernel::columns! {
    /// The columns that a replacement sets.
    struct ReplacedProviderColumns in "cloud_providers" by id {
        id, name, credentials, credentials_version, credentials_hint, regions, enabled, status, account_id, verify_at,
        version, updated_at,
    }
}

kernel::statements! {
    LIST = kernel::sql!["SELECT ", ProviderColumns::LIST, " FROM cloud_providers p WHERE p.tenant_id = $1 AND p.deleted_at IS NULL"];
    GET = kernel::sql![LIST, " AND p.id = $2"];
    COUNT = "SELECT COUNT(*) FROM cloud_providers WHERE tenant_id = $1 AND deleted_at IS NULL";
    INSERT = NewProviderColumns::INSERT;
    UPDATE = ReplacedProviderColumns::UPDATE;
    /// The row stays for the machines that refer to it, without anything that opens an account.
    DELETE = "UPDATE cloud_providers SET deleted_at = $3, updated_at = $3, version = version + 1, enabled = FALSE,
            credentials = $4, credentials_hint = '', verify_at = NULL WHERE tenant_id = $1 AND id = $2";
    /// It begins with the account of the others: it may still have machines of a time when it was listed before.
    INSERT_REGION = "INSERT INTO cloud_regions (tenant_id, provider_id, region, account_id)
        SELECT $1, $2, $3, MAX(r.account_id) FROM cloud_regions r WHERE r.tenant_id = $1 AND r.provider_id = $2
        ON CONFLICT (tenant_id, provider_id, region) DO NOTHING";
    DELETE_REGION = "DELETE FROM cloud_regions WHERE tenant_id = $1 AND provider_id = $2 AND region = $3";
    DELETE_REGIONS = "DELETE FROM cloud_regions WHERE tenant_id = $1 AND provider_id = $2";
    SCHEDULE_SYNC = "UPDATE cloud_regions SET sync_at = $3 WHERE tenant_id = $1 AND provider_id = $2";
    /// Those that have none: they are new, or were stopped.
    RESUME_SYNC = "UPDATE cloud_regions SET sync_at = $3 WHERE tenant_id = $1 AND provider_id = $2 AND sync_at IS NULL";
    STOP_SYNC = "UPDATE cloud_regions SET sync_at = NULL WHERE tenant_id = $1 AND provider_id = $2";
    /// Without deleted providers, whose credentials are erased.
    COUNT_SEALED_CREDENTIALS = "SELECT substr(credentials, 1, 5), COUNT(*) FROM cloud_providers WHERE length(credentials) > 0
        GROUP BY 1";
    WALK_SEALED_CREDENTIALS = "SELECT tenant_id, id, credentials_version, credentials FROM cloud_providers
        WHERE (tenant_id, id, credentials_version) > ($1, $2, $3) ORDER BY tenant_id, id, credentials_version LIMIT $4";
    REWRAP_CREDENTIALS = "UPDATE cloud_providers SET credentials = $5
        WHERE tenant_id = $1 AND id = $2 AND credentials_version = $3 AND credentials = $4";
    /// The machines of a deleted provider are removed first, because they refer to it.
    CLEAN_DELETED = "DELETE FROM cloud_providers WHERE (tenant_id, id) IN (SELECT p.tenant_id, p.id FROM cloud_providers p
        WHERE p.deleted_at < $1 AND (SELECT v.id FROM vms v WHERE v.tenant_id = p.tenant_id AND v.provider_id = p.id
            ORDER BY v.external_id LIMIT 1) IS NULL ORDER BY p.deleted_at LIMIT $2)";
    SET_STATUS = "UPDATE cloud_providers SET status = $3 WHERE tenant_id = $1 AND id = $2";
    SCHEDULE_VERIFICATION = "UPDATE cloud_providers SET status = $3, verify_at = $4 WHERE tenant_id = $1 AND id = $2";
}

/// The record type in the audit trail.
pub const KIND: &str = "cloud_provider";

/// The credentials, as JSON; the version is that of the credentials.
pub const SEALED_CREDENTIALS: SealedColumn<CloudProvider> = SealedColumn::new("cloud_providers.credentials");

pub const SEALED_COLUMNS: &[SealedColumnStatements] = &[SealedColumnStatements {
    name: SEALED_CREDENTIALS.name(),
    count: COUNT_SEALED_CREDENTIALS,
    rewrap: Some(RewrapStatements { walk: WALK_SEALED_CREDENTIALS, replace: REWRAP_CREDENTIALS }),
}];

/// A provider as it is stored: the record, and its credentials still sealed.
pub struct StoredProvider {
    pub record: CloudProvider,
    pub account_id: Option<String>,
    pub verify_at: Option<Timestamp>,
    pub verify_failures: i64,
    pub credentials_version: i64,
    credentials: SealedValue,
}

impl FromRow for StoredProvider {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        const AT: ProviderColumns<usize> = ProviderColumns::AT;
        let enabled: bool = row.get(AT.enabled)?;
        let status = ProviderStatus::from_stored(&row.get::<String>(AT.status)?)?;
        let unsynced: i64 = row.get(AT.unsynced)?;
        let verification: Option<String> = row.get(AT.verification)?;
        let record = kernel::read_record!(row, ProviderColumns => CloudProvider {
            id, name, credentials_hint, last_verified_at, last_sync_error, version, created_at, updated_at;
            kind: CloudKind::from_stored(&row.get::<String>(AT.kind)?)?,
            regions: row.get_json(AT.regions)?,
            enabled,
            status: if enabled { status } else { ProviderStatus::Disabled },
            verification: verification.map(|text| serde_json::from_str(&text)).transpose().map_err(Error::internal)?,
            last_sync_at: if unsynced == 0 { row.get(AT.last_sync_at)? } else { None },
            created_by: row.get_actor([AT.created_by_type, AT.created_by_id, AT.created_by_name])?,
        });
        Ok(kernel::read_record!(row, ProviderColumns => StoredProvider {
            account_id, verify_at, verify_failures, credentials_version, credentials;
            record,
        }))
    }
}

impl StoredProvider {
    /// Whether orders are worked on. They wait while it is not known whether the credentials work and whose they are, or known
    /// that they do not work; a verification wakes the lanes.
    pub fn can_make_machines(&self) -> bool {
        let is_usable =
            matches!(self.record.status, ProviderStatus::Active | ProviderStatus::Degraded | ProviderStatus::Error);
        is_usable && self.account_id.is_some()
    }

    pub fn check_enabled(&self) -> Result<()> {
        if self.record.enabled {
            return Ok(());
        }
        Err(Error::conflict("The provider is disabled. Enable it with PUT first."))
    }

    /// Whether it is enabled, and the cloud has not refused its credentials.
    pub fn check_usable(&self) -> Result<()> {
        self.check_enabled()?;
        if self.record.status != ProviderStatus::Invalid {
            return Ok(());
        }
        Err(Error::conflict("The cloud refuses the credentials of this provider. Replace them with PUT first."))
    }

    /// The credentials, which open only for this provider and version.
    pub fn open_credentials(&self, tenant: TenantId, secrets: &Secrets) -> Result<CloudCredentials> {
        let cell = SEALED_CREDENTIALS.cell_for(tenant, self.record.id, self.credentials_version);
        let plain = cell.open(secrets, &self.credentials)?;
        let value: serde_json::Value =
            serde_json::from_slice(&plain).map_err(|_| Error::internal("stored credentials are not JSON"))?;
        let credentials = CloudCredentials::parse(self.record.kind, &value)
            .map_err(|_| Error::internal("stored credentials are not those of their kind"))?;
        Ok(credentials.with_owner(&tenant.to_string()))
    }
}

pub async fn get_provider(db: &Db, id: ProviderId) -> Result<CloudProvider> {
    Ok(db.get_one::<StoredProvider>(GET, args![id]).await?.record)
}

pub async fn find_stored(db: &Db, id: ProviderId) -> Result<Option<StoredProvider>> {
    db.find(GET, args![id]).await
}

pub async fn get_stored(db: &Db, id: ProviderId) -> Result<StoredProvider> {
    db.get_one(GET, args![id]).await
}

pub async fn find_in_tx(tx: &mut Tx, id: ProviderId) -> Result<Option<StoredProvider>> {
    tx.find(GET, args![id]).await
}

pub async fn list_providers(db: &Db, after: Option<Vec<Value>>, limit: usize) -> Result<Vec<CloudProvider>> {
    let order = ["p.created_at", "p.id"];
    let mut select = Select::new(LIST);
    if let Some(position) = after {
        select = select.seek_after(&order, SortDirection::Descending, position);
    }
    let rows: Vec<StoredProvider> = db.select(&select.order_by(&order, SortDirection::Descending).limit(limit)).await?;
    Ok(rows.into_iter().map(|stored| stored.record).collect())
}

pub async fn create_provider(tx: &mut Tx, input: ProviderInput, secrets: &Secrets) -> Result<CloudProvider> {
    let now = tx.tick().await?.at;
    let count: i64 = tx.get_one(COUNT, args![]).await?;
    if count >= PROVIDERS_MAX {
        let detail =
            format!("A tenant has at most {PROVIDERS_MAX} cloud providers. Delete one that is no longer needed.");
        return Err(Error::new(Code::LimitReached, detail));
    }
    let credentials = input.credentials.ok_or_else(|| Error::internal("a new provider has credentials"))?;
    let credentials = credentials.with_owner(&tenant_of(tx)?.to_string());
    let id = ProviderId::new(tx.env());
    let sealed = seal_credentials(tx, secrets, id, 1, &credentials)?;
    let creator = tx.actor().who.clone();
    let default_regions = || input.kind.default_regions().iter().map(|region| (*region).to_owned()).collect();
    let regions: Vec<String> = input.regions.unwrap_or_else(default_regions);
    let name = input.name.into_string();
    let due = tx.env().now();
    let row = NewProviderColumns {
        id: id.into(),
        name: name.into(),
        kind: input.kind.as_str().into(),
        credentials: sealed.into(),
        credentials_version: Value::Int(1),
        credentials_hint: credentials.hint().into(),
        regions: to_json(&regions)?.into(),
        enabled: input.enabled.into(),
        status: ProviderStatus::Unverified.as_str().into(),
        verify_at: input.enabled.then_some(due).into(),
        created_by_type: creator.kind.as_str().into(),
        created_by_id: creator.id.into(),
        created_by_name: creator.name.into(),
        version: Value::Int(1),
        created_at: now.into(),
        updated_at: now.into(),
    };
    tx.defer_exec(INSERT, row.into_vec()).await?;
    lanes::create_lane(tx, CLOUD_LANE, &id.to_string()).await?;
    for region in &regions {
        add_region(tx, id, region).await?;
    }
    lanes::wake_lane(tx, CLOUD_LANE, &id.to_string()).await?;
    audit::record_entry(tx, NewAuditEntry::new("cloud_provider.create", KIND, id)).await?;
    get_in_tx(tx, id).await.map(|stored| stored.record)
}

/// A provider after a replacement, and the regions whose machines are to leave the list.
pub struct ReplacedProvider {
    pub record: CloudProvider,
    pub removed_regions: Vec<String>,
}

pub async fn replace_provider(
    tx: &mut Tx,
    id: ProviderId,
    if_match: &IfMatch,
    input: ProviderInput,
    secrets: &Secrets,
) -> Result<ReplacedProvider> {
    let now = tx.tick().await?.at;
    let stored = get_in_tx(tx, id).await?;
    if_match.check_version(stored.record.version)?;
    let tenant = tenant_of(tx)?;
    let old = &stored.record;
    if input.kind != old.kind {
        let detail = format!("is {} and cannot be changed; create another provider", old.kind.as_str());
        return Err(Error::invalid("/kind", "immutable", detail));
    }
    let regions = input.regions.unwrap_or_else(|| old.regions.clone());
    check_removed_regions(tx, id, &old.regions, &regions).await?;
    let given = input.credentials.map(|given| given.with_owner(&tenant.to_string()));
    let is_given = given.is_some();
    // Those that do not open any more are replaced by any others.
    let is_same = |given: &CloudCredentials| stored.open_credentials(tenant, secrets).is_ok_and(|old| old == *given);
    let new_credentials = given.filter(|given| !is_same(given));
    let is_new = new_credentials.is_some();
    let hint = new_credentials.as_ref().map_or_else(|| old.credentials_hint.clone(), CloudCredentials::hint);
    let name = input.name.into_string();
    let mut changes = AuditChanges::default();
    changes.add_if_changed("name", old.name.as_str(), name.as_str());
    changes.add_if_changed("regions", json!(old.regions), json!(regions));
    changes.add_if_changed("enabled", old.enabled, input.enabled);
    if is_new {
        // The entry says that they changed, not what they are.
        changes.add_described("credentials", &json!(old.credentials_hint), &json!(hint));
    }
    if changes.is_empty() {
        if is_given && input.enabled {
            // What they may do may have changed in the cloud.
            let now = tx.env().now();
            verify_soon(tx, id, now).await?;
        }
        return Ok(ReplacedProvider { record: stored.record, removed_regions: Vec::new() });
    }
    let version = old.version + 1;
    let credentials_version = if is_new { version } else { stored.credentials_version };
    // Sealed again if they stay, and not written back: they may have been rewrapped since they were read.
    let sealed = match new_credentials.map_or_else(|| stored.open_credentials(tenant, secrets), Ok) {
        Ok(credentials) => seal_credentials(tx, secrets, id, credentials_version, &credentials)?,
        Err(_) => stored.credentials,
    };
    let is_due = input.enabled && (is_given || !old.enabled || regions != old.regions);
    let kept_status = if stored.record.enabled { old.status } else { ProviderStatus::Unverified };
    let due = tx.env().now();
    let row = ReplacedProviderColumns {
        id: id.into(),
        name: name.into(),
        credentials: sealed.into(),
        credentials_version: credentials_version.into(),
        credentials_hint: hint.into(),
        regions: to_json(&regions)?.into(),
        enabled: input.enabled.into(),
        status: if is_new || is_due { ProviderStatus::Unverified } else { kept_status }.as_str().into(),
        // Whose the new ones are is not known yet.
        account_id: stored.account_id.as_deref().filter(|_| !is_new).into(),
        verify_at: if is_due { Some(due) } else { stored.verify_at.filter(|_| input.enabled) }.into(),
        version: version.into(),
        updated_at: now.into(),
    };
    tx.defer_exec(UPDATE, row.into_vec()).await?;
    let removed_regions = change_regions(tx, id, &old.regions, &regions).await?;
    if !input.enabled || is_due {
        // After the next verification they are synced at once.
        tx.exec(STOP_SYNC, args![id]).await?;
    }
    wake_lanes(tx, id, &regions).await?;
    audit::record_entry(tx, NewAuditEntry::new("cloud_provider.update", KIND, id).with_changes(changes)).await?;
    let record = get_in_tx(tx, id).await?.record;
    Ok(ReplacedProvider { record, removed_regions })
}

/// Deletes a provider; nothing in the cloud is touched. Its machines are to leave the list.
pub async fn delete_provider(tx: &mut Tx, id: ProviderId, if_match: &IfMatch, force: bool) -> Result<()> {
    let now = tx.tick().await?.at;
    let stored = get_in_tx(tx, id).await?;
    if_match.check_version(stored.record.version)?;
    if !force {
        let (names, count) = vms::list_live_managed(tx, id).await?;
        if count > 0 {
            let more = if count > names.len() as i64 { ", …" } else { "" };
            let detail = format!(
                "{count} machines that this provider has made still live: {}{more}. With force=true they leave the list, and go on in the cloud.",
                names.join(", ")
            );
            return Err(Error::conflict(detail));
        }
    }
    tx.exec(DELETE_REGIONS, args![id]).await?;
    tx.exec(DELETE, args![id, now, [0_u8; 0].as_slice()]).await?;
    // The lanes find no provider, forget its machines, and end.
    wake_lanes(tx, id, &stored.record.regions).await?;
    let mut changes = AuditChanges::default();
    changes.add_described("name", &json!(stored.record.name), &serde_json::Value::Null);
    audit::record_entry(tx, NewAuditEntry::new("cloud_provider.delete", KIND, id).with_changes(changes)).await
}

/// Makes the syncs of all regions due.
pub async fn request_sync(tx: &mut Tx, id: ProviderId) -> Result<CloudProvider> {
    tx.tick().await?;
    let stored = get_in_tx(tx, id).await?;
    stored.check_usable()?;
    if matches!(stored.record.status, ProviderStatus::Unverified | ProviderStatus::Verifying) {
        return Err(Error::conflict("The provider is not verified yet. It is synced after its first verification."));
    }
    let now = tx.env().now();
    tx.exec(SCHEDULE_SYNC, args![id, now]).await?;
    wake_lanes(tx, id, &stored.record.regions).await?;
    audit::record_entry(tx, NewAuditEntry::new("cloud_provider.sync", KIND, id)).await?;
    Ok(stored.record)
}

/// The cloud has refused the credentials during a sync or an operation: they are verified at once, which tells why.
pub async fn verify_soon(tx: &mut Tx, id: ProviderId, now: Timestamp) -> Result<()> {
    let Some(stored) = find_in_tx(tx, id).await? else { return Ok(()) };
    if stored.record.enabled {
        tx.exec(SCHEDULE_VERIFICATION, args![id, stored.record.status.as_str(), now]).await?;
        lanes::wake_lane(tx, CLOUD_LANE, &id.to_string()).await?;
    }
    Ok(())
}

/// Shows that a verification is under way, if it is the first of these credentials.
pub async fn mark_verifying(tx: &mut Tx, stored: &StoredProvider) -> Result<()> {
    if stored.record.status == ProviderStatus::Unverified {
        tx.exec(SET_STATUS, args![stored.record.id, ProviderStatus::Verifying.as_str()]).await?;
    }
    Ok(())
}

pub async fn get_in_tx(tx: &mut Tx, id: ProviderId) -> Result<StoredProvider> {
    tx.get_one(GET, args![id]).await
}

/// The lane of a region.
pub fn region_lane(id: ProviderId, region: &str) -> String {
    format!("{id}/{region}")
}

async fn add_region(tx: &mut Tx, id: ProviderId, region: &str) -> Result<()> {
    tx.exec(INSERT_REGION, args![id, region]).await?;
    lanes::ensure_lane(tx, CLOUD_LANE, &region_lane(id, region)).await
}

/// A region with live machines that were made here cannot be taken away, as its provider cannot be deleted.
async fn check_removed_regions(tx: &mut Tx, id: ProviderId, old: &[String], new: &[String]) -> Result<()> {
    for region in old.iter().filter(|region| !new.contains(region)) {
        let names = vms::list_live_managed_in(tx, id, region).await?;
        if !names.is_empty() {
            let detail = format!(
                "Machines that were made here still live in {region}: {}. Keep the region, or delete the provider with force=true.",
                names.join(", ")
            );
            return Err(Error::conflict(detail));
        }
    }
    Ok(())
}

/// Returns the regions that are no longer listed. Their lanes forget their machines, and end.
async fn change_regions(tx: &mut Tx, id: ProviderId, old: &[String], new: &[String]) -> Result<Vec<String>> {
    for region in new.iter().filter(|region| !old.contains(region)) {
        add_region(tx, id, region).await?;
    }
    let removed: Vec<String> = old.iter().filter(|region| !new.contains(region)).cloned().collect();
    for region in &removed {
        tx.exec(DELETE_REGION, args![id, region]).await?;
        lanes::wake_lane(tx, CLOUD_LANE, &region_lane(id, region)).await?;
    }
    Ok(removed)
}

pub async fn wake_lanes(tx: &mut Tx, id: ProviderId, regions: &[String]) -> Result<()> {
    lanes::wake_lane(tx, CLOUD_LANE, &id.to_string()).await?;
    for region in regions {
        lanes::wake_lane(tx, CLOUD_LANE, &region_lane(id, region)).await?;
    }
    Ok(())
}

fn tenant_of(tx: &Tx) -> Result<TenantId> {
    tx.tenant_id().ok_or_else(|| Error::internal("a provider belongs to a tenant"))
}

fn seal_credentials(
    tx: &Tx,
    secrets: &Secrets,
    id: ProviderId,
    version: i64,
    credentials: &CloudCredentials,
) -> Result<SealedValue> {
    let cell: SealedCell = SEALED_CREDENTIALS.cell_for(tenant_of(tx)?, id, version);
    cell.seal(secrets, &tx.env().random, credentials.to_json().to_string().as_bytes())
}
