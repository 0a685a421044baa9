//! SQL of reports.

use backup_reports::{BackupTool, JudgedRun, RunReason, ToolOutput, judge_run};
use fleet::devices::DeviceId;
use fleet::ingest_keys::{self, IngestReach};
use kernel::args;
use kernel::base::{DAY_MS, Error, RecordId, Result, StringEnum};
use kernel::events;
use kernel::store::{Db, Tx, from_json, to_json};
use people::organizations::OrganizationId;

use super::input::{DeclaredRun, Evidence, JobReport};
use super::{AcceptedReport, BACKUP_JOB_FAILED, JobOutcome, JobReason, JobRun, JobRunId, Tool};
use crate::posture::pending::store::{find_inventory_device, find_namesakes};
use crate::posture::record::RunFacts;
use crate::posture::rows::InventoryDevice;
use crate::posture::store::PostureUpdate;
use crate::posture::{JobKind, RunStatus};
use crate::runs::store::{RunRow, insert_run};

kernel::statements! {
    FIND_ACCEPTED = "SELECT id, status, reasons, device_id, kind, job FROM backup_runs WHERE tenant_id = $1 AND external_id = $2";
    /// Over all tenants.
    CLEAN = "DELETE FROM backup_runs WHERE (tenant_id, id) IN
        (SELECT r.tenant_id, r.id FROM backup_runs r WHERE r.received_at < $1 ORDER BY r.received_at LIMIT $2)";
}

/// A run that failed longer ago is history, which somebody imports: nobody is to be woken for each of its failures.
const ALARM_MS_MAX: i64 = 7 * DAY_MS;

/// A report with the verdict on it.
pub struct JudgedReport {
    report: JobReport,
    verdict: Verdict,
}

/// What became of a run.
struct Verdict {
    tool: Tool,
    tool_name: Option<String>,
    exit_code: Option<i64>,
    status: RunStatus,
    reasons: Vec<JobReason>,
    outcome: JobOutcome,
    /// Whether a verification found what is stored to be damaged.
    has_found_errors: bool,
}

/// Judges a report by what the tool printed. That may be megabytes, which are freed.
pub fn judge_report(mut report: JobReport) -> JudgedReport {
    let verdict = match std::mem::take(&mut report.evidence) {
        Evidence::Declared(declared) => accept_declared(declared),
        Evidence::Printed { tool, exit_code, stdout, stderr } => {
            let output = ToolOutput {
                tool: if tool == Tool::Borg { BackupTool::Borg } else { BackupTool::Restic },
                kind: printed_kind(report.kind),
                exit_code,
                stdout: &stdout,
                stderr: &stderr,
            };
            accept_judged(tool, exit_code, judge_run(&output))
        }
    };
    JudgedReport { report, verdict }
}

fn accept_declared(declared: DeclaredRun) -> Verdict {
    let DeclaredRun { status, message, size_bytes, tool_name } = declared;
    let silent = match status {
        RunStatus::Success => None,
        RunStatus::Warning => Some("The script reported a warning and no message."),
        RunStatus::Failed | RunStatus::Missed => Some("The script reported a failure and no message."),
    };
    let message = message.filter(|message| !message.is_empty());
    let detail = silent.map(|silent| message.unwrap_or_else(|| silent.to_owned()));
    Verdict {
        tool: Tool::Other,
        tool_name,
        exit_code: None,
        status,
        reasons: detail.map(|detail| JobReason { code: "declared".to_owned(), detail }).into_iter().collect(),
        outcome: JobOutcome { size_bytes, ..JobOutcome::default() },
        has_found_errors: status == RunStatus::Failed,
    }
}

fn accept_judged(tool: Tool, exit_code: i64, judged: JudgedRun) -> Verdict {
    let has_found_errors = judged.reasons.iter().any(|reason| reason.code == backup_reports::ERRORS_FOUND);
    let to_reason = |reason: RunReason| JobReason { code: reason.code.to_owned(), detail: reason.detail };
    Verdict {
        tool,
        tool_name: None,
        exit_code: Some(exit_code),
        status: match judged.status {
            backup_reports::RunStatus::Success => RunStatus::Success,
            backup_reports::RunStatus::Warning => RunStatus::Warning,
            backup_reports::RunStatus::Failed => RunStatus::Failed,
        },
        reasons: judged.reasons.into_iter().map(to_reason).collect(),
        outcome: JobOutcome {
            snapshot_id: judged.snapshot_id,
            size_bytes: judged.size_bytes,
            added_bytes: judged.added_bytes,
            files: judged.files,
        },
        has_found_errors,
    }
}

fn printed_kind(kind: JobKind) -> backup_reports::JobKind {
    match kind {
        JobKind::Backup => backup_reports::JobKind::Backup,
        JobKind::Verify => backup_reports::JobKind::Verify,
        JobKind::RestoreTest => backup_reports::JobKind::RestoreTest,
        JobKind::Prune => backup_reports::JobKind::Prune,
    }
}

/// A report that was saved, or one that was saved before under the same external id.
pub enum SavedReport {
    New(AcceptedReport),
    Repeated(AcceptedReport),
}

