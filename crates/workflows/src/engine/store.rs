//! SQL that begins runs, and ends those that cannot go on. Writes are in transactions that hold the lane's lease.

use std::sync::Arc;

use feature_kit::registry;
use kernel::args;
use kernel::auth::load_saver_rights;
use kernel::base::{ActorRef, Code, Error, Result, StringEnum, Timestamp};
use kernel::jobs::lanes::LeasedLane;
use kernel::jobs::steps::{self, StepVersion};
use kernel::store::{Db, Tx};

use super::super::runs::StoredRun;
use super::super::runs::store::{
    self as runs, RunColumns, advance_run, is_workflow_deleted, publish_run_event, stop_run,
};
use super::super::{
    CHAIN_DEPTH_MAX, FOLLOWER, RunError, RunId, Status, StepError, Trigger, WORKFLOW_LANE, WORKFLOWS_MAX, WorkflowId,
    WorkflowSettings, counters,
};
use super::revisions::CompiledRevision;

kernel::statements! {
    OVERDUE = kernel::sql![
        RunColumns::SELECT,
        " AND ended_at IS NULL AND deadline_at <= $2 ORDER BY deadline_at, id LIMIT $3"
    ];
    QUEUED = kernel::sql![RunColumns::SELECT, " AND status = 'pending' ORDER BY id LIMIT $2"];
    COUNT_RUNNING = "SELECT COUNT(*) FROM workflow_runs WHERE tenant_id = $1 AND status = 'running'";
    /// The first queued run of each workflow without a running one.
    FIRST_OF_EACH = "SELECT (SELECT p.id FROM workflow_runs p WHERE p.tenant_id = $1 AND p.workflow_id = w.id
                AND p.status = 'pending' ORDER BY p.id LIMIT 1)
            FROM workflows w WHERE w.tenant_id = $1 AND w.deleted_at IS NULL
                AND (SELECT a.id FROM workflow_runs a WHERE a.tenant_id = $1 AND a.workflow_id = w.id
                    AND a.status = 'running' ORDER BY a.id LIMIT 1) IS NULL ORDER BY w.created_at, w.id LIMIT $2";
    /// A deleted workflow whose open runs must still be ended.
    ENDING = "SELECT id FROM workflows WHERE tenant_id = $1 AND ends_runs ORDER BY id LIMIT 1";
    ENDED = "UPDATE workflows SET ends_runs = FALSE WHERE tenant_id = $1 AND id = $2";
    /// Deletes header values in batches: a deleted workflow sends no more requests.
    CLEAR_HEADERS = "UPDATE workflow_revisions SET headers = $3 WHERE tenant_id = $1 AND workflow_id = $2 AND revision IN
        (SELECT r.revision FROM workflow_revisions r WHERE r.tenant_id = $1 AND r.workflow_id = $2 AND r.headers <> $3
            ORDER BY r.revision LIMIT $4)";
    OPEN_OF = kernel::sql![RunColumns::SELECT, " AND workflow_id = $2 AND status = $3 ORDER BY id LIMIT $4"];
    /// The earliest of: the next due step, the next time of a schedule, the next deadline of a run; and now, if a deleted
    /// workflow has runs, if a queued run can begin, or if the follower is behind and the queue has room. Each is one index
    /// lookup even if PostgreSQL has no statistics: so not `MIN`, and the queue is counted only if the follower is behind.
    NEXT = "SELECT MIN(at) FROM (
            SELECT (SELECT s.next_at FROM steps s
                WHERE s.tenant_id = $1 AND s.kind = $2 AND s.lane = $3 AND s.next_at IS NOT NULL
                ORDER BY s.next_at LIMIT 1) AS at
            UNION ALL SELECT (SELECT w.next_run_at FROM workflows w WHERE w.tenant_id = $1 AND w.next_run_at IS NOT NULL
                ORDER BY w.next_run_at LIMIT 1)
            UNION ALL SELECT (SELECT r.deadline_at FROM workflow_runs r WHERE r.tenant_id = $1 AND r.ended_at IS NULL
                ORDER BY r.deadline_at LIMIT 1)
            UNION ALL SELECT CAST($4 AS BIGINT) FROM workflows w WHERE w.tenant_id = $1 AND w.ends_runs
            UNION ALL SELECT CAST($4 AS BIGINT)
                WHERE (SELECT r.id FROM workflow_runs r WHERE r.tenant_id = $1 AND r.status = 'pending'
                    ORDER BY r.id LIMIT 1) IS NOT NULL
                AND (SELECT COUNT(*) FROM workflow_runs r WHERE r.tenant_id = $1 AND r.status = 'running') < $5
            UNION ALL SELECT CAST($4 AS BIGINT) FROM followers f WHERE f.tenant_id = $1 AND f.name = $6 AND f.behind
                AND (SELECT COUNT(*) FROM (SELECT r.id FROM workflow_runs r
                    WHERE r.tenant_id = f.tenant_id AND r.status = 'pending' LIMIT $7) queued) < $7
        ) moments";
}

