//! SQL of SLA policies, which the operator sets at the command line.

use kernel::args;
use kernel::audit::{self, Changes, Entry};
use kernel::base::{Error, Result, Word};
use kernel::store::{Ahead, Db, FromRow, Row, Tx};
use serde_json::json;

use super::super::Priority;
use super::{Policy, PriorityPolicy};

kernel::statements! {
    FIND = "SELECT first_response_minutes, resolution_minutes, hours, timezone FROM sla_targets
        WHERE tenant_id = $1 AND priority = $2";
    LIST = "SELECT first_response_minutes, resolution_minutes, hours, timezone, priority FROM sla_targets
        WHERE tenant_id = $1 ORDER BY priority";
    SET = "INSERT INTO sla_targets (tenant_id, priority, first_response_minutes, resolution_minutes, hours, timezone, updated_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7)
        ON CONFLICT (tenant_id, priority) DO UPDATE SET first_response_minutes = $3, resolution_minutes = $4, hours = $5,
            timezone = $6, updated_at = $7";
    DELETE = "DELETE FROM sla_targets WHERE tenant_id = $1 AND priority = $2";
}

impl FromRow for Policy {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        Ok(Policy {
            first_response_minutes: row.get(0)?,
            resolution_minutes: row.get(1)?,
            hours: row.get(2)?,
            timezone: row.get(3)?,
        })
    }
}

impl FromRow for PriorityPolicy {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        Ok(PriorityPolicy { priority: Priority::from_rank(row.get(4)?)?, policy: Policy::from_row(row)? })
    }
}

pub async fn find(tx: &mut Tx, priority: Priority) -> Result<Option<Policy>> {
    tx.find(FIND, args![priority.rank()]).await
}

/// Sends the query without waiting for its rows.
pub async fn ask(tx: &mut Tx, priority: Priority) -> Result<Ahead<Policy>> {
    tx.ask(FIND, vec![priority.rank().into()]).await
}

pub async fn list(db: &Db) -> Result<Vec<PriorityPolicy>> {
    db.list(LIST, args![]).await
}

/// Applies to tickets that are created, or get this priority, from now on.
pub async fn set(db: &Db, target: PriorityPolicy) -> Result<PriorityPolicy> {
    let PriorityPolicy { priority, policy } = target;
    let policy = policy.check()?;
    db.write(async move |tx| {
        let now = tx.tick().await?.at;
        let old = find(tx, priority).await?;
        let new = policy.clone();
        tx.exec(
            SET,
            args![
                priority.rank(),
                policy.first_response_minutes,
                policy.resolution_minutes,
                policy.hours,
                policy.timezone,
                now
            ],
        )
        .await?;
        note(tx, "sla.set", priority, old.as_ref(), Some(&new)).await?;
        Ok(PriorityPolicy { priority, policy: new })
    })
    .await
}

/// Existing tickets keep their copy of the policy.
pub async fn delete(db: &Db, priority: Priority) -> Result<()> {
    db.write(async move |tx| {
        tx.tick().await?;
        let old = find(tx, priority)
            .await?
            .ok_or_else(|| Error::conflict(format!("Nothing is promised for the priority {}.", priority.as_str())))?;
        tx.exec(DELETE, args![priority.rank()]).await?;
        note(tx, "sla.delete", priority, Some(&old), None).await
    })
    .await
}

async fn note(
    tx: &mut Tx,
    action: &'static str,
    priority: Priority,
    old: Option<&Policy>,
    new: Option<&Policy>,
) -> Result<()> {
    let mut changes = Changes::default();
    changes.add(priority.as_str(), json!(old), json!(new));
    let tenant = tx.tenant_id().map(|id| id.to_string()).unwrap_or_default();
    audit::record(tx, Entry::new(action, "tenant", tenant).changes(changes)).await
}
