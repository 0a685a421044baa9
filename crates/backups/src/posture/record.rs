//! What is known of the backups of a device.

use std::collections::BTreeMap;

use kernel::base::Timestamp;
use serde::{Deserialize, Serialize};

use super::{JobKind, RunStatus};
use crate::policy::BackupPolicy;

/// Targets that are known of one device, and jobs that fail. A device that names more than this is the fault of a script.
const NAMES_MAX: usize = 20;
/// Of the reason of a failure that is shown.
const FAILURE_CHARS_MAX: usize = 300;
/// A job that failed and did not run again is forgotten then: it was renamed, or is not there any more. A monthly job is
/// remembered until it runs next.
pub const JOB_MEMORY_MS: i64 = 35 * kernel::base::DAY_MS;
/// Eight petabytes. Tools may print any number; what the devices of a tenant add up to has to fit into one as well.
const SIZE_BYTES_MAX: i64 = 9_000_000_000_000_000;

/// What is known of the backups of a device, whatever the order in which its reports came.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceRecord {
    /// The end of the first backup that was reported, and of the newest.
    pub first_run_at: Option<Timestamp>,
    pub last_run_at: Option<Timestamp>,
    pub last_run_started_at: Option<Timestamp>,
    /// When the first of them was received: an imported history is older.
    pub first_received_at: Option<Timestamp>,
    pub first_success_at: Option<Timestamp>,
    pub last_success_at: Option<Timestamp>,
    /// Jobs whose newest backups failed. The success of another job, or on another target, says nothing of them.
    pub failing: Vec<FailingJob>,
    /// What the newest successful backups protect that say so, by job and target.
    pub sizes: Vec<JobSize>,
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

/// Bytes that the newest backup of a job on a target protects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSize {
    pub job: String,
    pub target: String,
    pub at: Timestamp,
    pub size_bytes: i64,
}

/// A run that failed. The greater of two is the newer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FailedRun {
    pub at: Timestamp,
    /// Its job, its target, and why it failed.
    pub detail: String,
}

impl FailedRun {
    pub fn new(run: &RunFacts<'_>) -> Self {
        FailedRun { at: run.ended_at, detail: describe_failed(run.job, run.target, &cut_failure(run.failure)) }
    }
}

/// When a target was verified last, when errors were found there, and the newest verification that failed without finding any.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Verification {
    pub verified_at: Option<Timestamp>,
    pub errors_found_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<FailedRun>,
}

impl Verification {
    /// When errors were found, unless it was good since.
    fn damaged_at(&self) -> Option<Timestamp> {
        self.errors_found_at.filter(|_| self.errors_found_at >= self.verified_at)
    }

    /// The newest, if it failed; damage says more.
    fn failed_check(&self) -> Option<&FailedRun> {
        self.failed.as_ref().filter(|failed| Some(failed.at) > self.verified_at && self.damaged_at().is_none())
    }

