//! SQL that creates runs for events: in the order of the events, and at most one per event and workflow.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use feature_kit::subscription::{is_for_one_endpoint, matching_patterns};
use kernel::args;
use kernel::base::{Code, Error, Result};
use kernel::events::follow::{self, EventHead};
use kernel::jobs::lanes::LeasedLane;
use kernel::store::{Db, Tx};
use serde_json::{Value, json};

use super::super::super::runs::store::{self as runs, NewRun};
use super::super::super::{
    CHAIN_DEPTH_MAX, FOLLOWER, RunError, RunId, RunTrigger, StepError, TriggerKind, WorkflowId, WorkflowSettings,
};
use super::super::context::EngineContext;
use super::super::evaluate::passes_filter;
use super::super::store::Upkeep;

kernel::statements! {
    /// The triggers of a tenant, which are few.
    TRIGGERS = "SELECT g.pattern, g.workflow_id, g.after_sequence, w.revision, w.name FROM workflow_triggers g
        JOIN workflows w ON w.tenant_id = g.tenant_id AND w.id = g.workflow_id
        WHERE g.tenant_id = $1 ORDER BY g.workflow_id, g.pattern LIMIT $2";
    /// The current revision, if the workflow still has a trigger for events of this position.
    IN_FORCE = "SELECT w.revision FROM workflows w WHERE w.tenant_id = $1 AND w.id = $2 AND w.enabled
        AND w.deleted_at IS NULL AND EXISTS (SELECT 1 FROM workflow_triggers g
            WHERE g.tenant_id = $1 AND g.workflow_id = $2 AND g.after_sequence < $3)";
    COUNT_CHAIN = "SELECT COUNT(*) FROM (SELECT id FROM workflow_runs WHERE tenant_id = $1 AND root = $2 AND depth > 1
        LIMIT $3) AS chain";
}

/// A tenant has at most 200 workflows, each with at most 50 patterns.
const TRIGGERS_MAX: i64 = 10_000;
/// Events examined in one batch.
const HEADS_MAX: i64 = 1_000;
/// Filters evaluated and runs created in one batch.
const RUNS_MAX: usize = 100;

struct EventTriggerRow {
    workflow_id: WorkflowId,
    after_sequence: i64,
    revision: i64,
    name: String,
}

/// Creates runs for new events. Returns 1 if events were examined, else 0; none when the lease is lost.
pub async fn follow_events(engine: &EngineContext, lane: &LeasedLane) -> Result<Upkeep> {
    let db = lane.db();
    let Some(position) = follow::find_position(db, FOLLOWER).await? else { return Ok(Some(0)) };
    let room = match queue_room(db, &engine.settings).await? {
        // Events stay in the feed until the queue has room for their runs.
        0 => return Ok(Some(0)),
        room => room.min(RUNS_MAX),
    };
    let (heads, triggers) = (follow::list_next(db, position, HEADS_MAX).await?, load_triggers(db).await?);
    let mut reached = heads.last().map_or(position, |head| head.sequence);
    let (mut new_runs, mut evaluated, mut chains) = (Vec::new(), 0, ChainCounts::default());
    for head in &heads {
        let matching = matching_triggers(&triggers, head);
        if matching.is_empty() {
            continue;
        }
        // A run beyond the maximum depth is created and fails; its own events start no runs.
        if head.chain.depth > CHAIN_DEPTH_MAX {
            continue;
        }
        if evaluated > 0 && evaluated + matching.len() > room {
            reached = head.sequence - 1;
            break;
        }
        let Some(event) = find_event(db, head.sequence).await? else { continue };
        evaluated += matching.len();
        for workflow in matching {
            if let Some(new) = engine.build_event_run(db, workflow, head, &event).await? {
                new_runs.extend(
                    chains.admit_run(db, new, engine.settings.runs_chained).await?.map(|new| (head.sequence, new)),
                );
            }
            // Evaluating filters takes a while; other tasks get to run in between.
            tokio::task::yield_now().await;
        }
    }
    let run_max_ms = engine.settings.run_max_ms;
    let written = lane.tick_and_write_if_held(async move |tx| {
        // The last trigger was disabled meanwhile, and perhaps enabled again: the follower starts over, and so does this.
        if !follow::advance_position(tx, FOLLOWER, position, reached).await? {
            return Ok(1);
        }
        for (number, new) in new_runs {
            create_run(tx, new, number, run_max_ms).await?;
        }
        tx.env().faults.check_in_tx("follow.made.before_commit")?;
        Ok(1)
    });
    match written.await {
        // The workflow was changed meanwhile: its events are filtered again by the new revision.
        Err(error) if error.code() == Code::Conflict => Ok(Some(1)),
        written => written,
    }
}

