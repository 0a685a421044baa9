//! SQL of machines: reading, inserting and changing one. Lists are in `find`, what syncs do in `machine_changes`.

use std::collections::BTreeMap;

use clouds::MachineState;
use kernel::args;
use kernel::base::{Error, Result, StringEnum, Timestamp};
use kernel::events;
use kernel::store::{ChangeKey, Db, FactRetention, FromRow, Row, Select, Tick, Tx, Value, to_json};

use super::facts::{CountedVm, vm_fact};
use super::{
    ChangedVm, OperationId, OperationStatus, VM_FAILED, VM_STATE_CHANGED, Vm, VmChanges, VmDetails, VmId,
    VmOperationError, VmOperationState, VmSize, VmStateChange,
};
use crate::providers::ProviderId;

kernel::columns! {
    /// A machine with its operation. One that the last whole sync has found was seen then: that is saved with the region, not
    /// with each machine.
    pub struct ReadVmColumns {
        id = "v.id", provider_id = "v.provider_id", external_id = "v.external_id", name = "v.name", region = "v.region",
        zone = "v.zone", size_id = "v.size_id", vcpus = "v.vcpus", memory_bytes = "v.memory_bytes",
        disk_bytes = "v.disk_bytes", image = "v.image", state = "v.state", raw_state = "v.raw_state",
        intended_state = "v.intended_state", public_ips = "v.public_ips", private_ips = "v.private_ips", tags = "v.tags",
        managed = "v.managed", cost = "v.cost", organization_id = "v.organization_id",
        organization_given = "v.organization_given", operation_id = "v.operation_id",
        first_seen_at = "v.first_seen_at",
        last_seen_at = "CASE WHEN v.missing_since IS NULL AND v.terminated_at IS NULL AND v.last_seen_at < r.last_sync_at
            THEN r.last_sync_at ELSE v.last_seen_at END",
        missing_since = "v.missing_since", terminated_at = "v.terminated_at", version = "v.version",
        created_at = "v.created_at", updated_at = "v.updated_at", sequence = "v.sequence", deleted_at = "v.deleted_at",
        operation_status = "o.status", error_code = "o.error_code", error_detail = "o.error_detail",
    }
}

kernel::columns! {
    /// Every column of a machine.
    pub struct VmColumns in "vms" by id {
        id, provider_id, external_id, name, region, zone, size_id, vcpus, memory_bytes, disk_bytes, image, state, raw_state,
        intended_state, public_ips, private_ips, tags, managed, cost, organization_id, organization_given, operation_id,
        first_seen_at, last_seen_at, missing_since, terminated_at, version, created_at, updated_at, sequence, deleted_at,
    }
}