/// Saves a report, and judges its device again. A repeated one changes nothing.
pub async fn save_report(db: &Db, reach: IngestReach, judged: JudgedReport) -> Result<SavedReport> {
    db.write(async move |tx| {
        let mut update = PostureUpdate::begin(tx).await?;
        let now = tx.tick().await?.at;
        // A body may take minutes to arrive; a key that was revoked meanwhile is refused.
        ingest_keys::confirm_ingest_key(tx, reach.key_id).await?;
        let JudgedReport { report, verdict } = judged;
        let Verdict { tool, tool_name, exit_code, status, mut reasons, outcome, has_found_errors } = verdict;
        let device = resolve_device(tx, reach, &report.device).await?;
        if let Some(before) = find_accepted(tx, &report, &device).await? {
            return Ok(SavedReport::Repeated(before));
        }
        report.check_times(now)?;
        if report.kind == JobKind::Backup {
            // After what the tool says: the first reason is why a run failed.
            let policy = update.get_device_policy(tx, &device).await?;
            let unknown = policy.explain_unknown_target(&report.target);
            reasons.extend(unknown.map(|detail| JobReason { code: "unknown_target".to_owned(), detail }));
        }
        let run = JobRun {
            id: JobRunId::new(tx.env()),
            external_id: report.external_id,
            device_id: device.id,
            organization_id: Some(device.organization_id).filter(|id| *id != OrganizationId::NONE),
            job: report.job,
            kind: report.kind,
            tool,
            tool_name,
            target: report.target,
            status,
            is_declared: tool == Tool::Other,
            reasons,
            exit_code,
            started_at: report.started_at,
            ended_at: report.ended_at,
            received_at: now,
            outcome,
        };
        // Before the run is stored: what is counted anew there would count it twice.
        update.update_organization(tx, device.organization_id).await?;
        insert_reported(tx, &device, &run).await?;
        let failure = run.reasons.first().map_or("", |reason| &reason.detail);
        let facts = RunFacts {
            job: &run.job,
            kind: run.kind,
            status,
            started_at: run.started_at,
            ended_at: run.ended_at,
            received_at: now,
            target: &run.target,
            size_bytes: run.outcome.size_bytes,
            has_found_errors,
            failure,
        };
        let stored = PostureUpdate::find_stored(tx, device.id).await?;
        update.update_device(tx, &device, stored, Some(&facts)).await?;
        if status == RunStatus::Failed && run.ended_at >= now.plus_ms(-ALARM_MS_MAX) {
            events::publish(tx, &BACKUP_JOB_FAILED, device.id, &run).await?;
        }
        update.save(tx).await?;
        Ok(SavedReport::New(AcceptedReport { id: run.id, status, reasons: run.reasons }))
    })
    .await
}

async fn insert_reported(tx: &mut Tx, device: &InventoryDevice, run: &JobRun) -> Result<()> {
    let tool = run.tool_name.as_deref().unwrap_or(run.tool.as_str());
    let row = RunRow {
        id: run.id,
        external_id: Some(&run.external_id),
        device_id: device.id,
        organization_id: device.organization_id,
        job: &run.job,
        kind: run.kind,
        tool,
        target: &run.target,
        status: run.status,
        is_declared: run.is_declared,
        started_at: run.started_at,
        ended_at: run.ended_at,
        received_at: run.received_at,
        exit_code: run.exit_code,
        reasons: to_json(&run.reasons)?,
        outcome: to_json(&run.outcome)?,
    };
    insert_run(tx, row).await
}

/// The run that was reported before under this external id. Two machines whose scripts make the same id would hide each other's
/// failures: the second is refused.
async fn find_accepted(tx: &mut Tx, report: &JobReport, device: &InventoryDevice) -> Result<Option<AcceptedReport>> {
    type Found = (JobRunId, String, String, DeviceId, String, String);
    let Some(found) = tx.find::<Found>(FIND_ACCEPTED, args![report.external_id]).await? else { return Ok(None) };
    let (id, status, reasons, device_id, kind, job) = found;
    if device_id != device.id || kind != report.kind.as_str() || job != report.job {
        let detail = "is of a run that was reported before, of another device, kind or job: give every run an id of its own, \
                      such as one with the device, the job and the time in it";
        return Err(Error::invalid("/external_id", "duplicate", detail));
    }
    Ok(Some(AcceptedReport { id, status: RunStatus::from_stored(&status)?, reasons: from_json(&reasons)? }))
}

/// The device that a report is of: named by its id, or by a hostname that no other device within the key's reach has.
async fn resolve_device(tx: &mut Tx, reach: IngestReach, named: &str) -> Result<InventoryDevice> {
    let is_reached = |device: &InventoryDevice| {
        reach.organization_id.is_none_or(|organization| {
            device.organization_id == organization || device.organization_id == OrganizationId::NONE
        })
    };
    let refused = |code: &'static str, detail: &str| Err(Error::invalid("/device", code, detail.to_owned()));
    if let Ok(id) = named.parse::<DeviceId>() {
        return match find_inventory_device(tx, id).await?.filter(|device| is_reached(device)) {
            Some(device) => Ok(device),
            None => refused("unknown_reference", "there is no such device within reach of this ingest key"),
        };
    }
    match find_namesakes(tx, named, reach.organization_id).await?.as_slice() {
        [device] => Ok(device.clone()),
        [] => refused(
            "unknown_reference",
            "no device within reach of this ingest key has this hostname; names are compared whole, so web01 is not \
             web01.example.com. Give the device's id, or let its inventory agent report first.",
        ),
        _ => refused("ambiguous", "several devices have this hostname; give the id of the one that is meant"),
    }
}
