//! SQL of a dry run: every step acts as in a real run, in one transaction that is always rolled back.
//!
//! So references, transitions and numbers are checked by the real rules, and a step sees the changes of the steps before it.
//! Requests are not sent, waits end at once, and approvals count as given. The result is saved as a run.
//!
//! A transaction cannot wait for a lookup. At a lookup it is rolled back, the lookup is done, and the next transaction
//! starts from the beginning with the result: nothing was committed that it could do twice. All rounds are one run at one
//! time, and share one budget.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kernel::audit::{self, Entry};
use kernel::auth::Rights;
use kernel::base::{Code, Error, Result, TenantId, Timestamp};
use kernel::http::{App, read_object};
use kernel::jobs::steps;
use kernel::outbound::Outbound;
use kernel::store::{Db, Tx};
use serde_json::{Map, Value, json};
use tokio::time::{Instant, timeout_at};

use super::super::actions::{HttpRequest, Wait};
use super::super::engine::act::store::{Job, attempt};
use super::super::engine::actor;
use super::super::engine::evaluate::{Evaluated, Seen, evaluate_with, masked};
use super::super::engine::revisions::Revision;
use super::super::engine::store::{lost, needs, rights_for};
use super::super::plan::{self, plan};
use super::super::runs::start::store::{Checked, changed_meanwhile, check, check_in_force, prepare};
use super::super::runs::store::insert;
use super::super::runs::{StoredRun, detail, parse_optional};
use super::super::{LANE_KEY, RUN_BYTES_MAX, RunDetail, Settings, Status, StepError, WORKFLOW_LANE, WorkflowId};
use expressions::Meter;
use feature_kit::{ActionEffect, Lookup, STEP_BYTES_MAX};

/// The result of a dry run, ready to be saved.
pub struct Simulated {
    run: StoredRun,
    steps: Vec<steps::Step>,
    revision: Arc<Revision>,
}

/// A lookup that a step needs.
struct Wanted {
    /// The step's index in the definition.
    place: usize,
    look: Lookup,
    rights: Rights,
    with: Map<String, Value>,
}

/// The result of a step's lookup.
struct Found {
    /// The input of the lookup.
    with: Map<String, Value>,
    answer: Result<Value, StepError>,
}

/// The result of one transaction, or the trial if it has to do lookups first.
type Tried = Result<Simulated, Trial>;

/// The budget of all expressions of a dry run: on SQLite its transactions block every other writer.
const TRIAL_COST: u32 = 200_000;
const TRIAL_COST_BYTES: usize = 2 << 20;
/// Lookups per dry run: each can repeat all the work before it.
const LOOKS_MAX: usize = 10;
/// No lookup runs longer than this after the start: a client waits for the response.
const TRIAL_MAX: Duration = Duration::from_secs(10);

/// Runs a workflow without committing anything. Host names are not resolved: that would take longer than a transaction may.
pub async fn simulate(db: &Db, app: &App, id: WorkflowId, input: Value, settings: Settings) -> Result<Simulated> {
    let tenant = db.tenant_id().ok_or_else(|| Error::internal("a workflow belongs to a tenant"))?;
    let checked = check(db, id, input).await?;
    let revision = match Revision::load(db, &app.secrets, id, checked.revision).await {
        // The revision was replaced since the check.
        Err(error) if error.code() == Code::NotFound => return Err(changed_meanwhile()),
        revision => Arc::new(revision?),
    };
    let until = Instant::now() + TRIAL_MAX;
    let mut trial = Trial::new(tenant, revision, app.outbound.clone());
    // A step looks up once: there are at most as many rounds as lookups, and a last one without.
    for _ in 0..=LOOKS_MAX {
        trial = match try_once(db, id, checked.clone(), trial, settings.clone()).await? {
            Ok(made) => return Ok(made),
            Err(trial) => trial,
        };
        trial.look(app, db, until).await?;
    }
    Err(Error::internal("a dry run looks up what it knows"))
}

async fn try_once(db: &Db, id: WorkflowId, checked: Checked, mut trial: Trial, settings: Settings) -> Result<Tried> {
    let made: Arc<Mutex<Option<Tried>>> = Arc::default();
    let kept = made.clone();
    let tried = db.write(async move |tx| {
        let mut run = trial.begin(tx, id, checked, &settings).await?;
        tx.act_as(actor(&run))?;
        let steps = trial.steps(tx, &mut run).await?;
        let tried =
            if trial.wanted.is_empty() { Ok(Simulated { run, steps, revision: trial.revision }) } else { Err(trial) };
        *kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(tried);
        // The error rolls the transaction back.
        Err::<(), Error>(Error::conflict("a dry run is not kept"))
    });
    let tried = tried.await;
    let made = made.lock().unwrap_or_else(PoisonError::into_inner).take();
    match (made, tried) {
        (Some(made), _) => Ok(made),
        (None, Err(error)) => Err(error),
        (None, Ok(())) => Err(Error::internal("a dry run has left nothing")),
    }
}

