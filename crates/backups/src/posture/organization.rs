//! An organization: what its devices add up to, and what follows from that at a time.

use std::collections::{BTreeMap, BTreeSet};

use kernel::base::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::device::{Age, Moments};
use super::record::{FailedRun, later_of, min_time};
use super::share::{ShareCounts, ShareSums};
use super::{Finding, Health, ReasonCode, RunCounts, RunStatus, Severity};
use crate::policy::{BackupPolicy, TargetMedia};

/// Days that the strip shows, today included.
pub const DAYS_SHOWN: usize = 28;
/// How long runs count in `jobs_24h`.
pub const DAY_WINDOW_MS: i64 = kernel::base::DAY_MS;

/// What is known of the backups of an organization.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OrganizationRecord {
    /// What the devices add up to.
    pub sums: ShareSums,
    /// Of the last 24 hours: runs that ended after `window_from`.
    pub window: RunCounts,
    pub window_from: Option<Timestamp>,
    /// When the first of them leaves the window, at the earliest.
    pub window_ends_at: Option<Timestamp>,
    /// Runs by day, in the zone below.
    pub days: BTreeMap<String, RunCounts>,
    /// The time zone of the days.
    pub zone: String,
    /// When the first report of a backup came that is of a device in scope: silence is counted from then on.
    pub first_report_at: Option<Timestamp>,
    pub first_success_at: Option<Timestamp>,
    pub verified_at: Option<Timestamp>,
    pub restore_tested_at: Option<Timestamp>,
    /// The newest restore test that failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restore_failed: Option<FailedRun>,
    /// The reasons of the organization as a whole.
    pub findings: Vec<Finding>,
    /// What is shown of how it was judged.
    pub judged: ShownJudgement,
}

/// What is shown of how an organization was judged, so that showing it needs no policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ShownJudgement {
    pub rule: Rule32110,
    pub verify_every_days: Option<i64>,
    pub restore_test_every_days: Option<i64>,
    pub is_restore_test_overdue: bool,
}

impl OrganizationRecord {
    /// Counts a run that ended then, on a day of the organization's zone.
    pub fn count_run(
        &mut self,
        status: RunStatus,
        ended_at: Timestamp,
        by: i64,
        zone: &jiff::tz::TimeZone,
        now: Timestamp,
    ) {
        // Loading the organization has taken out what has left the window by now.
        let window_from = now.plus_ms(-DAY_WINDOW_MS);
        self.window_from = Some(window_from);
        if ended_at > window_from {
            self.window.add(status, by);
            self.window_ends_at = min_time(self.window_ends_at, ended_at.plus_ms(DAY_WINDOW_MS));
        }
        self.count_day(status, ended_at, by, zone, now);
    }

    /// Counts runs on a day of the strip alone.
    pub fn count_day(
        &mut self,
        status: RunStatus,
        ended_at: Timestamp,
        by: i64,
        zone: &jiff::tz::TimeZone,
        now: Timestamp,
    ) {
        let day = day_of(ended_at, zone);
        if day < first_day_shown(now, zone) {
            return;
        }
        let counts = self.days.entry(day.clone()).or_default();
        counts.add(status, by);
        if counts.is_empty() {
            self.days.remove(&day);
        }
    }

    /// Brings times back that lie in the future. The runs of the last 24 hours, and the days, are counted anew.
    pub fn clamp_times(&mut self, now: Timestamp) {
        let times =
            [&mut self.first_report_at, &mut self.first_success_at, &mut self.verified_at, &mut self.restore_tested_at];
        let of_failed = self.restore_failed.iter_mut().map(|failed| &mut failed.at);
        let of_findings = self.findings.iter_mut().map(|finding| &mut finding.since);
        for time in times.into_iter().flatten().chain(of_failed).chain(of_findings) {
            *time = (*time).min(now);
        }
        (self.window, self.window_from, self.window_ends_at) = (RunCounts::default(), None, None);
        self.zone = String::new();
    }

    /// Forgets days that are shown no more.
    pub fn forget_old_days(&mut self, zone: &jiff::tz::TimeZone, now: Timestamp) {
        let first = first_day_shown(now, zone);
        self.days.retain(|day, _| *day >= first);
    }
}

/// The date of a moment in a zone, such as `2026-11-15`.
pub fn day_of(at: Timestamp, zone: &jiff::tz::TimeZone) -> String {
    civil_date(at, zone).to_string()
}

