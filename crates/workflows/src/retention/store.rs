//! SQL of the retention of runs and deleted workflows.

use kernel::args;
use kernel::base::{Result, TenantId, Timestamp};
use kernel::store::{Db, Tx};

use super::super::store::drop_revision;
use super::super::{RunId, WORKFLOW_LANE, WorkflowId};

kernel::statements! {
    NEXT_TENANT = "SELECT MIN(tenant_id) FROM workflows WHERE tenant_id > $1";
    OLD_RUNS = "SELECT id, workflow_id, revision FROM workflow_runs WHERE tenant_id = $1 AND ended_at < $2 ORDER BY ended_at, id LIMIT $3";
    DELETE_STEPS = "DELETE FROM steps WHERE tenant_id = $1 AND kind = $2 AND owner_id = $3";
    /// Unless the run was just retried.
    DELETE_RUN = "DELETE FROM workflow_runs WHERE tenant_id = $1 AND id = $2 AND ended_at < $3";
    /// Deleted workflows that have no runs left.
    EXPIRED_WORKFLOWS = "SELECT w.id FROM workflows w WHERE w.tenant_id = $1 AND w.deleted_at < $2 AND NOT w.ends_runs
            AND NOT EXISTS (SELECT 1 FROM workflow_runs r WHERE r.tenant_id = $1 AND r.workflow_id = w.id)
        ORDER BY w.id LIMIT $3";
    DELETE_REVISIONS = "DELETE FROM workflow_revisions WHERE tenant_id = $1 AND workflow_id = $2";
    DELETE_WORKFLOW = "DELETE FROM workflows WHERE tenant_id = $1 AND id = $2";
    WAITING = "SELECT COUNT(*) FROM (SELECT id FROM workflow_runs WHERE status = 'pending' LIMIT $1) AS waiting";
}

/// Runs deleted in one transaction, each with its steps.
const RUNS_MAX: i64 = 50;

/// The next tenant that has or had workflows.
pub async fn find_tenant_after(db: &Db, after: Option<TenantId>) -> Result<Option<TenantId>> {
    let after = after.map(|tenant| tenant.to_string()).unwrap_or_default();
    db.get_one(NEXT_TENANT, args![after]).await
}

/// Deletes one batch; returns whether there may be more.
pub async fn clean_runs(tx: &mut Tx, before: Timestamp) -> Result<bool> {
    let old: Vec<(RunId, WorkflowId, i64)> = tx.list(OLD_RUNS, args![before, RUNS_MAX]).await?;
    if !old.is_empty() {
        // The tenant's clock is taken so that no run is created on a revision that is deleted here.
        tx.tick().await?;
    }
    for (id, workflow, revision) in &old {
        if tx.exec(DELETE_RUN, args![*id, before]).await? == 1 {
            tx.defer_exec(DELETE_STEPS, vec![WORKFLOW_LANE.into(), (*id).into()]).await?;
            drop_revision(tx, *workflow, *revision).await?;
        }
    }
    if !old.is_empty() {
        return Ok(true);
    }
    let expired: Vec<WorkflowId> = tx.list(EXPIRED_WORKFLOWS, args![before, RUNS_MAX]).await?;
    for id in &expired {
        tx.defer_exec(DELETE_REVISIONS, vec![(*id).into()]).await?;
        tx.defer_exec(DELETE_WORKFLOW, vec![(*id).into()]).await?;
    }
    Ok(!expired.is_empty())
}

/// The number of queued runs of all tenants, up to `max`.
pub async fn count_waiting_runs(db: &Db, max: i64) -> Result<i64> {
    db.get_one(WAITING, args![max]).await
}
