//! SQL of the actions of people on a run: cancel, retry from the failed steps, approve, reject.
//!
//! The lane is locked before the run is read, so that no engine transaction on the run is under way: later ones find the
//! steps as they are saved here.

use kernel::args;
use kernel::audit::{self, NewAuditEntry};
use kernel::base::{Error, Result, Timestamp};
use kernel::http::IfMatch;
use kernel::jobs::lanes;
use kernel::jobs::steps;
use kernel::store::{Tx, from_json, to_json};
use serde_json::json;

use super::super::super::actions::HTTP_REQUEST;
use super::super::super::run_plan::need_indexes;
use super::super::super::{
    Definition, LANE_KEY, OnError, RunDetail, RunId, Status, StepAttempt, StepError, WORKFLOW_LANE, WorkflowSettings,
    WorkflowStep,
};
use super::super::store::{advance_run, get_run, is_workflow_deleted, stop_run, update_run};
use super::super::{StoredRun, build_detail, transition_forbidden};
use super::RunControl;

kernel::statements! {
    DEFINITION = "SELECT definition FROM workflow_revisions WHERE tenant_id = $1 AND workflow_id = $2 AND revision = $3";
}

pub async fn apply_control(
    tx: &mut Tx,
    id: RunId,
    if_match: &IfMatch,
    control: RunControl,
    settings: &WorkflowSettings,
) -> Result<RunDetail> {
    tx.tick().await?;
    lanes::wake_lane(tx, WORKFLOW_LANE, LANE_KEY).await?;
    let mut run = get_run(tx, id).await?;
    if_match.check_version(run.run.version)?;
    let definition: Definition =
        from_json(&tx.get_one::<String>(DEFINITION, args![run.run.workflow_id, run.run.revision]).await?)?;
    let (action, done) = control.audit_labels();
    let status = run.run.status;
    match &control {
        RunControl::Cancel if !status.is_finished() => stop_run(tx, &mut run, Status::Cancelled).await?,
        RunControl::Retry if matches!(status, Status::Failed | Status::TimedOut) && !run.run.dry_run => {
            retry_run(tx, &mut run, &definition, settings).await?;
        }
        RunControl::Approve(step) if !status.is_finished() => {
            decide_approval(tx, &mut run, &definition, step.as_deref(), true).await?;
        }
        RunControl::Reject(step) if !status.is_finished() => {
            decide_approval(tx, &mut run, &definition, step.as_deref(), false).await?;
        }
        _ => return Err(transition_forbidden(status, done)),
    }
    audit::record_entry(tx, NewAuditEntry::new(action, "workflow_run", id)).await?;
    let records = steps::list_steps_in_tx(tx, WORKFLOW_LANE, &id.to_string()).await?;
    build_detail(run.run, &definition, &records)
}

/// Resets the failed steps to ready, and deletes the steps that were skipped because of them.
async fn retry_run(
    tx: &mut Tx,
    run: &mut StoredRun,
    definition: &Definition,
    settings: &WorkflowSettings,
) -> Result<()> {
    if is_workflow_deleted(tx, run.run.workflow_id).await? {
        let detail = "The workflow of this run has been deleted.";
        return Err(Error::new(feature_kit::INVALID_TRANSITION, detail));
    }
    let (at, now, owner) = (tx.tick().await?.at, tx.env().now(), run.run.id.to_string());
    let records = steps::list_steps_in_tx(tx, WORKFLOW_LANE, &owner).await?;
    let needs = need_indexes(&definition.steps);
    let find_record = |index: usize| records.iter().find(|record| record.name == definition.steps[index].id);
    // A step without an error of its own ended with its run.
    let is_cause = |index: usize| {
        find_record(index).is_some_and(|record| {
            matches!(record.state, Status::Failed | Status::TimedOut)
                && (definition.steps[index].on_error == OnError::Fail || record.error.is_none())
        })
    };
    let mut reset: Vec<bool> = (0..definition.steps.len()).map(is_cause).collect();
    if !reset.contains(&true) {
        let reason = run.run.error.as_ref().map_or("", |error| error.code.as_str());
        return Err(Error::new(
            feature_kit::INVALID_TRANSITION,
            format!("No step of this run has failed ({reason}), so there is none to go on from."),
        ));
    }
    let needs_reset = |reset: &[bool], index: usize| needs[index].iter().any(|need| reset[*need]);
    // Every step that needs a reset step, directly or through others.
    for _ in 0..definition.steps.len() {
        for index in 0..reset.len() {
            reset[index] |= needs_reset(&reset, index);
        }
    }
    for (index, step) in definition.steps.iter().enumerate() {
        let Some(record) = find_record(index).filter(|_| reset[index]) else { continue };
        let is_first = is_cause(index) && !needs_reset(&reset, index);
        if is_first {
            steps::update_step(tx, WORKFLOW_LANE, LANE_KEY, &retried_step(record, step, at, now)).await?;
        } else if is_cause(index) || record.state == Status::Skipped {
            // It is ready again when what it needs has ended.
            steps::delete_step(tx, WORKFLOW_LANE, &owner, &step.id).await?;
        }
    }
    run.run.error = None;
    run.run.deadline_at = now.plus_ms(settings.run_max_ms);
    run.transition_status(Status::Running, at);
    update_run(tx, run).await
}

