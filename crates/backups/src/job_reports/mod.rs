//! Reports of backup jobs: what ran on a device, and what became of it.
//!
//! `input` parses a report, `store` saves it and judges the device again. What restic and borg print is judged by the crate
//! `backup-reports`.

pub mod feature;
pub mod input;
pub mod routes;
pub mod store;

use fleet::devices::DeviceId;
use kernel::base::{DAY_MS, Id, Identified, Timestamp};
use kernel::events::EventKind;
use people::organizations::OrganizationId;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::posture::{JobKind, RunStatus};

pub const BACKUP_JOB_FAILED: EventKind<JobRun> =
    EventKind::new("backup.job.failed", "A job reported that it failed, at most 7 days ago. `reasons` says why.");

pub type JobRunId = Id<JobRun>;

impl Identified for JobRun {
    const PREFIX: &'static str = "bjr";
    const ABOUT: &'static str = "The run of a job.";
}

/// Days that reports are kept unless the operator sets another number. What is shown is kept apart from them.
pub const REPORT_DAYS_DEFAULT: i64 = 90;
/// The strip of 28 days is counted anew from them when the time zone of a schedule changes.
pub const REPORT_DAYS_MIN: i64 = 35;

kernel::string_enum! {
    /// The program that ran.
    #[schema(as = BackupTool)]
    pub enum Tool {
        Restic "restic",
        Borg "borg",
        /// Any other: the report says itself what became of the run.
        Other "other",
    }
}

/// A run of a job, as it was reported.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = BackupJobRun, example = json!({
    "id": "bjr_01jd8z6v2mfkpb7h3q9xw5t4ra", "external_id": "web01-nightly-20261115T020000", "device_id": "dev_01jd8z6v2mfkpb7h3q9xw5t4rd",
    "organization_id": "org_01jd8z6v2mfkpb7h3q9xw5t4ra", "job": "nightly", "kind": "backup", "tool": "restic", "tool_name": null,
    "target": "nas", "status": "failed", "is_declared": false,
    "reasons": [{"code": "wrong_password", "detail": "Fatal: wrong password or no key found"}],
    "exit_code": 1, "started_at": "2026-11-15T02:00:00.000Z", "ended_at": "2026-11-15T02:00:04.000Z",
    "received_at": "2026-11-15T02:00:05.000Z", "snapshot_id": null, "size_bytes": null, "added_bytes": null, "files": null
}))]
pub struct JobRun {
    #[schema(value_type = String)]
    pub id: JobRunId,
    pub external_id: String,
    #[schema(value_type = String)]
    pub device_id: DeviceId,
    /// The organization that the device belonged to.
    #[schema(value_type = Option<String>, required)]
    pub organization_id: Option<OrganizationId>,
    pub job: String,
    pub kind: JobKind,
    pub tool: Tool,
    /// The name of another tool.
    #[schema(required)]
    pub tool_name: Option<String>,
    pub target: String,
    pub status: RunStatus,
    /// Whether the sender has said what became of it, and the server has not judged it.
    pub is_declared: bool,
    pub reasons: Vec<JobReason>,
    #[schema(required)]
    pub exit_code: Option<i64>,
    #[schema(value_type = String, format = DateTime)]
    pub started_at: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    pub ended_at: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    pub received_at: Timestamp,
    #[serde(flatten)]
    pub outcome: JobOutcome,
}

/// What a run has made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = BackupJobOutcome)]
pub struct JobOutcome {
    #[schema(required)]
    pub snapshot_id: Option<String>,
    /// Bytes that the backup protects.
    #[schema(required)]
    pub size_bytes: Option<i64>,
    /// Bytes that it added to the target.
    #[schema(required)]
    pub added_bytes: Option<i64>,
    #[schema(required)]
    pub files: Option<i64>,
}

/// Why a run is not a success, or what is wrong with one that is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = BackupJobReason)]
pub struct JobReason {
    pub code: String,
    pub detail: String,
}

/// The answer to a report.
#[derive(Clone, Debug, Serialize)]
pub struct AcceptedReport {
    pub id: JobRunId,
    pub status: RunStatus,
    pub reasons: Vec<JobReason>,
}

/// How long reports are kept, as configured by the operator.
#[derive(Clone, Copy, Debug)]
pub struct ReportSettings {
    pub kept_ms: i64,
}

impl Default for ReportSettings {
    fn default() -> Self {
        ReportSettings { kept_ms: REPORT_DAYS_DEFAULT * DAY_MS }
    }
}
