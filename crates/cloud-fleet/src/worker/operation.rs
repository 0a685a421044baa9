//! One step of an order. It is stored that the cloud is asked before it is asked, and after any doubt the machine is looked for
//! before the cloud is asked again: so no order makes two machines.

use std::time::Duration;

use clouds::{CloudAdapter, CloudError, CloudErrorKind, Machine, MachineState};
use kernel::base::{DAY_MS, HOUR_MS, MINUTE_MS, Result, SECOND_MS, Timestamp};
use tokio::time::Instant;

use super::job::{JobContext, UNKNOWN_MAX_MS, backoff_ms};
use super::operation_end::store::{
    OperationError, attach_machine, end_without_machine, find_ordered_vm, finish_machine, postpone, reject_adopted,
};
use super::store::{self, DueOperation, WorkBasis};
use crate::providers::store::verify_soon;
use crate::vms::OperationStatus;
use crate::vms::known_accounts::store::{AccountMismatch, explain_mismatch, find_mismatch};
use crate::vms::provision::store::open_user_data;

/// How long the machine of a doubtful order is looked for before the same order is sent again, where the cloud makes one
/// machine of both: its lists may lag behind.
const LOOK_BEFORE_REPEAT_MS: i64 = 5 * SECOND_MS;
/// How long it is looked for where a second order would make a second machine, or where a refusal seems to say that there is
/// none.
const LOOK_MAX_MS: i64 = 10 * MINUTE_MS;
/// How long a cloud may be away or say "too many requests" before an order that it does not have is given up.
const REFUSED_MAX_MS: i64 = HOUR_MS;
/// How long an order may wait before it is sent. What was ordered so long ago may not be wanted any more.
const UNSENT_MAX_MS: i64 = DAY_MS;
/// How long a machine may take to run.
const START_MAX_MS: i64 = 30 * MINUTE_MS;
/// How long a cloud may not know a machine that it has just made.
const UNLISTED_MAX_MS: i64 = 2 * MINUTE_MS;
/// When an order is tried again whose provider has credentials that do not open: somebody has to enter them, or restore a key.
const UNOPENED_PAUSE_MS: i64 = MINUTE_MS;
/// A process that stood still for longer after it saved that it sends does not send: another node may look already.
const SEND_WITHIN: Duration = Duration::from_secs(10);

/// Works on an order that is due. Returns false when the lease is lost.
pub async fn run_step(context: &JobContext, due: DueOperation) -> Result<bool> {
    if due.status == OperationStatus::Accepted && ms_since(context, Some(due.accepted_at)) > UNSENT_MAX_MS {
        let error = OperationError::new("timeout", "The order waited for more than a day and was not sent.");
        return end_without_machine(context, &due, OperationStatus::Failed, error).await;
    }
    let cloud = match context.open_usable_cloud() {
        Ok(_) if is_for_another_account(context, &due) => return end_for_another_account(context, &due).await,
        Ok(cloud) => cloud,
        Err(unopened) if ms_since(context, due.unknown_since()) >= UNKNOWN_MAX_MS => {
            return end_unknown(context, &due, &unopened).await;
        }
        Err(unopened) => {
            let at = context.now().plus_ms(UNOPENED_PAUSE_MS);
            return postpone(context, &due, due.status, at, Some(OperationError::from_cloud(&unopened))).await;
        }
    };
    match due.status {
        OperationStatus::Accepted => begin(context, &*cloud, due).await,
        OperationStatus::Submitting => look_for_machine(context, &*cloud, due).await,
        _ => await_start(context, &*cloud, due).await,
    }
}

/// How long ago that was, if it was.
fn ms_since(context: &JobContext, at: Option<Timestamp>) -> i64 {
    at.map_or(0, |at| context.now().as_millis() - at.as_millis())
}

/// Whether the provider's credentials belong to another account than those with which the order was made or sent. Machines of
/// one account cannot be looked for in another, and what an order says is not for everybody. What was said before anybody knew
/// the account is for the credentials of then alone.
fn is_for_another_account(context: &JobContext, due: &DueOperation) -> bool {
    let is_same = due.credentials_version == Some(context.provider.credentials_version);
    let is_for_known = due.account_id.is_some() && due.account_id == context.provider.account_id;
    let is_bound = due.account_id.is_some() || due.credentials_version.is_some();
    is_bound && !is_same && !is_for_known
}

