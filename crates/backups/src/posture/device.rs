//! A device: what is known of its backups, and what follows from that at a time.

use std::collections::{BTreeMap, BTreeSet};

use kernel::base::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Finding, JobKind, ReasonCode, RunStatus, Severity};
use crate::policy::{BackupPolicy, DeviceClass};

/// Targets that are known of one device, and jobs that fail. A device that names more than this is the fault of a script.
pub const NAMES_MAX: usize = 20;
/// Of the reason of a failure that is shown.
const FAILURE_CHARS_MAX: usize = 300;
/// A job that failed and did not run again is forgotten then: it was renamed, or is not there any more. A monthly job is
/// remembered until it runs next.
pub const JOB_MEMORY_MS: i64 = 35 * kernel::base::DAY_MS;

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
    /// Jobs whose newest backups failed. The success of another job, or on another target, says nothing of them.
    pub failing: Vec<FailingJob>,
    /// Bytes that the newest successful backup protects.
    pub size_bytes: Option<i64>,
    /// The newest success on each target.
    pub targets: BTreeMap<String, Timestamp>,
    /// The newest verification that was good, of whichever target, and what was verified on each.
    pub verified_at: Option<Timestamp>,
    pub verifications: BTreeMap<String, Verification>,
    /// Up to where scheduled runs are judged, and by which schedule.
    pub judged_until: Option<Timestamp>,
    pub schedule: Option<String>,
    /// The scheduled runs that were missed since the last one that was met: the first of them, and the newest judged.
    pub missed_since: Option<Timestamp>,
    pub missed_at: Option<Timestamp>,
}

/// A job that fails on a target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailingJob {
    pub job: String,
    pub target: String,
    /// Failed backups since its last success, with the ends of the first and of the newest.
    pub failures: i64,
    pub since: Timestamp,
    pub last_at: Timestamp,
    /// Why the newest failed.
    pub detail: String,
}

impl FailingJob {
    fn describe(&self) -> String {
        let FailingJob { job, target, detail, .. } = self;
        if detail.is_empty() { format!("{job} on {target}") } else { format!("{job} on {target}: {detail}") }
    }
}

/// When a target was verified last, and when errors were found there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Verification {
    pub verified_at: Option<Timestamp>,
    pub errors_found_at: Option<Timestamp>,
}

impl Verification {
    /// When errors were found, unless it was good since.
    fn damaged_at(self) -> Option<Timestamp> {
        self.errors_found_at.filter(|_| self.errors_found_at >= self.verified_at)
    }

    fn newest_at(self) -> Option<Timestamp> {
        self.verified_at.max(self.errors_found_at)
    }
}

/// A run, as it changes what is known.
#[derive(Clone, Debug)]
pub struct RunFacts<'a> {
    pub job: &'a str,
    pub kind: JobKind,
    pub status: RunStatus,
    pub started_at: Timestamp,
    pub ended_at: Timestamp,
    pub target: &'a str,
    pub size_bytes: Option<i64>,
    /// Whether a verification failed because what is stored is damaged.
    pub has_found_errors: bool,
    /// Why it failed.
    pub failure: &'a str,
}

/// Whether the failures of the run's job have to be counted again: it began to fail, or a run came late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureCount {
    Known,
    CountAgain,
}

impl DeviceRecord {
    /// Adds a run.
    pub fn add_run(&mut self, run: &RunFacts<'_>) -> FailureCount {
        match run.kind {
            JobKind::Backup => return self.add_backup(run),
            JobKind::Verify => self.add_verification(run),
            JobKind::RestoreTest | JobKind::Prune => {}
        }
        FailureCount::Known
    }

    fn add_backup(&mut self, run: &RunFacts<'_>) -> FailureCount {
        let ended_at = Some(run.ended_at);
        self.first_run_at = min_time(self.first_run_at, run.ended_at);
        if self.last_run_at <= ended_at {
            (self.last_run_at, self.last_run_started_at) = (ended_at, Some(run.started_at));
        }
        if run.status.is_success() {
            self.first_success_at = min_time(self.first_success_at, run.ended_at);
            let on_target = self.targets.entry(run.target.to_owned()).or_insert(run.ended_at);
            *on_target = (*on_target).max(run.ended_at);
            forget_oldest(&mut self.targets, |at| *at);
            if self.last_success_at <= ended_at {
                self.last_success_at = ended_at;
                self.size_bytes = run.size_bytes.or(self.size_bytes);
            }
        }
        self.add_to_job(run)
    }