/// One dry run.
struct Trial {
    tenant: TenantId,
    revision: Arc<Revision>,
    outbound: Outbound,
    meter: Meter,
    /// The run before its first step: expressions read its id and time, which are the same in each round.
    run: Option<StoredRun>,
    /// Bytes of the inputs and outputs so far.
    bytes: usize,
    /// Results of lookups by step index, and lookups that are still to be done.
    found: HashMap<usize, Found>,
    wanted: Vec<Wanted>,
}

impl Trial {
    fn new(tenant: TenantId, revision: Arc<Revision>, outbound: Outbound) -> Self {
        let meter = Meter::new(TRIAL_COST, TRIAL_COST_BYTES);
        let (found, wanted) = (HashMap::new(), Vec::new());
        Trial { tenant, revision, outbound, meter, run: None, bytes: 0, found, wanted }
    }

    async fn begin(&mut self, tx: &mut Tx, id: WorkflowId, checked: Checked, settings: &Settings) -> Result<StoredRun> {
        if let Some(run) = self.run.clone() {
            check_in_force(tx, id, run.run.revision).await?;
            return Ok(run);
        }
        let (run, _) = prepare(tx, id, checked, true, settings).await?;
        self.run = Some(run.clone());
        Ok(run)
    }

    /// Does the requested lookups, one after the other.
    async fn look(&mut self, app: &App, db: &Db, until: Instant) -> Result<()> {
        for Wanted { place, look, rights, with } in std::mem::take(&mut self.wanted) {
            let looked = timeout_at(until, (look.find)(app, db, &rights, with.clone())).await;
            let answer = match looked.map_err(|_| Error::unavailable("a dry run has taken too long"))? {
                Ok(output) => Ok(output),
                Err(error) => Err(lost(error)?),
            };
            self.found.insert(place, Found { with, answer });
        }
        Ok(())
    }

    /// The ended steps; empty as soon as a step needs a lookup.
    async fn steps(&mut self, tx: &mut Tx, run: &mut StoredRun) -> Result<Vec<steps::Step>> {
        let (tenant, revision) = (self.tenant, self.revision.clone());
        let at = run.run.created_at;
        self.bytes = 0;
        run.turn(Status::Running, at);
        let definition = &revision.compiled.definition;
        let (needs, owner) = (needs(&definition.steps), run.run.id.to_string());
        let mut noted: Vec<Option<steps::Step>> = vec![None; definition.steps.len()];
        // What the expressions of later steps read.
        let mut seen = Seen { event: Value::Null, steps: json!({}), run: run.scope() };
        loop {
            let states: Vec<Option<Status>> = noted.iter().map(|step| step.as_ref().map(|step| step.state)).collect();
            let plan = plan(&definition.steps, &needs, &states);
            for place in plan.skip {
                let mut step = steps::Step::ready(&owner, &definition.steps[place].id, at);
                step.end(Status::Skipped, at);
                noted[place] = Some(step);
            }
            if plan.begin.is_empty() {
                run.turn(plan.status, at);
                break;
            }
            for place in plan.begin {
                let step = steps::Step::ready(&owner, &definition.steps[place].id, at);
                let job =
                    Job { tenant, run: Arc::new(run.clone()), revision: revision.clone(), place, request: None, step };
                let step = self.step(tx, job, &seen, at).await?;
                let output: Option<Value> = parse_optional(step.output.as_deref())?;
                seen.steps[&step.name] = json!({ "status": step.state, "output": output });
                noted[place] = Some(step);
            }
            if !self.wanted.is_empty() {
                return Ok(Vec::new());
            }
        }
        let mut ended = Vec::with_capacity(noted.len());
        for step in &noted {
            let error = step.as_ref().and_then(|step| step.error.as_deref());
            ended.push((step.as_ref().map(|step| step.state), parse_optional(error)?));
        }
        run.run.error = plan::error(&definition.steps, &ended, run.run.status);
        Ok(noted.into_iter().flatten().collect())
    }

