//! Runs that wait for their turn, written by the product's own statements while the server is away: over HTTP the first
//! would be done before the last are there.

use kernel::base::{Actor, Env, Result};
use kernel::jobs::lanes;
use kernel::store::{Store, StoreOptions, Tx};
use serde_json::json;
use tenant_control::features::workflows::runs::StoredRun;
use tenant_control::features::workflows::runs::store::{NewRun, insert_run};
use tenant_control::features::workflows::{
    LANE_KEY, RunId, RunTrigger, TriggerKind, WORKFLOW_LANE, WorkflowId, WorkflowSettings,
};

use crate::harness::Outcome;

/// Runs under one commit.
const STEP: usize = 250;

/// Queues that many runs of a workflow, and makes its tenant's lane due.
pub async fn fill(options: StoreOptions, tenant: &str, workflow: &str, count: usize) -> Outcome<Vec<StoredRun>> {
    let store = Store::open(options, Env::default()).await?;
    let (db, workflow) = (store.tenant_for_test(tenant.parse()?, Actor::for_system()), workflow.parse()?);
    let mut queued = Vec::with_capacity(count);
    for first in (0..count).step_by(STEP) {
        let last = count.min(first + STEP);
        let written = db.write(async move |tx| {
            let mut written = Vec::with_capacity(STEP);
            for n in first..last {
                written.push(add(tx, workflow, n).await?);
            }
            lanes::wake_lane(tx, WORKFLOW_LANE, LANE_KEY).await?;
            Ok(written)
        });
        queued.extend(written.await?);
    }
    store.close().await;
    Ok(queued)
}

/// As a call would have made it.
async fn add(tx: &mut Tx, workflow_id: WorkflowId, n: usize) -> Result<StoredRun> {
    let at = tx.tick().await?.at;
    let by = Some(tx.actor().who.clone());
    let new = NewRun {
        workflow_id,
        workflow_name: "Report a host".to_owned(),
        revision: 1,
        depth: 1,
        root: n as i64,
        trigger: RunTrigger { kind: TriggerKind::Manual, event_id: None, scheduled_for: None, late: false, by },
        event_sequence: None,
        input: json!({"host": format!("host-{n:06}")}),
        error: None,
        dry_run: false,
    };
    let id = RunId::new_numbered(tx.env(), at, n as i64);
    let run = new.into_stored(id, at, WorkflowSettings::default().run_max_ms);
    insert_run(tx, &run).await?;
    Ok(run)
}
