//! SQL that writes the facts of records of before there were facts: once, when a server of this version opens such a store for
//! the first time, and before it serves. So nobody changes a record meanwhile.
//!
//! What each record was like between its creation and now is not known of all of them: a ticket counts with its last resolution,
//! and a device or machine as if it had always been in its present state. What happened often and is not kept, such as requests
//! and deliveries, is counted from now on.

use std::time::Duration;

use cloud_fleet::vms::facts::{CountedVm, vm_fact};
use figures::cells::{
    BACKUPS_FAILED, BACKUPS_MISSED, BACKUPS_SUCCEEDED, BACKUPS_WARNING, BORN, BORN_OPEN, DEVICES, DEVICES_ADDED,
    DEVICES_IN_SCOPE, DEVICES_PROTECTED, DEVICES_REMOVED, FIRST_RESPONSE_MS, ORGANIZATION, PRIORITY, RESOLUTION_MS,
    RUN_DURATION_MS, RUNS, RUNS_CANCELLED, RUNS_FAILED, RUNS_SUCCEEDED, STATUS, TICKETS_CREATED, TICKETS_OPEN,
    TICKETS_RESOLVED,
};
use figures::{Fact, Group};
use fleet::devices::DeviceStatus;
use fleet::devices::facts::status_cell;
use kernel::args;
use kernel::base::{Result, StringEnum, TenantId, Timestamp};
use kernel::store::{Db, FactRetention, FromRow, Row, Tx, from_optional_json, insert_facts};
use tickets::{Priority, TicketStatus};

kernel::statements! {
    NEXT_TENANT = "SELECT tenant_id FROM fact_backfills LIMIT 1";
    NEXT = "SELECT tenant_id, kind, position, at FROM fact_backfills ORDER BY tenant_id LIMIT 1";
    MOVE = "UPDATE fact_backfills SET kind = $2, position = $3 WHERE tenant_id = $1";
    DELETE = "DELETE FROM fact_backfills WHERE tenant_id = $1";
    TICKETS = "SELECT id, created_at, status, priority, organization_id, first_responded_at, resolved_at, updated_at FROM tickets
        WHERE tenant_id = $1 AND id > $2 ORDER BY id LIMIT $3";
    DEVICE_ROWS = "SELECT id, created_at, status, deleted_at FROM devices WHERE tenant_id = $1 AND id > $2 ORDER BY id LIMIT $3";
    VMS = "SELECT id, created_at, state, cost FROM vms WHERE tenant_id = $1 AND id > $2 AND deleted_at IS NULL
        ORDER BY id LIMIT $3";
    RUNS_OF_WORKFLOWS = "SELECT id, created_at, status, ended_at FROM workflow_runs WHERE tenant_id = $1 AND id > $2
        AND NOT dry_run ORDER BY id LIMIT $3";
    BACKUPS = "SELECT id, ended_at, status FROM backup_runs WHERE tenant_id = $1 AND id > $2 AND kind = 'backup'
        ORDER BY id LIMIT $3";
    POSTURES = "SELECT organization_id, in_scope, protected FROM backup_postures WHERE tenant_id = $1 AND organization_id > $2
        ORDER BY organization_id LIMIT $3";
}

/// Records of one transaction.
const BATCH_ROWS: i64 = 1_000;
/// After so many it is said how far it is.
const LOGGED_ROWS: usize = 100_000;
/// How long a node waits for another that is at it.
const WAIT: Duration = Duration::from_millis(200);

/// The kinds of records, in the order in which their facts are written.
const KINDS: [&str; 6] = ["tickets", "devices", "vms", "workflow_runs", "backup_runs", "backup_postures"];

/// Writes the facts of all records that have none yet. After an interruption it goes on where it was. Returns how many records
/// there were.
pub async fn backfill_facts(system: &Db) -> Result<usize> {
    let mut all = 0;
    while system.find::<TenantId>(NEXT_TENANT, args![]).await?.is_some() {
        match system.write(async |tx| backfill_batch(tx).await).await? {
            Some(rows) => {
                all += rows;
                if all / LOGGED_ROWS > (all - rows) / LOGGED_ROWS {
                    tracing::info!(
                        records = all,
                        "counting what was there before: the server starts when all is counted"
                    );
                }
            }
            None => tokio::time::sleep(WAIT).await,
        }
    }
    Ok(all)
}

