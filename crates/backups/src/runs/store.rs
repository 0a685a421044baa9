//! SQL that inserts runs: those that were reported, and those that were scheduled and did not come.

use fleet::devices::DeviceId;
use kernel::base::{Result, StringEnum, Timestamp};
use kernel::store::{FactRetention, Tx, Value};
use people::organizations::OrganizationId;

use crate::facts::run_fact;
use crate::job_reports::JobRunId;
use crate::posture::{JobKind, RunStatus};

kernel::columns! {
    /// All columns of a run.
    pub struct RunColumns in "backup_runs" {
        id, external_id, device_id, organization_id, job, kind, tool, target, status, is_declared, started_at, ended_at,
        received_at, exit_code, reasons, outcome,
    }
}

kernel::statements! {
    INSERT = RunColumns::INSERT;
}

/// A run as it is stored.
pub struct RunRow<'a> {
    pub id: JobRunId,
    pub external_id: Option<&'a str>,
    pub device_id: DeviceId,
    pub organization_id: OrganizationId,
    pub job: &'a str,
    pub kind: JobKind,
    pub tool: &'a str,
    pub target: &'a str,
    pub status: RunStatus,
    pub is_declared: bool,
    pub started_at: Timestamp,
    pub ended_at: Timestamp,
    pub received_at: Timestamp,
    pub exit_code: Option<i64>,
    pub reasons: String,
    pub outcome: String,
}

impl RunRow<'_> {
    pub fn into_values(self) -> Vec<Value> {
        let columns = RunColumns {
            id: self.id.into(),
            external_id: self.external_id.map(str::to_owned).into(),
            device_id: self.device_id.into(),
            organization_id: self.organization_id.into(),
            job: self.job.into(),
            kind: self.kind.as_str().into(),
            tool: self.tool.into(),
            target: self.target.into(),
            status: self.status.as_str().into(),
            is_declared: self.is_declared.into(),
            started_at: self.started_at.into(),
            ended_at: self.ended_at.into(),
            received_at: self.received_at.into(),
            exit_code: self.exit_code.into(),
            reasons: self.reasons.into(),
            outcome: self.outcome.into(),
        };
        columns.into_vec()
    }
}

pub async fn insert_run(tx: &mut Tx, row: RunRow<'_>) -> Result<()> {
    tx.record_fact(&run_fact(row.kind, row.status, row.ended_at, 1), FactRetention::Long).await?;
    tx.defer_exec(INSERT, row.into_values()).await
}
