//! SQL that starts a run by hand.

use kernel::args;
use kernel::audit::{self, NewAuditEntry};
use kernel::base::{Error, FieldError, Result, run_blocking};
use kernel::jobs::lanes;
use kernel::store::{Db, Tx, from_json};
use serde_json::Value;

use super::super::super::schema::InputSchema;
use super::super::super::{
    Definition, LANE_KEY, RunDetail, RunId, RunTrigger, TriggerKind, WORKFLOW_LANE, WorkflowId, WorkflowSettings,
};
use super::super::store::{NewRun, check_queue, insert_run};
use super::super::{StoredRun, build_detail};

kernel::statements! {
    DEFINED = "SELECT w.enabled, w.revision, r.definition FROM workflows w
        JOIN workflow_revisions r ON r.tenant_id = w.tenant_id AND r.workflow_id = w.id AND r.revision = w.revision
        WHERE w.tenant_id = $1 AND w.id = $2 AND w.deleted_at IS NULL";
    WORKFLOW = "SELECT name, enabled, revision FROM workflows WHERE tenant_id = $1 AND id = $2 AND deleted_at IS NULL";
}

/// An input that was checked against a revision, right before the transaction that starts the run.
#[derive(Clone)]
pub struct CheckedRun {
    definition: Definition,
    pub revision: i64,
    input: Value,
}

/// Checks the input outside of the transaction, which would block other writers: 404, 409 if the workflow is disabled, 422
/// if the input does not match the schema.
pub async fn check_run(db: &Db, id: WorkflowId, input: Value) -> Result<CheckedRun> {
    let (enabled, revision, definition): (bool, i64, String) = db.get_one(DEFINED, args![id]).await?;
    check_enabled(enabled)?;
    let definition: Definition = from_json(&definition)?;
    run_blocking(move || check_input(&definition, &input).map(|()| CheckedRun { definition, revision, input })).await
}

fn check_enabled(enabled: bool) -> Result<()> {
    if enabled { Ok(()) } else { Err(Error::conflict("This workflow is disabled. Enable it to run it.")) }
}

/// Checks that the workflow exists, is enabled, and still has the revision that the input was checked against.
pub async fn check_in_force(tx: &mut Tx, id: WorkflowId, expected: i64) -> Result<String> {
    tx.tick().await?;
    let (name, enabled, revision): (String, bool, i64) = tx.get_one(WORKFLOW, args![id]).await?;
    check_enabled(enabled)?;
    if revision == expected {
        return Ok(name);
    }
    Err(changed_meanwhile())
}

pub fn changed_meanwhile() -> Error {
    Error::conflict("Somebody changed the workflow at the same time. Try again.")
}

/// Builds the run that a request starts, without inserting it.
pub async fn prepare_run(
    tx: &mut Tx,
    id: WorkflowId,
    checked: CheckedRun,
    dry_run: bool,
    settings: &WorkflowSettings,
) -> Result<(StoredRun, Definition)> {
    let CheckedRun { definition, revision, input } = checked;
    let workflow_name = check_in_force(tx, id, revision).await?;
    let tick = tx.tick().await?;
    let by = tx.actor().who.clone();
    let trigger =
        RunTrigger { kind: TriggerKind::Manual, event_id: None, scheduled_for: None, late: false, by: Some(by) };
    let new = NewRun {
        workflow_id: id,
        workflow_name,
        revision,
        depth: 1,
        root: tick.sequence,
        trigger,
        event_sequence: None,
        input,
        error: None,
        dry_run,
    };
    let id = RunId::new_numbered(tx.env(), tick.at, tick.sequence);
    Ok((new.into_stored(id, tick.at, settings.run_max_ms), definition))
}

fn check_input(definition: &Definition, input: &Value) -> Result<()> {
    let Some(schema) = &definition.input_schema else { return Ok(()) };
    let schema = InputSchema::parse(schema).map_err(|_| Error::internal("a schema that was accepted is refused"))?;
    let wrong = |(pointer, detail)| FieldError { pointer: format!("/input{pointer}"), code: "not_of_schema", detail };
    let errors: Vec<FieldError> = schema.validate_input(input).into_iter().map(wrong).collect();
    if errors.is_empty() { Ok(()) } else { Err(Error::invalid_fields(errors)) }
}

/// Queues a run.
pub async fn start_run(
    tx: &mut Tx,
    id: WorkflowId,
    checked: CheckedRun,
    settings: &WorkflowSettings,
) -> Result<RunDetail> {
    let (run, definition) = prepare_run(tx, id, checked, false, settings).await?;
    check_queue(tx, settings.runs_queued).await?;
    lanes::wake_lane(tx, WORKFLOW_LANE, LANE_KEY).await?;
    insert_run(tx, &run).await?;
    audit::record_entry(tx, NewAuditEntry::new("workflow.run", "workflow_run", run.run.id)).await?;
    build_detail(run.run, &definition, &[])
}
