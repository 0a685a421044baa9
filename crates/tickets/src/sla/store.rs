//! SQL of SLA policies, which the operator sets at the command line.

use kernel::args;
use kernel::audit::{self, AuditChanges, NewAuditEntry};
use kernel::base::{Error, Result, StringEnum};
use kernel::store::{Db, FromRow, PendingRows, Row, Tx};
use serde_json::json;

use super::super::Priority;
use super::{PriorityPolicy, SlaPolicy};

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

impl FromRow for SlaPolicy {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        Ok(SlaPolicy {
            first_response_minutes: row.get(0)?,
            resolution_minutes: row.get(1)?,
            hours: row.get(2)?,
            timezone: row.get(3)?,
        })
    }
}

impl FromRow for PriorityPolicy {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        Ok(PriorityPolicy { priority: Priority::from_rank(row.get(4)?)?, policy: SlaPolicy::from_row(row)? })
    }
}

pub async fn find_policy(tx: &mut Tx, priority: Priority) -> Result<Option<SlaPolicy>> {
    tx.find(FIND, args![priority.rank()]).await
}

/// Sends the query without waiting for its rows.
pub async fn send_policy_query(tx: &mut Tx, priority: Priority) -> Result<PendingRows<SlaPolicy>> {
    tx.defer_query(FIND, vec![priority.rank().into()]).await
}

pub async fn list_policies(db: &Db) -> Result<Vec<PriorityPolicy>> {
    db.list(LIST, args![]).await
}

/// Applies to tickets that are created, or get this priority, from now on.
pub async fn set_policy(db: &Db, target: PriorityPolicy) -> Result<PriorityPolicy> {
    let PriorityPolicy { priority, policy } = target;
    let policy = policy.into_checked()?;
    db.write(async move |tx| {
        let now = tx.tick().await?.at;
        let old = find_policy(tx, priority).await?;
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
        record_audit(tx, "sla.set", priority, old.as_ref(), Some(&new)).await?;
        Ok(PriorityPolicy { priority, policy: new })
    })
    .await
}

/// Existing tickets keep their copy of the policy.
pub async fn delete_policy(db: &Db, priority: Priority) -> Result<()> {
    db.write(async move |tx| {
        tx.tick().await?;
        let old = find_policy(tx, priority).await?.ok_or_else(|| {
            Error::conflict(format!("There is no service level for the priority {}.", priority.as_str()))
        })?;
        tx.exec(DELETE, args![priority.rank()]).await?;
        record_audit(tx, "sla.delete", priority, Some(&old), None).await
    })
    .await
}

async fn record_audit(
    tx: &mut Tx,
    action: &'static str,
    priority: Priority,
    old: Option<&SlaPolicy>,
    new: Option<&SlaPolicy>,
) -> Result<()> {
    let mut changes = AuditChanges::default();
    changes.add_if_changed(priority.as_str(), json!(old), json!(new));
    let tenant = tx.tenant_id().map(|id| id.to_string()).unwrap_or_default();
    audit::record_entry(tx, NewAuditEntry::new(action, "tenant", tenant).with_changes(changes)).await
}