async fn end_for_another_account(context: &JobContext, due: &DueOperation) -> Result<bool> {
    if due.status == OperationStatus::Accepted {
        let detail = if due.account_id.is_some() {
            "The credentials of the provider belong to another account than when this was ordered."
        } else {
            "The credentials of the provider were replaced before it was known whose they were when this was ordered with \
             user_data, which is for that account alone. Order again."
        };
        let error = OperationError::new("conflict", detail);
        return end_without_machine(context, due, OperationStatus::Failed, error).await;
    }
    let detail = "The credentials of the provider belong to another account than the order was sent to, so its machine cannot be \
                  looked for. Look in the old account.";
    end_without_machine(context, due, OperationStatus::NeedsAttention, OperationError::ambiguous(detail)).await
}

/// Nobody could find out for too long what became of an order: somebody has to decide.
async fn end_unknown(context: &JobContext, due: &DueOperation, error: &CloudError) -> Result<bool> {
    let question = if due.status == OperationStatus::Submitting { "was made" } else { "runs" };
    let detail = format!("Whether the machine {question} could not be found out for hours: {}", error.detail);
    end_without_machine(context, due, OperationStatus::NeedsAttention, OperationError::ambiguous(&detail)).await
}

/// Sends an order that waits; one that was tried before is looked for first.
async fn begin(context: &JobContext, cloud: &dyn CloudAdapter, due: DueOperation) -> Result<bool> {
    let now = context.now();
    if let Some(reason) = find_other_account(context).await? {
        let at = now.plus_ms(backoff_ms(due.attempt));
        return postpone(context, &due, OperationStatus::Accepted, at, Some(reason)).await;
    }
    if due.attempt > 0 {
        match find_by_tag(cloud, &due, now).await {
            Ok(found) if found.is_empty() => {}
            Ok(found) => return machines_found(context, &due, &found).await,
            Err(error) if matches!(error.kind, CloudErrorKind::RateLimited | CloudErrorKind::Unavailable) => {
                return judge_refusal(context, due, error, false).await;
            }
            Err(error) => {
                let at = now.plus_ms(backoff_ms(due.attempt));
                let reason = OperationError::from_cloud(&error);
                return postpone(context, &due, OperationStatus::Accepted, at, Some(reason)).await;
            }
        }
    }
    submit(context, cloud, due).await
}

/// Why nothing is ordered with these credentials: the machines known here are in another account, or nobody knows yet. That
/// stays so while the provider has these credentials, until a sync has shown the account.
async fn find_other_account(context: &JobContext) -> Result<Option<OperationError>> {
    let provider = &context.provider;
    let account = provider.account_id.as_deref().unwrap_or_default();
    let detail = match find_mismatch(context.lane.db(), provider.record.id, account).await? {
        None => return Ok(None),
        Some(AccountMismatch::Named(other)) => explain_mismatch(account, &other),
        Some(AccountMismatch::Unproven) => {
            "The order waits until a sync has shown that the new credentials belong to the account of the machines known here."
                .to_owned()
        }
    };
    Ok(Some(OperationError::new("conflict", &detail)))
}

/// The machines that carry the tag of an order. One in another region carries a copy: it was ordered in this one.
async fn find_by_tag(cloud: &dyn CloudAdapter, due: &DueOperation, now: Timestamp) -> Result<Vec<Machine>, CloudError> {
    let mut found = cloud.find_by_operation(&due.region, &due.id.to_string(), now).await?;
    found.retain(|machine| machine.region == due.region);
    Ok(found)
}

/// Sends the order.
async fn submit(context: &JobContext, cloud: &dyn CloudAdapter, mut due: DueOperation) -> Result<bool> {
    let (now, began) = (context.now(), Instant::now());
    let was_in_doubt = due.submitted_at.is_some();
    let account = context.provider.account_id.clone();
    let basis = WorkBasis {
        provider: context.provider.record.id,
        regions: vec![due.region.clone()],
        credentials_version: context.provider.credentials_version,
    };
    let (key, look_at) = ((due.id, due.attempt), now.plus_ms(LOOK_BEFORE_REPEAT_MS));
    let faults = context.node.env.faults.clone();
    let begun = context
        .lane
        .tick_and_write_if_held(async move |tx| {
            store::begin_submission(tx, key, (&basis, account), (now, look_at)).await
        })
        .await?;
    match begun {
        None => return Ok(false),
        // The order or its provider has moved on; if not, it is not tried again at once.
        Some(false) => return postpone(context, &due, due.status, look_at, due.last_error()).await,
        Some(true) => due.attempt += 1,
    }
    due.first_sent_at = due.first_sent_at.or(Some(now));
    due.submitted_at = due.submitted_at.or(Some(now));
    faults.check_outside_tx("cloud.submit.before").await?;
    let user_data = match &due.user_data {
        Some(sealed) => Some(open_user_data(context.lane.tenant_id, due.id, sealed, &context.node.secrets)?),
        None => None,
    };
    let spec = due.spec.clone().into_machine_spec(due.id, user_data);
    if began.elapsed() > SEND_WITHIN {
        return Ok(true);
    }
    let answer = cloud.create_machine(&spec, now).await.map_err(|error| error.without_user_data(&spec));
    faults.check_outside_tx("cloud.submit.after").await?;
    match answer {
        Ok(created) => attach_machine(context, &due, &created.machine, OperationStatus::Submitted).await,
        // Something has this name or token already: it may be the machine of this very order.
        Err(error) if error.kind == CloudErrorKind::Conflict && !was_in_doubt => {
            let reason = OperationError::from_cloud(&error);
            match find_by_tag(cloud, &due, context.now()).await {
                Ok(found) if found.is_empty() => {
                    end_without_machine(context, &due, OperationStatus::Failed, reason).await
                }
                Ok(found) => machines_found(context, &due, &found).await,
                Err(_) => postpone(context, &due, OperationStatus::Submitting, look_at, Some(reason)).await,
            }
        }
        Err(error) => judge_refusal(context, due, error, was_in_doubt).await,
    }
}

