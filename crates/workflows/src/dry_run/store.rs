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

use expressions::CostMeter;
use feature_kit::{ActionEffect, Lookup, STEP_BYTES_MAX};
use kernel::audit::{self, NewAuditEntry};
use kernel::auth::Rights;
use kernel::base::{Code, Error, Result, Secrets, TenantId, Timestamp};
use kernel::http::{App, read_object};
use kernel::jobs::steps;
use kernel::outbound::Outbound;
use kernel::store::{Db, Tx};
use serde_json::{Map, Value, json};
use tokio::time::{Instant, timeout_at};

use super::super::actions::{HttpRequest, WaitInput};
use super::super::engine::evaluate::{
    EvaluatedStep, ExpressionInputs, evaluate_step_with, mask_input, step_scope_value,
};
use super::super::engine::revisions::CompiledRevision;
use super::super::engine::step_results::store::{
    FailureRetry, StepEnd, StepJob, StepResult, ended_attempt, write_result,
};
use super::super::engine::store::{get_action_rights, refusal_to_step_error};
use super::super::run_plan::{need_indexes, plan_run, run_error};
use super::super::runs::start::store::{CheckedRun, changed_meanwhile, check_in_force, check_run, prepare_run};
use super::super::runs::store::insert_run;
use super::super::runs::{StoredRun, build_detail};
use super::super::{
    LANE_KEY, RUN_BYTES_MAX, RunDetail, Status, StepError, WORKFLOW_LANE, WorkflowId, WorkflowSettings,
};

/// The result of a dry run, ready to be saved.
pub struct DryRunResult {
    run: StoredRun,
    steps: Vec<steps::StepRecord>,
    revision: Arc<CompiledRevision>,
}

/// A lookup that a step needs.
struct LookupRequest {
    /// The step's index in the definition.
    step_index: usize,
    lookup: Lookup,
    rights: Rights,
    with: Map<String, Value>,
}

/// The result of a step's lookup.
struct LookupResult {
    /// The input of the lookup.
    with: Map<String, Value>,
    answer: Result<Value, StepError>,
}

/// The result of one transaction, or the trial if it has to do lookups first.
type TrialOutcome = Result<DryRunResult, DryRunTrial>;

/// The budget of all expressions of a dry run: on SQLite its transactions block every other writer.
const DRY_RUN_COST_MAX: u32 = 200_000;
const DRY_RUN_COST_BYTES_MAX: usize = 2 << 20;
/// Lookups per dry run: each can repeat all the work before it.
const LOOKUPS_MAX: usize = 10;
/// No lookup runs longer than this after the start: a client waits for the response.
const DRY_RUN_DURATION_MAX: Duration = Duration::from_secs(10);

/// Runs a workflow without committing anything. Host names are not resolved: that would take longer than a transaction may.
pub async fn simulate_run(
    db: &Db,
    app: &App,
    id: WorkflowId,
    input: Value,
    settings: WorkflowSettings,
) -> Result<DryRunResult> {
    let tenant = db.tenant_id().ok_or_else(|| Error::internal("a workflow belongs to a tenant"))?;
    let checked = check_run(db, id, input).await?;
    let revision = match CompiledRevision::load_compiled(db, &app.secrets, id, checked.revision).await {
        // The revision was replaced since the check.
        Err(error) if error.code() == Code::NotFound => return Err(changed_meanwhile()),
        revision => Arc::new(revision?),
    };
    let until = Instant::now() + DRY_RUN_DURATION_MAX;
    let mut trial = DryRunTrial::new(tenant, revision, app);
    // A step looks up once: there are at most as many rounds as lookups, and a last one without.
    for _ in 0..=LOOKUPS_MAX {
        trial = match run_trial(db, id, checked.clone(), trial, settings.clone()).await? {
            Ok(result) => return Ok(result),
            Err(trial) => trial,
        };
        trial.run_lookups(app, db, until).await?;
    }
    Err(Error::internal("a dry run looks up what it knows"))
}

async fn run_trial(
    db: &Db,
    id: WorkflowId,
    checked: CheckedRun,
    mut trial: DryRunTrial,
    settings: WorkflowSettings,
) -> Result<TrialOutcome> {
    let outcome: Arc<Mutex<Option<TrialOutcome>>> = Arc::default();
    let outcome_slot = outcome.clone();
    let rolled_back = db.write(async move |tx| {
        let mut run = trial.begin_run(tx, id, checked, &settings).await?;
        tx.act_as(run.to_actor())?;
        let steps = trial.run_steps(tx, &mut run).await?;
        let outcome = if trial.lookup_requests.is_empty() {
            Ok(DryRunResult { run, steps, revision: trial.revision })
        } else {
            Err(trial)
        };
        *outcome_slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
        // The error rolls the transaction back.
        Err::<(), Error>(Error::conflict("a dry run is not kept"))
    });
    let rolled_back = rolled_back.await;
    let outcome = outcome.lock().unwrap_or_else(PoisonError::into_inner).take();
    match (outcome, rolled_back) {
        (Some(outcome), _) => Ok(outcome),
        (None, Err(error)) => Err(error),
        (None, Ok(())) => Err(Error::internal("a dry run has left nothing")),
    }
}

