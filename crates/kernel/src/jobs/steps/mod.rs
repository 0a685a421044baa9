//! Durable steps: work whose steps are saved one by one, so that it continues after a crash where it was.
//!
//! A step belongs to an owner (a run of a workflow) and runs on a lane. Its effect inside the service and its outcome
//! commit in one transaction, which extends the lease and checks that the step is still at the attempt that was read: so
//! the effect happens exactly once. Every transaction that writes a step, such as a request that cancels it, locks the lane
//! first. A request to another server is saved afterwards and so happens at least once; the owner gives it an idempotency
//! key.

mod retry;

use super::lanes::LeasedLane;
use crate::base::{Actor, Result, StringEnum, Timestamp};
use crate::store::{Db, FromRow, Row, Tx, WriteFn};

pub use retry::Retry;

crate::string_enum! {
    /// The status of a run or of a step.
    #[schema(as = WorkStatus)]
    pub enum WorkStatus {
        Pending "pending", Running "running", Waiting "waiting", Succeeded "succeeded", Failed "failed",
        Cancelled "cancelled", TimedOut "timed_out", Skipped "skipped",
    }
}

impl WorkStatus {
    pub fn is_finished(self) -> bool {
        !matches!(self, WorkStatus::Pending | WorkStatus::Running | WorkStatus::Waiting)
    }
}

crate::columns! {
    struct StepColumns in "steps" by kind, owner_id, name {
        kind, lane, owner_id, name, state, attempt, tries, next_at, ready_at, deadline_at, started_at, ended_at, input,
        output, error, attempts,
    }
}

crate::statements! {
    INSERT = StepColumns::INSERT;
    UPDATE = StepColumns::UPDATE;
    LIST = crate::sql![StepColumns::SELECT, " AND kind = $2 AND owner_id = $3 ORDER BY name LIMIT $4"];
    GET = crate::sql![StepColumns::SELECT, " AND kind = $2 AND owner_id = $3 AND name = $4"];
    DUE = crate::sql![
        StepColumns::SELECT,
        " AND kind = $2 AND lane = $3 AND next_at <= $4 ORDER BY next_at, owner_id, name LIMIT $5 OFFSET $6"
    ];
    STATES = "SELECT name, state, next_at FROM steps WHERE tenant_id = $1 AND kind = $2 AND owner_id = $3 ORDER BY name LIMIT $4";
    RESULTS = "SELECT name, state, output, error FROM steps WHERE tenant_id = $1 AND kind = $2 AND owner_id = $3 ORDER BY name LIMIT $4";
    ERRORS = "SELECT name, state, error FROM steps WHERE tenant_id = $1 AND kind = $2 AND owner_id = $3 ORDER BY name LIMIT $4";
    /// Neither engine reads the values themselves for `octet_length`.
    BYTES = "SELECT CAST(COALESCE(SUM(COALESCE(octet_length(input), 0) + COALESCE(octet_length(output), 0)), 0) AS BIGINT)
        FROM steps WHERE tenant_id = $1 AND kind = $2 AND owner_id = $3 AND name <> $4";
    FIND_AT = "SELECT name FROM steps WHERE tenant_id = $1 AND kind = $2 AND owner_id = $3 AND name = $4 AND attempt = $5
        AND ended_at IS NULL";
    SET_RUNNING = "UPDATE steps SET state = 'running' WHERE tenant_id = $1 AND kind = $2 AND owner_id = $3 AND name = $4
        AND attempt = $5 AND state = 'pending'";
    DELETE = "DELETE FROM steps WHERE tenant_id = $1 AND kind = $2 AND owner_id = $3 AND name = $4";
    /// Clears the error of an earlier attempt, because it is not the reason for the end.
    END_ALL = "UPDATE steps SET state = $4, ended_at = $5, next_at = NULL, error = NULL
        WHERE tenant_id = $1 AND kind = $2 AND owner_id = $3 AND ended_at IS NULL";
}

/// The most steps of one owner.
pub const STEPS_MAX: i64 = 1_000;

/// One step as it is stored.
#[derive(Clone, Debug)]
pub struct StepRecord {
    pub owner: String,
    pub name: String,
    pub state: WorkStatus,
    /// The number of saved attempts.
    pub attempt: i64,
    /// The saved attempts since the step was last restarted by a user.
    pub tries: i64,
    /// When the step is due.
    pub next_at: Option<Timestamp>,
    pub ready_at: Timestamp,
    pub deadline_at: Option<Timestamp>,
    pub started_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
    /// JSON, as are the three below.
    pub input: Option<String>,
    pub output: Option<String>,
    pub error: Option<String>,
    pub attempts: String,
}