/// Decides what a failed submission means. After doubt a refusal does not prove that nothing was made: the machine may have
/// taken the last of a quota, or the name.
async fn judge_refusal(context: &JobContext, due: DueOperation, error: CloudError, was_in_doubt: bool) -> Result<bool> {
    let (now, reason) = (context.now(), OperationError::from_cloud(&error));
    let wait = error.retry_after_ms.unwrap_or(0).max(backoff_ms(due.attempt));
    match error.kind {
        CloudErrorKind::RateLimited | CloudErrorKind::Unavailable => {
            if !was_in_doubt && ms_since(context, due.first_sent_at) > REFUSED_MAX_MS {
                return end_without_machine(context, &due, OperationStatus::Failed, reason).await;
            }
            // In doubt, the looks decide how long.
            let status = if was_in_doubt { OperationStatus::Submitting } else { OperationStatus::Accepted };
            postpone(context, &due, status, now.plus_ms(wait), Some(reason)).await
        }
        // The cloud may have the machine: it is looked for.
        CloudErrorKind::Ambiguous => {
            let at = now.plus_ms(wait.max(LOOK_BEFORE_REPEAT_MS));
            postpone(context, &due, OperationStatus::Submitting, at, Some(reason)).await
        }
        CloudErrorKind::Conflict => postpone(context, &due, OperationStatus::Submitting, now, Some(reason)).await,
        CloudErrorKind::Auth
        | CloudErrorKind::Permission
        | CloudErrorKind::NotFound
        | CloudErrorKind::Invalid
        | CloudErrorKind::Quota
        | CloudErrorKind::Capacity => {
            if error.kind == CloudErrorKind::Auth {
                let id = context.provider.record.id;
                context.lane.tick_and_write_if_held(async move |tx| verify_soon(tx, id, now).await).await?;
            }
            if was_in_doubt {
                return postpone(context, &due, OperationStatus::Submitting, now.plus_ms(wait), Some(reason)).await;
            }
            end_without_machine(context, &due, OperationStatus::Failed, reason).await
        }
    }
}

/// Looks for the machine of an order that the cloud may have.
async fn look_for_machine(context: &JobContext, cloud: &dyn CloudAdapter, due: DueOperation) -> Result<bool> {
    let now = context.now();
    let age_ms = ms_since(context, due.submitted_at);
    match find_by_tag(cloud, &due, now).await {
        Ok(found) if found.is_empty() => nothing_found(context, cloud, due, age_ms).await,
        Ok(found) => machines_found(context, &due, &found).await,
        Err(error) if age_ms > UNKNOWN_MAX_MS => end_unknown(context, &due, &error).await,
        Err(error) => {
            let at = now.plus_ms(error.retry_after_ms.unwrap_or(0).max(backoff_ms(due.attempt)));
            postpone(context, &due, OperationStatus::Submitting, at, due.last_error()).await
        }
    }
}

async fn nothing_found(context: &JobContext, cloud: &dyn CloudAdapter, due: DueOperation, age_ms: i64) -> Result<bool> {
    let now = context.now();
    if let Some(refusal) = due.last_error().filter(OperationError::is_refusal) {
        // It came after doubt, so it counts when the cloud has had time to show a machine.
        if age_ms >= LOOK_MAX_MS {
            return end_without_machine(context, &due, OperationStatus::Failed, refusal).await;
        }
        let at = now.plus_ms(backoff_ms(due.attempt));
        return postpone(context, &due, OperationStatus::Submitting, at, Some(refusal)).await;
    }
    let is_hopeless = age_ms >= if cloud.creates_once() { UNKNOWN_MAX_MS } else { LOOK_MAX_MS };
    if is_hopeless {
        let detail = "The answer of the cloud was lost, and it shows no machine of this order. Look there; if there is none, \
                      settle the operation with retry or abandon.";
        return end_without_machine(context, &due, OperationStatus::NeedsAttention, OperationError::ambiguous(detail))
            .await;
    }
    if cloud.creates_once() && age_ms >= LOOK_BEFORE_REPEAT_MS {
        return submit(context, cloud, due).await;
    }
    let look_again = now.plus_ms(backoff_ms(due.attempt).min(LOOK_BEFORE_REPEAT_MS));
    postpone(context, &due, OperationStatus::Submitting, look_again, due.last_error()).await
}