    fn newest_at(&self) -> Option<Timestamp> {
        self.verified_at.max(self.errors_found_at).max(self.failed.as_ref().map(|failed| failed.at))
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
    pub received_at: Timestamp,
    pub target: &'a str,
    pub size_bytes: Option<i64>,
    /// Whether a verification failed because what is stored is damaged.
    pub has_found_errors: bool,
    /// Why it failed.
    pub failure: &'a str,
}

/// What has to be asked before the failures of the run's job are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureCount {
    Known,
    /// Whether its job has succeeded since, up to the first failure that is known: if not, it is the first now.
    IsFirst {
        until: Timestamp,
    },
    /// A success came late: which failures were after it.
    CountAfter,
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
        self.first_received_at = min_time(self.first_received_at, run.received_at);
        if self.last_run_at < ended_at {
            (self.last_run_at, self.last_run_started_at) = (ended_at, Some(run.started_at));
        } else if self.last_run_at == ended_at {
            // Of two that ended together the longer, whichever came first.
            self.last_run_started_at = min_time(self.last_run_started_at, run.started_at);
        }
        if run.status.is_success() {
            self.first_success_at = min_time(self.first_success_at, run.ended_at);
            let on_target = self.targets.entry(run.target.to_owned()).or_insert(run.ended_at);
            *on_target = (*on_target).max(run.ended_at);
            forget_oldest(&mut self.targets, |at| *at);
            self.last_success_at = self.last_success_at.max(ended_at);
            self.add_size(run);
        }
        self.add_to_job(run)
    }

    fn add_size(&mut self, run: &RunFacts<'_>) {
        if let Some(size_bytes) = run.size_bytes {
            let newest = (run.ended_at, size_bytes.min(SIZE_BYTES_MAX));
            match self.sizes.iter_mut().find(|known| known.job == run.job && known.target == run.target) {
                // Of two that ended together the larger, whichever came first.
                Some(known) => (known.at, known.size_bytes) = (known.at, known.size_bytes).max(newest),
                None => self.sizes.push(JobSize {
                    job: run.job.to_owned(),
                    target: run.target.to_owned(),
                    at: newest.0,
                    size_bytes: newest.1,
                }),
            }
        }
        // Beside a job that goes on, one that does not was renamed, or is not there any more.
        let last_success_at = self.last_success_at;
        self.sizes.retain(|known| Some(known.at.plus_ms(JOB_MEMORY_MS)) >= last_success_at);
        if self.sizes.len() > NAMES_MAX
            && let Some(oldest) = (0..self.sizes.len()).min_by_key(|at| self.sizes[*at].at)
        {
            self.sizes.remove(oldest);
        }
    }

    /// Bytes that the newest backups of all jobs protect.
    pub fn size_bytes(&self) -> i64 {
        self.sizes.iter().map(|known| known.size_bytes).sum::<i64>().min(SIZE_BYTES_MAX)
    }

    fn add_to_job(&mut self, run: &RunFacts<'_>) -> FailureCount {
        let at = self.failing.iter().position(|known| known.job == run.job && known.target == run.target);
        let Some(at) = at else {
            let has_failed = !run.status.is_success();
            let until = Timestamp::from_millis(i64::MAX);
            return if has_failed { FailureCount::IsFirst { until } } else { FailureCount::Known };
        };
        let known = &mut self.failing[at];
        if run.status.is_success() {
            if run.ended_at >= known.last_at {
                self.failing.remove(at);
            } else if run.ended_at >= known.since {
                return FailureCount::CountAfter;
            }
        } else if run.ended_at >= known.since {
            known.failures += 1;
            let newest = (run.ended_at, cut_failure(run.failure));
            (known.last_at, known.detail) = newest.max((known.last_at, std::mem::take(&mut known.detail)));
        } else {
            return FailureCount::IsFirst { until: known.since };
        }
        FailureCount::Known
    }

    /// Adds a failure that came before all of its job that are known.
    pub fn add_first_failure(&mut self, run: &RunFacts<'_>) {
        if let Some(known) = self.failing.iter_mut().find(|known| known.job == run.job && known.target == run.target) {
            known.failures += 1;
            known.since = run.ended_at;
            return;
        }
        let (job, target, at) = (run.job.to_owned(), run.target.to_owned(), run.ended_at);
        let detail = cut_failure(run.failure);
        self.failing.push(FailingJob { job, target, failures: 1, since: at, last_at: at, detail });
        if self.failing.len() > NAMES_MAX
            && let Some(oldest) = (0..self.failing.len()).min_by_key(|at| self.failing[*at].last_at)
        {
            self.failing.remove(oldest);
        }
    }

    /// Sets the failures of the run's job, of which the first ended at `since`.
    pub fn set_failures(&mut self, run: &RunFacts<'_>, failures: i64, since: Timestamp) {
        if let Some(known) = self.failing.iter_mut().find(|known| known.job == run.job && known.target == run.target) {
            (known.failures, known.since) = (failures, since);
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

    fn add_verification(&mut self, run: &RunFacts<'_>) {
        let ended_at = Some(run.ended_at);
        let of_target = self.verifications.entry(run.target.to_owned()).or_default();
        if run.status.is_success() {
            of_target.verified_at = of_target.verified_at.max(ended_at);
            self.verified_at = self.verified_at.max(ended_at);
        } else if run.has_found_errors {
            of_target.errors_found_at = of_target.errors_found_at.max(ended_at);
        } else {
            of_target.failed = of_target.failed.take().max(Some(FailedRun::new(run)));
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
            &mut self.first_received_at,
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
        let of_sizes = self.sizes.iter_mut().map(|one| &mut one.at);
        let times = times.into_iter().chain(of_verifications).flatten();
        for time in times.chain(self.targets.values_mut()).chain(of_jobs).chain(of_sizes) {
            *time = (*time).min(now);
        }
        for failed in self.verifications.values_mut().filter_map(|one| one.failed.as_mut()) {
            failed.at = failed.at.min(now);
        }
    }

    /// The target of the newest success, if the policy names targets and not that one.
    pub fn find_unknown_target(&self, policy: &BackupPolicy) -> Option<&str> {
        // Of two that ended together, the one that the policy names.
        let newest = self.targets.iter().max_by_key(|(target, at)| (**at, policy.uses_target(target)));
        newest.map(|(target, _)| target.as_str()).filter(|target| !policy.uses_target(target))
    }

    /// Targets that are damaged, and since when.
    pub fn damaged_targets(&self) -> impl Iterator<Item = (&str, Timestamp)> {
        let all = self.verifications.iter();
        all.filter_map(|(target, verified)| verified.damaged_at().map(|since| (target.as_str(), since)))
    }

    /// The newest verifications of targets of the policy, where those failed for another reason than damage.
    pub fn failed_checks(&self, policy: &BackupPolicy) -> impl Iterator<Item = &FailedRun> {
        let all = self.verifications.iter().filter(|(target, _)| policy.uses_target(target));
        all.filter_map(|(_, verified)| verified.failed_check())
    }
}

/// Of the jobs that fail, the one that did last, and why.
pub fn newest_failure<'a>(failing: impl IntoIterator<Item = &'a FailingJob>) -> Option<String> {
    let newest = failing.into_iter().max_by_key(|known| (known.last_at, &known.job, &known.target));
    newest.map(|known| describe_failed(&known.job, &known.target, &known.detail))
}

fn describe_failed(job: &str, target: &str, why: &str) -> String {
    if why.is_empty() { format!("{job} on {target}") } else { format!("{job} on {target}: {why}") }
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

pub fn later_of(at: Timestamp, other: Option<Timestamp>) -> Timestamp {
    other.map_or(at, |other| at.max(other))
}