kernel::statements! {
    READ = kernel::sql![
        "SELECT ",
        ReadVmColumns::LIST,
        " FROM vms v LEFT JOIN vm_operations o ON o.tenant_id = v.tenant_id AND o.id = v.operation_id
        LEFT JOIN cloud_regions r ON r.tenant_id = v.tenant_id AND r.provider_id = v.provider_id AND r.region = v.region
        WHERE v.tenant_id = $1"
    ];
    GET = kernel::sql![READ, " AND v.id = $2 AND v.deleted_at IS NULL"];
    GET_DELETED = kernel::sql![READ, " AND v.id = $2 AND v.deleted_at IS NOT NULL"];
    FIND_BY_OPERATION = kernel::sql![READ, " AND v.operation_id = $2"];
    /// All machines of a region that are not known to be gone, in the order of their ids.
    LIVE_IN_REGION = "SELECT v.id, v.external_id, v.region, v.managed, v.first_seen_at, v.missing_since, o.status FROM vms v
        LEFT JOIN vm_operations o ON o.tenant_id = v.tenant_id AND o.id = v.operation_id
        WHERE v.tenant_id = $1 AND v.provider_id = $2 AND v.region = $3 AND v.deleted_at IS NULL AND v.terminated_at IS NULL
        AND v.external_id IS NOT NULL AND v.id > $4 ORDER BY v.id LIMIT $5";
    INSERT = VmColumns::INSERT;
    UPDATE = VmColumns::UPDATE;
    LIVE_MANAGED = "SELECT name FROM vms WHERE tenant_id = $1 AND provider_id = $2 AND managed AND deleted_at IS NULL
        AND state NOT IN ('terminated', 'failed') ORDER BY created_at DESC, id DESC LIMIT $3";
    COUNT_LIVE_MANAGED = "SELECT COUNT(*) FROM vms WHERE tenant_id = $1 AND provider_id = $2 AND managed AND deleted_at IS NULL
        AND state NOT IN ('terminated', 'failed')";
    LIVE_MANAGED_IN_REGION = "SELECT name FROM vms WHERE tenant_id = $1 AND provider_id = $2 AND region = $3 AND managed
        AND deleted_at IS NULL AND state NOT IN ('terminated', 'failed') ORDER BY id LIMIT $4";
    /// An attempt under way finds another attempt than it has read.
    END_OPERATIONS = "UPDATE vm_operations SET status = 'failed', attempt = attempt + 1, next_at = NULL, ended_at = $3,
            user_data = NULL,
            error_code = 'provider_deleted', error_detail = CASE WHEN status = 'submitting'
                THEN 'The provider or its region was removed while the order was being sent: the machine may exist, with the tag tenant-control:operation.'
                ELSE 'The provider or its region was removed while the order was open.' END
        WHERE tenant_id = $1 AND vm_id = $2 AND (ended_at IS NULL OR status = 'needs_attention')";
    OF_ORGANIZATION = "SELECT id FROM vms WHERE tenant_id = $1 AND organization_id = $2 AND deleted_at IS NULL LIMIT 1";
    CLEAN_DELETED = "DELETE FROM vms WHERE (tenant_id, id) IN (SELECT v.tenant_id, v.id FROM vms v
        WHERE v.deleted_at < $1 AND NOT EXISTS (SELECT 1 FROM vm_operations o WHERE o.tenant_id = v.tenant_id AND o.vm_id = v.id)
        ORDER BY v.deleted_at LIMIT $2)";
    CLEAN_OPERATIONS = "DELETE FROM vm_operations WHERE (tenant_id, id) IN (SELECT o.tenant_id, o.id FROM vm_operations o
        JOIN vms v ON v.tenant_id = o.tenant_id AND v.id = o.vm_id WHERE v.deleted_at < $1 ORDER BY v.deleted_at LIMIT $2)";
    IN_FUTURE = "SELECT id FROM vms WHERE tenant_id = $1 AND updated_at > $2 ORDER BY updated_at, sequence, id LIMIT $3";
    CLAMP_FUTURE = "UPDATE vms SET updated_at = $3, created_at = CASE WHEN created_at > $3 THEN $3 ELSE created_at END
        WHERE tenant_id = $1 AND id = $2";
}

/// The record type in the audit trail and in the feed of changes.
pub const KIND: &str = "vm";

/// Machines that a refusal names.
const NAMED_MAX: i64 = 5;

/// A machine as it is stored.
#[derive(Clone, Debug)]
pub struct StoredVm {
    pub record: Vm,
    pub sequence: i64,
    pub organization_given: bool,
    pub missing_since: Option<Timestamp>,
    pub terminated_at: Option<Timestamp>,
}

impl StoredVm {
    /// How figures count it.
    pub fn to_counted(&self) -> CountedVm {
        let details = &self.record.details;
        CountedVm::new(details.state, details.cost.as_ref(), self.record.deleted_at.is_none())
    }

    /// The position in the order of changes.
    pub fn change_key(&self) -> ChangeKey<VmId> {
        ChangeKey { at: self.record.updated_at, sequence: self.sequence, key: self.record.id }
    }
}

impl FromRow for StoredVm {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        const AT: ReadVmColumns<usize> = ReadVmColumns::AT;
        let operation_id: Option<OperationId> = row.get(AT.operation_id)?;
        let status: Option<String> = row.get(AT.operation_status)?;
        let operation = match (operation_id, status) {
            (Some(id), Some(status)) => {
                let code: Option<String> = row.get(AT.error_code)?;
                let detail: Option<String> = row.get(AT.error_detail)?;
                let error = code.map(|code| VmOperationError { code, detail: detail.unwrap_or_default() });
                Some(VmOperationState { id, status: OperationStatus::from_stored(&status)?, error })
            }
            _ => None,
        };
        let intended: Option<String> = row.get(AT.intended_state)?;
        let cost: Option<String> = row.get(AT.cost)?;
        let details = kernel::read_record!(row, ReadVmColumns => VmDetails {
            provider_id, external_id, name, region, zone, image, raw_state, managed, organization_id, first_seen_at,
            last_seen_at;
            size: kernel::read_record!(row, SizeColumns => VmSize { id, vcpus, memory_bytes, disk_bytes }),
            state: MachineState::from_stored(&row.get::<String>(AT.state)?)?,
            intended_state: intended.map(|text| MachineState::from_stored(&text)).transpose()?,
            public_ips: row.get_json(AT.public_ips)?,
            private_ips: row.get_json(AT.private_ips)?,
            tags: row.get_json::<BTreeMap<String, String>>(AT.tags)?,
            cost: cost.map(|text| serde_json::from_str(&text)).transpose().map_err(Error::internal)?,
            operation,
        });
        let record = kernel::read_record!(row, ReadVmColumns => Vm {
            id, deleted_at, version, created_at, updated_at;
            details,
        });
        Ok(kernel::read_record!(row, ReadVmColumns => StoredVm {
            sequence, organization_given, missing_since, terminated_at;
            record,
        }))
    }
}