/// A failed step as it is tried once more.
fn retried_step(record: &steps::StepRecord, step: &WorkflowStep, at: Timestamp, now: Timestamp) -> steps::StepRecord {
    let mut retried =
        steps::StepRecord { attempt: record.attempt, ..steps::StepRecord::new_ready(&record.owner, &step.id, at) };
    if step.uses == HTTP_REQUEST {
        // `now` keeps its value: the request with the same idempotency key must have the same content.
        retried.ready_at = record.ready_at;
    }
    retried.next_at = Some(now);
    retried.deadline_at = step.timeout_seconds.map(|seconds| now.plus_ms(seconds * 1_000));
    retried.attempts.clone_from(&record.attempts);
    retried
}

/// Approves or rejects the step that waits for it.
async fn decide_approval(
    tx: &mut Tx,
    run: &mut StoredRun,
    definition: &Definition,
    step_id: Option<&str>,
    approved: bool,
) -> Result<()> {
    let owner = run.run.id.to_string();
    let is_approval = |name: &str| definition.steps.iter().any(|step| step.id == name && step.uses == "approval");
    let mut waiting = steps::list_steps_in_tx(tx, WORKFLOW_LANE, &owner).await?;
    waiting.retain(|step| step.state == Status::Waiting && is_approval(&step.name));
    if let Some(step_id) = step_id {
        waiting.retain(|step| step.name == step_id);
    }
    let mut step = match (waiting.len(), waiting.pop()) {
        (1, Some(step)) => step,
        (0, _) | (_, None) => {
            let detail = "Nothing of this run waits for an approval.";
            return Err(Error::new(feature_kit::INVALID_TRANSITION, detail));
        }
        (_, Some(_)) => {
            let detail = "is required, because several steps wait for approval";
            return Err(Error::invalid("/step_id", "required", detail));
        }
    };
    let (at, now) = (tx.tick().await?.at, tx.env().now());
    // The deadline has passed, and the engine has only not saved the timeout yet.
    if step.deadline_at.is_some_and(|deadline| deadline <= now) {
        let detail = "The time for this approval is over.";
        return Err(Error::new(feature_kit::INVALID_TRANSITION, detail));
    }
    let by = tx.actor().who.clone();
    let error = (!approved).then(|| StepError::new("approval_rejected", format!("{} rejected it.", by.name)));
    let mut attempts: Vec<StepAttempt> = from_json(&step.attempts)?;
    attempts.push(decision_attempt(&step, at, error.clone()));
    step.attempts = to_json(&attempts)?;
    step.attempt += 1;
    step.output = Some(to_json(&json!({ "approved": approved, "by": by, "at": at }))?);
    step.error = error.as_ref().map(to_json).transpose()?;
    step.end_with(if approved { Status::Succeeded } else { Status::Failed }, at);
    steps::update_step(tx, WORKFLOW_LANE, LANE_KEY, &step).await?;
    advance_run(tx, run, &definition.steps).await
}

fn decision_attempt(step: &steps::StepRecord, at: Timestamp, error: Option<StepError>) -> StepAttempt {
    let began = step.started_at.unwrap_or(step.ready_at);
    StepAttempt {
        number: step.attempt + 1,
        at: began,
        ended_at: Some(at),
        error,
        status_code: None,
        duration_ms: at.as_millis() - began.as_millis(),
    }
}