/// One dry run.
struct DryRunTrial {
    tenant: TenantId,
    revision: Arc<CompiledRevision>,
    outbound: Outbound,
    secrets: Secrets,
    meter: CostMeter,
    /// The run before its first step: expressions read its id and time, which are the same in each round.
    run: Option<StoredRun>,
    /// Bytes of the inputs and outputs so far.
    bytes: usize,
    /// Results of lookups by step index, and lookups that are still to be done.
    lookup_results: HashMap<usize, LookupResult>,
    lookup_requests: Vec<LookupRequest>,
}

impl DryRunTrial {
    fn new(tenant: TenantId, revision: Arc<CompiledRevision>, app: &App) -> Self {
        let meter = CostMeter::new(DRY_RUN_COST_MAX, DRY_RUN_COST_BYTES_MAX);
        let (lookup_results, lookup_requests) = (HashMap::new(), Vec::new());
        DryRunTrial {
            tenant,
            revision,
            outbound: app.outbound.clone(),
            secrets: app.secrets.clone(),
            meter,
            run: None,
            bytes: 0,
            lookup_results,
            lookup_requests,
        }
    }

    async fn begin_run(
        &mut self,
        tx: &mut Tx,
        id: WorkflowId,
        checked: CheckedRun,
        settings: &WorkflowSettings,
    ) -> Result<StoredRun> {
        if let Some(run) = self.run.clone() {
            check_in_force(tx, id, run.run.revision).await?;
            return Ok(run);
        }
        let (run, _) = prepare_run(tx, id, checked, true, settings).await?;
        self.run = Some(run.clone());
        Ok(run)
    }

    /// Does the requested lookups, one after the other.
    async fn run_lookups(&mut self, app: &App, db: &Db, until: Instant) -> Result<()> {
        for LookupRequest { step_index, lookup, rights, with } in std::mem::take(&mut self.lookup_requests) {
            let found =
                timeout_at(until, (lookup.preview.unwrap_or(lookup.find))(app, db, &rights, with.clone())).await;
            let answer = match found.map_err(|_| Error::unavailable("a dry run has taken too long"))? {
                Ok(output) => Ok(output),
                Err(error) => Err(refusal_to_step_error(error)?),
            };
            self.lookup_results.insert(step_index, LookupResult { with, answer });
        }
        Ok(())
    }

    /// The ended steps; empty as soon as a step needs a lookup.
    async fn run_steps(&mut self, tx: &mut Tx, run: &mut StoredRun) -> Result<Vec<steps::StepRecord>> {
        let (tenant, revision) = (self.tenant, self.revision.clone());
        let at = run.run.created_at;
        self.bytes = 0;
        run.transition_status(Status::Running, at);
        let definition = &revision.compiled.definition;
        let (needs, owner) = (need_indexes(&definition.steps), run.run.id.to_string());
        let mut records: Vec<Option<steps::StepRecord>> = vec![None; definition.steps.len()];
        // What the expressions of later steps read.
        let mut inputs = ExpressionInputs { event: Value::Null, steps: json!({}), run: run.to_scope_value() };
        loop {
            let states: Vec<Option<Status>> = records.iter().map(|step| step.as_ref().map(|step| step.state)).collect();
            let plan = plan_run(&definition.steps, &needs, &states);
            for index in plan.skip {
                let mut step = steps::StepRecord::new_ready(&owner, &definition.steps[index].id, at);
                step.end_with(Status::Skipped, at);
                inputs.steps[&step.name] = step_scope_value(step.state, None, None)?;
                records[index] = Some(step);
            }
            if plan.begin.is_empty() {
                run.transition_status(plan.status, at);
                break;
            }
            for index in plan.begin {
                let step = steps::StepRecord::new_ready(&owner, &definition.steps[index].id, at);
                let job = StepJob {
                    tenant,
                    run: Arc::new(run.clone()),
                    revision: revision.clone(),
                    step_index: index,
                    request_permit: None,
                    step,
                };
                let result = self.run_step(tx, &job, &inputs, at).await?;
                let mut step = job.step.clone();
                write_result(&mut step, job.step_definition(), &result, at)?;
                inputs.steps[&step.name] = step_scope_value(step.state, step.output.as_deref(), step.error.as_deref())?;
                records[index] = Some(step);
            }
            if !self.lookup_requests.is_empty() {
                return Ok(Vec::new());
            }
        }
        let records: Vec<steps::StepRecord> = records.into_iter().flatten().collect();
        let find_step = |id: &str| {
            let step = records.iter().find(|step| step.name == id)?;
            Some((step.state, step.error.as_deref()))
        };
        run.run.error = run_error(&definition.steps, run.run.status, find_step)?;
        Ok(records)
    }

