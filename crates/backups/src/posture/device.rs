//! A device: what follows at a time from what is known of its backups.

use std::collections::BTreeSet;

use kernel::base::Timestamp;
use serde::{Deserialize, Serialize};

use super::record::{DeviceRecord, JOB_MEMORY_MS, min_time};
use super::{Finding, ReasonCode, Severity};
use crate::policy::{BackupPolicy, DeviceClass};

/// What is known of a device besides its runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JudgedDevice {
    pub class: DeviceClass,
    pub is_excluded: bool,
    /// Since when the device is known.
    pub known_since: Timestamp,
    /// Whether its own policy switches backups off, and not that of its organization.
    pub is_disabled: bool,
}

/// What a device adds to its organization.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceShare {
    pub total: i64,
    pub in_scope: i64,
    pub protected: i64,
    pub never_succeeded: i64,
    /// Devices with any report of a backup.
    pub reported: i64,
    /// Devices without one, by how bad that is.
    pub silent_unknown: i64,
    pub silent_warning: i64,
    pub silent_critical: i64,
    /// Devices with a reason of such a severity, those without a report left out.
    pub protection_unknown: i64,
    pub protection_warning: i64,
    pub protection_critical: i64,
    pub recovery_warning: i64,
    pub recovery_critical: i64,
    /// Devices that were verified in time and have no errors.
    pub verified: i64,
    pub verification_overdue: i64,
    pub size_bytes: i64,
    /// The targets of the policy with a fresh success.
    pub targets: BTreeSet<String>,
}

/// What a device is like at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceJudgement {
    pub share: DeviceShare,
    pub findings: Vec<Finding>,
    /// When time alone changes it next.
    pub next_at: Option<Timestamp>,
}

/// Judges a device. Which scheduled runs were missed is in the record already.
pub fn judge_device(
    record: &DeviceRecord,
    device: JudgedDevice,
    policy: &BackupPolicy,
    now: Timestamp,
) -> DeviceJudgement {
    let mut judge = DeviceJudge {
        record,
        policy,
        now,
        rpo_ms: policy.rpo_ms(device.class),
        moments: Moments::new(now),
        findings: Vec::new(),
    };
    let is_judged = device.class != DeviceClass::Appliance || record.first_run_at.is_some();
    if !is_judged {
        return DeviceJudgement { share: DeviceShare::default(), findings: Vec::new(), next_at: None };
    }
    if device.is_excluded {
        let share = DeviceShare { total: 1, ..DeviceShare::default() };
        return DeviceJudgement { share, findings: Vec::new(), next_at: None };
    }
    let mut share = DeviceShare {
        total: 1,
        in_scope: 1,
        reported: i64::from(record.first_run_at.is_some()),
        never_succeeded: i64::from(record.last_success_at.is_none()),
        size_bytes: record.size_bytes.unwrap_or(0),
        ..DeviceShare::default()
    };
    if !policy.enabled {
        if device.is_disabled {
            judge.add(ReasonCode::Disabled, Severity::Unknown, device.known_since);
            share.protection_unknown = 1;
        }
        return DeviceJudgement { share, findings: judge.findings, next_at: None };
    }
    judge.judge_protection(&mut share, device);
    judge.judge_recoverability(&mut share);
    judge.findings.sort();
    DeviceJudgement { share, next_at: judge.moments.next, findings: judge.findings }
}

struct DeviceJudge<'a> {
    record: &'a DeviceRecord,
    policy: &'a BackupPolicy,
    now: Timestamp,
    rpo_ms: i64,
    moments: Moments,
    findings: Vec<Finding>,
}