/// The machine of an order has turned up, or several that carry its tag.
async fn machines_found(context: &JobContext, due: &DueOperation, found: &[Machine]) -> Result<bool> {
    let Some(first) = found.first() else { return Ok(true) };
    if found.len() == 1 {
        return attach_machine(context, due, first, OperationStatus::Submitted).await;
    }
    let ids: Vec<&str> = found.iter().map(|machine| machine.external_id.as_str()).collect();
    let detail = format!("Several machines carry the tag of this order: {}. Adopt one of them.", ids.join(", "));
    // Which of them it is, somebody has to say.
    end_without_machine(context, due, OperationStatus::NeedsAttention, OperationError::ambiguous(&detail)).await
}

/// Waits until the machine runs.
async fn await_start(context: &JobContext, cloud: &dyn CloudAdapter, due: DueOperation) -> Result<bool> {
    let now = context.now();
    let age_ms = ms_since(context, due.unknown_since());
    let details = find_ordered_vm(context, &due).await?.map(|stored| stored.record.details);
    let Some((external_id, first_seen_at)) = details.and_then(|vm| Some((vm.external_id?, vm.first_seen_at))) else {
        // The machine has left the list with its provider or region.
        let error = OperationError::new("provider_deleted", "The machine has left the list.");
        return end_without_machine(context, &due, OperationStatus::Failed, error).await;
    };
    // Only a machine that somebody has named was never seen.
    let is_adopted = first_seen_at.is_none();
    match cloud.find_machine(&due.region, &external_id, now).await {
        Ok(Some(machine)) if is_adopted && machine.region != due.region => {
            reject_adopted(context, &due, &external_id).await
        }
        Ok(Some(machine)) => judge_start(context, &due, &machine, age_ms).await,
        Ok(None) if is_adopted && age_ms > UNLISTED_MAX_MS => reject_adopted(context, &due, &external_id).await,
        // An id that the cloud cannot even read.
        Err(error) if is_adopted && error.kind == CloudErrorKind::Invalid => {
            reject_adopted(context, &due, &external_id).await
        }
        Ok(None) if age_ms > UNLISTED_MAX_MS => {
            let error = OperationError::new("gone", "The cloud does not know the machine any more.");
            end_without_machine(context, &due, OperationStatus::Failed, error).await
        }
        Ok(None) => postpone(context, &due, due.status, now.plus_ms(backoff_ms(due.attempt)), None).await,
        Err(error) if age_ms > UNKNOWN_MAX_MS => end_unknown(context, &due, &error).await,
        Err(error) => {
            let at = now.plus_ms(error.retry_after_ms.unwrap_or(0).max(backoff_ms(due.attempt)));
            postpone(context, &due, due.status, at, None).await
        }
    }
}

async fn judge_start(context: &JobContext, due: &DueOperation, machine: &Machine, age_ms: i64) -> Result<bool> {
    match machine.state {
        MachineState::Running => finish_machine(context, due, machine, OperationStatus::Succeeded, None).await,
        MachineState::Terminating | MachineState::Terminated | MachineState::Failed => {
            let reason = machine.state_reason.clone().unwrap_or_else(|| "it gives no reason".to_owned());
            let error = OperationError::new("gone", &format!("The cloud ended the machine: {reason}"));
            finish_machine(context, due, machine, OperationStatus::Failed, Some(error)).await
        }
        _ if age_ms > START_MAX_MS => {
            // Clouds make a machine and start it in two steps, and the second can fail by itself.
            let is_off = matches!(machine.state, MachineState::Stopped | MachineState::Suspended);
            let detail = if is_off {
                "The machine exists, and is off: start it with the cloud's own tools."
            } else {
                "The machine exists, and did not start within 30 minutes."
            };
            let error = OperationError::new("timeout", detail);
            finish_machine(context, due, machine, OperationStatus::NeedsAttention, Some(error)).await
        }
        _ => attach_machine(context, due, machine, OperationStatus::Waiting).await,
    }
}