    async fn run_step(
        &mut self,
        tx: &mut Tx,
        job: &StepJob,
        inputs: &ExpressionInputs,
        at: Timestamp,
    ) -> Result<StepResult> {
        let end_untried = |end: StepEnd| Ok(StepResult { input: None, attempt: None, end });
        let with = match evaluate_step_with(job, inputs, &mut self.meter) {
            EvaluatedStep::Skip => return end_untried(StepEnd::Skipped),
            EvaluatedStep::Fault(error) => return end_untried(StepEnd::failed(error, FailureRetry::Never)),
            // A lookup is shown with the input it was done with: ids that a dry run creates differ in each round.
            EvaluatedStep::Run(with) => {
                self.lookup_results.get(&job.step_index).map_or(with, |lookup| lookup.with.clone())
            }
        };
        let input = mask_input(job, &with);
        let answer = match (job.step_action().check)(with.clone()).into_result() {
            Err(error) => Err(refusal_to_step_error(error)?),
            Ok(_) => self.run_action(tx, job, with, at).await?,
        };
        let attempt = Some(ended_attempt(job, at, at, answer.as_ref().err().cloned()));
        let end = match answer.and_then(|output| self.check_size(&input, output)) {
            Ok(output) => StepEnd::Succeeded(output),
            Err(error) => StepEnd::failed(error, FailureRetry::Never),
        };
        Ok(StepResult { input: Some(input), attempt, end })
    }

    fn check_size(&mut self, input: &Value, output: Value) -> Result<Value, StepError> {
        let bytes = output.to_string().len();
        self.bytes += bytes + input.to_string().len();
        if bytes <= STEP_BYTES_MAX && self.bytes <= RUN_BYTES_MAX {
            return Ok(output);
        }
        let detail = format!(
            "An answer of a step has at most {STEP_BYTES_MAX} bytes, and all inputs and answers of a run {RUN_BYTES_MAX}."
        );
        Err(StepError::new("output_too_large", detail))
    }

    async fn run_action(
        &mut self,
        tx: &mut Tx,
        job: &StepJob,
        with: Map<String, Value>,
        at: Timestamp,
    ) -> Result<Result<Value, StepError>> {
        let rights = match get_action_rights(tx, &job.revision.saved_by, job.step_action()).await? {
            Ok(rights) => rights,
            Err(error) => return Ok(Err(error)),
        };
        match &job.step_action().effect {
            ActionEffect::Transaction(transaction) => match transaction(tx, &rights, &self.secrets, with).await {
                Ok(output) => Ok(Ok(output)),
                Err(error) => refusal_to_step_error(error).map(Err),
            },
            ActionEffect::Lookup(lookup) => {
                if let Some(result) = self.lookup_results.get(&job.step_index) {
                    return Ok(result.answer.clone());
                }
                if self.lookup_results.len() + self.lookup_requests.len() >= LOOKUPS_MAX {
                    let detail = format!("A dry run looks up {LOOKUPS_MAX} things at most. A run has no such limit.");
                    return Ok(Err(StepError::new(Code::LimitReached.name(), detail)));
                }
                self.lookup_requests.push(LookupRequest { step_index: job.step_index, lookup: *lookup, rights, with });
                // This error is never shown: the round that is saved has the result of the lookup.
                Ok(Err(StepError::new("not_looked_up", "It is looked up first.")))
            }
            ActionEffect::Http => {
                let (request, _) = read_object::<HttpRequest>(with).into_result()?;
                Ok(match self.outbound.check_address(&request.url) {
                    Ok(()) => Ok(json!({ "status": null, "headers": {}, "body": null })),
                    Err(refusal) => Err(StepError::new(Code::TargetNotAllowed.name(), refusal.detail)),
                })
            }
            ActionEffect::Wait => {
                let (wait, _) = read_object::<WaitInput>(with).into_result()?;
                Ok(Ok(json!({ "until": wait.wakes_at(at) })))
            }
            ActionEffect::Approval => Ok(Ok(json!({ "approved": true, "by": null, "at": at }))),
        }
    }
}

/// Saves the result as a run, and publishes no event.
pub async fn save_dry_run(tx: &mut Tx, simulated: DryRunResult) -> Result<RunDetail> {
    let DryRunResult { run, steps, revision } = simulated;
    check_in_force(tx, run.run.workflow_id, run.run.revision).await?;
    insert_run(tx, &run).await?;
    for step in &steps {
        steps::insert_step(tx, WORKFLOW_LANE, LANE_KEY, step).await?;
    }
    audit::record_entry(tx, NewAuditEntry::new("workflow.dry_run", "workflow_run", run.run.id)).await?;
    build_detail(run.run, &revision.compiled.definition, &steps)
}