/// The arguments of [`NEXT`].
macro_rules! next_args {
    ($lane:expr, $now:expr, $settings:expr) => {
        args![$lane.kind(), $lane.key, $now, $settings.runs_in_flight, FOLLOWER, $settings.runs_queued]
    };
}

/// Runs that one transaction begins or ends.
const RUNS_MAX: i64 = 50;
const OPEN: [Status; 3] = [Status::Pending, Status::Running, Status::Waiting];

/// How many runs a batch of upkeep processed; none when the lease is lost.
pub type Upkeep = Option<usize>;

/// Ends runs past their deadline, and open runs of deleted workflows. None when the lease is lost.
pub async fn end_overdue_runs(lane: &LeasedLane) -> Result<Upkeep> {
    let now = lane.db().env().now();
    let overdue: Vec<StoredRun> = lane.db().list(OVERDUE, args![now, RUNS_MAX]).await?;
    if !overdue.is_empty() {
        let ids = overdue.iter().map(|run| run.run.id).collect();
        return end_runs(lane, ids, Status::TimedOut).await;
    }
    let Some(deleted) = lane.db().find::<WorkflowId>(ENDING, args![]).await? else { return Ok(Some(0)) };
    let mut ids = Vec::new();
    for status in OPEN {
        let open: Vec<StoredRun> = lane.db().list(OPEN_OF, args![deleted, status.as_str(), RUNS_MAX]).await?;
        ids.extend(open.iter().map(|run| run.run.id));
    }
    if !ids.is_empty() {
        return end_runs(lane, ids, Status::Cancelled).await;
    }
    let done = lane.tick_and_write_if_held(async move |tx| {
        // Deleted workflows start no runs, so no run was added since the select.
        let cleared = tx.exec(CLEAR_HEADERS, args![deleted, [0_u8; 0].as_slice(), RUNS_MAX]).await?;
        if cleared < RUNS_MAX.unsigned_abs() {
            tx.exec(ENDED, args![deleted]).await?;
        }
        Ok(1)
    });
    done.await
}

async fn end_runs(lane: &LeasedLane, ids: Vec<RunId>, status: Status) -> Result<Upkeep> {
    let ended = lane.tick_and_write_if_held(async move |tx| {
        let mut stopped = 0;
        for id in &ids {
            let mut run = runs::get_run(tx, *id).await?;
            if run.run.status.is_finished() {
                continue;
            }
            stopped += 1;
            tx.act_as(run.to_actor())?;
            if status == Status::TimedOut {
                let detail = format!("The run did not finish by {}.", run.run.deadline_at);
                run.run.error = Some(RunError { code: "deadline_exceeded".to_owned(), detail, step_id: None });
            }
            stop_run(tx, &mut run, status).await?;
        }
        Ok((ids.len(), stopped))
    });
    let Some((processed, stopped)) = ended.await? else { return Ok(None) };
    (0..stopped).for_each(|_| counters::count_run(status));
    Ok(Some(processed))
}

