//! SQL that reads and writes runs.

use kernel::args;
use kernel::base::{Code, Error, Result, Timestamp, Word};
use kernel::store::{Db, FromRow, Row, Tx, Value};

use super::super::{RunId, RunTrigger, Status, TriggerKind, WorkflowId, WorkflowRun};
use super::{StoredRun, parse_json, parse_optional_json};

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
            input: parse_json(&row.get::<String>(AT.input)?)?,
            error: parse_optional_json(row.get::<Option<String>>(AT.error)?.as_deref())?,
        });
        Ok(StoredRun { run, event_sequence: row.get(AT.event_sequence)?, root: row.get(AT.root)?, changed: false })
    }
}

impl StoredRun {
    fn to_row_values(&self) -> Result<Vec<Value>> {
        let StoredRun { run, event_sequence, root, .. } = self;
        let (by, json) = (run.trigger.by.clone(), |value: &_| serde_json::to_string(value).map_err(Error::internal));
        let error =
            run.error.as_ref().map(|error| serde_json::to_string(error).map_err(Error::internal)).transpose()?;
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
            input: json(&run.input)?.into(),
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
    pub error: Option<super::super::RunError>,
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
    tx.enqueue(INSERT, values).await
}

pub async fn update_run(tx: &mut Tx, run: &StoredRun) -> Result<()> {
    let values = run.to_row_values()?;
    tx.enqueue(UPDATE, values).await
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