fn civil_date(at: Timestamp, zone: &jiff::tz::TimeZone) -> jiff::civil::Date {
    let at = jiff::Timestamp::from_millisecond(at.as_millis()).unwrap_or_default();
    zone.to_datetime(at).date()
}

/// The days of the strip, oldest first.
pub fn days_shown(now: Timestamp, zone: &jiff::tz::TimeZone) -> Vec<String> {
    let mut day = civil_date(now, zone);
    let mut days = Vec::with_capacity(DAYS_SHOWN);
    for _ in 0..DAYS_SHOWN {
        days.push(day.to_string());
        day = day.yesterday().unwrap_or(day);
    }
    days.reverse();
    days
}

fn first_day_shown(now: Timestamp, zone: &jiff::tz::TimeZone) -> String {
    days_shown(now, zone).swap_remove(0)
}

/// The zone of the days: that of the schedule.
pub fn zone_of(policy: &BackupPolicy) -> String {
    policy.schedule.as_ref().map_or_else(|| "UTC".to_owned(), |schedule| schedule.timezone.clone())
}

pub fn find_zone(name: &str) -> jiff::tz::TimeZone {
    jiff::tz::TimeZone::get(name).unwrap_or(jiff::tz::TimeZone::UTC)
}

/// The 3-2-1-1-0 rule: three copies, on two media, one offsite, one immutable, no errors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = BackupRule32110)]
pub struct Rule32110 {
    /// The original, and each target of the policy that has a fresh backup of every device in scope that is switched on.
    pub copies: i64,
    /// Kinds of media among them; the original is on `disk`.
    pub media: i64,
    pub offsite: bool,
    pub immutable: bool,
    /// Every device in scope that is switched on was verified in time, without errors.
    pub zero_errors: bool,
}

/// The three grades.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grades {
    pub protection: Health,
    pub recoverability: Health,
}

impl Grades {
    pub fn overall(self) -> Health {
        self.protection.max(self.recoverability)
    }
}

/// What an organization is like at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrganizationJudgement {
    pub shown: ShownJudgement,
    pub grades: Grades,
    /// The reasons of the organization as a whole.
    pub findings: Vec<Finding>,
    /// When time alone changes it next.
    pub next_at: Option<Timestamp>,
}

const COPIES_MIN: i64 = 3;
const MEDIA_MIN: i64 = 2;

/// Judges an organization by its own policy. A reason that was there before keeps the time since when.
pub fn judge_organization(record: &OrganizationRecord, policy: &BackupPolicy, now: Timestamp) -> OrganizationJudgement {
    let (sums, counts) = (&record.sums, &record.sums.counts);
    let mut judgement = OrganizationJudgement {
        shown: ShownJudgement {
            rule: apply_rule(sums, policy),
            verify_every_days: policy.verification.every_days,
            restore_test_every_days: policy.verification.restore_test_every_days,
            is_restore_test_overdue: false,
        },
        grades: Grades { protection: Health::Unknown, recoverability: Health::Unknown },
        findings: Vec::new(),
        next_at: None,
    };
    let unknown_targets = describe_unknown_targets(sums, policy);
    let mut add = |code, severity| {
        let known = record.findings.iter().find(|known| known.code == code);
        let since = known.map_or(now, |known| known.since);
        let is_of_targets = matches!(code, ReasonCode::TooFewCopies | ReasonCode::NoOffsite);
        let detail = unknown_targets.clone().filter(|_| is_of_targets);
        judgement.findings.push(Finding { code, severity, since, detail });
    };
    if !policy.enabled {
        add(ReasonCode::Disabled, Severity::Unknown);
        if counts.reported > 0 {
            // Devices whose own policy is switched on are judged all the same.
            judgement.grades = Grades {
                protection: protection_grade(counts).max(Health::Unknown),
                recoverability: grade(counts.recovery_critical, counts.recovery_warning, 1),
            };
        }
        return judgement;
    }
    if counts.reported == 0 {
        if counts.in_scope > 0 {
            add(ReasonCode::NeverReported, Severity::Unknown);
        }
        return judgement;
    }
    if counts.judged() == 0 {
        // All are switched off one by one: nobody expects copies, and nobody knows what is there.
        judgement.grades.protection = protection_grade(counts);
        return judgement;
    }
    // A policy that names no targets says nothing of copies: that is unknown, not bad.
    let severity = if policy.targets.is_empty() { Severity::Unknown } else { Severity::Warning };
    let rule = judgement.shown.rule;
    let lacks = [
        (ReasonCode::TooFewCopies, rule.copies < COPIES_MIN),
        (ReasonCode::TooFewMedia, rule.media < MEDIA_MIN),
        (ReasonCode::NoOffsite, !rule.offsite),
        (ReasonCode::NoImmutable, !rule.immutable),
    ];
    for (code, _) in lacks.into_iter().filter(|(_, lacks)| *lacks) {
        add(code, severity);
    }
    let mut moments = Moments::new(now);
    let overdue = judge_restore_test(record, policy, &mut moments);
    judgement.shown.is_restore_test_overdue = overdue.is_some();
    judgement.findings.extend(overdue);
    judgement.next_at = moments.next;
    judgement.grades = Grades {
        protection: protection_grade(counts),
        recoverability: recoverability_grade(counts, &judgement.findings),
    };
    judgement
}

