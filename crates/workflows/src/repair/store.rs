//! SQL that clamps timestamps of workflows and runs that a clock running ahead has put into the future.

use kernel::args;
use kernel::base::{Result, Timestamp};
use kernel::jobs::lanes;
use kernel::store::{Db, Tx, from_json};

use super::super::{Definition, LANE_KEY, Trigger, WORKFLOW_LANE, WORKFLOWS_MAX, WorkflowId};
use feature_kit::schedule::CronSchedule;

kernel::statements! {
    CLAMP_WORKFLOWS = "UPDATE workflows SET updated_at = $2,
            created_at = CASE WHEN created_at > $2 THEN $2 ELSE created_at END,
            deleted_at = CASE WHEN deleted_at > $2 THEN $2 ELSE deleted_at END
        WHERE tenant_id = $1 AND updated_at > $2 RETURNING id";
    SCHEDULED = "SELECT w.id, w.next_run_at, r.definition FROM workflows w
        JOIN workflow_revisions r ON r.tenant_id = w.tenant_id AND r.workflow_id = w.id AND r.revision = w.revision
        WHERE w.tenant_id = $1 AND w.next_run_at > $2 ORDER BY w.next_run_at, w.id LIMIT $3";
    SET_NEXT = "UPDATE workflows SET next_run_at = $3 WHERE tenant_id = $1 AND id = $2";
    CLAMP_RUNS = "UPDATE workflow_runs SET deadline_at = $2 WHERE tenant_id = $1 AND id IN
        (SELECT r.id FROM workflow_runs r WHERE r.tenant_id = $1 AND r.ended_at IS NULL AND r.deadline_at > $2
            ORDER BY r.deadline_at, r.id LIMIT $3)";
    CLAMP_ENDED = "UPDATE workflow_runs SET ended_at = $2 WHERE tenant_id = $1 AND id IN
        (SELECT r.id FROM workflow_runs r WHERE r.tenant_id = $1 AND r.ended_at > $2 ORDER BY r.ended_at, r.id LIMIT $3)";
    CLAMP_STEPS = "UPDATE steps SET next_at = $5 WHERE tenant_id = $1 AND kind = $2 AND next_at > $4
            AND (owner_id, name) IN (SELECT s.owner_id, s.name FROM steps s WHERE s.tenant_id = $1 AND s.kind = $2
                AND s.lane = $3 AND s.next_at > $4 ORDER BY s.next_at, s.owner_id, s.name LIMIT $6)";
}

/// Clamps future timestamps before the tenant's clock is set back. Returns how many steps waited for a time later than any
/// step can wait for from now.
pub async fn clamp_future_timestamps(db: &Db, now: Timestamp, run_max_ms: i64) -> Result<u64> {
    let latest = now.plus_ms(run_max_ms);
    db.write(async move |tx| {
        let clamped: Vec<WorkflowId> = tx.list(CLAMP_WORKFLOWS, args![now]).await?;
        for id in clamped {
            tx.record_change("workflow", id).await?;
        }
        reset_future_schedules(tx, now).await?;
        lanes::clamp_future_timestamps(tx, WORKFLOW_LANE, LANE_KEY, now, latest).await?;
        lanes::wake_lane(tx, WORKFLOW_LANE, LANE_KEY).await
    })
    .await?;
    db.exec_in_batches(CLAMP_RUNS, vec![latest.into()]).await?;
    db.exec_in_batches(CLAMP_ENDED, vec![now.into()]).await?;
    let steps = vec![WORKFLOW_LANE.into(), LANE_KEY.into(), latest.into(), now.into()];
    db.exec_in_batches(CLAMP_STEPS, steps).await
}

/// Schedules fire at their next time from now, not at that of the clock that was ahead.
async fn reset_future_schedules(tx: &mut Tx, now: Timestamp) -> Result<()> {
    let scheduled: Vec<(WorkflowId, Timestamp, String)> = tx.list(SCHEDULED, args![now, WORKFLOWS_MAX]).await?;
    for (id, set_to, definition) in scheduled {
        // A definition that cannot be parsed does not stop the others.
        let definition: Option<Definition> = from_json(&definition).ok();
        let Some(Trigger::Schedule(on)) = definition.map(|definition| definition.on) else { continue };
        let next = CronSchedule::parse(&on.cron, &on.timezone).ok().and_then(|schedule| schedule.next_after(now));
        if next.is_some_and(|next| next < set_to) {
            tx.exec(SET_NEXT, args![id, next]).await?;
        }
    }
    Ok(())
}
