//! SQL that runs steps and saves their results. A step's change inside the platform and its result are one transaction.

use std::sync::Arc;

use feature_kit::{Action, ActionEffect, STEP_BYTES_MAX, TransactionFn};
use kernel::auth::Rights;
use kernel::base::{Error, Result, SECOND_MS, Secrets, StringEnum, TenantId, Timestamp};
use kernel::events;
use kernel::jobs::lanes::LeasedLane;
use kernel::jobs::steps::{self, Retry, StepCommit, StepVersion};
use kernel::outbound::LaneRequestPermit;
use kernel::store::{Tx, from_json, to_json};
use serde_json::{Map, Value};

use super::super::super::runs::StoredRun;
use super::super::super::runs::store::{self as runs, advance_run, is_workflow_deleted};
use super::super::super::{
    ApprovalQuestion, ApprovalRequested, LANE_KEY, RUN_BYTES_MAX, STEP_BYTES_SMALL, Status, StepAttempt, StepError,
    WORKFLOW_APPROVAL_REQUESTED, WORKFLOW_LANE, WorkflowStep, counters,
};
use super::super::context::EngineContext;
use super::super::revisions::CompiledRevision;
use super::super::store::{get_action_rights, refusal_to_step_error};

/// Attempts of a step that are kept: enough for all automatic retries, and the latest of those retried by hand.
const ATTEMPTS_KEPT: usize = 50;
/// How long a step is postponed while its lookup is unavailable or its request is held: as long as it has waited so far,
/// within these bounds. That is longer than a node keeps an idle lane, because another node may be able to do the lookup.
const REST_MS_MIN: i64 = 5 * SECOND_MS;
const REST_MS_MAX: i64 = 30 * SECOND_MS;

/// A due step as it was read, with everything needed to run it.
#[derive(Clone)]
pub struct StepJob {
    pub tenant: TenantId,
    pub run: Arc<StoredRun>,
    pub revision: Arc<CompiledRevision>,
    /// The step's index in the definition.
    pub step_index: usize,
    /// The permit of its request, if it sends one.
    pub request_permit: Option<Arc<LaneRequestPermit>>,
    pub step: steps::StepRecord,
}

impl StepJob {
    pub fn step_definition(&self) -> &WorkflowStep {
        &self.revision.compiled.definition.steps[self.step_index]
    }

    pub fn step_action(&self) -> &'static Action {
        self.revision.compiled.steps[self.step_index].action
    }

    pub fn seen_attempt(&self) -> StepVersion {
        self.step.current_version()
    }
}

/// The result of an attempt, or of a step that ended without one.
#[derive(Clone, Debug)]
pub struct StepResult {
    /// With masked secrets.
    pub input: Option<Value>,
    /// None when nothing was tried.
    pub attempt: Option<StepAttempt>,
    pub end: StepEnd,
}

#[derive(Clone, Debug)]
pub enum StepEnd {
    Succeeded(Value),
    Skipped,
    Failed(Box<StepFailure>),
    TimedOut,
}

/// Why a step failed, or an attempt of it.
#[derive(Clone, Debug)]
pub struct StepFailure {
    pub error: StepError,
    /// What a server answered.
    pub output: Option<Value>,
    pub retry: FailureRetry,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureRetry {
    /// A retry would change nothing.
    Never,
    /// As often as the definition allows it.
    Backoff,
    /// The same, but not before a server has asked for it.
    NotBefore(Timestamp),
}

impl StepEnd {
    pub fn failed(error: StepError, retry: FailureRetry) -> Self {
        StepEnd::Failed(Box::new(StepFailure { error, output: None, retry }))
    }