/// Targets that devices use and the policy does not name, which is how a misspelt name looks.
fn describe_unknown_targets(sums: &ShareSums, policy: &BackupPolicy) -> Option<String> {
    let unknown: Vec<String> = sums.unknown_targets.keys().map(|target| format!("\"{target}\"")).collect();
    let is_told = !unknown.is_empty() && !policy.targets.is_empty();
    is_told.then(|| {
        let (named, unknown) = (policy.list_target_names(), unknown.join(", "));
        format!("The policy names {named}; devices have their newest backup on {unknown}.")
    })
}

/// The restore test is overdue if none was done in time, or if the newest failed.
fn judge_restore_test(record: &OrganizationRecord, policy: &BackupPolicy, moments: &mut Moments) -> Option<Finding> {
    let failed = record.restore_failed.as_ref().filter(|failed| Some(failed.at) > record.restore_tested_at);
    let mut since = failed.map(|failed| failed.at);
    if let (Some(every_ms), Some(tested_at)) =
        (policy.restore_test_every_ms(), record.restore_tested_at.or(record.first_success_at))
    {
        // A history that is imported is not overdue at once: it is waited for from the first report on.
        let from = later_of(tested_at, record.first_report_at);
        if moments.grade_age(from, every_ms) != Age::Fresh {
            since = min_time(since, from.plus_ms(every_ms));
        }
    }
    let detail = failed.map(|failed| failed.detail.clone());
    since.map(|since| Finding { code: ReasonCode::RestoreTestOverdue, severity: Severity::Warning, since, detail })
}

fn protection_grade(counts: &ShareCounts) -> Health {
    grade(
        counts.protection_critical + counts.silent_critical,
        counts.protection_warning + counts.silent_warning,
        counts.protection_unknown + counts.silent_unknown,
    )
}

fn recoverability_grade(counts: &ShareCounts, findings: &[Finding]) -> Health {
    // Nothing can be recovered of what was never backed up.
    let unknown = i64::from(counts.never_succeeded == counts.in_scope);
    let own = findings.iter().map(|finding| Health::from(finding.severity)).max().unwrap_or(Health::Ok);
    own.max(grade(counts.recovery_critical, counts.recovery_warning, unknown))
}

fn grade(critical: i64, warning: i64, unknown: i64) -> Health {
    match (critical > 0, warning > 0, unknown > 0) {
        (true, ..) => Health::Critical,
        (_, true, _) => Health::Warning,
        (_, _, true) => Health::Unknown,
        _ => Health::Ok,
    }
}

fn apply_rule(sums: &ShareSums, policy: &BackupPolicy) -> Rule32110 {
    let judged = sums.counts.judged();
    let counts = |name: &str| judged > 0 && sums.targets.get(name).is_some_and(|devices| *devices == judged);
    let counting: Vec<_> = policy.targets.iter().filter(|target| counts(&target.name)).collect();
    let media: BTreeSet<TargetMedia> = counting.iter().map(|target| target.media).chain([TargetMedia::Disk]).collect();
    Rule32110 {
        copies: 1 + counting.len() as i64,
        media: media.len() as i64,
        offsite: counting.iter().any(|target| target.offsite),
        immutable: counting.iter().any(|target| target.immutable),
        zero_errors: judged > 0 && sums.counts.verified == judged,
    }
}

/// The earliest of two moments that may be missing.
pub fn earliest(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    match other {
        Some(other) => min_time(one, other),
        None => one,
    }
}
