//! SQL that runs steps and saves their results. A step's change inside the platform and its result are one transaction.

use std::sync::Arc;

use kernel::auth::Rights;
use kernel::base::{Error, Result, SECOND_MS, TenantId, Timestamp, Word};
use kernel::events;
use kernel::jobs::lanes::Lane;
use kernel::jobs::steps::{self, Acted, Retry, Seen};
use kernel::outbound::RequestPermit;
use kernel::store::Tx;
use serde_json::{Map, Value};

use super::super::super::runs::store as runs;
use super::super::super::runs::{StoredRun, parse};
use super::super::super::{
    Approval, ApprovalRequested, Attempt, LANE_KEY, RUN_BYTES_MAX, STEP_BYTES_SMALL, Status, StepError,
    WORKFLOW_APPROVAL_REQUESTED, WORKFLOW_LANE, tally,
};
use super::super::revisions::Revision;
use super::super::store::{go_on, is_deleted, lost, rights_for};
use super::super::{Running, actor};
use feature_kit::{Action, STEP_BYTES_MAX, TransactionFn};

/// Attempts of a step that are kept: enough for all automatic retries, and the latest of those retried by hand.
const ATTEMPTS_KEPT: usize = 50;
/// How long a step is postponed while its lookup is unavailable: as long as it has waited so far, within these bounds. That
/// is longer than a node keeps an idle lane, because another node may be able to do the lookup.
const REST_MS_MIN: i64 = 5 * SECOND_MS;
const REST_MS_MAX: i64 = 30 * SECOND_MS;

/// A due step as it was read, with everything needed to run it.
#[derive(Clone)]
pub struct Job {
    pub tenant: TenantId,
    pub run: Arc<StoredRun>,
    pub revision: Arc<Revision>,
    /// The step's index in the definition.
    pub place: usize,
    /// The permit of its request, if it sends one.
    pub request: Option<Arc<RequestPermit>>,
    pub step: steps::Step,
}

impl Job {
    pub fn definition(&self) -> &super::super::super::Step {
        &self.revision.compiled.definition.steps[self.place]
    }

    pub fn action(&self) -> &'static Action {
        self.revision.compiled.steps[self.place].action
    }

    pub fn seen(&self) -> Seen {
        self.step.seen()
    }
}

/// The result of an attempt, or of a step that ended without one.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// With masked secrets.
    pub input: Option<Value>,
    /// None when nothing was tried.
    pub attempt: Option<Attempt>,
    pub end: End,
}

#[derive(Clone, Debug)]
pub enum End {
    Succeeded(Value),
    Skipped,
    /// The step is retried if its definition allows it.
    Failed(StepError),
    /// A retry would change nothing.
    FailedForGood(StepError),
    TimedOut,
}

/// The saved outcome of a step, and the status of its run after it, for the metrics.
#[derive(Clone, Copy, Debug)]
pub struct Noted {
    outcome: &'static str,
    run: Status,
}

impl Noted {
    fn new(step: &steps::Step, run: &StoredRun) -> Self {
        let outcome = if step.state == Status::Pending { "retried" } else { step.state.as_str() };
        Noted { outcome, run: run.run.status }
    }

    /// Counts the outcome. Called after the commit.
    fn count(self, job: &Job) {
        tally::count_step(job.action().name, self.outcome);
        tally::count_run(self.run);
    }
}

