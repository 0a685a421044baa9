//! SQL of workflows and their revisions.
//!
//! Every change moves the tenant's clock first, and wakes the tenant's lane of workflows last.

use feature_kit::registry;
use feature_kit::request_headers::MASK;
use feature_kit::subscription::matching_patterns;
use kernel::args;
use kernel::audit::{self, AuditChanges, NewAuditEntry};
use kernel::auth::Rights;
use kernel::base::seal::{SealedColumn, SealedValue};
use kernel::base::{ActorRef, Code, Error, Result, Secrets, TenantId, Timestamp};
use kernel::events::follow;
use kernel::http::{IfMatch, PageBytes};
use kernel::jobs::lanes;
use kernel::keyring::{RewrapStatements, SealedColumnStatements};
use kernel::store::{CursorKey, Db, Select, SortDirection, Tick, Tx, Value, references, to_json};
use serde_json::json;

use super::check::CompiledDefinition;
use super::save_check::{CurrentWorkflow, WorkflowToSave};
use super::secrets::{self, StepHeaders};
use super::stored::{RevisionColumns, StoredRevision, StoredWorkflow, WorkflowRecordColumns};
use super::{Definition, FOLLOWER, LANE_KEY, Trigger, WORKFLOW_LANE, WORKFLOWS_MAX, Workflow, WorkflowId};
use feature_kit::schedule::CronSchedule;

kernel::columns! {
    /// The columns of a new workflow.
    struct NewWorkflowColumns in "workflows" {
        id, name, enabled, revision, next_run_at, created_by_type, created_by_id, created_by_name, version, created_at,
        updated_at,
    }
}

kernel::columns! {
    /// The columns of a workflow that a change writes.
    struct ChangedWorkflowColumns in "workflows" by id { id, name, enabled, revision, next_run_at, version, updated_at }
}

kernel::columns! {
    /// All columns of a revision.
    struct NewRevisionColumns in "workflow_revisions" {
        workflow_id, revision, definition, headers, saved_by_type, saved_by_id, saved_by_name, saved_at,
    }
}

kernel::statements! {
    /// One workflow whose current definition names an organization. A tenant has few workflows; CROSS JOIN keeps SQLite
    /// from starting at the revisions, which only grow.
    OF_ORGANIZATION = "SELECT w.id FROM workflows w CROSS JOIN workflow_revisions r
        WHERE w.tenant_id = $1 AND w.deleted_at IS NULL
            AND r.tenant_id = w.tenant_id AND r.workflow_id = w.id AND r.revision = w.revision
            AND r.definition LIKE '%' || CAST($2 AS TEXT) || '%' LIMIT 1";
    /// The sort key and the size of each workflow.
    LIST = "SELECT w.created_at, w.id, CAST(octet_length(r.definition) AS BIGINT) FROM workflows w
        JOIN workflow_revisions r ON r.tenant_id = w.tenant_id AND r.workflow_id = w.id AND r.revision = w.revision
        WHERE w.tenant_id = $1 AND w.deleted_at IS NULL";
    FULL = kernel::sql![
        "SELECT ",
        WorkflowRecordColumns::LIST,
        " FROM workflows w
        JOIN workflow_revisions r ON r.tenant_id = w.tenant_id AND r.workflow_id = w.id AND r.revision = w.revision
        WHERE w.tenant_id = $1 AND w.deleted_at IS NULL"
    ];
    GET = kernel::sql![FULL, " AND w.id = $2"];
    GET_REVISION = kernel::sql![
        "SELECT ",
        RevisionColumns::LIST,
        " FROM workflow_revisions r JOIN workflows w ON w.tenant_id = r.tenant_id AND w.id = r.workflow_id
        WHERE r.tenant_id = $1 AND r.workflow_id = $2 AND r.revision = $3"
    ];
    COUNT = "SELECT COUNT(*) FROM workflows WHERE tenant_id = $1 AND deleted_at IS NULL";
    INSERT = NewWorkflowColumns::INSERT;
    UPDATE = ChangedWorkflowColumns::UPDATE;
    INSERT_REVISION = NewRevisionColumns::INSERT;
    /// Deletes a revision that is not current and has no runs: nothing can refer to it.
    DROP_REVISION = "DELETE FROM workflow_revisions WHERE tenant_id = $1 AND workflow_id = $2 AND revision = $3
            AND revision <> (SELECT w.revision FROM workflows w WHERE w.tenant_id = $1 AND w.id = $2)
            AND NOT EXISTS (SELECT 1 FROM workflow_runs r WHERE r.tenant_id = $1 AND r.workflow_id = $2 AND r.revision = $3)";
    DELETE = "UPDATE workflows SET deleted_at = $3, ends_runs = TRUE, enabled = FALSE, next_run_at = NULL, version = version + 1, updated_at = $3
        WHERE tenant_id = $1 AND id = $2";
    ANY_TRIGGER = "SELECT workflow_id FROM workflow_triggers WHERE tenant_id = $1 LIMIT 1";
    TRIGGERS_OF = "SELECT pattern, after_sequence FROM workflow_triggers WHERE tenant_id = $1 AND workflow_id = $2
        ORDER BY pattern";
    INSERT_TRIGGER = "INSERT INTO workflow_triggers (tenant_id, pattern, workflow_id, after_sequence) VALUES ($1, $2, $3, $4)";
    DELETE_TRIGGERS = "DELETE FROM workflow_triggers WHERE tenant_id = $1 AND workflow_id = $2";
    /// Without erased ones, of deleted workflows.
    COUNT_SEALED_HEADERS = "SELECT substr(headers, 1, 5), COUNT(*) FROM workflow_revisions
        WHERE length(headers) > 0 GROUP BY 1";
    WALK_SEALED_HEADERS = "SELECT tenant_id, workflow_id, revision, headers FROM workflow_revisions
        WHERE (tenant_id, workflow_id, revision) > ($1, $2, $3) ORDER BY tenant_id, workflow_id, revision LIMIT $4";
    REWRAP_HEADERS = "UPDATE workflow_revisions SET headers = $5
        WHERE tenant_id = $1 AND workflow_id = $2 AND revision = $3 AND headers = $4";
}

