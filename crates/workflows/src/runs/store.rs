//! SQL that reads, writes, advances and ends runs.

use std::collections::HashMap;

use figures::Fact;
use figures::cells::{RUN_DURATION_MS, RUNS, RUNS_CANCELLED, RUNS_FAILED, RUNS_SUCCEEDED};
use kernel::args;
use kernel::base::{Code, Error, Result, StringEnum, Timestamp};
use kernel::events;
use kernel::jobs::steps;
use kernel::store::{Db, FactRetention, FromRow, Row, Tx, Value, to_json};

use super::super::run_plan::{need_indexes, plan_run, run_error};
use super::super::{
    LANE_KEY, RunError, RunId, RunTrigger, Status, TriggerKind, WORKFLOW_LANE, WORKFLOW_RUN_CANCELLED,
    WORKFLOW_RUN_FAILED, WORKFLOW_RUN_STARTED, WORKFLOW_RUN_SUCCEEDED, WorkflowId, WorkflowRun, WorkflowStep,
};
use super::StoredRun;

kernel::columns! {
    /// All columns of a run.
    pub struct RunColumns in "workflow_runs" by id {
        id, workflow_id, workflow_name, revision, status, dry_run, depth, root, trigger_type, event_sequence, event_id,
        scheduled_for, late, started_by_type, started_by_id, started_by_name, input, error, deadline_at, started_at,
        ended_at, version, created_at, updated_at,
    }
}

kernel::statements! {
    /// The unique indexes prevent a second run of an event, or of a time of a schedule.
    INSERT = kernel::sql![RunColumns::INSERT, " ON CONFLICT DO NOTHING"];
    UPDATE = RunColumns::UPDATE;
    GET = kernel::sql![RunColumns::SELECT, " AND id = $2"];
    IS_DELETED = "SELECT id FROM workflows WHERE tenant_id = $1 AND id = $2 AND deleted_at IS NOT NULL";
    /// The number of queued runs, up to a limit.
    COUNT_QUEUED = "SELECT COUNT(*) FROM (SELECT id FROM workflow_runs WHERE tenant_id = $1 AND status = 'pending'
        LIMIT $2) AS queued";
}

impl FromRow for StoredRun {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        const AT: RunColumns<usize> = RunColumns::AT;
        let by = match row.get::<Option<String>>(AT.started_by_type)? {
            Some(_) => Some(row.get_actor([AT.started_by_type, AT.started_by_id, AT.started_by_name])?),
            None => None,
        };
        let trigger = kernel::read_record!(row, RunColumns => RunTrigger {
            event_id, scheduled_for, late;
            kind: TriggerKind::from_stored(&row.get::<String>(AT.trigger_type)?)?,
            by,
        });
        let run = kernel::read_record!(row, RunColumns => WorkflowRun {
            id, workflow_id, workflow_name, revision, dry_run, depth, deadline_at, started_at, ended_at, version,
            created_at, updated_at;
            status: Status::from_stored(&row.get::<String>(AT.status)?)?,
            trigger,
            input: row.get_json(AT.input)?,
            error: row.get_optional_json(AT.error)?,
        });
        Ok(StoredRun { run, event_sequence: row.get(AT.event_sequence)?, root: row.get(AT.root)?, changed: false })
    }
}

impl StoredRun {
    fn to_row_values(&self) -> Result<Vec<Value>> {
        let StoredRun { run, event_sequence, root, .. } = self;
        let by = run.trigger.by.clone();
        let error = run.error.as_ref().map(to_json).transpose()?;
        Ok(RunColumns {
            id: run.id.into(),
            workflow_id: run.workflow_id.into(),
            workflow_name: run.workflow_name.as_str().into(),
            revision: run.revision.into(),
            status: run.status.as_str().into(),
            dry_run: run.dry_run.into(),
            depth: run.depth.into(),
            root: (*root).into(),
            trigger_type: run.trigger.kind.as_str().into(),
            event_sequence: (*event_sequence).into(),
            event_id: run.trigger.event_id.as_deref().into(),
            scheduled_for: run.trigger.scheduled_for.into(),
            late: run.trigger.late.into(),
            started_by_type: by.as_ref().map(|by| by.kind.as_str()).into(),
            started_by_id: by.as_ref().and_then(|by| by.id.clone()).into(),
            started_by_name: by.map(|by| by.name).into(),
            input: to_json(&run.input)?.into(),
            error: error.into(),
            deadline_at: run.deadline_at.into(),
            started_at: run.started_at.into(),
            ended_at: run.ended_at.into(),
            version: run.version.into(),
            created_at: run.created_at.into(),
            updated_at: run.updated_at.into(),
        }
        .into_vec())
    }
}

/// The values of a new run.
pub struct NewRun {
    pub workflow_id: WorkflowId,
    pub workflow_name: String,
    pub revision: i64,
    pub depth: i64,
    pub root: i64,
    pub trigger: RunTrigger,
    pub event_sequence: Option<i64>,
    pub input: serde_json::Value,
    pub error: Option<RunError>,
    pub dry_run: bool,
}

impl NewRun {
    /// The run, queued.
    pub fn into_stored(self, id: RunId, at: Timestamp, run_max_ms: i64) -> StoredRun {
        let run = WorkflowRun {
            id,
            workflow_id: self.workflow_id,
            workflow_name: self.workflow_name,
            revision: self.revision,
            status: Status::Pending,
            dry_run: self.dry_run,
            depth: self.depth,
            trigger: self.trigger,
            input: self.input,
            error: self.error,
            deadline_at: at.plus_ms(run_max_ms),
            started_at: None,
            ended_at: None,
            version: 1,
            created_at: at,
            updated_at: at,
        };
        StoredRun { run, event_sequence: self.event_sequence, root: self.root, changed: true }
    }
}