impl StepRecord {
    /// A new step that is due at `at`.
    pub fn new_ready(owner: impl Into<String>, name: impl Into<String>, at: Timestamp) -> Self {
        StepRecord {
            owner: owner.into(),
            name: name.into(),
            state: WorkStatus::Pending,
            attempt: 0,
            tries: 0,
            next_at: Some(at),
            ready_at: at,
            deadline_at: None,
            started_at: None,
            ended_at: None,
            input: None,
            output: None,
            error: None,
            attempts: "[]".to_owned(),
        }
    }

    /// Ends the step with this status.
    pub fn end_with(&mut self, state: WorkStatus, at: Timestamp) {
        (self.state, self.ended_at, self.next_at) = (state, Some(at), None);
    }

    /// The step at the attempt it was read at.
    pub fn current_version(&self) -> StepVersion {
        StepVersion { owner: self.owner.clone(), name: self.name.clone(), attempt: self.attempt }
    }

    fn column_values(&self, kind: &str, lane: &str) -> Vec<crate::store::Value> {
        StepColumns {
            kind: kind.into(),
            lane: lane.into(),
            owner_id: self.owner.as_str().into(),
            name: self.name.as_str().into(),
            state: self.state.as_str().into(),
            attempt: self.attempt.into(),
            tries: self.tries.into(),
            next_at: self.next_at.into(),
            ready_at: self.ready_at.into(),
            deadline_at: self.deadline_at.into(),
            started_at: self.started_at.into(),
            ended_at: self.ended_at.into(),
            input: self.input.as_deref().into(),
            output: self.output.as_deref().into(),
            error: self.error.as_deref().into(),
            attempts: self.attempts.as_str().into(),
        }
        .into_vec()
    }
}

impl FromRow for StepRecord {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        const AT: StepColumns<usize> = StepColumns::AT;
        Ok(StepRecord {
            owner: row.get(AT.owner_id)?,
            name: row.get(AT.name)?,
            state: WorkStatus::from_stored(&row.get::<String>(AT.state)?)?,
            attempt: row.get(AT.attempt)?,
            tries: row.get(AT.tries)?,
            next_at: row.get(AT.next_at)?,
            ready_at: row.get(AT.ready_at)?,
            deadline_at: row.get(AT.deadline_at)?,
            started_at: row.get(AT.started_at)?,
            ended_at: row.get(AT.ended_at)?,
            input: row.get(AT.input)?,
            output: row.get(AT.output)?,
            error: row.get(AT.error)?,
            attempts: row.get(AT.attempts)?,
        })
    }
}

/// A step at the attempt it was read at: the version that a write expects.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StepVersion {
    pub owner: String,
    pub name: String,
    pub attempt: i64,
}

/// The result of [`commit_step`].
#[derive(Debug)]
pub enum StepCommit<R> {
    Done(R),
    /// The step was ended, or this attempt saved, by another transaction. Nothing was written.
    Stale,
    /// Another node has leased the lane. Nothing was written.
    Lost,
}

impl<R> StepCommit<R> {
    pub fn map<T>(self, done: impl FnOnce(R) -> T) -> StepCommit<T> {
        match self {
            StepCommit::Done(result) => StepCommit::Done(done(result)),
            StepCommit::Stale => StepCommit::Stale,
            StepCommit::Lost => StepCommit::Lost,
        }
    }
}

/// Runs `effect` in a transaction that holds the lane and has found the step at this attempt. The effect also updates the
/// step.
pub async fn commit_step<R: Send + 'static>(
    lane: &LeasedLane,
    actor: Actor,
    version: StepVersion,
    effect: impl for<'t> WriteFn<&'t mut Tx, Result<R>, Fut: Send> + Send + 'static,
) -> Result<StepCommit<R>> {
    let (kind, faults) = (lane.kind(), lane.db().env().faults.clone());
    faults.check_outside_tx("steps.act.before").await?;
    let committed = lane
        .tick_and_write_if_held(async move |tx| {
            tx.act_as(actor)?;
            if !is_at_version(tx, kind, &version).await? {
                return Ok(StepCommit::Stale);
            }
            let done = effect(tx).await?;
            tx.env().faults.check_in_tx("steps.act.before_commit")?;
            Ok(StepCommit::Done(done))
        })
        .await?;
    faults.check_outside_tx("steps.act.after_commit").await?;
    Ok(committed.unwrap_or(StepCommit::Lost))
}

/// Whether the step is open and at this attempt. The caller holds the lane, so that the answer stays true.
pub async fn is_at_version(tx: &mut Tx, kind: &str, version: &StepVersion) -> Result<bool> {
    let found: Option<String> =
        tx.find(FIND_AT, crate::args![kind, version.owner, version.name, version.attempt]).await?;
    Ok(found.is_some())
}

pub async fn insert_step(tx: &mut Tx, kind: &str, lane: &str, step: &StepRecord) -> Result<()> {
    tx.defer_exec(INSERT, step.column_values(kind, lane)).await
}