/// The header values of a revision; the sealed version is the revision's number.
pub const SEALED_HEADERS: SealedColumn<Workflow> = SealedColumn::new("workflow_revisions.headers");

pub const SEALED_COLUMNS: &[SealedColumnStatements] = &[SealedColumnStatements {
    name: SEALED_HEADERS.name(),
    count: COUNT_SEALED_HEADERS,
    rewrap: Some(RewrapStatements { walk: WALK_SEALED_HEADERS, replace: REWRAP_HEADERS }),
}];

/// The sort key of a workflow in the list.
pub type WorkflowSortKey = (Timestamp, WorkflowId);

pub async fn get_workflow(db: &Db, id: WorkflowId) -> Result<Workflow> {
    Ok(db.get_one::<StoredWorkflow>(GET, args![id]).await?.record)
}

/// Newest first. Reads sort keys and sizes, then as many workflows as fit; also returns where the next page starts.
pub async fn list_workflows(
    db: &Db,
    after: Option<WorkflowSortKey>,
    limit: usize,
) -> Result<(Vec<Workflow>, Option<WorkflowSortKey>)> {
    let order = ["w.created_at", "w.id"];
    let mut select = Select::new(LIST);
    if let Some(sort_key) = after {
        select = select.seek_after(&order, SortDirection::Descending, sort_key.to_position());
    }
    let select = select.order_by(&order, SortDirection::Descending).limit(limit + 1);
    let keys: Vec<(Timestamp, WorkflowId, i64)> = db.select(&select).await?;
    let mut bytes = PageBytes::default();
    let fits =
        |(.., size): &&(Timestamp, WorkflowId, i64)| bytes.fits_bytes(usize::try_from(*size).unwrap_or_default());
    let shown: Vec<WorkflowSortKey> = keys.iter().take(limit).take_while(fits).map(|(at, id, _)| (*at, *id)).collect();
    if shown.is_empty() {
        return Ok((Vec::new(), None));
    }
    let select = Select::new(FULL).where_in("w.id", shown.iter().map(|(_, id)| *id));
    let rows: Vec<StoredWorkflow> =
        db.select(&select.order_by(&order, SortDirection::Descending).limit(shown.len())).await?;
    let next = shown.last().copied().filter(|_| keys.len() > shown.len());
    Ok((rows.into_iter().map(|row| row.record).collect(), next))
}

