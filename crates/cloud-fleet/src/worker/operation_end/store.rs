//! What becomes of an order: each in one transaction with the machine, under the lane's lease. What another transaction has
//! decided meanwhile stays.

use clouds::{CloudError, Machine, MachineState};
use kernel::base::{Result, StringEnum, Timestamp};
use kernel::events;
use kernel::store::Tx;

use super::super::job::{JobContext, look_again_at};
use super::super::store::{self, DueOperation};
use crate::vms::machine_changes::store::update_machine;
use crate::vms::store as vms;
use crate::vms::{OperationId, OperationStatus, VM_FAILED, VM_PROVISIONED, VmDetails, VmId};

/// The detail of an error that is kept.
const DETAIL_CHARS_MAX: usize = 500;

/// Why an order is where it is.
#[derive(Clone, Debug)]
pub struct OperationError {
    pub code: String,
    pub detail: String,
}

impl OperationError {
    pub fn new(code: &str, detail: &str) -> Self {
        OperationError { code: code.to_owned(), detail: detail.chars().take(DETAIL_CHARS_MAX).collect() }
    }

    pub fn ambiguous(detail: &str) -> Self {
        OperationError::new("ambiguous", detail)
    }

    pub fn from_cloud(error: &CloudError) -> Self {
        OperationError::new(error.kind.as_str(), &error.detail)
    }

    /// Whether the cloud has refused the order for good, as far as it goes.
    pub fn is_refusal(&self) -> bool {
        matches!(
            self.code.as_str(),
            "auth" | "permission" | "not_found" | "invalid" | "quota" | "capacity" | "conflict"
        )
    }

    fn as_pair(error: Option<&Self>) -> Option<(&str, &str)> {
        error.map(|error| (error.code.as_str(), error.detail.as_str()))
    }
}

impl DueOperation {
    /// Why the last attempt has not ended it.
    pub fn last_error(&self) -> Option<OperationError> {
        self.error_code
            .as_deref()
            .map(|code| OperationError::new(code, self.error_detail.as_deref().unwrap_or_default()))
    }
}

/// The machine of an order; none if it has left the list.
pub async fn find_ordered_vm(context: &JobContext, due: &DueOperation) -> Result<Option<vms::StoredVm>> {
    context.lane.db().find(vms::GET, kernel::args![due.vm_id]).await
}

/// The order goes on at a later time. Returns false when the lease is lost.
pub async fn postpone(
    context: &JobContext,
    due: &DueOperation,
    status: OperationStatus,
    at: Timestamp,
    error: Option<OperationError>,
) -> Result<bool> {
    let key = (due.id, due.attempt);
    let saved = context
        .lane
        .tick_and_write_if_held(async move |tx| {
            store::move_operation(tx, key, status, at, OperationError::as_pair(error.as_ref())).await
        })
        .await?;
    Ok(saved.is_some())
}

/// The machine of the order is known: the order goes on until it runs. Returns false when the lease is lost.
pub async fn attach_machine(
    context: &JobContext,
    due: &DueOperation,
    machine: &Machine,
    status: OperationStatus,
) -> Result<bool> {
    let (key, vm, machine, now) = ((due.id, due.attempt), due.vm_id, machine.clone(), context.now());
    let next = look_again_at(now, due.attempt);
    let saved = context
        .lane
        .tick_and_write_if_held(async move |tx| {
            if let Some(owner) = find_owner(tx, vm, &machine).await? {
                return end_with_machine_of_another(tx, key, vm, &owner).await;
            }
            if store::move_operation(tx, key, status, next, None).await? {
                save_machine(tx, vm, &machine, now).await?;
            }
            Ok(())
        })
        .await?;
    Ok(saved.is_some())
}

/// The order ends with this machine. Returns false when the lease is lost.
pub async fn finish_machine(
    context: &JobContext,
    due: &DueOperation,
    machine: &Machine,
    status: OperationStatus,
    error: Option<OperationError>,
) -> Result<bool> {
    let (key, vm, machine, now) = ((due.id, due.attempt), due.vm_id, machine.clone(), context.now());
    let saved = context
        .lane
        .tick_and_write_if_held(async move |tx| {
            if let Some(owner) = find_owner(tx, vm, &machine).await? {
                return end_with_machine_of_another(tx, key, vm, &owner).await;
            }
            if store::end_operation(tx, key, status, OperationError::as_pair(error.as_ref())).await? {
                save_machine(tx, vm, &machine, now).await?;
                touch_vm(tx, vm).await?;
                publish_end(tx, vm, status).await?;
            }
            Ok(())
        })
        .await?;
    Ok(saved.is_some())
}

/// The order ends without a machine, or without knowing of one. Returns false when the lease is lost.
pub async fn end_without_machine(
    context: &JobContext,
    due: &DueOperation,
    status: OperationStatus,
    error: OperationError,
) -> Result<bool> {
    let (key, vm) = ((due.id, due.attempt), due.vm_id);
    let saved =
        context.lane.tick_and_write_if_held(async move |tx| end_without(tx, key, vm, status, &error).await).await?;
    Ok(saved.is_some())
}