/// Inserts a new run, unless there is one of its event or its time.
pub async fn insert_run(tx: &mut Tx, run: &StoredRun) -> Result<()> {
    let values = run.to_row_values()?;
    if tx.exec_each(INSERT, &[values]).await? == 0 {
        return Ok(());
    }
    let mut fact = Fact::new(run.run.created_at.as_millis());
    fact.add_count(RUNS, i64::from(!run.run.dry_run));
    tx.record_fact(&fact, FactRetention::Long).await
}

pub async fn update_run(tx: &mut Tx, run: &StoredRun) -> Result<()> {
    let values = run.to_row_values()?;
    tx.defer_exec(UPDATE, values).await
}

/// Reads a run inside a transaction.
pub async fn get_run(tx: &mut Tx, id: RunId) -> Result<StoredRun> {
    tx.get_one(GET, args![id]).await
}

pub async fn find_run(db: &Db, id: RunId) -> Result<Option<StoredRun>> {
    db.find(GET, args![id]).await
}

/// Refuses a new run if the queue is full.
pub async fn check_queue(tx: &mut Tx, queued_max: i64) -> Result<()> {
    let queued: i64 = tx.get_one(COUNT_QUEUED, args![queued_max]).await?;
    if queued < queued_max {
        return Ok(());
    }
    let detail = format!("{queued_max} runs of this tenant wait for their turn. Try again when some have ended.");
    Err(Error::new(Code::LimitReached, detail))
}

pub async fn is_workflow_deleted(tx: &mut Tx, workflow: WorkflowId) -> Result<bool> {
    Ok(tx.find::<WorkflowId>(IS_DELETED, args![workflow]).await?.is_some())
}

/// Advances a run after a step has changed: begins ready steps, skips those that never will be, and ends a finished run.
pub async fn advance_run(tx: &mut Tx, run: &mut StoredRun, steps: &[WorkflowStep]) -> Result<()> {
    let (at, now) = (tx.tick().await?.at, tx.env().now());
    let owner = run.run.id.to_string();
    let status_by_id: HashMap<String, Status> =
        steps::list_step_states(tx, WORKFLOW_LANE, &owner).await?.into_iter().collect();
    let states: Vec<Option<Status>> = steps.iter().map(|step| status_by_id.get(&step.id).copied()).collect();
    let plan = plan_run(steps, &need_indexes(steps), &states);
    for index in plan.begin {
        let mut ready = steps::StepRecord::new_ready(owner.clone(), steps[index].id.clone(), at);
        ready.next_at = Some(now);
        ready.deadline_at = steps[index].timeout_seconds.map(|seconds| now.plus_ms(seconds * 1_000));
        steps::insert_step(tx, WORKFLOW_LANE, LANE_KEY, &ready).await?;
    }
    for index in plan.skip {
        let mut skipped = steps::StepRecord::new_ready(owner.clone(), steps[index].id.clone(), at);
        skipped.end_with(Status::Skipped, at);
        steps::insert_step(tx, WORKFLOW_LANE, LANE_KEY, &skipped).await?;
    }
    if matches!(plan.status, Status::Failed | Status::TimedOut) {
        let records = steps::list_step_errors(tx, WORKFLOW_LANE, &owner).await?;
        let find_step = |id: &str| {
            let (_, state, error) = records.iter().find(|(name, ..)| name == id)?;
            Some((*state, error.as_deref()))
        };
        run.run.error = run_error(steps, plan.status, find_step)?;
    }
    run.transition_status(plan.status, at);
    if run.changed {
        update_run(tx, run).await?;
    }
    if plan.status.is_finished() { publish_run_event(tx, run).await } else { Ok(()) }
}

/// Ends a run and its open steps.
pub async fn stop_run(tx: &mut Tx, run: &mut StoredRun, status: Status) -> Result<()> {
    let at = tx.tick().await?.at;
    steps::end_open_steps(tx, WORKFLOW_LANE, &run.run.id.to_string(), status, at).await?;
    run.transition_status(status, at);
    update_run(tx, run).await?;
    publish_run_event(tx, run).await
}

/// Publishes that a run has begun or ended. The actor is the run itself even if a person ended it, so that runs caused by
/// the event continue its chain.
pub async fn publish_run_event(tx: &mut Tx, run: &StoredRun) -> Result<()> {
    let kind = match run.run.status {
        Status::Running => &WORKFLOW_RUN_STARTED,
        Status::Succeeded | Status::Skipped => &WORKFLOW_RUN_SUCCEEDED,
        Status::Failed | Status::TimedOut => &WORKFLOW_RUN_FAILED,
        Status::Cancelled => &WORKFLOW_RUN_CANCELLED,
        Status::Pending | Status::Waiting => return Ok(()),
    };
    if let Some(ended_at) = run.run.ended_at {
        tx.record_fact(&end_fact(run, ended_at), FactRetention::Long).await?;
    }
    let before = tx.act_as(run.to_actor())?;
    let published = events::publish(tx, kind, run.run.id, &run.run).await.map(drop);
    tx.restore_actor(before);
    published
}

/// What the end of a run contributes to figures. One that is retried ends once more.
fn end_fact(run: &StoredRun, ended_at: Timestamp) -> Fact {
    let mut fact = Fact::new(ended_at.as_millis());
    let cell = match run.run.status {
        Status::Succeeded | Status::Skipped => RUNS_SUCCEEDED,
        Status::Cancelled => RUNS_CANCELLED,
        Status::Failed | Status::TimedOut | Status::Pending | Status::Running | Status::Waiting => RUNS_FAILED,
    };
    fact.add_count(cell, 1);
    fact.add_sample(RUN_DURATION_MS, ended_at.as_millis() - run.run.created_at.as_millis());
    fact
}