/// Some records of a kind; none while another node does it.
async fn backfill_batch(tx: &mut Tx) -> Result<Option<usize>> {
    if !tx.try_lock("analytics.backfill").await? {
        return Ok(None);
    }
    let next: Option<(TenantId, String, String, Timestamp)> = tx.find(NEXT, args![]).await?;
    let Some((tenant, kind, position, at)) = next else { return Ok(Some(0)) };
    let records = read_facts(tx, tenant, &kind, &position, at).await?;
    let facts: Vec<(TenantId, Fact)> =
        records.iter().flat_map(|(_, facts)| facts.iter().map(|fact| (tenant, fact.clone()))).collect();
    insert_facts(tx, &facts, FactRetention::Long).await?;
    let following = KINDS.iter().position(|known| *known == kind).and_then(|index| KINDS.get(index + 1));
    match (records.last(), following) {
        (Some((last, _)), _) if records.len() as i64 == BATCH_ROWS => tx.exec(MOVE, args![tenant, kind, last]).await?,
        (_, Some(following)) => tx.exec(MOVE, args![tenant, following, ""]).await?,
        (_, None) => tx.exec(DELETE, args![tenant]).await?,
    };
    Ok(Some(records.len()))
}

/// The next records of a kind by their ids, with their facts.
async fn read_facts(
    tx: &mut Tx,
    tenant: TenantId,
    kind: &str,
    after: &str,
    now: Timestamp,
) -> Result<Vec<(String, Vec<Fact>)>> {
    let values = args![tenant, after, BATCH_ROWS];
    Ok(match kind {
        "tickets" => tx.list::<TicketRow>(TICKETS, values).await?.into_iter().map(ticket_facts).collect(),
        "devices" => tx.list::<DeviceRow>(DEVICE_ROWS, values).await?.into_iter().map(device_facts).collect(),
        "vms" => {
            let rows: Vec<(String, Timestamp, String, Option<String>)> = tx.list(VMS, values).await?;
            let mut facts = Vec::with_capacity(rows.len());
            for (id, created_at, state, cost) in rows {
                let counted = CountedVm::new(
                    StringEnum::from_stored(&state)?,
                    from_optional_json(cost.as_deref())?.as_ref(),
                    true,
                );
                facts.push((id, vec![vm_fact(None, &counted, created_at)]));
            }
            facts
        }
        "workflow_runs" => tx.list::<RunRow>(RUNS_OF_WORKFLOWS, values).await?.into_iter().map(run_facts).collect(),
        "backup_runs" => {
            let rows: Vec<(String, Timestamp, String)> = tx.list(BACKUPS, values).await?;
            rows.into_iter().map(backup_facts).collect()
        }
        _ => {
            let rows: Vec<(String, i64, i64)> = tx.list(POSTURES, values).await?;
            let fact = |(id, in_scope, protected)| {
                let mut fact = Fact::new(now.as_millis());
                fact.add_count(DEVICES_IN_SCOPE, in_scope);
                fact.add_count(DEVICES_PROTECTED, protected);
                (id, vec![fact])
            };
            rows.into_iter().map(fact).collect()
        }
    })
}

/// What is counted of a ticket.
struct TicketRow {
    id: String,
    created_at: Timestamp,
    status: String,
    priority: i64,
    organization: Option<String>,
    responded_at: Option<Timestamp>,
    resolved_at: Option<Timestamp>,
    updated_at: Timestamp,
}

impl FromRow for TicketRow {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        Ok(TicketRow {
            id: row.get(0)?,
            created_at: row.get(1)?,
            status: row.get(2)?,
            priority: row.get(3)?,
            organization: row.get(4)?,
            responded_at: row.get(5)?,
            resolved_at: row.get(6)?,
            updated_at: row.get(7)?,
        })
    }
}