/// What a sync has to know of a machine that it has not seen.
#[derive(Clone, Debug)]
pub struct LiveVm {
    pub id: VmId,
    pub external_id: String,
    pub region: String,
    pub managed: bool,
    pub first_seen_at: Option<Timestamp>,
    pub missing_since: Option<Timestamp>,
    /// Whether its order is still worked on.
    pub is_ordered: bool,
}

impl FromRow for LiveVm {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        let status = row.get::<Option<String>>(6)?.map(|status| OperationStatus::from_stored(&status)).transpose()?;
        Ok(LiveVm {
            id: row.get(0)?,
            external_id: row.get(1)?,
            region: row.get(2)?,
            managed: row.get(3)?,
            first_seen_at: row.get(4)?,
            missing_since: row.get(5)?,
            is_ordered: status.is_some_and(OperationStatus::is_open),
        })
    }
}

/// Where a size is in a row of [`ReadVmColumns`].
struct SizeColumns {
    id: usize,
    vcpus: usize,
    memory_bytes: usize,
    disk_bytes: usize,
}

impl SizeColumns {
    const AT: SizeColumns = {
        let at = ReadVmColumns::AT;
        SizeColumns { id: at.size_id, vcpus: at.vcpus, memory_bytes: at.memory_bytes, disk_bytes: at.disk_bytes }
    };
}

pub async fn get_vm(db: &Db, id: VmId) -> Result<Vm> {
    Ok(db.get_one::<StoredVm>(GET, args![id]).await?.record)
}

pub async fn get_in_tx(tx: &mut Tx, id: VmId) -> Result<StoredVm> {
    tx.get_one(GET, args![id]).await
}

pub async fn find_in_tx(tx: &mut Tx, id: VmId) -> Result<Option<StoredVm>> {
    tx.find(GET, args![id]).await
}

pub async fn find_by_operation(tx: &mut Tx, operation: &str) -> Result<Option<StoredVm>> {
    tx.find(FIND_BY_OPERATION, args![operation]).await
}

/// The machines of a provider with these ids of the cloud, also those that have left the list.
pub async fn list_by_external_ids(tx: &mut Tx, provider: ProviderId, ids: &[&str]) -> Result<Vec<StoredVm>> {
    tx.select(&select_by_external_ids(provider, ids)).await
}

/// Like [`list_by_external_ids`], outside any transaction.
pub async fn list_known_by_external_ids(db: &Db, provider: ProviderId, ids: &[&str]) -> Result<Vec<StoredVm>> {
    db.select(&select_by_external_ids(provider, ids)).await
}

fn select_by_external_ids(provider: ProviderId, ids: &[&str]) -> Select {
    let select = Select::new(READ).append_sql("AND v.provider_id = ?", [provider.into()]);
    select.where_in("v.external_id", ids.iter().copied()).limit(ids.len())
}

/// Inserts a machine, which has its final id and details.
pub async fn insert_vm(tx: &mut Tx, stored: &StoredVm) -> Result<()> {
    tx.defer_exec(INSERT, to_row_values(stored)?).await?;
    tx.record_change(KIND, stored.record.id).await?;
    let fact = vm_fact(None, &stored.to_counted(), stored.record.created_at);
    tx.record_fact(&fact, FactRetention::Long).await
}