/// Ends a run that cannot go on.
pub async fn fail_run(lane: &LeasedLane, id: RunId, error: RunError) -> Result<()> {
    let failed = lane.tick_and_write_if_held(async move |tx| {
        let mut run = runs::get_run(tx, id).await?;
        if run.run.status.is_finished() {
            return Ok(false);
        }
        tx.act_as(run.to_actor())?;
        run.run.error = Some(error);
        stop_run(tx, &mut run, Status::Failed).await.map(|()| true)
    });
    if failed.await? == Some(true) {
        counters::count_run(Status::Failed);
    }
    Ok(())
}

/// Queued runs that can begin, oldest first: as many as the limit allows, and beyond that one of each workflow without a
/// running one. So a workflow whose servers do not answer does not block the others.
pub async fn load_startable_runs(db: &Db, in_flight: i64) -> Result<Vec<StoredRun>> {
    let running: i64 = db.get_one(COUNT_RUNNING, args![]).await?;
    let room = (in_flight - running).clamp(0, RUNS_MAX);
    let mut queued: Vec<StoredRun> = db.list(QUEUED, args![room.max(1)]).await?;
    if queued.is_empty() {
        return Ok(queued);
    }
    let of_each: Vec<Option<RunId>> = db.list(FIRST_OF_EACH, args![WORKFLOWS_MAX]).await?;
    let mut first = Vec::new();
    for id in of_each.into_iter().flatten() {
        first.extend(runs::find_run(db, id).await?);
    }
    queued.truncate(usize::try_from(room).unwrap_or_default());
    queued.retain(|run| first.iter().all(|other| other.run.id != run.run.id));
    Ok(first.into_iter().chain(queued).collect())
}

/// Begins runs, each with its revision. None when the lease is lost.
pub async fn begin_runs(lane: &LeasedLane, begun: Vec<(RunId, Arc<CompiledRevision>)>) -> Result<Upkeep> {
    let begun = lane.tick_and_write_if_held(async move |tx| {
        let mut processed = Vec::with_capacity(begun.len());
        for (id, revision) in begun {
            let mut run = runs::get_run(tx, id).await?;
            if run.run.status != Status::Pending {
                processed.push(None);
                continue;
            }
            tx.act_as(run.to_actor())?;
            if is_workflow_deleted(tx, run.run.workflow_id).await? {
                stop_run(tx, &mut run, Status::Cancelled).await?;
            } else if let Some(error) = find_refusal(tx, &run, &revision).await? {
                run.run.error = Some(error);
                stop_run(tx, &mut run, Status::Failed).await?;
            } else {
                let at = tx.tick().await?.at;
                run.transition_status(Status::Running, at);
                publish_run_event(tx, &run).await?;
                advance_run(tx, &mut run, &revision.compiled.definition.steps).await?;
            }
            processed.push(Some(run.run.status));
        }
        tx.env().faults.check_in_tx("runs.begin.before_commit")?;
        Ok(processed)
    });
    let Some(processed) = begun.await? else { return Ok(None) };
    processed.iter().flatten().for_each(|status| counters::count_run(*status));
    Ok(Some(processed.len()))
}

/// Why a run fails before it begins.
async fn find_refusal(tx: &mut Tx, run: &StoredRun, revision: &CompiledRevision) -> Result<Option<RunError>> {
    if let Some(error) = &run.run.error {
        return Ok(Some(error.clone()));
    }
    let refused = |code: &str, detail: String| Some(RunError { code: code.to_owned(), detail, step_id: None });
    if run.run.depth > CHAIN_DEPTH_MAX {
        let detail = format!("More than {CHAIN_DEPTH_MAX} runs have started each other in a chain.");
        return Ok(refused("loop_detected", detail));
    }
    let (Trigger::Event(on), Some(_)) = (&revision.compiled.definition.on, run.event_sequence) else { return Ok(None) };
    // The event contains the record, so the author needs the scope to read it.
    let needed = registry().scopes_needed(on.types.iter().map(String::as_str))?;
    match load_saver_rights(tx, &revision.saved_by).await {
        Ok(rights) => Ok(rights.scopes.find_missing(&needed).and_then(|scope| {
            let by = &revision.saved_by.name;
            refused("insufficient_scope", format!("The trigger needs {}, which {by} does not hold.", scope.name()))
        })),
        Err(error) => refusal_to_step_error(error).map(|error| refused(&error.code, error.detail)),
    }
}