    pub fn error(&self) -> Option<&StepError> {
        match self {
            StepEnd::Failed(failure) => Some(&failure.error),
            StepEnd::Succeeded(_) | StepEnd::Skipped | StepEnd::TimedOut => None,
        }
    }
}

/// The saved outcome of a step, and the status of its run after it, for the metrics.
#[derive(Clone, Copy, Debug)]
pub struct SavedOutcome {
    outcome: &'static str,
    run_status: Status,
}

impl SavedOutcome {
    fn new(step: &steps::StepRecord, run: &StoredRun) -> Self {
        let outcome = if step.state == Status::Pending { "retried" } else { step.state.as_str() };
        SavedOutcome { outcome, run_status: run.run.status }
    }

    /// Counts the outcome. Called after the commit.
    fn count_metrics(self, job: &StepJob) {
        counters::count_step(job.step_action().name, self.outcome);
        counters::count_run(self.run_status);
    }
}

/// Runs a transactional action. If its feature refuses it, the refusal is returned and everything is rolled back.
pub async fn run_transactional(
    lane: &LeasedLane,
    job: &StepJob,
    input: Map<String, Value>,
    (transaction, secrets): (TransactionFn, &Secrets),
) -> Result<StepCommit<Result<(), (StepError, bool)>>> {
    let (step_job, began_at, secrets) = (job.clone(), lane.db().env().now(), secrets.clone());
    let refused: Arc<std::sync::Mutex<Option<(StepError, bool)>>> = Arc::default();
    let refusal_slot = refused.clone();
    let refuse = move |error: StepError, retryable: bool| {
        *refusal_slot.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some((error, retryable));
        // The error rolls back everything the feature has written.
        Error::conflict("the step was refused")
    };
    let committed = steps::commit_step(lane, job.run.to_actor(), job.seen_attempt(), async move |tx| {
        let Some(mut run) = find_open_run(tx, &step_job).await? else { return Ok(None) };
        let rights: Rights = match get_action_rights(tx, &step_job.revision.saved_by, step_job.step_action()).await? {
            Ok(rights) => rights,
            Err(error) => return Err(refuse(error, false)),
        };
        let output = match transaction(tx, &rights, &secrets, input.clone()).await {
            Ok(output) => output,
            Err(error) => return Err(refuse(refusal_to_step_error(error)?, true)),
        };
        // If the output cannot be saved, the action is rolled back too: a retry would do it twice.
        if let Some(error) = find_size_error(tx, &step_job.step, Some(&input), to_json(&output)?.len()).await? {
            return Err(refuse(error, false));
        }
        tx.env().faults.check_in_tx("steps.act.after_effect")?;
        let attempt = ended_attempt(&step_job, began_at, tx.env().now(), None);
        let result =
            StepResult { input: Some(Value::Object(input)), attempt: Some(attempt), end: StepEnd::Succeeded(output) };
        apply_result(tx, &mut run, &step_job, &result).await.map(Some)
    })
    .await;
    let refused = refused.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
    match (committed, refused) {
        (Ok(StepCommit::Done(Some(saved))), _) => {
            saved.count_metrics(job);
            Ok(StepCommit::Done(Ok(())))
        }
        (Ok(StepCommit::Done(None) | StepCommit::Stale), _) => Ok(StepCommit::Stale),
        (Ok(StepCommit::Lost), _) => Ok(StepCommit::Lost),
        (Err(_), Some(refused)) => Ok(StepCommit::Done(Err(refused))),
        (Err(error), None) => Err(error),
    }
}

/// The run, if it may still act: after the response to a DELETE no step of the workflow acts.
async fn find_open_run(tx: &mut Tx, job: &StepJob) -> Result<Option<StoredRun>> {
    let run = runs::get_run(tx, job.run.run.id).await?;
    let over = run.run.status.is_finished() || is_workflow_deleted(tx, run.run.workflow_id).await?;
    Ok((!over).then_some(run))
}

/// Saves the result of a step.
pub async fn save_result(lane: &LeasedLane, job: &StepJob, result: StepResult) -> Result<StepCommit<()>> {
    let step_job = job.clone();
    steps::commit_step(lane, job.run.to_actor(), job.seen_attempt(), async move |tx| {
        let mut run = runs::get_run(tx, step_job.run.run.id).await?;
        apply_result(tx, &mut run, &step_job, &result).await
    })
    .await
    .map(|committed| committed.map(|saved| saved.count_metrics(job)))
}

/// Puts a step into the status `waiting`, for a time or for an approval.
pub async fn park_step(
    lane: &LeasedLane,
    job: &StepJob,
    input: Value,
    until: Option<Timestamp>,
) -> Result<StepCommit<()>> {
    let parked = job.clone();
    steps::commit_step(lane, job.run.to_actor(), job.seen_attempt(), async move |tx| {
        let Some(mut run) = find_open_run(tx, &parked).await? else { return Ok(()) };
        let at = tx.tick().await?.at;
        let mut step = parked.step.clone();
        step.state = Status::Waiting;
        step.started_at.get_or_insert(at);
        step.next_at = match (until, step.deadline_at) {
            (Some(until), Some(deadline)) => Some(until.min(deadline)),
            (until, deadline) => until.or(deadline),
        };
        // The output shows until when the step waits.
        step.output = until.map(|until| to_json(&serde_json::json!({ "until": until }))).transpose()?;
        step.input = Some(to_json(&input)?);
        drop_oversized_input(tx, &mut step).await?;
        steps::update_step(tx, WORKFLOW_LANE, LANE_KEY, &step).await?;
        advance_run(tx, &mut run, &parked.revision.compiled.definition.steps).await?;
        if until.is_some() {
            return Ok(());
        }
        let message = input.get("message").and_then(Value::as_str).unwrap_or_default().to_owned();
        let approval = ApprovalQuestion { step_id: step.name.clone(), message };
        let requested = ApprovalRequested { run: run.run.clone(), approval };
        events::publish(tx, &WORKFLOW_APPROVAL_REQUESTED, run.run.id, &requested).await.map(drop)
    })
    .await
}

/// Lets a waiting step that was due too early wait on, until its deadline.
pub async fn keep_waiting(lane: &LeasedLane, job: &StepJob) -> Result<StepCommit<()>> {
    let waiting = job.clone();
    steps::commit_step(lane, job.run.to_actor(), job.seen_attempt(), async move |tx| {
        let step = steps::StepRecord { next_at: waiting.step.deadline_at, ..waiting.step.clone() };
        steps::update_step(tx, WORKFLOW_LANE, LANE_KEY, &step).await
    })
    .await
}

/// Postpones steps whose lookup is unavailable, and requests that are held, in one transaction. False when the lease is
/// lost.
pub async fn postpone_steps(lane: &LeasedLane, postponed: Vec<StepJob>) -> Result<bool> {
    let written = lane
        .write_if_held(async move |tx| {
            let now = tx.env().now();
            for job in &postponed {
                if !steps::is_at_version(tx, WORKFLOW_LANE, &job.seen_attempt()).await? {
                    continue;
                }
                let mut step = job.step.clone();
                let waited_ms = now.as_millis() - step.ready_at.as_millis();
                let retry_at = now.plus_ms(waited_ms.clamp(REST_MS_MIN, REST_MS_MAX));
                if matches!(job.step_action().effect, ActionEffect::Http) {
                    step.deadline_at = None;
                }
                step.next_at = Some(step.deadline_at.map_or(retry_at, |deadline| deadline.min(retry_at)));
                // Not `waiting`: the run must keep counting as running, or all queued runs would begin and try the same again
                // and again.
                step.state = Status::Running;
                steps::update_step(tx, WORKFLOW_LANE, LANE_KEY, &step).await?;
            }
            Ok(())
        })
        .await?;
    Ok(written.is_some())
}

/// Saves the results of many requests in one transaction. False when the lease is lost.
pub async fn save_results(lane: &LeasedLane, outcomes: Arc<Vec<(StepJob, StepResult)>>) -> Result<bool> {
    let attempted = outcomes.clone();
    let saved = lane
        .tick_and_write_if_held(async move |tx| {
            let mut saved = Vec::with_capacity(outcomes.len());
            for (job, result) in outcomes.iter() {
                tx.act_as(job.run.to_actor())?;
                let mut run = runs::get_run(tx, job.run.run.id).await?;
                if steps::is_at_version(tx, WORKFLOW_LANE, &job.seen_attempt()).await? {
                    saved.push(Some(apply_result(tx, &mut run, job, result).await?));
                } else {
                    save_late_attempt(tx, job, result).await?;
                    saved.push(None);
                }
            }
            tx.env().faults.check_in_tx("outside.noted.before_commit")?;
            Ok(saved)
        })
        .await?;
    for ((job, _), saved) in attempted.iter().zip(saved.iter().flatten()) {
        if let Some(saved) = saved {
            saved.count_metrics(job);
        }
    }
    Ok(saved.is_some())
}

/// Saves the attempt of a request that was in flight when its run ended. It is shown, and has no other effect.
async fn save_late_attempt(tx: &mut Tx, job: &StepJob, result: &StepResult) -> Result<()> {
    let mut step = steps::get_step(tx, WORKFLOW_LANE, &job.step.owner, &job.step.name).await?;
    if step.attempt != job.step.attempt {
        return Ok(());
    }
    record_attempt(&mut step, result)?;
    steps::update_step(tx, WORKFLOW_LANE, LANE_KEY, &step).await
}

/// Saves a result in its step and advances the run.
pub async fn apply_result(
    tx: &mut Tx,
    run: &mut StoredRun,
    job: &StepJob,
    result: &StepResult,
) -> Result<SavedOutcome> {
    let (at, now) = (tx.tick().await?.at, tx.env().now());
    let definition = job.step_definition();
    let mut step = job.step.clone();
    write_result(&mut step, definition, result, at)?;
    if let Some(bytes) = step.output.as_ref().map(String::len)
        && let Some(error) = find_size_error(tx, &step, None, bytes).await?
    {
        step.output = None;
        if step.state == Status::Succeeded {
            step.error = Some(to_json(&error)?);
            step.end_with(Status::Failed, at);
        }
    }
    if let StepEnd::Failed(failure) = &result.end
        && failure.retry != FailureRetry::Never
    {
        step.tries += 1;
        let retry = Retry { max: definition.retry.max, backoff_ms: definition.retry.backoff_seconds * 1_000 };
        if let Some(retry_at) = retry.next_attempt_at(step.tries, now, &tx.env().random) {
            let retry_at = match failure.retry {
                FailureRetry::NotBefore(asked) => retry_at.max(asked),
                FailureRetry::Backoff | FailureRetry::Never => retry_at,
            };
            (step.state, step.ended_at) = (Status::Pending, None);
            step.next_at = Some(step.deadline_at.map_or(retry_at, |deadline| deadline.min(retry_at)));
        }
    }
    drop_oversized_input(tx, &mut step).await?;
    steps::update_step(tx, WORKFLOW_LANE, LANE_KEY, &step).await?;
    advance_run(tx, run, &job.revision.compiled.definition.steps).await?;
    Ok(SavedOutcome::new(&step, run))
}

/// Writes a result into its step and ends it, without retries.
pub fn write_result(
    step: &mut steps::StepRecord,
    definition: &WorkflowStep,
    result: &StepResult,
    at: Timestamp,
) -> Result<()> {
    record_attempt(step, result)?;
    if result.attempt.is_some() {
        step.started_at.get_or_insert(at);
    }
    let (status, error) = match &result.end {
        StepEnd::Succeeded(output) => {
            (step.output, step.error) = (Some(to_json(output)?), None);
            (Status::Succeeded, None)
        }
        StepEnd::Skipped => (Status::Skipped, None),
        StepEnd::TimedOut => {
            let seconds = definition.timeout_seconds.unwrap_or_default();
            let detail = format!("The step did not finish within {seconds} s.");
            (Status::TimedOut, Some(StepError::new("timeout", detail)))
        }
        StepEnd::Failed(failure) => {
            step.output = failure.output.as_ref().map(to_json).transpose()?;
            (Status::Failed, Some(failure.error.clone()))
        }
    };
    if let Some(error) = error {
        step.error = Some(to_json(&error)?);
    }
    step.end_with(status, at);
    Ok(())
}

/// Why the output of a step cannot be saved, if it is too large.
async fn find_size_error(
    tx: &mut Tx,
    step: &steps::StepRecord,
    input: Option<&Map<String, Value>>,
    bytes: usize,
) -> Result<Option<StepError>> {
    let refused = |detail: String| Ok(Some(StepError::new("output_too_large", detail)));
    if bytes > STEP_BYTES_MAX {
        return refused(format!("The answer has {bytes} bytes; at most {STEP_BYTES_MAX} are kept."));
    }
    let input = match input {
        Some(input) => to_json(input)?.len(),
        None => step.input.as_ref().map_or(0, String::len),
    };
    let own = bytes + input;
    if own > STEP_BYTES_SMALL {
        let others = steps::count_other_bytes(tx, WORKFLOW_LANE, &step.current_version()).await?;
        if own + others > RUN_BYTES_MAX {
            let all = own + others;
            return refused(format!(
                "With this answer the steps of the run would have {all} bytes; at most {RUN_BYTES_MAX} are kept."
            ));
        }
    }
    Ok(None)
}

/// Steps that began together were checked without each other: an input that is too large together is not saved.
async fn drop_oversized_input(tx: &mut Tx, step: &mut steps::StepRecord) -> Result<()> {
    let own = [&step.input, &step.output].into_iter().flatten().map(String::len).sum::<usize>();
    if own > STEP_BYTES_SMALL
        && own + steps::count_other_bytes(tx, WORKFLOW_LANE, &step.current_version()).await? > RUN_BYTES_MAX
    {
        step.input = None;
    }
    Ok(())
}

/// Adds the attempt to the step.
fn record_attempt(step: &mut steps::StepRecord, result: &StepResult) -> Result<()> {
    if let Some(input) = &result.input {
        step.input = Some(to_json(input)?);
    }
    let Some(attempt) = &result.attempt else { return Ok(()) };
    let mut attempts: Vec<StepAttempt> = from_json(&step.attempts)?;
    attempts.push(attempt.clone());
    let dropped = attempts.len().saturating_sub(ATTEMPTS_KEPT);
    attempts.drain(..dropped);
    step.attempts = to_json(&attempts)?;
    step.attempt += 1;
    Ok(())
}

/// The record of an ended attempt.
pub fn ended_attempt(job: &StepJob, at: Timestamp, ended_at: Timestamp, error: Option<StepError>) -> StepAttempt {
    StepAttempt {
        number: job.step.attempt + 1,
        at,
        ended_at: Some(ended_at),
        error,
        status_code: None,
        duration_ms: ended_at.as_millis() - at.as_millis(),
    }
}

impl EngineContext {
    /// The rights of the saver, if the step may still act: for actions that run outside of a transaction.
    pub(in super::super) async fn get_saver_rights(
        &self,
        lane: &LeasedLane,
        job: &StepJob,
    ) -> Result<StepCommit<Result<Rights, StepError>>> {
        let step_job = job.clone();
        steps::commit_step(lane, job.run.to_actor(), job.seen_attempt(), async move |tx| {
            if find_open_run(tx, &step_job).await?.is_none() {
                return Ok(None);
            }
            get_action_rights(tx, &step_job.revision.saved_by, step_job.step_action()).await.map(Some)
        })
        .await
        .map(|committed| match committed {
            StepCommit::Done(Some(rights)) => StepCommit::Done(rights),
            StepCommit::Done(None) | StepCommit::Stale => StepCommit::Stale,
            StepCommit::Lost => StepCommit::Lost,
        })
    }
}
