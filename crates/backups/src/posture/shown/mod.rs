//! An organization as the aggregate and its event show it.

pub mod store;

use kernel::base::Timestamp;
use kernel::events::EventKind;
use people::organizations::OrganizationId;
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::organization::{Grades, OrganizationRecord, Rule32110, days_shown, find_zone};
use super::{Health, Reason, RunCounts};

pub const BACKUP_POSTURE_CHANGED: EventKind<CustomerPosture> = EventKind::new(
    "backup.posture.changed",
    "A grade of an organization is another than before, by a report, a change of policy, or by the clock alone.",
);

/// How the backups of one customer stand.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(example = example_posture)]
pub struct CustomerPosture {
    /// Null for the devices without an organization.
    #[schema(value_type = Option<String>, required)]
    pub organization_id: Option<OrganizationId>,
    #[schema(required)]
    pub organization_name: Option<String>,
    pub devices: DeviceCounts,
    /// Devices with a backup within their RPO, of those in scope; null without any.
    #[schema(required)]
    pub coverage_percent: Option<f64>,
    pub rpo: RpoCounts,
    /// Runs of backups that ended in the last 24 hours.
    pub jobs_24h: RunCounts,
    /// Runs of backups of 28 days, oldest first, in the time zone of the organization's schedule.
    pub days: Vec<DayCounts>,
    /// The newest success of all devices.
    #[schema(value_type = Option<String>, format = DateTime, required)]
    pub last_success_at: Option<Timestamp>,
    /// Of the device whose last success is the oldest.
    #[schema(value_type = Option<String>, format = DateTime, required)]
    pub oldest_last_success_at: Option<Timestamp>,
    /// Failed backups in a row, of the device with the most. Targets that its policy does not name are left out.
    pub max_consecutive_failures: i64,
    pub verification: VerificationState,
    pub restore_test: RestoreTestState,
    pub rule_32110: Rule32110,
    /// Bytes that the newest backups of all devices protect, of each job on each target.
    pub storage_bytes: i64,
    /// Whether there is a fresh backup of everything: RPO, failures, missed runs.
    pub protection_health: Health,
    /// Whether it can be relied on: verification, restore tests, the 3-2-1-1-0 rule.
    pub recoverability_health: Health,
    /// The worse of both.
    pub health: Health,
    /// Everything that keeps a grade from `ok`, the worst first: at most 1,000.
    pub reasons: Vec<Reason>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = BackupDeviceCounts)]
pub struct DeviceCounts {
    pub total: i64,
    pub in_scope: i64,
    pub excluded: i64,
    /// With a success within the RPO.
    pub protected: i64,
    pub unprotected: i64,
    pub never_succeeded: i64,
}

impl DeviceCounts {
    pub fn new(total: i64, in_scope: i64, protected: i64, never_succeeded: i64) -> Self {
        let (excluded, unprotected) = (total - in_scope, in_scope - protected);
        DeviceCounts { total, in_scope, excluded, protected, unprotected, never_succeeded }
    }

    pub fn coverage_percent(self) -> Option<f64> {
        percent_of(self.protected, self.in_scope)
    }

    pub fn rpo(self) -> RpoCounts {
        RpoCounts { met: self.protected, missed: self.unprotected, percent: self.coverage_percent() }
    }
}

/// Devices in scope by whether they meet their RPO. One that was never backed up does not.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = BackupRpoCounts)]
pub struct RpoCounts {
    pub met: i64,
    pub missed: i64,
    #[schema(required)]
    pub percent: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = BackupDay)]
pub struct DayCounts {
    #[schema(format = Date)]
    pub date: String,
    #[serde(flatten)]
    pub runs: RunCounts,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = BackupVerification)]
pub struct VerificationState {
    /// As the policy of the organization asks; null if it does not.
    #[schema(required)]
    pub every_days: Option<i64>,
    #[schema(value_type = Option<String>, format = DateTime, required)]
    pub last_success_at: Option<Timestamp>,
    /// Of the device that was verified the longest ago.
    #[schema(value_type = Option<String>, format = DateTime, required)]
    pub oldest_last_success_at: Option<Timestamp>,
    /// Devices that were not verified in time.
    pub overdue: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = BackupRestoreTest)]
