//! A device: what follows at a time from what is known of its backups.

use kernel::base::Timestamp;

use super::record::{DeviceRecord, FailingJob, JOB_MEMORY_MS, later_of, min_time, newest_failure};
use super::share::{DeviceShare, ShareCounts};
use super::{Finding, ReasonCode, Severity};
use crate::policy::{BackupPolicy, DeviceClass};

/// What is known of a device besides its runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JudgedDevice {
    pub class: DeviceClass,
    pub is_excluded: bool,
    /// Since when the device is known.
    pub known_since: Timestamp,
    /// When any device of its organization first reported a backup; none until then.
    pub first_report_at: Option<Timestamp>,
    /// Whether its own policy switches backups off, and not that of its organization.
    pub is_disabled: bool,
}

/// What a device is like at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceJudgement {
    pub share: DeviceShare,
    pub findings: Vec<Finding>,
    /// Failed backups in a row, of the job that has the most.
    pub failures: i64,
    /// When time alone changes it next.
    pub next_at: Option<Timestamp>,
}

impl DeviceJudgement {
    /// Of a device that is not judged.
    fn none(total: i64) -> Self {
        let counts = ShareCounts { total, ..ShareCounts::default() };
        let share = DeviceShare { counts, ..DeviceShare::default() };
        DeviceJudgement { share, findings: Vec::new(), failures: 0, next_at: None }
    }
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
        rpo_ms: policy.rpo_ms(device.class),
        moments: Moments::new(now),
        findings: Vec::new(),
    };
    let has_reported = record.first_run_at.is_some();
    if device.class == DeviceClass::Appliance && !has_reported {
        return DeviceJudgement::none(0);
    }
    if device.is_excluded {
        return DeviceJudgement::none(1);
    }
    let counts = ShareCounts {
        total: 1,
        in_scope: 1,
        disabled: i64::from(!policy.enabled),
        reported: i64::from(has_reported),
        never_succeeded: i64::from(record.last_success_at.is_none()),
        size_bytes: record.size_bytes(),
        ..ShareCounts::default()
    };
    let mut share = DeviceShare { counts, ..DeviceShare::default() };
    let failures = judge.failing().map(|job| job.failures).max().unwrap_or(0);
    if !policy.enabled {
        if device.is_disabled {
            judge.add(ReasonCode::Disabled, Severity::Unknown, device.known_since);
            share.counts.protection_unknown = 1;
        }
        return DeviceJudgement { share, findings: judge.findings, failures, next_at: None };
    }
    judge.judge_protection(&mut share.counts, device);
    judge.judge_recoverability(&mut share);
    judge.findings.sort();
    DeviceJudgement { share, next_at: judge.moments.next, findings: judge.findings, failures }
}

struct DeviceJudge<'a> {
    record: &'a DeviceRecord,
    policy: &'a BackupPolicy,
    rpo_ms: i64,
    moments: Moments,
    findings: Vec<Finding>,
}

impl<'a> DeviceJudge<'a> {
    /// Jobs that fail on targets of the policy. Nobody misses copies on a target that it no longer names.
    fn failing(&self) -> impl Iterator<Item = &'a FailingJob> + use<'a> {
        let policy = self.policy;
        self.record.failing.iter().filter(move |job| policy.uses_target(&job.target))
    }

    fn add(&mut self, code: ReasonCode, severity: Severity, since: Timestamp) {
        let detail = match code {
            ReasonCode::Failures => newest_failure(self.failing()),
            ReasonCode::NeverSucceeded => newest_failure(&self.record.failing),
            ReasonCode::ErrorsFound => {
                let targets: Vec<&str> = self.record.damaged_targets().map(|(target, _)| target).collect();
                Some(format!("on {}", targets.join(", ")))
            }
            ReasonCode::VerificationOverdue => {
                self.record.failed_checks(self.policy).max().map(|failed| failed.detail.clone())
            }
            _ => None,
        };
        self.findings.push(Finding { code, severity, since, detail });
    }

    fn judge_silence(&mut self, share: &mut ShareCounts, device: JudgedDevice) {
        let Some(first_report_at) = device.first_report_at else {
            // Nobody of this customer reports yet. Who begins has as long for the other devices as for a new one.
            share.silent_unknown = 1;
            return self.add(ReasonCode::NeverReported, Severity::Unknown, device.known_since);
        };
        let since = device.known_since.max(first_report_at);
        let severity = match self.moments.grade_age(since, self.rpo_ms) {
            Age::Fresh => Severity::Unknown,
            Age::Old => Severity::Warning,
            Age::TwiceOld => Severity::Critical,
        };
        match severity {
            Severity::Unknown => share.silent_unknown = 1,
            Severity::Warning => share.silent_warning = 1,
            Severity::Critical => share.silent_critical = 1,
        }
        self.add(ReasonCode::NeverReported, severity, since);
    }

    fn judge_protection(&mut self, share: &mut ShareCounts, device: JudgedDevice) {
        let record = self.record;
        let Some(first_run_at) = record.first_run_at else { return self.judge_silence(share, device) };
        match record.last_success_at {
            Some(last) => {
                let since = last.plus_ms(self.rpo_ms);
                match self.moments.grade_age(last, self.rpo_ms) {
                    Age::Fresh => share.protected = 1,
                    Age::Old => self.add(ReasonCode::RpoMissed, Severity::Warning, since),
                    Age::TwiceOld => self.add(ReasonCode::RpoMissed, Severity::Critical, since),
                }
            }
            None => self.add(ReasonCode::NeverSucceeded, Severity::Critical, first_run_at),
        }
        for job in self.failing() {
            self.moments.add(job.last_at.plus_ms(JOB_MEMORY_MS + 1));
        }
        let alarming = self.failing().filter(|job| job.failures >= self.policy.alert_after_failures);
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
        share.unknown_target = record.find_unknown_target(self.policy).map(str::to_owned);
        let Some(first_success_at) = record.first_success_at else { return };
        let counts = &mut share.counts;
        let damaged_since = record.damaged_targets().map(|(_, since)| since).min();
        if let Some(since) = damaged_since {
            self.add(ReasonCode::ErrorsFound, Severity::Critical, since);
        }
        let has_errors = damaged_since.is_some();
        let overdue_since = self.find_overdue(first_success_at);
        if let Some(since) = overdue_since {
            self.add(ReasonCode::VerificationOverdue, Severity::Warning, since);
        }
        let is_overdue = overdue_since.is_some();
        counts.verification_overdue = i64::from(is_overdue);
        counts.verified = i64::from(record.verified_at.is_some() && !is_overdue && !has_errors);
        counts.recovery_critical = i64::from(has_errors);
        counts.recovery_warning = i64::from(is_overdue && !has_errors);
    }

    /// Since when the verification is overdue: it was not done in time, or the newest of a target failed.
    fn find_overdue(&mut self, first_success_at: Timestamp) -> Option<Timestamp> {
        let failed_since = self.record.failed_checks(self.policy).map(|failed| failed.at).min();
        let Some(every_ms) = self.policy.verify_every_ms() else { return failed_since };
        // A history that is imported is not overdue at once: it is waited for from the first report on.
        let since = later_of(self.record.verified_at.unwrap_or(first_success_at), self.record.first_received_at);
        match self.moments.grade_age(since, every_ms) {
            Age::Fresh => failed_since,
            Age::Old | Age::TwiceOld => min_time(failed_since, since.plus_ms(every_ms)),
        }
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