    fn add_to_job(&mut self, run: &RunFacts<'_>) -> FailureCount {
        let at = self.failing.iter().position(|known| known.job == run.job && known.target == run.target);
        let Some(at) = at else {
            if run.status.is_success() {
                return FailureCount::Known;
            }
            self.set_failing(run, 1, run.ended_at, run.ended_at);
            return FailureCount::CountAgain;
        };
        let known = &mut self.failing[at];
        if run.status.is_success() {
            if run.ended_at >= known.last_at {
                self.failing.remove(at);
            } else if run.ended_at >= known.since {
                return FailureCount::CountAgain;
            }
        } else if run.ended_at >= known.since {
            known.failures += 1;
            if known.last_at <= run.ended_at {
                (known.last_at, known.detail) = (run.ended_at, cut_failure(run.failure));
            }
        } else {
            return FailureCount::CountAgain;
        }
        FailureCount::Known
    }

    /// Sets the failures of the run's job.
    pub fn set_failing(&mut self, run: &RunFacts<'_>, failures: i64, since: Timestamp, last_at: Timestamp) {
        let at = self.failing.iter().position(|known| known.job == run.job && known.target == run.target);
        let known = at.map(|at| self.failing.remove(at));
        if failures == 0 {
            return;
        }
        let is_newest = !run.status.is_success() && run.ended_at >= last_at;
        let detail = known.filter(|_| !is_newest).map_or_else(|| cut_failure(run.failure), |known| known.detail);
        let (job, target) = (run.job.to_owned(), run.target.to_owned());
        self.failing.push(FailingJob { job, target, failures, since, last_at, detail });
        if self.failing.len() > NAMES_MAX
            && let Some(oldest) = (0..self.failing.len()).min_by_key(|at| self.failing[*at].last_at)
        {
            self.failing.remove(oldest);
        }
    }

    /// How long the newest backup took.
    pub fn last_length_ms(&self) -> i64 {
        let (Some(started), Some(ended)) = (self.last_run_started_at, self.last_run_at) else { return 0 };
        ended.as_millis() - started.as_millis()
    }

    /// Forgets jobs that failed and did not run again for so long.
    pub fn forget_jobs(&mut self, now: Timestamp) {
        self.failing.retain(|known| known.last_at.plus_ms(JOB_MEMORY_MS) >= now);
    }

    /// Failed backups in a row, of the job that has the most.
    pub fn failures(&self) -> i64 {
        self.failing.iter().map(|known| known.failures).max().unwrap_or(0)
    }

    /// Why the newest backup of those that fail did.
    fn describe_failure(&self) -> Option<String> {
        self.failing.iter().max_by_key(|known| known.last_at).map(FailingJob::describe)
    }

    fn add_verification(&mut self, run: &RunFacts<'_>) {
        if !run.status.is_success() && !run.has_found_errors {
            return;
        }
        let ended_at = Some(run.ended_at);
        let of_target = self.verifications.entry(run.target.to_owned()).or_default();
        if run.status.is_success() {
            of_target.verified_at = of_target.verified_at.max(ended_at);
            self.verified_at = self.verified_at.max(ended_at);
        } else {
            of_target.errors_found_at = of_target.errors_found_at.max(ended_at);
        }
        // Those that are damaged last.
        forget_oldest(&mut self.verifications, |of_target| (of_target.damaged_at(), of_target.newest_at()));
    }

    /// Brings times back that lie in the future.
    pub fn clamp_times(&mut self, now: Timestamp) {
        let times = [
            &mut self.first_run_at,
            &mut self.last_run_at,
            &mut self.last_run_started_at,
            &mut self.first_success_at,
            &mut self.last_success_at,
            &mut self.verified_at,
            &mut self.judged_until,
            &mut self.missed_since,
            &mut self.missed_at,
        ];
        let of_verifications =
            self.verifications.values_mut().flat_map(|one| [&mut one.verified_at, &mut one.errors_found_at]);
        let of_jobs = self.failing.iter_mut().flat_map(|one| [&mut one.since, &mut one.last_at]);
        let times = times.into_iter().chain(of_verifications).flatten();
        for time in times.chain(self.targets.values_mut()).chain(of_jobs) {
            *time = (*time).min(now);
        }
    }

    /// Targets that are damaged, and since when.
    fn damaged_targets(&self) -> impl Iterator<Item = (&str, Timestamp)> {
        let all = self.verifications.iter();
        all.filter_map(|(target, verified)| verified.damaged_at().map(|since| (target.as_str(), since)))
    }
}

fn cut_failure(detail: &str) -> String {
    detail.chars().take(FAILURE_CHARS_MAX).collect()
}

/// Keeps no more than [`NAMES_MAX`].
fn forget_oldest<T, K: Ord>(named: &mut BTreeMap<String, T>, age_of: impl Fn(&T) -> K) {
    if named.len() <= NAMES_MAX {
        return;
    }
    let oldest = named.iter().min_by_key(|(_, known)| age_of(known)).map(|(name, _)| name.clone());
    if let Some(oldest) = oldest {
        named.remove(&oldest);
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