/// The workflow for a change that is about to be checked.
pub async fn load_current(db: &Db, secrets: &Secrets, id: WorkflowId) -> Result<CurrentWorkflow> {
    let StoredWorkflow { record, headers } = db.get_one(GET, args![id]).await?;
    let headers = unseal_headers(db.tenant_id(), secrets, id, record.revision, &headers)?;
    Ok(CurrentWorkflow {
        version: record.version,
        enabled: record.enabled,
        definition: record.to_definition(),
        headers,
    })
}

/// A revision as a run uses it.
pub struct UnsealedRevision {
    pub workflow_name: String,
    /// With header values.
    pub definition: Definition,
    pub saved_by: ActorRef,
}

/// A revision of a workflow, which may be deleted: then its header values are gone.
pub async fn get_revision(db: &Db, secrets: &Secrets, id: WorkflowId, revision: i64) -> Result<UnsealedRevision> {
    let stored: StoredRevision = db.get_one(GET_REVISION, args![id, revision]).await?;
    let StoredRevision { workflow_name, mut definition, headers, saved_by } = stored;
    secrets::restore_header_values(&mut definition, &unseal_headers(db.tenant_id(), secrets, id, revision, &headers)?);
    Ok(UnsealedRevision { workflow_name, definition, saved_by })
}

pub async fn create_workflow(
    tx: &mut Tx,
    rights: &Rights,
    saving: WorkflowToSave,
    secrets: &Secrets,
) -> Result<Workflow> {
    let Tick { at: now, sequence } = tx.tick().await?;
    check_saver(tx, rights, &saving.compiled, "").await?;
    let count: i64 = tx.get_one(COUNT, args![]).await?;
    if count >= WORKFLOWS_MAX {
        let detail = format!("A tenant has at most {WORKFLOWS_MAX} workflows. Delete one that is no longer needed.");
        return Err(Error::new(Code::LimitReached, detail));
    }
    let id = WorkflowId::new(tx.env());
    let WorkflowToSave { compiled, enabled } = saving;
    let by = tx.actor().who.clone();
    let row = NewWorkflowColumns {
        id: id.into(),
        name: compiled.definition.name.as_str().into(),
        enabled: enabled.into(),
        revision: Value::Int(1),
        next_run_at: compute_next_run(tx, enabled, &compiled.definition.on)?.into(),
        created_by_type: by.kind.as_str().into(),
        created_by_id: by.id.into(),
        created_by_name: by.name.into(),
        version: Value::Int(1),
        created_at: now.into(),
        updated_at: now.into(),
    };
    tx.defer_exec(INSERT, row.into_vec()).await?;
    tx.record_change("workflow", id).await?;
    let mut definition = compiled.definition;
    let headers = secrets::take_header_values(&mut definition);
    write_revision(tx, id, 1, &definition, &headers, secrets).await?;
    set_triggers(tx, id, enabled, &definition.on, sequence).await?;
    audit::record_entry(tx, NewAuditEntry::new("workflow.create", "workflow", id)).await?;
    wake_lane(tx).await?;
    Ok(read_workflow(tx, id).await?.record)
}

/// A change of a stored workflow.
pub enum WorkflowUpdate {
    Enable(bool),
    /// A definition that was checked against this version; none if the version could not be read.
    Save {
        version: Option<i64>,
        saving: Result<Box<WorkflowToSave>>,
    },
}

