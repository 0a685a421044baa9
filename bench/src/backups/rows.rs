//! The rows of runs, devices and organizations, with the columns of the product in its order.

use ::backups::job_reports::{JobOutcome, JobReason, JobRunId};
use ::backups::posture::organization::{Grades, OrganizationRecord};
use ::backups::posture::{JobKind, RunStatus};
use kernel::base::{StringEnum, Timestamp};
use kernel::store::{Value, to_json};
use tenant_control::features::devices::DeviceId;
use tenant_control::features::organizations::OrganizationId;

use super::data::{JOB, Machine, Run};
use crate::harness::Outcome;

kernel::columns! {
    pub struct RunColumns in "backup_runs" {
        id, external_id, device_id, organization_id, job, kind, tool, target, status, is_declared, started_at, ended_at,
        received_at, exit_code, reasons, outcome,
    }
}

kernel::columns! {
    pub struct DeviceColumns in "backup_devices" by device_id {
        device_id, organization_id, class, known_since, record, share, findings, severity, last_success_at, verified_at,
        failures, next_at,
    }
}

kernel::columns! {
    pub struct PostureColumns in "backup_postures" by organization_id {
        organization_id, protection_health, recoverability_health, health, total, in_scope, protected, never_succeeded,
        success, warning, failed, missed, size_bytes, record, next_at,
    }
}

kernel::columns! {
    pub struct ConfigColumns in "backup_configs" by owner_id { owner_id, id, level, policy, version, created_at, updated_at }
}

/// A run of a device, received when it ended. The id tells the moment, so rows come in its order.
pub fn run_row(
    id: JobRunId,
    external_id: String,
    (device, organization): (DeviceId, OrganizationId),
    run: &Run,
) -> Outcome<Vec<Value>> {
    let is_backup = run.kind == JobKind::Backup;
    let (reasons, exit_code) = match run.status {
        RunStatus::Success => (Vec::new(), 0_i64),
        _ => (vec![JobReason { code: "repository_unreachable".to_owned(), detail: UNREACHABLE.to_owned() }], 1),
    };
    let outcome = if is_backup && run.status == RunStatus::Success { run.outcome() } else { JobOutcome::default() };
    let columns = RunColumns {
        id: id.into(),
        external_id: external_id.into(),
        device_id: device.into(),
        organization_id: organization.into(),
        job: if is_backup { JOB } else { "check" }.into(),
        kind: run.kind.as_str().into(),
        tool: "restic".into(),
        target: run.target.into(),
        status: run.status.as_str().into(),
        is_declared: false.into(),
        started_at: run.started_at.into(),
        ended_at: run.ended_at.into(),
        received_at: run.ended_at.into(),
        exit_code: exit_code.into(),
        reasons: to_json(&reasons)?.into(),
        outcome: to_json(&outcome)?.into(),
    };
    Ok(columns.into_vec())
}

const UNREACHABLE: &str = "Fatal: unable to open config file: dial tcp 192.0.2.10:22: connect: connection refused";

pub fn device_row(machine: &Machine, organization: OrganizationId) -> Outcome<Vec<Value>> {
    let is_in_scope = machine.share.in_scope == 1;
    let severity = machine.findings.iter().map(|finding| finding.severity as i64 + 1).max().unwrap_or(0);
    let columns = DeviceColumns {
        device_id: machine.id.into(),
        organization_id: organization.into(),
        class: machine.class.as_str().into(),
        known_since: machine.known_since.into(),
        record: to_json(&machine.record)?.into(),
        share: to_json(&machine.share)?.into(),
        findings: to_json(&machine.findings)?.into(),
        severity: severity.into(),
        last_success_at: machine.record.last_success_at.filter(|_| is_in_scope).into(),
        verified_at: machine.record.verified_at.filter(|_| is_in_scope).into(),
        failures: if is_in_scope { machine.record.failures() } else { 0 }.into(),
        next_at: machine.next_at.into(),
    };
    Ok(columns.into_vec())
}

pub fn posture_row(
    organization: OrganizationId,
    grades: Grades,
    record: &OrganizationRecord,
    next_at: Option<Timestamp>,
) -> Outcome<Vec<Value>> {
    let (sums, window) = (&record.sums, record.window);
    let columns = PostureColumns {
        organization_id: organization.into(),
        protection_health: grades.protection.as_str().into(),
        recoverability_health: grades.recoverability.as_str().into(),
        health: grades.overall().as_str().into(),
        total: sums.total.into(),
        in_scope: sums.in_scope.into(),
        protected: sums.protected.into(),
        never_succeeded: sums.never_succeeded.into(),
        success: window.success.into(),
        warning: window.warning.into(),
        failed: window.failed.into(),
        missed: window.missed.into(),
        size_bytes: sums.size_bytes.into(),
        record: to_json(record)?.into(),
        next_at: next_at.into(),
    };
    Ok(columns.into_vec())
}
