//! Runs one step when it is due.

use std::panic::AssertUnwindSafe;

use feature_kit::{ActionEffect, Lookup};
use futures_util::FutureExt;
use kernel::base::{Code, Error, Result, Timestamp};
use kernel::http::read_object;
use kernel::jobs::dispatch::JobCompletion;
use kernel::jobs::lanes::LeasedLane;
use kernel::jobs::steps::StepCommit;
use kernel::store::from_json;
use serde_json::{Map, Value};

use super::super::actions::{WaitInput, WaitOutput};
use super::super::{Status, StepError};
use super::context::EngineContext;
use super::evaluate::{EvaluatedStep, evaluate_step, mask_input};
use super::http;
use super::step_results::store::{self as step_results, FailureRetry, StepEnd, StepJob, StepResult, ended_attempt};
use super::store::refusal_to_step_error;

/// An outcome that is still to be saved.
pub enum StepOutcome {
    Attempted(Box<(StepJob, StepResult)>),
    /// The database was unavailable: nothing was tried, and the step is loaded again a little later.
    Deferred(Box<StepJob>),
    /// The lookup is unavailable on this node, or the request is held: nothing was tried, and the step is postponed.
    Postponed(Box<StepJob>),
}

/// Runs a step, and turns a panic into a failed attempt.
pub async fn run_job(engine: EngineContext, lane: LeasedLane, job: StepJob) -> JobCompletion<StepOutcome> {
    // A panic would end the work on the whole lane, and happen again when the lane is leased again.
    let done = AssertUnwindSafe(run_step(&engine, &lane, &job)).catch_unwind().await;
    match done.unwrap_or_else(|_| Err(Error::internal("a step panicked"))) {
        Ok(ended) => ended,
        Err(error) if error.code() == Code::Unavailable => JobCompletion::Unsaved(StepOutcome::Deferred(Box::new(job))),
        Err(error) => {
            tracing::error!(%error, run = %job.run.run.id, step = job.step.name, "failed to run workflow step");
            let detail = "The fault is on our side and has been logged under the id of the run.".to_owned();
            let now = engine.node.env.now();
            let error = StepError::new(Code::Internal.name(), detail);
            let attempt = Some(ended_attempt(&job, now, now, Some(error.clone())));
            let end = StepEnd::failed(error, FailureRetry::Backoff);
            JobCompletion::Unsaved(StepOutcome::Attempted(Box::new((job, StepResult { input: None, attempt, end }))))
        }
    }
}

async fn run_step(engine: &EngineContext, lane: &LeasedLane, job: &StepJob) -> Result<JobCompletion<StepOutcome>> {
    let now = engine.node.env.now();
    // A request that the operator holds does not run out of time meanwhile.
    let is_held = engine.is_holding_requests() && matches!(job.step_action().effect, ActionEffect::Http);
    if !is_held && job.step.deadline_at.is_some_and(|deadline| deadline <= now && !wakes_before(job, deadline)) {
        return save_result(lane, job, StepResult { input: None, attempt: None, end: StepEnd::TimedOut }).await;
    }
    if job.step.state == Status::Waiting {
        return match job.step_action().effect {
            // Only a decision or the deadline ends an approval, whatever made the step due.
            ActionEffect::Approval => Ok(to_ended(&step_results::keep_waiting(lane, job).await?)),
            _ => complete_wait(lane, job).await,
        };
    }
    let with = match evaluate_step(lane.db(), job).await? {
        EvaluatedStep::Run(with) => with,
        EvaluatedStep::Skip => {
            return save_result(lane, job, StepResult { input: None, attempt: None, end: StepEnd::Skipped }).await;
        }
        EvaluatedStep::Fault(error) => return fail_permanently(lane, job, None, error).await,
    };
    if let Err(error) = (job.step_action().check)(with.clone()).into_result() {
        return fail_permanently(lane, job, Some(mask_input(job, &with)), refusal_to_step_error(error)?).await;
    }
    match &job.step_action().effect {
        ActionEffect::Transaction(transaction) => {
            match step_results::run_transactional(lane, job, with.clone(), (*transaction, &engine.node.secrets)).await?
            {
                StepCommit::Done(Ok(())) | StepCommit::Stale => Ok(JobCompletion::Saved),
                StepCommit::Done(Err((error, retryable))) => {
                    let attempt = Some(ended_attempt(job, now, engine.node.env.now(), Some(error.clone())));
                    let retry = if retryable { FailureRetry::Backoff } else { FailureRetry::Never };
                    let end = StepEnd::failed(error, retry);
                    save_result(lane, job, StepResult { input: Some(Value::Object(with)), attempt, end }).await
                }
                StepCommit::Lost => Ok(JobCompletion::Lost),
            }
        }
        ActionEffect::Lookup(lookup) => run_lookup(engine, lane, job, with, *lookup).await,
        ActionEffect::Http if is_held => Ok(JobCompletion::Unsaved(StepOutcome::Postponed(Box::new(job.clone())))),
        ActionEffect::Http => {
            match engine.get_saver_rights(lane, job).await? {
                StepCommit::Done(Ok(_)) => {}
                StepCommit::Done(Err(error)) => {
                    return fail_permanently(lane, job, Some(mask_input(job, &with)), error).await;
                }
                StepCommit::Stale => return Ok(JobCompletion::Saved),
                StepCommit::Lost => return Ok(JobCompletion::Lost),
            }
            let masked = mask_input(job, &with);
            let result = http::send_request(engine, job, with, masked).await?;
            Ok(JobCompletion::Unsaved(match result {
                Some(result) => StepOutcome::Attempted(Box::new((job.clone(), result))),
                None => StepOutcome::Deferred(Box::new(job.clone())),
            }))
        }
        ActionEffect::Wait => {
            let (wait, _) = read_object::<WaitInput>(with.clone()).into_result()?;
            Ok(to_ended(
                &step_results::park_step(lane, job, Value::Object(with), Some(wait.wakes_at(job.step.ready_at)))
                    .await?,
            ))
        }
        ActionEffect::Approval => Ok(to_ended(&step_results::park_step(lane, job, Value::Object(with), None).await?)),
    }
}