pub async fn update_workflow(
    tx: &mut Tx,
    rights: &Rights,
    id: WorkflowId,
    if_match: &IfMatch,
    change: WorkflowUpdate,
    secrets: &Secrets,
) -> Result<Workflow> {
    let Tick { at: now, sequence } = tx.tick().await?;
    let StoredWorkflow { record: old, headers } = read_workflow(tx, id).await?;
    if_match.check_version(old.version)?;
    let before = old.to_definition();
    let (new, enabled) = match change {
        WorkflowUpdate::Enable(enabled) => (None, enabled),
        WorkflowUpdate::Save { version, .. } if version.is_some_and(|version| version != old.version) => {
            return Err(Error::conflict(
                "Somebody else changed the workflow at the same time. Read it, and try again.",
            ));
        }
        WorkflowUpdate::Save { saving, .. } => {
            let WorkflowToSave { compiled, enabled } = *saving?;
            (Some(compiled), enabled)
        }
    };
    let stored_headers = unseal_headers(tx.tenant_id(), secrets, id, old.revision, &headers)?;
    let new = new.map(|compiled| {
        let mut definition = compiled.definition.clone();
        let headers = secrets::take_header_values(&mut definition);
        (compiled, definition, headers)
    });
    let new = new.filter(|(_, definition, headers)| *definition != before || *headers != stored_headers);
    if new.is_none() && enabled == old.enabled {
        return Ok(old);
    }
    let revision = old.revision + i64::from(new.is_some());
    if let Some((compiled, definition, headers)) = &new {
        let before_json = to_json(&before)?;
        check_saver(tx, rights, compiled, &before_json).await?;
        write_revision(tx, id, revision, definition, headers, secrets).await?;
        let changes = audit_changes(&before, definition, stored_headers != *headers, (old.revision, revision))?;
        audit::record_entry(tx, NewAuditEntry::new("workflow.update", "workflow", id).with_changes(changes)).await?;
    }
    let definition = new.as_ref().map_or(&before, |(_, definition, _)| definition);
    // A time that is due already is not skipped.
    let scheduled = old.next_run_at.filter(|_| enabled && old.enabled && definition.on == before.on);
    let next_run_at = match scheduled {
        Some(scheduled) => Some(scheduled),
        None => compute_next_run(tx, enabled, &definition.on)?,
    };
    let row = ChangedWorkflowColumns {
        id: id.into(),
        name: definition.name.as_str().into(),
        enabled: enabled.into(),
        revision: revision.into(),
        next_run_at: next_run_at.into(),
        version: (old.version + 1).into(),
        updated_at: now.into(),
    };
    tx.defer_exec(UPDATE, row.into_vec()).await?;
    tx.record_change("workflow", id).await?;
    drop_revision(tx, id, old.revision).await?;
    set_triggers(tx, id, enabled, &definition.on, sequence).await?;
    if enabled != old.enabled {
        let action = if enabled { "workflow.enable" } else { "workflow.disable" };
        audit::record_entry(tx, NewAuditEntry::new(action, "workflow", id)).await?;
    }
    wake_lane(tx).await?;
    Ok(read_workflow(tx, id).await?.record)
}

/// Deletes a revision that is neither current nor used by a run. No run can start on it meanwhile: creating a run takes the
/// tenant's clock, as callers of this do, and then reads the current revision.
pub async fn drop_revision(tx: &mut Tx, id: WorkflowId, revision: i64) -> Result<()> {
    tx.defer_exec(DROP_REVISION, vec![id.into(), revision.into()]).await
}

/// Deletes a workflow. Its runs stay readable; the engine ends those that are not over.
pub async fn delete_workflow(tx: &mut Tx, id: WorkflowId, if_match: &IfMatch) -> Result<()> {
    let now = tx.tick().await?.at;
    if_match.check_version(read_workflow(tx, id).await?.record.version)?;
    tx.exec(DELETE, args![id, now]).await?;
    tx.record_change("workflow", id).await?;
    tx.exec(DELETE_TRIGGERS, args![id]).await?;
    audit::record_entry(tx, NewAuditEntry::new("workflow.delete", "workflow", id)).await?;
    wake_lane(tx).await
}

async fn read_workflow(tx: &mut Tx, id: WorkflowId) -> Result<StoredWorkflow> {
    tx.get_one(GET, args![id]).await
}