async fn create_run(tx: &mut Tx, new: NewRun, number: i64, run_max_ms: i64) -> Result<()> {
    // The workflow was disabled meanwhile, if only briefly: it starts no run for this event.
    let Some(revision) = tx.find::<i64>(IN_FORCE, args![new.workflow_id, number]).await? else { return Ok(()) };
    if revision != new.revision {
        return Err(Error::conflict("the workflow has been changed"));
    }
    let at = tx.tick().await?.at;
    let id = RunId::new_numbered(tx.env(), at, number);
    let run = new.into_stored(id, at, run_max_ms);
    runs::insert_run(tx, &run).await
}

async fn load_triggers(db: &Db) -> Result<HashMap<String, Vec<EventTriggerRow>>> {
    let rows: Vec<(String, WorkflowId, i64, i64, String)> = db.list(TRIGGERS, args![TRIGGERS_MAX]).await?;
    let mut triggers: HashMap<String, Vec<EventTriggerRow>> = HashMap::new();
    for (pattern, workflow_id, after_sequence, revision, name) in rows {
        triggers.entry(pattern).or_default().push(EventTriggerRow { workflow_id, after_sequence, revision, name });
    }
    Ok(triggers)
}

/// The workflows whose triggers match an event, each once. Events for a single endpoint match none.
fn matching_triggers<'a>(
    triggers: &'a HashMap<String, Vec<EventTriggerRow>>,
    head: &EventHead,
) -> Vec<&'a EventTriggerRow> {
    let mut matching: Vec<&EventTriggerRow> = Vec::new();
    if is_for_one_endpoint(&head.kind) {
        return matching;
    }
    for pattern in matching_patterns(&head.kind) {
        for workflow in triggers.get(&pattern).into_iter().flatten() {
            let is_listed = matching.iter().any(|other| other.workflow_id == workflow.workflow_id);
            if !is_listed && workflow.after_sequence < head.sequence {
                matching.push(workflow);
            }
        }
    }
    matching.sort_by_key(|workflow| workflow.workflow_id);
    matching
}

async fn find_event(db: &Db, sequence: i64) -> Result<Option<Value>> {
    let body = follow::find_body(db, sequence).await?;
    // An event that cannot be parsed does not block the others: expressions read it as null.
    Ok(body.map(|body| serde_json::from_str(&body).unwrap_or(Value::Null)))
}

impl EngineContext {
    /// The run for an event, if it passes the filter. If the filter fails, or the definition can no longer be run, the run
    /// is created with that error and fails.
    async fn build_event_run(
        &self,
        db: &Db,
        workflow: &EventTriggerRow,
        head: &EventHead,
        event: &Value,
    ) -> Result<Option<NewRun>> {
        let now = db.env().now();
        let error = match self.get_revision(db, workflow.workflow_id, workflow.revision).await? {
            Err(error) => Some(error),
            Ok(revision) => match revision.compiled.filter.as_ref().map(|filter| passes_filter(filter, event, now)) {
                Some(Ok(false)) => return Ok(None),
                Some(Err(StepError { code, detail, .. })) => Some(RunError { code, detail, step_id: None }),
                Some(Ok(true)) | None => None,
            },
        };
        let trigger = RunTrigger {
            kind: TriggerKind::Event,
            event_id: Some(head.id.to_string()),
            scheduled_for: None,
            late: false,
            by: None,
        };
        let new = NewRun {
            workflow_id: workflow.workflow_id,
            workflow_name: workflow.name.clone(),
            revision: workflow.revision,
            depth: head.chain.depth + 1,
            root: if head.chain.depth == 0 { head.sequence } else { head.chain.root },
            trigger,
            event_sequence: Some(head.sequence),
            input: json!({}),
            error,
            dry_run: false,
        };
        Ok(Some(new))
    }
}

/// The number of runs in each chain of this batch.
#[derive(Default)]
struct ChainCounts(HashMap<i64, i64>);

impl ChainCounts {
    /// Counts a run in its chain. The first run beyond the limit is created and fails; further runs are not created.
    async fn admit_run(&mut self, db: &Db, mut new: NewRun, runs_max: i64) -> Result<Option<NewRun>> {
        // A chain from before chains were counted has no root; its depth bounds it.
        if new.depth == 1 || new.root == 0 {
            return Ok(Some(new));
        }
        let count = match self.0.entry(new.root) {
            Entry::Occupied(occupied) => occupied.into_mut(),
            Entry::Vacant(vacant) => vacant.insert(db.get_one(COUNT_CHAIN, args![new.root, runs_max + 1]).await?),
        };
        *count += 1;
        if *count == runs_max + 1 {
            let detail = format!("One cause has started more than {runs_max} runs. No more are started.");
            new.error = Some(RunError { code: "loop_detected".to_owned(), detail, step_id: None });
        }
        Ok((*count <= runs_max + 1).then_some(new))
    }
}

async fn queue_room(db: &Db, settings: &WorkflowSettings) -> Result<usize> {
    let queued: i64 = db.get_one(runs::COUNT_QUEUED, args![settings.runs_queued]).await?;
    Ok(usize::try_from(settings.runs_queued - queued).unwrap_or(0))
}