pub async fn update_step(tx: &mut Tx, kind: &str, lane: &str, step: &StepRecord) -> Result<()> {
    tx.defer_exec(UPDATE, step.column_values(kind, lane)).await
}

/// Deletes a step, as if it had never been ready.
pub async fn delete_step(tx: &mut Tx, kind: &str, owner: &str, name: &str) -> Result<()> {
    tx.defer_exec(DELETE, vec![kind.into(), owner.into(), name.into()]).await
}

/// Ends all open steps of an owner.
pub async fn end_open_steps(tx: &mut Tx, kind: &str, owner: &str, state: WorkStatus, at: Timestamp) -> Result<()> {
    tx.defer_exec(END_ALL, vec![kind.into(), owner.into(), state.as_str().into(), at.into()]).await
}

/// Marks slow attempts as running, so that users see it.
pub async fn mark_running(tx: &mut Tx, kind: &str, versions: &[StepVersion]) -> Result<()> {
    for StepVersion { owner, name, attempt } in versions {
        tx.defer_exec(SET_RUNNING, vec![kind.into(), owner.as_str().into(), name.as_str().into(), (*attempt).into()])
            .await?;
    }
    Ok(())
}

/// All steps of an owner.
pub async fn list_steps(db: &Db, kind: &str, owner: &str) -> Result<Vec<StepRecord>> {
    db.list(LIST, crate::args![kind, owner, STEPS_MAX]).await
}

/// Like [`list_steps`], in a transaction.
pub async fn list_steps_in_tx(tx: &mut Tx, kind: &str, owner: &str) -> Result<Vec<StepRecord>> {
    tx.list(LIST, crate::args![kind, owner, STEPS_MAX]).await
}

pub async fn get_step(tx: &mut Tx, kind: &str, owner: &str, name: &str) -> Result<StepRecord> {
    tx.get_one(GET, crate::args![kind, owner, name]).await
}

/// The names and statuses of an owner's steps. A step that waits for its next attempt is `Waiting`.
pub async fn list_step_states(tx: &mut Tx, kind: &str, owner: &str) -> Result<Vec<(String, WorkStatus)>> {
    let now = tx.env().now();
    let found: Vec<(String, String, Option<Timestamp>)> = tx.list(STATES, crate::args![kind, owner, STEPS_MAX]).await?;
    let state = |(name, state, next_at): (String, String, Option<Timestamp>)| {
        let later = next_at.is_some_and(|next_at| next_at > now);
        let state = WorkStatus::from_stored(&state)?;
        Ok((name, if state == WorkStatus::Pending && later { WorkStatus::Waiting } else { state }))
    };
    found.into_iter().map(state).collect()
}

/// A step with its output and its error, as JSON.
pub struct StepResultRow {
    pub name: String,
    pub state: WorkStatus,
    pub output: Option<String>,
    pub error: Option<String>,
}

impl FromRow for StepResultRow {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        let state = WorkStatus::from_stored(&row.get::<String>(1)?)?;
        Ok(StepResultRow { name: row.get(0)?, state, output: row.get(2)?, error: row.get(3)? })
    }
}

/// The steps of an owner with their outputs and errors.
pub async fn list_step_results(db: &Db, kind: &str, owner: &str) -> Result<Vec<StepResultRow>> {
    db.list(RESULTS, crate::args![kind, owner, STEPS_MAX]).await
}

/// The steps of an owner with their errors.
pub async fn list_step_errors(
    tx: &mut Tx,
    kind: &str,
    owner: &str,
) -> Result<Vec<(String, WorkStatus, Option<String>)>> {
    let rows: Vec<(String, String, Option<String>)> = tx.list(ERRORS, crate::args![kind, owner, STEPS_MAX]).await?;
    rows.into_iter().map(|(name, state, error)| Ok((name, WorkStatus::from_stored(&state)?, error))).collect()
}

/// The bytes of the inputs and outputs of all other steps of the owner.
pub async fn count_other_bytes(tx: &mut Tx, kind: &str, version: &StepVersion) -> Result<usize> {
    let bytes: i64 = tx.get_one(BYTES, crate::args![kind, version.owner, version.name]).await?;
    Ok(usize::try_from(bytes).unwrap_or_default())
}

/// Like [`count_other_bytes`], outside of a transaction.
pub async fn count_other_bytes_now(db: &Db, kind: &str, version: &StepVersion) -> Result<usize> {
    let bytes: i64 = db.get_one(BYTES, crate::args![kind, version.owner, version.name]).await?;
    Ok(usize::try_from(bytes).unwrap_or_default())
}

/// The due steps of a lane, the longest waiting first, skipping the first `offset`.
pub async fn list_due_steps(
    db: &Db,
    lane: &LeasedLane,
    now: Timestamp,
    limit: i64,
    offset: i64,
) -> Result<Vec<StepRecord>> {
    db.list(DUE, crate::args![lane.kind(), lane.key, now, limit, offset]).await
}