/// Runs have the authority of the saver, who must hold every scope that they need. Referenced records must exist, except
/// those that the definition named `before`: they are no new references.
async fn check_saver(tx: &mut Tx, rights: &Rights, compiled: &CompiledDefinition, before: &str) -> Result<()> {
    rights.require_all(&compiled.required_scopes()?, "A workflow with these steps and events")?;
    let named = compiled.references.iter().map(|reference| reference.id.clone());
    let unchanged: Vec<String> = named.filter(|id| before.contains(id.as_str())).collect();
    references::send_lookup(tx, &registry().referable, &compiled.references)
        .await?
        .await_check_except(tx, &unchanged)
        .await
}

/// When the schedule fires next, by this node's clock, which lanes use too.
fn compute_next_run(tx: &Tx, enabled: bool, on: &Trigger) -> Result<Option<Timestamp>> {
    match on {
        Trigger::Schedule(schedule) if enabled => {
            let parsed = CronSchedule::parse(&schedule.cron, &schedule.timezone);
            let parsed = parsed.map_err(|bad| Error::internal(format!("a stored schedule: {}", bad.detail)))?;
            Ok(parsed.next_after(tx.env().now()))
        }
        Trigger::Schedule(_) | Trigger::Event(_) | Trigger::Manual(_) => Ok(None),
    }
}

async fn write_revision(
    tx: &mut Tx,
    id: WorkflowId,
    revision: i64,
    definition: &Definition,
    headers: &StepHeaders,
    secrets: &Secrets,
) -> Result<()> {
    let now = tx.tick().await?.at;
    let tenant = tx.tenant_id().ok_or_else(missing_tenant)?;
    let plain = to_json(headers)?;
    let sealed = SEALED_HEADERS.cell_for(tenant, id, revision).seal(secrets, &tx.env().random, plain.as_bytes())?;
    let by = tx.actor().who.clone();
    let row = NewRevisionColumns {
        workflow_id: id.into(),
        revision: revision.into(),
        definition: to_json(definition)?.into(),
        headers: sealed.into(),
        saved_by_type: by.kind.as_str().into(),
        saved_by_id: by.id.into(),
        saved_by_name: by.name.into(),
        saved_at: now.into(),
    };
    tx.defer_exec(INSERT_REVISION, row.into_vec()).await
}

/// Unseals the header values of a revision; empty if the workflow was deleted.
fn unseal_headers(
    tenant: Option<TenantId>,
    secrets: &Secrets,
    id: WorkflowId,
    revision: i64,
    sealed: &SealedValue,
) -> Result<StepHeaders> {
    if sealed.is_empty() {
        return Ok(StepHeaders::new());
    }
    let tenant = tenant.ok_or_else(missing_tenant)?;
    let plain = SEALED_HEADERS.cell_for(tenant, id, revision).open(secrets, sealed)?;
    serde_json::from_slice(&plain).map_err(Error::internal)
}

/// Replaces the event patterns that start a workflow. A change loses no events that are not processed yet and that both
/// definitions name: a pattern begins where one that it had before and that includes it began, and narrower ones that it had are
/// kept until the feed is past the beginning of the wider one.
async fn set_triggers(tx: &mut Tx, id: WorkflowId, enabled: bool, on: &Trigger, sequence: i64) -> Result<()> {
    let patterns: &[String] = match on {
        Trigger::Event(event) if enabled => &event.types,
        Trigger::Event(_) | Trigger::Schedule(_) | Trigger::Manual(_) => &[],
    };
    let any: Option<String> = tx.find(ANY_TRIGGER, args![]).await?;
    if any.is_none() && !patterns.is_empty() {
        follow::begin_following(tx, FOLLOWER).await?;
    }
    let before: Vec<(String, i64)> = tx.list(TRIGGERS_OF, args![id]).await?;
    tx.exec(DELETE_TRIGGERS, args![id]).await?;
    let waits_from = follow::find_position_in_tx(tx, FOLLOWER).await?;
    for (pattern, after) in continue_patterns(&before, patterns, sequence, waits_from) {
        tx.exec(INSERT_TRIGGER, args![pattern, id, after]).await?;
    }
    Ok(())
}

/// Narrower patterns that are kept for the events that wait.
const KEPT_PATTERNS_MAX: usize = 100;