/// Runs a transactional action. If its feature refuses it, the refusal is returned and everything is rolled back.
pub async fn inside(
    lane: &Lane,
    job: &Job,
    input: Map<String, Value>,
    does: TransactionFn,
) -> Result<Acted<Result<(), (StepError, bool)>>> {
    let (doing, began_at) = (job.clone(), lane.db().world().now());
    let refused: Arc<std::sync::Mutex<Option<(StepError, bool)>>> = Arc::default();
    let told = refused.clone();
    let refuse = move |error: StepError, again: bool| {
        *told.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some((error, again));
        // The error rolls back everything the feature has written.
        Error::conflict("the step was refused")
    };
    let acted = steps::act(lane, actor(&job.run), job.seen(), async move |tx| {
        let Some(mut run) = open_run(tx, &doing).await? else { return Ok(None) };
        let rights: Rights = match rights_for(tx, &doing.revision.saved_by, doing.action()).await? {
            Ok(rights) => rights,
            Err(error) => return Err(refuse(error, false)),
        };
        let output = match does(tx, &rights, input.clone()).await {
            Ok(output) => output,
            Err(error) => return Err(refuse(lost(error)?, true)),
        };
        // If the output cannot be saved, the action is rolled back too: a retry would do it twice.
        if let Some(error) = too_large(tx, &doing.step, Some(&input), json(&output)?.len()).await? {
            return Err(refuse(error, false));
        }
        tx.world().faults.check("steps.act.after_effect")?;
        let attempt = attempt(&doing, began_at, tx.world().now(), None);
        let verdict =
            Verdict { input: Some(Value::Object(input)), attempt: Some(attempt), end: End::Succeeded(output) };
        apply(tx, &mut run, &doing, &verdict).await.map(Some)
    })
    .await;
    let refused = refused.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
    match (acted, refused) {
        (Ok(Acted::Done(Some(noted))), _) => {
            noted.count(job);
            Ok(Acted::Done(Ok(())))
        }
        (Ok(Acted::Done(None) | Acted::Stale), _) => Ok(Acted::Stale),
        (Ok(Acted::Lost), _) => Ok(Acted::Lost),
        (Err(_), Some(refused)) => Ok(Acted::Done(Err(refused))),
        (Err(error), None) => Err(error),
    }
}

/// The run, if it may still act: after the response to a DELETE no step of the workflow acts.
async fn open_run(tx: &mut Tx, job: &Job) -> Result<Option<StoredRun>> {
    let run = runs::read(tx, job.run.run.id).await?;
    let over = run.run.status.is_over() || is_deleted(tx, run.run.workflow_id).await?;
    Ok((!over).then_some(run))
}

/// Saves the result of a step.
pub async fn note(lane: &Lane, job: &Job, verdict: Verdict) -> Result<Acted<()>> {
    let noted = job.clone();
    steps::act(lane, actor(&job.run), job.seen(), async move |tx| {
        let mut run = runs::read(tx, noted.run.run.id).await?;
        apply(tx, &mut run, &noted, &verdict).await
    })
    .await
    .map(|acted| acted.map(|noted| noted.count(job)))
}

/// Puts a step into the status `waiting`, for a time or for an approval.
pub async fn park(lane: &Lane, job: &Job, input: Value, until: Option<Timestamp>) -> Result<Acted<()>> {
    let parked = job.clone();
    steps::act(lane, actor(&job.run), job.seen(), async move |tx| {
        let Some(mut run) = open_run(tx, &parked).await? else { return Ok(()) };
        let at = tx.tick().await?.at;
        let mut step = parked.step.clone();
        step.state = Status::Waiting;
        step.started_at.get_or_insert(at);
        step.next_at = match (until, step.deadline_at) {
            (Some(until), Some(deadline)) => Some(until.min(deadline)),
            (until, deadline) => until.or(deadline),
        };
        // The output shows until when the step waits.
        step.output = until.map(|until| json(&serde_json::json!({ "until": until }))).transpose()?;
        step.input = Some(json(&input)?);
        bound_input(tx, &mut step).await?;
        steps::save(tx, WORKFLOW_LANE, LANE_KEY, &step).await?;
        go_on(tx, &mut run, &parked.revision.compiled.definition.steps).await?;
        if until.is_some() {
            return Ok(());
        }
        let message = input.get("message").and_then(Value::as_str).unwrap_or_default().to_owned();
        let approval = Approval { step_id: step.name.clone(), message };
        let requested = ApprovalRequested { run: run.run.clone(), approval };
        events::publish(tx, &WORKFLOW_APPROVAL_REQUESTED, run.run.id, &requested).await.map(drop)
    })
    .await
}

/// Lets a waiting step that was due too early wait on, until its deadline.
pub async fn wait_on(lane: &Lane, job: &Job) -> Result<Acted<()>> {
    let waiting = job.clone();
    steps::act(lane, actor(&job.run), job.seen(), async move |tx| {
        let step = steps::Step { next_at: waiting.step.deadline_at, ..waiting.step.clone() };
        steps::save(tx, WORKFLOW_LANE, LANE_KEY, &step).await
    })
    .await
}

