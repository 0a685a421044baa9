//! Settles an operation whose outcome the service cannot know: somebody has looked into the cloud.

use clouds::MachineState;
use kernel::args;
use kernel::audit::{self, AuditChanges, NewAuditEntry};
use kernel::base::{Error, Result, StringEnum};
use kernel::events;
use kernel::jobs::lanes;
use kernel::store::Tx;
use serde_json::json;

use super::super::input::Settlement;
use super::super::store::{self, StoredVm};
use super::super::{OperationStatus, VM_FAILED, Vm, VmId};
use crate::CLOUD_LANE;
use crate::providers::store::{find_in_tx, region_lane};

kernel::statements! {
    /// The machine is looked for once more before the order is sent. To another account it goes only if nothing of it may be a
    /// secret.
    RETRY = "UPDATE vm_operations SET status = 'accepted', attempt = attempt + 1, next_at = $3, submitted_at = NULL,
            accepted_at = $3, first_sent_at = NULL,
            credentials_version = NULL, account_id = CASE WHEN user_data IS NULL THEN NULL ELSE account_id END,
            error_code = NULL, error_detail = NULL, ended_at = NULL
        WHERE tenant_id = $1 AND id = $2 AND status = 'needs_attention'";
    ABANDON = "UPDATE vm_operations SET status = 'failed', attempt = attempt + 1, next_at = NULL, user_data = NULL, ended_at = $3,
            error_code = 'abandoned', error_detail = $4
        WHERE tenant_id = $1 AND id = $2 AND (status = 'needs_attention' OR (status = 'accepted' AND submitted_at IS NULL))";
    /// The order goes on with the machine that was named, until it runs.
    ADOPT_NAMED = "UPDATE vm_operations SET status = 'submitted', attempt = attempt + 1, next_at = $3, submitted_at = $3,
            error_code = NULL, error_detail = NULL, ended_at = NULL
        WHERE tenant_id = $1 AND id = $2 AND status = 'needs_attention'";
}

/// Applies a decision to an operation that needs attention. A machine that turns up later with the tag of the operation is
/// still taken for it.
pub async fn settle_operation(tx: &mut Tx, id: VmId, settlement: Settlement) -> Result<Vm> {
    let at = tx.tick().await?.at;
    let stored = store::get_in_tx(tx, id).await?;
    let is_abandoned = matches!(settlement, Settlement::Abandon);
    let can_be_settled = |status| match status {
        OperationStatus::NeedsAttention => true,
        // The cloud has not been asked yet.
        OperationStatus::Accepted => is_abandoned,
        _ => false,
    };
    let operation = stored.record.details.operation.clone().filter(|operation| can_be_settled(operation.status));
    let Some(operation) = operation else {
        let detail =
            "Only an operation that needs attention can be settled, and one that is accepted can be abandoned.";
        return Err(Error::conflict(detail));
    };
    let now = tx.env().now();
    let (old, mut new) = (stored.to_counted(), stored);
    let decided = match settlement {
        Settlement::Retry => {
            if let Some(external_id) = &new.record.details.external_id {
                let detail =
                    format!("The machine exists in the cloud as {external_id}: adopt it, or abandon the order.");
                return Err(Error::conflict(detail));
            }
            tx.exec(RETRY, args![operation.id, now]).await?;
            new.record.details.state = MachineState::Provisioning;
            "retry".to_owned()
        }
        Settlement::Abandon => {
            let detail = if operation.status == OperationStatus::Accepted {
                "The order was abandoned before the cloud had it."
            } else {
                "The order was abandoned. Nothing in the cloud was touched."
            };
            if tx.exec(ABANDON, args![operation.id, at, detail]).await? == 0 {
                return Err(Error::conflict("The order is being sent to the cloud. Look at it again in a moment."));
            }
            if new.record.details.external_id.is_none() {
                (new.record.details.state, new.terminated_at) = (MachineState::Failed, Some(at));
            }
            "abandon".to_owned()
        }
        Settlement::Adopt(external_id) => {
            let external_id = adopt_named(tx, &mut new, external_id).await?;
            tx.exec(ADOPT_NAMED, args![operation.id, now]).await?;
            format!("adopt {external_id}")
        }
    };
    let lane = region_lane(new.record.details.provider_id, &new.record.details.region);
    store::save_vm(tx, &old, new).await?;
    // That an order needs attention was told already.
    if is_abandoned && operation.status == OperationStatus::Accepted {
        let ended = store::get_in_tx(tx, id).await?;
        events::publish(tx, &VM_FAILED, id, &ended.record).await?;
    }
    lanes::wake_lane(tx, CLOUD_LANE, &lane).await?;
    let mut changes = AuditChanges::default();
    changes.add_described("operation", &json!(operation.status.as_str()), &json!(decided));
    audit::record_entry(tx, NewAuditEntry::new("vm.settle", store::KIND, id).with_changes(changes)).await?;
    store::get_in_tx(tx, id).await.map(|stored| stored.record)
}

/// Makes the named machine that of the order. A sync may have listed it as one that was not ordered here.
async fn adopt_named(tx: &mut Tx, new: &mut StoredVm, external_id: Option<String>) -> Result<String> {
    let Some(external_id) = external_id.or_else(|| new.record.details.external_id.clone()) else {
        return Err(Error::invalid("/external_id", "required", "is needed: the id of the machine in the cloud"));
    };
    let provider = find_in_tx(tx, new.record.details.provider_id).await?.ok_or_else(Error::not_found)?;
    if !provider.record.kind.is_machine_id(&external_id) {
        let detail = format!("is no id of a machine at {}", provider.record.kind.as_str());
        return Err(Error::invalid("/external_id", "invalid_value", detail));
    }
    for mut twin in store::list_by_external_ids(tx, new.record.details.provider_id, &[&external_id]).await? {
        if twin.record.id == new.record.id {
            continue;
        }
        if twin.record.details.managed {
            return Err(Error::conflict("This is the machine of another order."));
        }
        if twin.record.details.region != new.record.details.region {
            let detail =
                format!("is a machine in {}, and this was ordered in another region", twin.record.details.region);
            return Err(Error::invalid("/external_id", "invalid_value", detail));
        }
        twin.record.details.external_id = None;
        store::forget_listed(tx, vec![twin]).await?;
    }
    if new.record.details.external_id.as_ref() != Some(&external_id) {
        // It was never seen as the machine of this order.
        new.record.details.first_seen_at = None;
    }
    new.record.details.external_id = Some(external_id.clone());
    Ok(external_id)
}
