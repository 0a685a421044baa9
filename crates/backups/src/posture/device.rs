//! A device: what is known of its backups, and what follows from that at a time.

use std::collections::{BTreeMap, BTreeSet};

use kernel::base::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Finding, JobKind, ReasonCode, RunStatus, Severity};
use crate::policy::{BackupPolicy, DeviceClass};

/// Targets that are known of one device. A device that names more than this is the fault of a script.
pub const TARGETS_MAX: usize = 20;

/// What is known of the backups of a device, whatever the order in which its reports came.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceRecord {
    /// The end of the first backup that was reported, and of the newest.
    pub first_run_at: Option<Timestamp>,
    pub last_run_at: Option<Timestamp>,
    pub last_run_started_at: Option<Timestamp>,
    pub first_success_at: Option<Timestamp>,
    pub last_success_at: Option<Timestamp>,
    /// Failed backups since the last success, and the end of the first of them.
    pub failures: i64,
    pub failing_since: Option<Timestamp>,
    /// Bytes that the newest successful backup protects.
    pub size_bytes: Option<i64>,
    /// The newest success on each target.
    pub targets: BTreeMap<String, Timestamp>,
    pub verified_at: Option<Timestamp>,
    /// The newest verification that found errors.
    pub errors_found_at: Option<Timestamp>,
    /// Up to where scheduled runs are judged, and by which schedule.
    pub judged_until: Option<Timestamp>,
    pub schedule: Option<String>,
    /// The scheduled runs that were missed since the last one that was met: the first of them, and the newest judged.
    pub missed_since: Option<Timestamp>,
    pub missed_at: Option<Timestamp>,
}

/// A run, as it changes what is known.
#[derive(Clone, Debug)]
pub struct RunFacts<'a> {
    pub kind: JobKind,
    pub status: RunStatus,
    pub started_at: Timestamp,
    pub ended_at: Timestamp,
    pub target: &'a str,
    pub size_bytes: Option<i64>,
    /// Whether a verification failed because what is stored is damaged.
    pub has_found_errors: bool,
}

/// Whether the failures have to be counted again: a success came late, with failures both before and after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureCount {
    Known,
    CountFrom(Timestamp),
}

impl DeviceRecord {
    /// Adds a run.
    pub fn add_run(&mut self, run: &RunFacts<'_>) -> FailureCount {
        match run.kind {
            JobKind::Backup => return self.add_backup(run),
            JobKind::Verify if run.status.is_success() => self.verified_at = self.verified_at.max(Some(run.ended_at)),
            JobKind::Verify if run.has_found_errors => {
                self.errors_found_at = self.errors_found_at.max(Some(run.ended_at));
            }
            JobKind::Verify | JobKind::RestoreTest | JobKind::Prune => {}
        }
        FailureCount::Known
    }

    fn add_backup(&mut self, run: &RunFacts<'_>) -> FailureCount {
        let ended_at = Some(run.ended_at);
        self.first_run_at = min_time(self.first_run_at, run.ended_at);
        let is_newest = self.last_run_at.is_none_or(|last| run.ended_at >= last);
        if is_newest {
            (self.last_run_at, self.last_run_started_at) = (ended_at, Some(run.started_at));
        }
        if !run.status.is_success() {
            if self.last_success_at < ended_at {
                self.failures += 1;
                self.failing_since = min_time(self.failing_since, run.ended_at);
            }
            return FailureCount::Known;
        }
        self.first_success_at = min_time(self.first_success_at, run.ended_at);
        let on_target = self.targets.entry(run.target.to_owned()).or_insert(run.ended_at);
        *on_target = (*on_target).max(run.ended_at);
        self.forget_oldest_target();
        if self.last_success_at > ended_at {
            return FailureCount::Known;
        }
        self.last_success_at = ended_at;
        self.size_bytes = run.size_bytes.or(self.size_bytes);
        if self.failures == 0 || is_newest {
            (self.failures, self.failing_since) = (0, None);
            return FailureCount::Known;
        }
        FailureCount::CountFrom(run.ended_at)
    }

    fn forget_oldest_target(&mut self) {
        if self.targets.len() <= TARGETS_MAX {
            return;
        }
        let oldest = self.targets.iter().min_by_key(|(_, at)| **at).map(|(name, _)| name.clone());
        if let Some(oldest) = oldest {
            self.targets.remove(&oldest);
        }
    }

    /// Brings times back that lie in the future.
    pub fn clamp_times(&mut self, now: Timestamp) {
        let times = [
            &mut self.first_run_at,
            &mut self.last_run_at,
            &mut self.last_run_started_at,
            &mut self.first_success_at,
            &mut self.last_success_at,
            &mut self.failing_since,
            &mut self.verified_at,
            &mut self.errors_found_at,
            &mut self.judged_until,
            &mut self.missed_since,
            &mut self.missed_at,
        ];
        for time in times.into_iter().flatten().chain(self.targets.values_mut()) {
            *time = (*time).min(now);
        }
    }

    pub fn has_errors(&self) -> bool {
        self.errors_found_at.is_some() && self.errors_found_at > self.verified_at
    }
}

pub fn min_time(known: Option<Timestamp>, at: Timestamp) -> Option<Timestamp> {
    Some(known.map_or(at, |known| known.min(at)))
}

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
        self.findings.push(Finding { code, severity, since });
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
        if let Some(since) = record.failing_since
            && record.failures >= self.policy.alert_after_failures
        {
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
        let has_errors = record.has_errors();
        if has_errors {
            self.add(ReasonCode::ErrorsFound, Severity::Critical, record.errors_found_at.unwrap_or(self.now));
        }
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
