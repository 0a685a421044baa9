//! How well devices and organizations are backed up.
//!
//! `record` is what is known of a device by its runs, `device` judges it by that, `organization` an organization by what its
//! devices add up to (`share`), and `windows` says which scheduled runs were missed: rules without a database. `store` keeps
//! what is known (in `rows`), and applies changes to it; `shown` is an organization as the API shows it; `clock` does what time alone changes, `pending`
//! what other features and policies change.

pub mod device;
pub mod organization;
pub mod record;
pub mod rows;
pub mod share;
pub mod shown;
pub mod store;
pub mod windows;
/// What time alone changes.
pub mod clock {
    pub mod store;
}
/// Scheduled runs that did not come.
pub mod missed {
    pub mod store;
}
/// What changes of devices, organizations and policies leave to be done.
pub mod pending {
    pub mod store;
}
/// What is pending, for those who leave it to be done.
pub mod queue {
    pub mod store;
}

use kernel::base::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use fleet::devices::DeviceId;

use crate::stored_values::read_name;

kernel::string_enum! {
    /// How good something is. `unknown` ranks between `ok` and `warning`: nobody has said that it is good.
    #[schema(as = BackupHealth)]
    pub enum Health { Ok "ok", Unknown "unknown", Warning "warning", Critical "critical" }
}

kernel::string_enum! {
    /// How bad a reason is.
    #[schema(as = BackupReasonSeverity)]
    pub enum Severity { Unknown "unknown", Warning "warning", Critical "critical" }
}

impl From<Severity> for Health {
    fn from(severity: Severity) -> Self {
        match severity {
            Severity::Unknown => Health::Unknown,
            Severity::Warning => Health::Warning,
            Severity::Critical => Health::Critical,
        }
    }
}

kernel::string_enum! {
    /// Why a grade is not `ok`.
    #[schema(as = BackupReasonCode)]
    pub enum ReasonCode {
        /// No report of any backup has come.
        NeverReported "never_reported",
        /// Backups were reported, and none of them succeeded.
        NeverSucceeded "never_succeeded",
        /// The last success is older than the RPO; `critical` when it is older than twice the RPO.
        RpoMissed "rpo_missed",
        /// So many backups in a row failed that the policy asks for an alert.
        Failures "failures",
        /// The last scheduled run did not come.
        MissedRun "missed_run",
        /// The policy has switched backups off.
        Disabled "disabled",
        /// The backups were not verified in time, or the newest verification of a target failed without finding errors.
        VerificationOverdue "verification_overdue",
        /// Nothing was restored as a test in time, or the newest restore test failed.
        RestoreTestOverdue "restore_test_overdue",
        /// There are fewer than three copies of everything, the original included.
        TooFewCopies "too_few_copies",
        /// All copies are on one kind of media.
        TooFewMedia "too_few_media",
        /// No copy of everything is at another site.
        NoOffsite "no_offsite",
        /// No copy of everything is safe from being changed.
        NoImmutable "no_immutable",
        /// The last verification found errors.
        ErrorsFound "errors_found",
    }
}

impl ReasonCode {
    /// Whether it is about protection: whether there is a fresh backup. The others are about recoverability: whether it can be
    /// relied on.
    pub fn is_of_protection(self) -> bool {
        use ReasonCode::{Disabled, Failures, MissedRun, NeverReported, NeverSucceeded, RpoMissed};
        matches!(self, NeverReported | NeverSucceeded | RpoMissed | Failures | MissedRun | Disabled)
    }
}

/// A reason, of a device or of its organization as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = BackupReason)]
pub struct Reason {
    pub code: ReasonCode,
    pub severity: Severity,
    /// The device; null for a reason of the organization as a whole.
    #[schema(value_type = Option<String>, required)]
    pub device_id: Option<DeviceId>,
    /// Its hostname, or else its display name.
    #[schema(required)]
    pub device_name: Option<String>,
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    /// Of `failures` and `never_succeeded`, and of `verification_overdue` and `restore_test_overdue` where one failed: the job
    /// that failed last, its target, and why it failed. Of `errors_found`: where. Of `too_few_copies` and
    /// `no_offsite`: on which targets newest backups are that the policy does not name.
    #[schema(required)]
    pub detail: Option<String>,
}

/// A reason before it is said of whom.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Finding {
    #[serde(deserialize_with = "read_name")]
    pub code: ReasonCode,
    #[serde(deserialize_with = "read_name")]
    pub severity: Severity,
    pub since: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// Numbers of runs by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = BackupRunCounts)]
pub struct RunCounts {
    pub success: i64,
    pub warning: i64,
    pub failed: i64,
    /// Scheduled runs that did not come.
    pub missed: i64,
}

impl RunCounts {
    pub fn add(&mut self, status: RunStatus, by: i64) {
        let count = match status {
            RunStatus::Success => &mut self.success,
            RunStatus::Warning => &mut self.warning,
            RunStatus::Failed => &mut self.failed,
            RunStatus::Missed => &mut self.missed,
        };
        *count = (*count + by).max(0);
    }

    pub fn is_empty(&self) -> bool {
        *self == RunCounts::default()
    }
}

kernel::string_enum! {
    /// What became of a run. `missed` is said by the server of a scheduled run that did not come.
    #[schema(as = BackupRunStatus)]
    pub enum RunStatus { Success "success", Warning "warning", Failed "failed", Missed "missed" }
}

kernel::string_enum! {
    /// What a job does.
    #[schema(as = BackupJobKind)]
    pub enum JobKind {
        Backup "backup",
        /// Reads what is stored, and looks for errors.
        Verify "verify",
        /// Restores something, and compares it.
        RestoreTest "restore_test",
        /// Removes backups that are kept no longer.
        Prune "prune",
    }
}

impl RunStatus {
    /// A run with warnings has made a backup.
    pub fn is_success(self) -> bool {
        matches!(self, RunStatus::Success | RunStatus::Warning)
    }
}