/// Each pattern, with the position after which its events count. `waits_from` is the position up to which all events are
/// processed; none if that is all of them.
fn continue_patterns<'a>(
    before: &'a [(String, i64)],
    patterns: &'a [String],
    sequence: i64,
    waits_from: Option<i64>,
) -> Vec<(&'a str, i64)> {
    let includes = |wide: &str, narrow: &str| matching_patterns(narrow).iter().any(|pattern| pattern == wide);
    let begins = |pattern: &'a String| {
        let wider = before.iter().filter(|(other, _)| includes(other, pattern));
        (pattern.as_str(), wider.map(|(_, after)| *after).min().unwrap_or(sequence))
    };
    let mut begun: Vec<(&str, i64)> = patterns.iter().map(begins).collect();
    let Some(position) = waits_from else { return begun };
    let is_kept = |(narrow, after): &&(String, i64)| {
        let mut wider = begun.iter().filter(|(wide, _)| includes(wide, narrow)).peekable();
        wider.peek().is_some() && wider.all(|(_, begin)| *begin > (*after).max(position))
    };
    let kept: Vec<(&str, i64)> = before
        .iter()
        .filter(is_kept)
        .map(|(narrow, after)| (narrow.as_str(), *after))
        .take(KEPT_PATTERNS_MAX)
        .collect();
    begun.extend(kept);
    begun
}

async fn wake_lane(tx: &mut Tx) -> Result<()> {
    lanes::ensure_lane(tx, WORKFLOW_LANE, LANE_KEY).await?;
    lanes::wake_lane(tx, WORKFLOW_LANE, LANE_KEY).await
}

/// The changed fields for the audit trail, without long values. Header values are reported as changed, but not shown.
fn audit_changes(old: &Definition, new: &Definition, headers: bool, (from, to): (i64, i64)) -> Result<AuditChanges> {
    let mut changes = AuditChanges::default();
    changes.add_if_changed("revision", from, to);
    changes.add_if_changed("name", old.name.as_str(), new.name.as_str());
    let parts = [
        ("on", json!(old.on), json!(new.on)),
        ("input_schema", json!(old.input_schema), json!(new.input_schema)),
        ("steps", json!(old.steps), json!(new.steps)),
    ];
    for (field, old, new) in parts.into_iter().filter(|(_, old, new)| old != new) {
        changes.add_shortened(field, &old, &new)?;
    }
    if headers {
        changes.add_described("headers", &json!(MASK), &json!(format!("{MASK} (new)")));
    }
    Ok(changes)
}

fn missing_tenant() -> Error {
    Error::internal("a workflow belongs to a tenant")
}

#[cfg(test)]
mod tests {
    use super::continue_patterns;

    fn owned(patterns: &[(&str, i64)]) -> Vec<(String, i64)> {
        patterns.iter().map(|(pattern, after)| ((*pattern).to_owned(), *after)).collect()
    }

    fn continued(before: &[(&str, i64)], patterns: &[&str], waits_from: Option<i64>) -> Vec<(String, i64)> {
        let patterns: Vec<String> = patterns.iter().map(|pattern| (*pattern).to_owned()).collect();
        let before = owned(before);
        owned(&continue_patterns(&before, &patterns, 50, waits_from))
    }

    #[test]
    fn a_pattern_goes_on_where_one_that_includes_it_began() {
        let narrowed = continued(&[("ticket.*", 7), ("vm.failed", 9)], &["ticket.created", "vm.*"], None);
        assert_eq!(narrowed, owned(&[("ticket.created", 7), ("vm.*", 50)]));
        assert_eq!(continued(&[("*", 3)], &["ticket.*", "*"], Some(0)), owned(&[("ticket.*", 3), ("*", 3)]));
    }

    #[test]
    fn a_narrower_one_is_kept_while_its_events_wait() {
        let widened = |waits_from| continued(&[("ticket.created", 7), ("vm.failed", 9)], &["ticket.*"], waits_from);
        assert_eq!(widened(Some(20)), owned(&[("ticket.*", 50), ("ticket.created", 7)]));
        assert_eq!(widened(Some(50)), owned(&[("ticket.*", 50)]));
        assert_eq!(widened(None), owned(&[("ticket.*", 50)]));
    }
}