impl DeviceJudge<'_> {
    fn add(&mut self, code: ReasonCode, severity: Severity, since: Timestamp) {
        let detail = match code {
            ReasonCode::Failures | ReasonCode::NeverSucceeded => self.record.describe_failure(),
            ReasonCode::ErrorsFound => {
                let targets: Vec<&str> = self.record.damaged_targets().map(|(target, _)| target).collect();
                Some(format!("on {}", targets.join(", ")))
            }
            _ => None,
        };
        self.findings.push(Finding { code, severity, since, detail });
    }

    fn judge_protection(&mut self, share: &mut DeviceShare, device: JudgedDevice) {
        let record = self.record;
        if record.first_run_at.is_none() {
            let age = self.moments.grade_age(device.known_since, self.rpo_ms);
            match age {
                Age::Fresh => share.silent_unknown = 1,
                Age::Old => share.silent_warning = 1,
                Age::TwiceOld => share.silent_critical = 1,
            }
            let severity = match age {
                Age::Fresh => Severity::Unknown,
                Age::Old => Severity::Warning,
                Age::TwiceOld => Severity::Critical,
            };
            return self.add(ReasonCode::NeverReported, severity, device.known_since);
        }
        match record.last_success_at {
            Some(last) => {
                let since = last.plus_ms(self.rpo_ms);
                match self.moments.grade_age(last, self.rpo_ms) {
                    Age::Fresh => share.protected = 1,
                    Age::Old => self.add(ReasonCode::RpoMissed, Severity::Warning, since),
                    Age::TwiceOld => self.add(ReasonCode::RpoMissed, Severity::Critical, since),
                }
            }
            None => self.add(ReasonCode::NeverSucceeded, Severity::Critical, record.first_run_at.unwrap_or(self.now)),
        }
        for job in &record.failing {
            self.moments.add(job.last_at.plus_ms(JOB_MEMORY_MS + 1));
        }
        let alarming = record.failing.iter().filter(|job| job.failures >= self.policy.alert_after_failures);
        if let Some(since) = alarming.map(|job| job.since).min() {
            self.add(ReasonCode::Failures, Severity::Warning, since);
        }
        if let Some(since) = record.missed_since {
            self.add(ReasonCode::MissedRun, Severity::Warning, since);
        }
        let worst = self.findings.iter().map(|finding| finding.severity).max();
        share.protection_warning = i64::from(worst == Some(Severity::Warning));
        share.protection_critical = i64::from(worst == Some(Severity::Critical));
    }

    fn judge_recoverability(&mut self, share: &mut DeviceShare) {
        let record = self.record;
        for target in &self.policy.targets {
            if let Some(last) = record.targets.get(&target.name)
                && self.moments.grade_age(*last, self.rpo_ms) == Age::Fresh
            {
                share.targets.insert(target.name.clone());
            }
        }
        let Some(first_success_at) = record.first_success_at else { return };
        let damaged_since = record.damaged_targets().map(|(_, since)| since).min();
        if let Some(since) = damaged_since {
            self.add(ReasonCode::ErrorsFound, Severity::Critical, since);
        }
        let has_errors = damaged_since.is_some();
        let mut is_verified = record.verified_at.is_some();
        if let Some(every_ms) = self.policy.verify_every_ms() {
            let since = record.verified_at.unwrap_or(first_success_at);
            if self.moments.grade_age(since, every_ms) != Age::Fresh {
                self.add(ReasonCode::VerificationOverdue, Severity::Warning, since.plus_ms(every_ms));
                share.verification_overdue = 1;
                is_verified = false;
            }
        }
        share.verified = i64::from(is_verified && !has_errors);
        share.recovery_critical = i64::from(has_errors);
        share.recovery_warning = i64::from(!has_errors && share.verification_overdue == 1);
    }
}

/// The next of several moments.
pub struct Moments {
    now: Timestamp,
    pub next: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Age {
    /// Not older than the limit.
    Fresh,
    Old,
    /// Older than twice the limit.
    TwiceOld,
}

impl Moments {
    pub fn new(now: Timestamp) -> Self {
        Moments { now, next: None }
    }

    /// How old something is, beside a limit; and remembers when that changes.
    pub fn grade_age(&mut self, since: Timestamp, limit_ms: i64) -> Age {
        let (old_at, twice_old_at) = (since.plus_ms(limit_ms), since.plus_ms(2 * limit_ms));
        if self.now > twice_old_at {
            Age::TwiceOld
        } else if self.now > old_at {
            self.add(twice_old_at.plus_ms(1));
            Age::Old
        } else {
            self.add(old_at.plus_ms(1));
            Age::Fresh
        }
    }

    pub fn add(&mut self, at: Timestamp) {
        self.next = min_time(self.next, at);
    }
}