/// Postpones steps whose lookup is unavailable, in one transaction. False when the lease is lost.
pub async fn rest(lane: &Lane, resting: Vec<Job>) -> Result<bool> {
    let held = lane.clone();
    lane.db()
        .write(async move |tx| {
            if !held.hold(tx).await? {
                return Ok(false);
            }
            let now = tx.world().now();
            for job in &resting {
                if !steps::is_at(tx, WORKFLOW_LANE, &job.seen()).await? {
                    continue;
                }
                let mut step = job.step.clone();
                let waited_ms = now.as_millis() - step.ready_at.as_millis();
                let again = now.plus(waited_ms.clamp(REST_MS_MIN, REST_MS_MAX));
                step.next_at = Some(step.deadline_at.map_or(again, |deadline| deadline.min(again)));
                // Not `waiting`: the run must keep counting as running, or all queued runs would begin and try the lookup
                // again and again.
                step.state = Status::Running;
                steps::save(tx, WORKFLOW_LANE, LANE_KEY, &step).await?;
            }
            Ok(true)
        })
        .await
}

/// Saves the results of many requests in one transaction. False when the lease is lost.
pub async fn settle(lane: &Lane, outcomes: Arc<Vec<(Job, Verdict)>>) -> Result<bool> {
    let (held, settled) = (lane.clone(), outcomes.clone());
    let noted = lane
        .db()
        .write(async move |tx| {
            tx.tick().await?;
            if !held.hold(tx).await? {
                return Ok(None);
            }
            let mut noted = Vec::with_capacity(outcomes.len());
            for (job, verdict) in outcomes.iter() {
                tx.act_as(actor(&job.run))?;
                let mut run = runs::read(tx, job.run.run.id).await?;
                if steps::is_at(tx, WORKFLOW_LANE, &job.seen()).await? {
                    noted.push(Some(apply(tx, &mut run, job, verdict).await?));
                } else {
                    add_late(tx, job, verdict).await?;
                    noted.push(None);
                }
            }
            tx.world().faults.check("outside.noted.before_commit")?;
            Ok(Some(noted))
        })
        .await?;
    for ((job, _), noted) in settled.iter().zip(noted.iter().flatten()) {
        if let Some(noted) = noted {
            noted.count(job);
        }
    }
    Ok(noted.is_some())
}

/// Saves the attempt of a request that was in flight when its run ended. It is shown, and has no other effect.
async fn add_late(tx: &mut Tx, job: &Job, verdict: &Verdict) -> Result<()> {
    let mut step = steps::get(tx, WORKFLOW_LANE, &job.step.owner, &job.step.name).await?;
    if step.attempt != job.step.attempt {
        return Ok(());
    }
    count(&mut step, verdict)?;
    steps::save(tx, WORKFLOW_LANE, LANE_KEY, &step).await
}

/// Writes a result into its step and advances the run.
pub async fn apply(tx: &mut Tx, run: &mut StoredRun, job: &Job, verdict: &Verdict) -> Result<Noted> {
    let (at, now) = (tx.tick().await?.at, tx.world().now());
    let definition = job.definition();
    let mut step = job.step.clone();
    count(&mut step, verdict)?;
    if verdict.attempt.is_some() {
        step.started_at.get_or_insert(at);
    }
    let failed = |step: &mut steps::Step, error: &StepError| {
        step.error = Some(json(error)?);
        Result::Ok(())
    };
    match &verdict.end {
        End::Succeeded(output) => {
            let output = json(output)?;
            if let Some(error) = too_large(tx, &step, None, output.len()).await? {
                failed(&mut step, &error)?;
                step.end(Status::Failed, at);
            } else {
                (step.output, step.error) = (Some(output), None);
                step.end(Status::Succeeded, at);
            }
        }
        End::Skipped => step.end(Status::Skipped, at),
        End::TimedOut => {
            let detail = format!("It was not done within {} s.", definition.timeout_seconds.unwrap_or_default());
            failed(&mut step, &StepError { code: "timeout".to_owned(), detail })?;
            step.end(Status::TimedOut, at);
        }
        End::FailedForGood(error) => {
            failed(&mut step, error)?;
            step.end(Status::Failed, at);
        }
        End::Failed(error) => {
            failed(&mut step, error)?;
            step.tries += 1;
            let retry = Retry { max: definition.retry.max, backoff_ms: definition.retry.backoff_seconds * 1_000 };
            match retry.next(step.tries, now, &tx.world().chance) {
                Some(again) => {
                    step.state = Status::Pending;
                    step.next_at = Some(step.deadline_at.map_or(again, |deadline| deadline.min(again)));
                }
                None => step.end(Status::Failed, at),
            }
        }
    }
    bound_input(tx, &mut step).await?;
    steps::save(tx, WORKFLOW_LANE, LANE_KEY, &step).await?;
    go_on(tx, run, &job.revision.compiled.definition.steps).await?;
    Ok(Noted::new(&step, run))
}

