//! The rows of runs, devices and organizations, as the product makes them.

use ::backups::job_reports::{JobOutcome, JobReason, JobRunId};
use ::backups::posture::rows::StoredDevice;
use ::backups::posture::{JobKind, RunStatus};
use ::backups::runs::store::RunRow;
use kernel::store::{Value, to_json};
use tenant_control::features::devices::DeviceId;
use tenant_control::features::organizations::OrganizationId;

use super::data::{Customer, JOB, Machine, Run};
use crate::harness::Outcome;

/// A run of a device, received when it ended. The id tells the moment, so rows come in its order.
pub fn run_row(
    id: JobRunId,
    external_id: &str,
    (device_id, organization_id): (DeviceId, OrganizationId),
    run: &Run,
) -> Outcome<Vec<Value>> {
    let is_backup = run.kind == JobKind::Backup;
    let (reasons, exit_code) = match run.status {
        RunStatus::Success => (Vec::new(), 0_i64),
        _ => (vec![JobReason { code: "repository_unreachable".to_owned(), detail: UNREACHABLE.to_owned() }], 1),
    };
    let outcome = if is_backup && run.status == RunStatus::Success { run.outcome() } else { JobOutcome::default() };
    let row = RunRow {
        id,
        external_id: Some(external_id),
        device_id,
        organization_id,
        job: if is_backup { JOB } else { "check" },
        kind: run.kind,
        tool: "restic",
        target: run.target,
        status: run.status,
        is_declared: false,
        started_at: run.started_at,
        ended_at: run.ended_at,
        received_at: run.ended_at,
        exit_code: Some(exit_code),
        reasons: to_json(&reasons)?,
        outcome: to_json(&outcome)?,
    };
    Ok(row.into_values())
}

const UNREACHABLE: &str = "Fatal: unable to open config file: dial tcp 192.0.2.10:22: connect: connection refused";

pub fn device_row(machine: &Machine, organization_id: OrganizationId) -> Outcome<Vec<Value>> {
    let stored = StoredDevice {
        organization_id,
        class: machine.class,
        known_since: machine.known_since,
        record: machine.record.clone(),
        share: machine.share.clone(),
        findings: machine.findings.clone(),
        failures: machine.failures,
        next_at: machine.next_at,
    };
    Ok(stored.to_values(machine.id)?)
}

pub fn posture_row(customer: &Customer) -> Outcome<Vec<Value>> {
    Ok(customer.posture.to_values(customer.id)?)
}