async fn end_without(
    tx: &mut Tx,
    key: (OperationId, i64),
    vm: VmId,
    status: OperationStatus,
    error: &OperationError,
) -> Result<()> {
    if store::end_operation(tx, key, status, OperationError::as_pair(Some(error))).await? {
        let state = if status == OperationStatus::Failed { MachineState::Failed } else { MachineState::Unknown };
        save_state(tx, vm, state).await?;
        publish_end(tx, vm, status).await?;
    }
    Ok(())
}

/// The order of another machine here that this machine of the cloud belongs to. Somebody may have adopted it there.
async fn find_owner(tx: &mut Tx, vm: VmId, machine: &Machine) -> Result<Option<vms::StoredVm>> {
    let Some(stored) = vms::find_in_tx(tx, vm).await? else { return Ok(None) };
    let twins = vms::list_by_external_ids(tx, stored.record.details.provider_id, &[&machine.external_id]).await?;
    let is_owner =
        |twin: &vms::StoredVm| twin.record.id != vm && twin.record.details.managed && twin.record.deleted_at.is_none();
    Ok(twins.into_iter().find(is_owner))
}

/// Each order has a machine of its own: which of them it belongs to, somebody has to say.
async fn end_with_machine_of_another(
    tx: &mut Tx,
    key: (OperationId, i64),
    vm: VmId,
    owner: &vms::StoredVm,
) -> Result<()> {
    let VmDetails { name, external_id, .. } = &owner.record.details;
    let detail = format!(
        "The machine {} carries the tag of this order, and belongs to that of {name} ({}). Abandon this order, or adopt another \
         machine for it.",
        external_id.as_deref().unwrap_or_default(),
        owner.record.id
    );
    end_without(tx, key, vm, OperationStatus::NeedsAttention, &OperationError::ambiguous(&detail)).await
}

/// The cloud does not know the machine that somebody has named for the order: they have to look again. Returns false when the
/// lease is lost.
pub async fn reject_adopted(context: &JobContext, due: &DueOperation, external_id: &str) -> Result<bool> {
    let detail = format!(
        "The cloud knows no machine {external_id} in this region. Look there again, and settle the operation once more."
    );
    let (key, vm, error) = ((due.id, due.attempt), due.vm_id, OperationError::new("not_found", &detail));
    let saved = context
        .lane
        .tick_and_write_if_held(async move |tx| {
            let error = OperationError::as_pair(Some(&error));
            if store::end_operation(tx, key, OperationStatus::NeedsAttention, error).await? {
                let Some(mut stored) = vms::find_in_tx(tx, vm).await? else { return Ok(()) };
                let old = stored.to_counted();
                stored.record.details.external_id = None;
                stored.record.details.state = MachineState::Unknown;
                vms::save_vm(tx, &old, stored).await?;
                publish_end(tx, vm, OperationStatus::NeedsAttention).await?;
            }
            Ok(())
        })
        .await?;
    Ok(saved.is_some())
}

async fn save_machine(tx: &mut Tx, vm: VmId, machine: &Machine, now: Timestamp) -> Result<()> {
    let Some(stored) = vms::find_in_tx(tx, vm).await? else { return Ok(()) };
    let provider = stored.record.details.provider_id;
    // A sync may have listed the machine before its tag, and taken it for one that was not ordered here.
    for mut twin in vms::list_by_external_ids(tx, provider, &[&machine.external_id]).await? {
        if twin.record.id != vm {
            twin.record.details.external_id = None;
            vms::forget_listed(tx, vec![twin]).await?;
        }
    }
    let organization = stored.record.details.organization_id;
    update_machine(tx, stored, machine, organization, now).await.map(drop)
}

/// The end of an order is a change of its machine, for readers of changes.
async fn touch_vm(tx: &mut Tx, vm: VmId) -> Result<()> {
    let Some(stored) = vms::find_in_tx(tx, vm).await? else { return Ok(()) };
    vms::save_vm(tx, &stored.to_counted(), stored).await.map(drop)
}

async fn save_state(tx: &mut Tx, vm: VmId, state: MachineState) -> Result<()> {
    let Some(mut stored) = vms::find_in_tx(tx, vm).await? else { return Ok(()) };
    let old = stored.to_counted();
    // A machine that exists keeps what the cloud has told of it.
    if stored.record.details.external_id.is_none() {
        stored.record.details.state = state;
        if state == MachineState::Failed {
            // It leaves the list like one that has ended.
            stored.terminated_at = Some(tx.tick().await?.at);
        }
    }
    vms::save_vm(tx, &old, stored).await.map(drop)
}

async fn publish_end(tx: &mut Tx, vm: VmId, status: OperationStatus) -> Result<()> {
    metrics::counter!("cloud_orders_total", "outcome" => status.as_str()).increment(1);
    let Some(stored) = vms::find_in_tx(tx, vm).await? else { return Ok(()) };
    let kind = if status == OperationStatus::Succeeded { &VM_PROVISIONED } else { &VM_FAILED };
    events::publish(tx, kind, vm, &stored.record).await.map(drop)
}