/// Saves a machine that differs from what is stored, as a new version, and tells if its state does. `old` is how it was counted
/// before it was changed.
pub async fn save_vm(tx: &mut Tx, old: &CountedVm, mut new: StoredVm) -> Result<StoredVm> {
    let Tick { at, sequence } = tx.tick().await?;
    new.record.version += 1;
    (new.record.updated_at, new.sequence) = (at, sequence);
    if new.record.details.state == MachineState::Terminated && new.terminated_at.is_none() {
        new.terminated_at = Some(at);
    }
    tx.defer_exec(UPDATE, to_row_values(&new)?).await?;
    tx.record_change(KIND, new.record.id).await?;
    tx.record_fact(&vm_fact(Some(old), &new.to_counted(), at), FactRetention::Long).await?;
    if new.record.details.state != old.state && new.record.deleted_at.is_none() {
        let changes = VmChanges { state: VmStateChange { from: old.state, to: new.record.details.state } };
        let changed = ChangedVm { vm: new.record.clone(), changes };
        events::publish(tx, &VM_STATE_CHANGED, new.record.id, &changed).await?;
    }
    Ok(new)
}

/// Saves what only the server observes of a machine.
pub async fn save_observed(tx: &mut Tx, stored: &StoredVm) -> Result<()> {
    tx.defer_exec(UPDATE, to_row_values(stored)?).await
}

/// The names of some machines that this provider has made and that live, and the number of all.
pub async fn list_live_managed(tx: &mut Tx, provider: ProviderId) -> Result<(Vec<String>, i64)> {
    let names = tx.list(LIVE_MANAGED, args![provider, NAMED_MAX]).await?;
    Ok((names, tx.get_one(COUNT_LIVE_MANAGED, args![provider]).await?))
}

/// The names of some machines that were made in a region and live.
pub async fn list_live_managed_in(tx: &mut Tx, provider: ProviderId, region: &str) -> Result<Vec<String>> {
    tx.list(LIVE_MANAGED_IN_REGION, args![provider, region, NAMED_MAX]).await
}

/// These machines leave the list, and stay in the list of changes as tombstones. An order that is still open has failed.
pub async fn forget_listed(tx: &mut Tx, listed: Vec<StoredVm>) -> Result<()> {
    for mut stored in listed {
        let at = tx.tick().await?.at;
        let (id, old) = (stored.record.id, stored.to_counted());
        let is_open = stored.record.details.operation.as_ref().is_some_and(|operation| operation.status.is_open());
        stored.record.deleted_at = Some(at);
        tx.defer_exec(END_OPERATIONS, vec![id.into(), at.into()]).await?;
        save_vm(tx, &old, stored).await?;
        if is_open {
            let failed: StoredVm = tx.get_one(GET_DELETED, args![id]).await?;
            events::publish(tx, &VM_FAILED, id, &failed.record).await?;
        }
    }
    Ok(())
}

fn to_row_values(stored: &StoredVm) -> Result<Vec<Value>> {
    let (record, details) = (&stored.record, &stored.record.details);
    let columns = VmColumns {
        id: record.id.into(),
        provider_id: details.provider_id.into(),
        external_id: details.external_id.as_deref().into(),
        name: details.name.as_str().into(),
        region: details.region.as_str().into(),
        zone: details.zone.as_deref().into(),
        size_id: details.size.id.as_str().into(),
        vcpus: details.size.vcpus.into(),
        memory_bytes: details.size.memory_bytes.into(),
        disk_bytes: details.size.disk_bytes.into(),
        image: details.image.as_deref().into(),
        state: details.state.as_str().into(),
        raw_state: details.raw_state.as_str().into(),
        intended_state: details.intended_state.map(StringEnum::as_str).into(),
        public_ips: to_json(&details.public_ips)?.into(),
        private_ips: to_json(&details.private_ips)?.into(),
        tags: to_json(&details.tags)?.into(),
        managed: details.managed.into(),
        cost: details.cost.as_ref().map(to_json).transpose()?.into(),
        organization_id: details.organization_id.into(),
        organization_given: stored.organization_given.into(),
        operation_id: details.operation.as_ref().map(|operation| operation.id).into(),
        first_seen_at: details.first_seen_at.into(),
        last_seen_at: details.last_seen_at.into(),
        missing_since: stored.missing_since.into(),
        terminated_at: stored.terminated_at.into(),
        version: record.version.into(),
        created_at: record.created_at.into(),
        updated_at: record.updated_at.into(),
        sequence: stored.sequence.into(),
        deleted_at: record.deleted_at.into(),
    };
    Ok(columns.into_vec())
}

/// Clamps future timestamps of machines, before the tenant's clock is set back. Returns the number of machines.
pub async fn clamp_future_timestamps(db: &Db, now: Timestamp) -> Result<u64> {
    db.clamp_future_records(KIND, (IN_FUTURE, CLAMP_FUTURE), now).await
}