pub struct RestoreTestState {
    /// As the policy of the organization asks; null if it does not.
    #[schema(required)]
    pub every_days: Option<i64>,
    #[schema(value_type = Option<String>, format = DateTime, required)]
    pub last_success_at: Option<Timestamp>,
    pub overdue: bool,
}

/// A share in percent, with one digit after the point. Only all are 100.
pub fn percent_of(part: i64, whole: i64) -> Option<f64> {
    #[expect(clippy::cast_precision_loss, reason = "devices are far fewer than 2^53")]
    let percent = (whole > 0).then(|| (1_000.0 * part as f64 / whole as f64).round() / 10.0);
    percent.map(|percent| if part < whole { percent.min(99.9) } else { percent })
}

/// What the devices of an organization have at most and at least.
pub(super) struct Extremes {
    pub last_success_at: Option<Timestamp>,
    pub oldest_last_success_at: Option<Timestamp>,
    pub oldest_verified_at: Option<Timestamp>,
    pub failures: Option<i64>,
}

/// What is stored of an organization as the API shows it.
pub(super) fn show_posture(
    organization: Option<(OrganizationId, String)>,
    record: &OrganizationRecord,
    grades: Grades,
    extremes: &Extremes,
    reasons: Vec<Reason>,
    now: Timestamp,
) -> CustomerPosture {
    let (counts, judged) = (&record.sums.counts, record.judged);
    let devices = DeviceCounts::new(counts.total, counts.in_scope, counts.protected, counts.never_succeeded);
    let days = days_shown(now, &find_zone(&record.zone)).into_iter();
    let (organization_id, organization_name) = organization.unzip();
    CustomerPosture {
        organization_id,
        organization_name,
        devices,
        coverage_percent: devices.coverage_percent(),
        rpo: devices.rpo(),
        jobs_24h: record.window,
        days: days.map(|date| DayCounts { runs: record.days.get(&date).copied().unwrap_or_default(), date }).collect(),
        last_success_at: extremes.last_success_at,
        oldest_last_success_at: extremes.oldest_last_success_at,
        max_consecutive_failures: extremes.failures.unwrap_or(0),
        verification: VerificationState {
            every_days: judged.verify_every_days,
            last_success_at: record.verified_at,
            oldest_last_success_at: extremes.oldest_verified_at,
            overdue: counts.verification_overdue,
        },
        restore_test: RestoreTestState {
            every_days: judged.restore_test_every_days,
            last_success_at: record.restore_tested_at,
            overdue: judged.is_restore_test_overdue,
        },
        rule_32110: judged.rule,
        storage_bytes: counts.size_bytes,
        protection_health: grades.protection,
        recoverability_health: grades.recoverability,
        health: grades.overall(),
        reasons,
    }
}

fn example_posture() -> Value {
    let days: Vec<Value> = (1..=28)
        .map(|day| {
            let failed = i64::from(day == 27);
            json!({"date": format!("2026-02-{day:02}"), "success": 3 - failed, "warning": 0, "failed": failed, "missed": 0})
        })
        .collect();
    json!({
        "organization_id": "org_01jd8z6v2mfkpb7h3q9xw5t4ra", "organization_name": "Globex Inc.",
        "devices": {"total": 4, "in_scope": 3, "excluded": 1, "protected": 3, "unprotected": 0, "never_succeeded": 0},
        "coverage_percent": 100.0, "rpo": {"met": 3, "missed": 0, "percent": 100.0},
        "jobs_24h": {"success": 3, "warning": 0, "failed": 0, "missed": 0}, "days": days,
        "last_success_at": "2026-02-28T02:12:00.000Z", "oldest_last_success_at": "2026-02-28T01:40:00.000Z",
        "max_consecutive_failures": 0,
        "verification": {"every_days": 30, "last_success_at": "2026-02-22T04:00:00.000Z",
            "oldest_last_success_at": "2026-02-15T04:00:00.000Z", "overdue": 0},
        "restore_test": {"every_days": 90, "last_success_at": "2026-01-12T09:30:00.000Z", "overdue": false},
        "rule_32110": {"copies": 3, "media": 2, "offsite": true, "immutable": false, "zero_errors": true},
        "storage_bytes": 734_003_200_000_i64, "protection_health": "ok", "recoverability_health": "warning",
        "health": "warning",
        "reasons": [{"code": "no_immutable", "severity": "warning", "device_id": null, "device_name": null,
            "since": "2026-02-01T00:00:00.000Z", "detail": null}]
    })
}