fn ticket_facts(row: TicketRow) -> (String, Vec<Fact>) {
    let TicketRow { id, created_at, status, priority, organization, responded_at, resolved_at, updated_at } = row;
    let is_done = TicketStatus::from_stored(&status).is_ok_and(TicketStatus::is_done);
    let priority = Priority::from_rank(priority).unwrap_or(Priority::Medium);
    let at = |at: Timestamp| Fact { born_at: Some(created_at.as_millis()), ..Fact::new(at.as_millis()) };
    let since_creation = |at: Timestamp| at.as_millis() - created_at.as_millis();
    let mut created = at(created_at);
    created.add_count(TICKETS_CREATED, 1);
    created.add_count(TICKETS_OPEN, 1);
    created.group_mut(Group::new(STATUS, status)).add_count(BORN, 1);
    created.group_mut(Group::new(PRIORITY, priority.as_str())).add_count(BORN, 1);
    let organization = Group::new(ORGANIZATION, organization.unwrap_or_default());
    created.group_mut(organization.clone()).add_count(BORN, 1);
    created.group_mut(organization.clone()).add_count(BORN_OPEN, 1);
    let mut facts = vec![created];
    if let Some(responded_at) = responded_at {
        let mut fact = at(responded_at);
        fact.add_sample(FIRST_RESPONSE_MS, since_creation(responded_at));
        facts.push(fact);
    }
    if let Some(resolved_at) = resolved_at {
        let mut fact = at(resolved_at);
        fact.add_count(TICKETS_RESOLVED, 1);
        fact.add_sample(RESOLUTION_MS, since_creation(resolved_at));
        facts.push(fact);
    }
    if is_done {
        let mut fact = at(resolved_at.unwrap_or(updated_at));
        fact.add_count(TICKETS_OPEN, -1);
        fact.group_mut(organization).add_count(BORN_OPEN, -1);
        facts.push(fact);
    }
    (id, facts)
}

/// Id, creation, status, deletion.
type DeviceRow = (String, Timestamp, String, Option<Timestamp>);

fn device_facts((id, created_at, status, deleted_at): DeviceRow) -> (String, Vec<Fact>) {
    let cell = status_cell(StringEnum::from_stored(&status).unwrap_or(DeviceStatus::Stale));
    let mut added = Fact::new(created_at.as_millis());
    for cell in [DEVICES, DEVICES_ADDED, cell] {
        added.add_count(cell, 1);
    }
    let removed = deleted_at.map(|deleted_at| {
        let mut removed = Fact::new(deleted_at.as_millis());
        removed.add_count(DEVICES_REMOVED, 1);
        for cell in [DEVICES, cell] {
            removed.add_count(cell, -1);
        }
        removed
    });
    (id, std::iter::once(added).chain(removed).collect())
}

/// Id, creation, status, end.
type RunRow = (String, Timestamp, String, Option<Timestamp>);

fn run_facts((id, created_at, status, ended_at): RunRow) -> (String, Vec<Fact>) {
    let mut created = Fact::new(created_at.as_millis());
    created.add_count(RUNS, 1);
    let ended = ended_at.map(|ended_at| {
        let mut ended = Fact::new(ended_at.as_millis());
        let cell = match status.as_str() {
            "succeeded" | "skipped" => RUNS_SUCCEEDED,
            "cancelled" => RUNS_CANCELLED,
            _ => RUNS_FAILED,
        };
        ended.add_count(cell, 1);
        ended.add_sample(RUN_DURATION_MS, ended_at.as_millis() - created_at.as_millis());
        ended
    });
    (id, std::iter::once(created).chain(ended).collect())
}

fn backup_facts((id, ended_at, status): (String, Timestamp, String)) -> (String, Vec<Fact>) {
    let mut fact = Fact::new(ended_at.as_millis());
    let cell = match status.as_str() {
        "success" => BACKUPS_SUCCEEDED,
        "warning" => BACKUPS_WARNING,
        "missed" => BACKUPS_MISSED,
        _ => BACKUPS_FAILED,
    };
    fact.add_count(cell, 1);
    (id, vec![fact])
}