    async fn step(&mut self, tx: &mut Tx, job: Job, seen: &Seen, at: Timestamp) -> Result<steps::Step> {
        let mut step = job.step.clone();
        let with = match evaluate_with(&job, seen, &mut self.meter) {
            Evaluated::Skip => {
                step.end(Status::Skipped, at);
                return Ok(step);
            }
            Evaluated::Fault(error) => return failed(step, &error, at),
            // A lookup is shown with the input it was done with: ids that a dry run creates differ in each round.
            Evaluated::Do(with) => self.found.get(&job.place).map_or(with, |found| found.with.clone()),
        };
        step.input = Some(text(&masked(&job, &with))?);
        step.started_at = Some(at);
        let done = match (job.action().check)(with.clone()).into_result() {
            Err(error) => Err(lost(error)?),
            Ok(_) => self.act(tx, &job, with, at).await?,
        };
        let error = done.as_ref().err().cloned();
        step.attempts = text(&[attempt(&job, at, at, error)])?;
        step.attempt = 1;
        match done {
            Ok(output) => {
                let output = text(&output)?;
                self.bytes += output.len() + step.input.as_ref().map_or(0, String::len);
                if output.len() > STEP_BYTES_MAX || self.bytes > RUN_BYTES_MAX {
                    let detail = format!(
                        "Of what a step answers {STEP_BYTES_MAX} bytes are kept, and {RUN_BYTES_MAX} of all that the steps of a run are given and answer."
                    );
                    return failed(step, &StepError { code: "output_too_large".to_owned(), detail }, at);
                }
                step.output = Some(output);
                step.end(Status::Succeeded, at);
                Ok(step)
            }
            Err(error) => failed(step, &error, at),
        }
    }

    async fn act(
        &mut self,
        tx: &mut Tx,
        job: &Job,
        with: Map<String, Value>,
        at: Timestamp,
    ) -> Result<Result<Value, StepError>> {
        let rights = match rights_for(tx, &job.revision.saved_by, job.action()).await? {
            Ok(rights) => rights,
            Err(error) => return Ok(Err(error)),
        };
        match &job.action().effect {
            ActionEffect::Transaction(does) => match does(tx, &rights, with).await {
                Ok(output) => Ok(Ok(output)),
                Err(error) => lost(error).map(Err),
            },
            ActionEffect::Lookup(look) => {
                if let Some(found) = self.found.get(&job.place) {
                    return Ok(found.answer.clone());
                }
                if self.found.len() + self.wanted.len() >= LOOKS_MAX {
                    let detail = format!("A dry run looks up {LOOKS_MAX} things at most. A run has no such limit.");
                    return Ok(Err(StepError { code: Code::LimitReached.name().to_owned(), detail }));
                }
                self.wanted.push(Wanted { place: job.place, look: *look, rights, with });
                // This error is never shown: the round that is saved has the result of the lookup.
                Ok(Err(StepError { code: "not_looked_up".to_owned(), detail: "It is looked up first.".to_owned() }))
            }
            ActionEffect::Http => {
                let (wanted, _) = read_object::<HttpRequest>(with).into_result()?;
                Ok(match self.outbound.check_address(&wanted.url) {
                    Ok(()) => Ok(json!({ "status": null, "headers": {}, "body": null })),
                    Err(refused) => {
                        Err(StepError { code: Code::TargetNotAllowed.name().to_owned(), detail: refused.detail })
                    }
                })
            }
            ActionEffect::Wait => {
                let (wait, _) = read_object::<Wait>(with).into_result()?;
                Ok(Ok(json!({ "until": wait.until(at) })))
            }
            ActionEffect::Approval => Ok(Ok(json!({ "approved": true, "by": null, "at": at }))),
        }
    }
}

fn failed(mut step: steps::Step, error: &StepError, at: Timestamp) -> Result<steps::Step> {
    step.error = Some(text(error)?);
    step.end(Status::Failed, at);
    Ok(step)
}

fn text<T: serde::Serialize + ?Sized>(value: &T) -> Result<String> {
    serde_json::to_string(value).map_err(Error::internal)
}

/// Saves the result as a run, and publishes no event.
pub async fn keep(tx: &mut Tx, simulated: Simulated) -> Result<RunDetail> {
    let Simulated { run, steps, revision } = simulated;
    check_in_force(tx, run.run.workflow_id, run.run.revision).await?;
    insert(tx, &run).await?;
    for step in &steps {
        steps::add(tx, WORKFLOW_LANE, LANE_KEY, step).await?;
    }
    audit::record(tx, Entry::new("workflow.dry_run", "workflow_run", run.run.id)).await?;
    detail(run.run, &revision.compiled.definition, &steps)
}
