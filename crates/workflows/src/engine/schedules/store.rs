//! SQL that creates runs for schedules. All times missed while no node was running become one run, which is late.

use kernel::args;
use kernel::base::{MINUTE_MS, Result, Timestamp};
use kernel::jobs::lanes::LeasedLane;
use kernel::store::Db;
use serde_json::json;

use super::super::super::runs::control::store::DEFINITION;
use super::super::super::runs::store::{self as runs, NewRun};
use super::super::super::{Definition, RunId, RunTrigger, Trigger, TriggerKind, WorkflowId};
use super::super::context::EngineContext;
use super::super::store::Upkeep;
use feature_kit::schedule::CronSchedule;

kernel::statements! {
    DUE = "SELECT id, revision, next_run_at, name FROM workflows WHERE tenant_id = $1 AND next_run_at <= $2
        ORDER BY next_run_at, id LIMIT $3";
    /// Only if unchanged: a change of the schedule has set a new time. After any other change the next batch creates the
    /// run, of the new revision.
    SET_NEXT = "UPDATE workflows SET next_run_at = $5
        WHERE tenant_id = $1 AND id = $2 AND next_run_at = $3 AND revision = $4";
}

/// Schedules fired in one transaction.
const FIRES_MAX: i64 = 50;
/// A run created later than this after its scheduled time is late.
const LATE_MS: i64 = MINUTE_MS;

/// Creates runs for due schedules. Returns how many were due; none when the lease is lost.
pub async fn fire_due_schedules(engine: &EngineContext, lane: &LeasedLane, run_max_ms: i64) -> Result<Upkeep> {
    let (db, now) = (lane.db(), lane.db().env().now());
    let due: Vec<(WorkflowId, i64, Timestamp, String)> = db.list(DUE, args![now, FIRES_MAX]).await?;
    let mut fires = Vec::with_capacity(due.len());
    for (id, revision, moment, name) in due {
        // The next time is after now: missed times become one run. A revision that can no longer be run gets a failed run.
        let (next, error) = match engine.get_revision(db, id, revision).await? {
            Ok(loaded) => {
                let schedule = loaded.compiled.schedule.as_ref();
                (schedule.and_then(|schedule| schedule.next_after(now.max(moment))), None)
            }
            Err(error) => (find_next_run(db, id, revision, now.max(moment)).await?, Some(error)),
        };
        fires.push((id, revision, moment, name, next, error));
    }
    if fires.is_empty() {
        return Ok(Some(0));
    }
    let fired = lane.tick_and_write_if_held(async move |tx| {
        let tick = tx.tick().await?;
        let processed = fires.len();
        for (workflow_id, revision, moment, workflow_name, next, error) in fires {
            if tx.exec(SET_NEXT, args![workflow_id, moment, revision, next]).await? == 0 {
                continue;
            }
            if next.is_none() {
                // The record shows whether it is scheduled.
                tx.record_change("workflow", workflow_id).await?;
            }
            // Each run is the root of its own chain.
            let sequence = tx.next_sequence().await?;
            let trigger = RunTrigger {
                kind: TriggerKind::Schedule,
                event_id: None,
                scheduled_for: Some(moment),
                late: now.as_millis() - moment.as_millis() > LATE_MS,
                by: None,
            };
            let new = NewRun {
                workflow_id,
                workflow_name,
                revision,
                depth: 1,
                root: sequence,
                trigger,
                event_sequence: None,
                input: json!({}),
                error,
                dry_run: false,
            };
            let run = new.into_stored(RunId::new_numbered(tx.env(), tick.at, sequence), tick.at, run_max_ms);
            runs::insert_run(tx, &run).await?;
        }
        tx.env().faults.check_in_tx("fire.made.before_commit")?;
        Ok(processed)
    });
    fired.await
}

/// When a schedule fires next, even if other parts of the definition no longer compile.
async fn find_next_run(db: &Db, id: WorkflowId, revision: i64, after: Timestamp) -> Result<Option<Timestamp>> {
    let text: Option<String> = db.find(DEFINITION, args![id, revision]).await?;
    let definition: Option<Definition> = text.and_then(|text| serde_json::from_str(&text).ok());
    let Some(Trigger::Schedule(on)) = definition.map(|definition| definition.on) else { return Ok(None) };
    Ok(CronSchedule::parse(&on.cron, &on.timezone).ok().and_then(|schedule| schedule.next_after(after)))
}