/// Whether a wait ended before its deadline, although nobody was there to see it. One that nobody has begun says when it ends.
fn wakes_before(job: &StepJob, deadline: Timestamp) -> bool {
    if !matches!(job.step_action().effect, ActionEffect::Wait) {
        return false;
    }
    let until = job.step.output.as_deref().and_then(|output| from_json::<WaitOutput>(output).ok());
    job.step.state != Status::Waiting || until.is_some_and(|wait| wait.until < deadline)
}

/// Does a lookup with the rights of the saver, and saves the result.
async fn run_lookup(
    engine: &EngineContext,
    lane: &LeasedLane,
    job: &StepJob,
    with: Map<String, Value>,
    lookup: Lookup,
) -> Result<JobCompletion<StepOutcome>> {
    let postponed = || Ok(JobCompletion::Unsaved(StepOutcome::Postponed(Box::new(job.clone()))));
    // Checked before a transaction is spent on the rights.
    if !(lookup.is_available)(engine.node.app()) {
        return postponed();
    }
    let began_at = engine.node.env.now();
    let rights = match engine.get_saver_rights(lane, job).await? {
        StepCommit::Done(Ok(rights)) => rights,
        StepCommit::Done(Err(error)) => return fail_permanently(lane, job, Some(Value::Object(with)), error).await,
        StepCommit::Stale => return Ok(JobCompletion::Saved),
        StepCommit::Lost => return Ok(JobCompletion::Lost),
    };
    let (end, error) = match (lookup.find)(engine.node.app(), lane.db(), &rights, with.clone()).await {
        Ok(output) => (StepEnd::Succeeded(output), None),
        Err(error) if error.code() == Code::Unavailable => return postponed(),
        Err(error) => {
            let error = refusal_to_step_error(error)?;
            (StepEnd::failed(error.clone(), FailureRetry::Backoff), Some(error))
        }
    };
    let attempt = Some(ended_attempt(job, began_at, engine.node.env.now(), error));
    save_result(lane, job, StepResult { input: Some(Value::Object(with)), attempt, end }).await
}

/// Completes a step whose wait is over.
async fn complete_wait(lane: &LeasedLane, job: &StepJob) -> Result<JobCompletion<StepOutcome>> {
    let output: Value = job.step.output.as_deref().map(kernel::store::from_json).transpose()?.unwrap_or(Value::Null);
    let (began, now) = (job.step.started_at.unwrap_or(job.step.ready_at), lane.db().env().now());
    let result = StepResult {
        input: None,
        attempt: Some(ended_attempt(job, began, now, None)),
        end: StepEnd::Succeeded(output),
    };
    save_result(lane, job, result).await
}

async fn fail_permanently(
    lane: &LeasedLane,
    job: &StepJob,
    input: Option<Value>,
    error: StepError,
) -> Result<JobCompletion<StepOutcome>> {
    let end = StepEnd::failed(error, FailureRetry::Never);
    save_result(lane, job, StepResult { input, attempt: None, end }).await
}

async fn save_result(lane: &LeasedLane, job: &StepJob, result: StepResult) -> Result<JobCompletion<StepOutcome>> {
    Ok(to_ended(&step_results::save_result(lane, job, result).await?))
}

fn to_ended(commit: &StepCommit<()>) -> JobCompletion<StepOutcome> {
    match commit {
        StepCommit::Done(()) | StepCommit::Stale => JobCompletion::Saved,
        StepCommit::Lost => JobCompletion::Lost,
    }
}
