//! Runs: their history, and the actions of people on them.

pub mod control;
pub mod list {
    pub mod store;
}
pub mod start {
    pub mod store;
}
pub mod store;

use kernel::base::{Actor, Error, Result, StringEnum, Timestamp, WorkflowChain};
use kernel::jobs::steps;
use kernel::store::{from_json, from_optional_json};
use serde_json::{Value, json};

use super::{Definition, RunDetail, RunStep, Status, WorkflowRun};

/// A stored run.
#[derive(Clone, Debug)]
pub struct StoredRun {
    pub run: WorkflowRun,
    pub event_sequence: Option<i64>,
    /// The sequence of the cause of the run's chain.
    pub root: i64,
    /// Whether it differs from its row.
    pub changed: bool,
}

impl StoredRun {
    /// The actor of the run's changes.
    pub fn to_actor(&self) -> Actor {
        let (root, run) = (self.root, &self.run);
        Actor::for_workflow(run.workflow_id, &run.workflow_name, run.id, WorkflowChain { depth: run.depth, root })
    }

    /// The value of `run` in expressions.
    pub fn to_scope_value(&self) -> Value {
        let run = &self.run;
        json!({
            "id": run.id, "workflow_id": run.workflow_id, "workflow_name": run.workflow_name, "revision": run.revision,
            "trigger": run.trigger, "depth": run.depth, "dry_run": run.dry_run, "created_at": run.created_at,
        })
    }

    /// Changes the status; false if the run has it already.
    pub fn transition_status(&mut self, status: Status, at: Timestamp) -> bool {
        let run = &mut self.run;
        if run.status == status {
            return false;
        }
        self.changed = true;
        run.status = status;
        run.version += 1;
        run.updated_at = at;
        run.ended_at = status.is_finished().then_some(at);
        if status == Status::Running && run.started_at.is_none() {
            run.started_at = Some(at);
        }
        true
    }
}

/// A run with all steps of its definition, those that are not ready yet included.
pub fn build_detail(run: WorkflowRun, definition: &Definition, records: &[steps::StepRecord]) -> Result<RunDetail> {
    let mut shown = Vec::with_capacity(definition.steps.len());
    for step in &definition.steps {
        let record = records.iter().find(|record| record.name == step.id);
        shown.push(match record {
            Some(record) => show_step(step, record)?,
            None => RunStep {
                id: step.id.clone(),
                uses: step.uses.clone(),
                status: unstarted_status(run.status),
                input: None,
                output: None,
                error: None,
                attempts: Vec::new(),
                next_attempt_at: None,
                ready_at: None,
                started_at: None,
                ended_at: None,
            },
        });
    }
    Ok(RunDetail { run, steps: shown })
}

/// The status of a step that never became ready follows from that of its run.
fn unstarted_status(run: Status) -> Status {
    match run {
        Status::Pending | Status::Running | Status::Waiting => Status::Pending,
        Status::Cancelled | Status::TimedOut => run,
        Status::Succeeded | Status::Failed | Status::Skipped => Status::Skipped,
    }
}

fn show_step(step: &super::WorkflowStep, record: &steps::StepRecord) -> Result<RunStep> {
    let retried = record.state == Status::Pending && record.attempt > 0;
    Ok(RunStep {
        id: step.id.clone(),
        uses: step.uses.clone(),
        status: record.state,
        input: from_optional_json(record.input.as_deref())?,
        output: from_optional_json(record.output.as_deref())?,
        error: from_optional_json(record.error.as_deref())?,
        attempts: from_json(&record.attempts)?,
        next_attempt_at: record.next_at.filter(|_| retried),
        ready_at: Some(record.ready_at),
        started_at: record.started_at,
        ended_at: record.ended_at,
    })
}

/// The error of an action that the status of the run forbids.
pub fn transition_forbidden(status: Status, doing: &str) -> Error {
    let detail = format!("A run that is {} cannot be {doing}.", status.as_str());
    Error::new(feature_kit::INVALID_TRANSITION, detail)
}