/// Why the output of a step cannot be saved, if it is too large.
async fn too_large(
    tx: &mut Tx,
    step: &steps::Step,
    input: Option<&Map<String, Value>>,
    bytes: usize,
) -> Result<Option<StepError>> {
    let refused = |detail| Ok(Some(StepError { code: "output_too_large".to_owned(), detail }));
    if bytes > STEP_BYTES_MAX {
        return refused(format!("What it answered is {bytes} bytes long, and {STEP_BYTES_MAX} are kept."));
    }
    let input = match input {
        Some(input) => json(input)?.len(),
        None => step.input.as_ref().map_or(0, String::len),
    };
    let own = bytes + input;
    if own > STEP_BYTES_SMALL {
        let others = steps::bytes_beside(tx, WORKFLOW_LANE, &step.seen()).await?;
        if own + others > RUN_BYTES_MAX {
            let all = own + others;
            return refused(format!(
                "With what it answered the steps of the run would have {all} bytes, and {RUN_BYTES_MAX} are kept."
            ));
        }
    }
    Ok(None)
}

/// Steps that began together were checked without each other: an input that is too large together is not saved.
async fn bound_input(tx: &mut Tx, step: &mut steps::Step) -> Result<()> {
    let own = [&step.input, &step.output].into_iter().flatten().map(String::len).sum::<usize>();
    if own > STEP_BYTES_SMALL && own + steps::bytes_beside(tx, WORKFLOW_LANE, &step.seen()).await? > RUN_BYTES_MAX {
        step.input = None;
    }
    Ok(())
}

/// Adds the attempt to the step.
fn count(step: &mut steps::Step, verdict: &Verdict) -> Result<()> {
    if let Some(input) = &verdict.input {
        step.input = Some(json(input)?);
    }
    let Some(attempt) = &verdict.attempt else { return Ok(()) };
    let mut attempts: Vec<Attempt> = parse(&step.attempts)?;
    attempts.push(attempt.clone());
    let dropped = attempts.len().saturating_sub(ATTEMPTS_KEPT);
    attempts.drain(..dropped);
    step.attempts = json(&attempts)?;
    step.attempt += 1;
    Ok(())
}

/// The record of an ended attempt.
pub fn attempt(job: &Job, at: Timestamp, ended_at: Timestamp, error: Option<StepError>) -> Attempt {
    Attempt {
        number: job.step.attempt + 1,
        at,
        ended_at: Some(ended_at),
        error,
        status_code: None,
        duration_ms: ended_at.as_millis() - at.as_millis(),
    }
}

fn json<T: serde::Serialize>(value: &T) -> Result<String> {
    serde_json::to_string(value).map_err(Error::internal)
}

impl Running {
    /// The rights of the saver, if the step may still act: for actions that run outside of a transaction.
    pub(in super::super) async fn may(&self, lane: &Lane, job: &Job) -> Result<Acted<Result<Rights, StepError>>> {
        let asked = job.clone();
        steps::act(lane, actor(&job.run), job.seen(), async move |tx| {
            if open_run(tx, &asked).await?.is_none() {
                return Ok(None);
            }
            rights_for(tx, &asked.revision.saved_by, asked.action()).await.map(Some)
        })
        .await
        .map(|acted| match acted {
            Acted::Done(Some(verdict)) => Acted::Done(verdict),
            Acted::Done(None) | Acted::Stale => Acted::Stale,
            Acted::Lost => Acted::Lost,
        })
    }
}