/// Turns a refusal into the error of a step. Errors of the server (5xx) are returned as they are.
pub fn refusal_to_step_error(error: Error) -> Result<StepError> {
    let code = find_feature_code(&error).unwrap_or(error.code());
    if code.status() >= 500 {
        return Err(error);
    }
    let fields: Vec<String> = error
        .fields()
        .iter()
        .map(|field| format!("{} {}", field.pointer, field.detail.trim_end_matches('.')))
        .collect();
    let detail =
        if fields.is_empty() { error.detail().to_owned() } else { format!("Not valid: {}.", fields.join("; ")) };
    Ok(StepError::new(code.name(), detail))
}

/// The code of a feature, if all field errors have it: the step then fails with that code, not with a general one.
fn find_feature_code(error: &Error) -> Option<Code> {
    let (first, others) = error.fields().split_first()?;
    let is_own = |code: &Code| code.name() == first.code && !Code::KERNEL.contains(code);
    registry().error_codes.iter().copied().find(is_own).filter(|_| others.iter().all(|other| other.code == first.code))
}

/// When the lane has work next.
pub async fn find_next_due(lane: &LeasedLane, settings: &WorkflowSettings) -> Result<Option<Timestamp>> {
    lane.db().get_one(NEXT, next_args!(lane, lane.db().env().now(), settings)).await
}

/// Extends the lease, and marks slow requests as running. False when the lease is lost.
pub async fn extend_lease(lane: &LeasedLane, slow: Vec<StepVersion>) -> Result<bool> {
    let marked = lane.write_if_held(async move |tx| steps::mark_running(tx, WORKFLOW_LANE, &slow).await).await?;
    Ok(marked.is_some())
}

/// Releases the lane, with the time at which it is due again.
pub async fn release_lane(
    lane: &LeasedLane,
    settings: Arc<WorkflowSettings>,
    resting: Option<Timestamp>,
) -> Result<()> {
    let held = lane.clone();
    let released = lane.write_if_held(async move |tx| {
        let now = tx.env().now();
        // Not earlier than now, so that this lane queues behind those that are waiting.
        let due: Option<Timestamp> = tx.get_one(NEXT, next_args!(held, now, settings)).await?;
        let due = due.map(|due| due.max(now));
        let due = match (due, resting) {
            (Some(due), Some(resting)) => Some(due.max(resting)),
            (due, _) => due,
        };
        held.release_lease(tx, due, None).await
    });
    released.await.map(drop)
}

/// The saver's rights, or why the step cannot act for them.
pub async fn get_action_rights(
    tx: &mut Tx,
    saved_by: &ActorRef,
    action: &feature_kit::Action,
) -> Result<Result<kernel::auth::Rights, StepError>> {
    let rights = match load_saver_rights(tx, saved_by).await {
        Ok(rights) => rights,
        Err(error) => return refusal_to_step_error(error).map(Err),
    };
    let needed = action.needs.iter().chain(&[kernel::auth::Scope::WorkflowsWrite]);
    let missing = needed.copied().find(|scope| !rights.scopes.has_scope(*scope));
    Ok(match missing {
        None => Ok(rights),
        Some(scope) => {
            let detail = format!(
                "{} needs the scope {}, which {}, who saved the workflow, does not hold.",
                action.name,
                scope.name(),
                saved_by.name
            );
            Err(StepError::new("insufficient_scope", detail))
        }
    })
}
