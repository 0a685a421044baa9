//! An organization: what its devices add up to, and what follows from that at a time.

use std::collections::{BTreeMap, BTreeSet};

use kernel::base::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::device::{Age, DeviceShare, Moments};
use super::record::min_time;
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
    pub first_success_at: Option<Timestamp>,
    pub verified_at: Option<Timestamp>,
    pub restore_tested_at: Option<Timestamp>,
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

/// Sums of what devices add.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ShareSums {
    pub total: i64,
    pub in_scope: i64,
    pub protected: i64,
    pub never_succeeded: i64,
    pub reported: i64,
    pub silent_unknown: i64,
    pub silent_warning: i64,
    pub silent_critical: i64,
    pub protection_unknown: i64,
    pub protection_warning: i64,
    pub protection_critical: i64,
    pub recovery_warning: i64,
    pub recovery_critical: i64,
    pub verified: i64,
    pub verification_overdue: i64,
    pub size_bytes: i64,
    pub targets: BTreeMap<String, i64>,
}

impl ShareSums {
    /// Adds what a device adds (`1`), or takes it away (`-1`).
    pub fn add(&mut self, share: &DeviceShare, by: i64) {
        macro_rules! add {
            ($($field:ident),+) => { $(self.$field += by * share.$field;)+ };
        }
        add!(
            total,
            in_scope,
            protected,
            never_succeeded,
            reported,
            silent_unknown,
            silent_warning,
            silent_critical,
            protection_unknown,
            protection_warning,
            protection_critical,
            recovery_warning,
            recovery_critical,
            verified,
            verification_overdue,
            size_bytes
        );
        for target in &share.targets {
            let devices = self.targets.entry(target.clone()).or_insert(0);
            *devices += by;
            if *devices <= 0 {
                self.targets.remove(target);
            }
        }
    }
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
        let times = [&mut self.first_success_at, &mut self.verified_at, &mut self.restore_tested_at];
        for time in times.into_iter().flatten().chain(self.findings.iter_mut().map(|finding| &mut finding.since)) {
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
    /// The original, and each target of the policy that has a fresh backup of every device in scope.
    pub copies: i64,
    /// Kinds of media among them; the original is on `disk`.
    pub media: i64,
    pub offsite: bool,
    pub immutable: bool,
    /// Every device in scope was verified in time, without errors.
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
    let sums = &record.sums;
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
    let since_known =
        |code: ReasonCode| record.findings.iter().find(|known| known.code == code).map(|known| known.since);
    let mut add = |code, severity, since: Option<Timestamp>| {
        let since = since.or_else(|| since_known(code)).unwrap_or(now);
        judgement.findings.push(Finding { code, severity, since, detail: None });
    };
    if !policy.enabled {
        add(ReasonCode::Disabled, Severity::Unknown, None);
        if sums.reported > 0 {
            // Devices whose own policy is switched on are judged all the same.
            judgement.grades = Grades {
                protection: protection_grade(sums).max(Health::Unknown),
                recoverability: grade(sums.recovery_critical, sums.recovery_warning, 1),
            };
        }
        return judgement;
    }
    if sums.reported == 0 {
        if sums.in_scope > 0 {
            add(ReasonCode::NeverReported, Severity::Unknown, None);
        }
        return judgement;
    }
    let mut moments = Moments::new(now);
    let mut is_overdue = false;
    if let (Some(every_ms), Some(since)) =
        (policy.restore_test_every_ms(), record.restore_tested_at.or(record.first_success_at))
        && moments.grade_age(since, every_ms) != Age::Fresh
    {
        is_overdue = true;
        add(ReasonCode::RestoreTestOverdue, Severity::Warning, Some(since.plus_ms(every_ms)));
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
        add(code, severity, None);
    }
    judgement.shown.is_restore_test_overdue = is_overdue;
    judgement.next_at = moments.next;
    judgement.grades =
        Grades { protection: protection_grade(sums), recoverability: recoverability_grade(sums, &judgement.findings) };
    judgement
}

fn protection_grade(sums: &ShareSums) -> Health {
    grade(
        sums.protection_critical + sums.silent_critical,
        sums.protection_warning + sums.silent_warning,
        sums.protection_unknown + sums.silent_unknown,
    )
}

fn recoverability_grade(sums: &ShareSums, findings: &[Finding]) -> Health {
    // Nothing can be recovered of what was never backed up.
    let unknown = i64::from(sums.never_succeeded == sums.in_scope);
    let own = findings.iter().map(|finding| Health::from(finding.severity)).max().unwrap_or(Health::Ok);
    own.max(grade(sums.recovery_critical, sums.recovery_warning, unknown))
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
    let counts =
        |name: &str| sums.in_scope > 0 && sums.targets.get(name).is_some_and(|devices| *devices == sums.in_scope);
    let counting: Vec<_> = policy.targets.iter().filter(|target| counts(&target.name)).collect();
    let media: BTreeSet<TargetMedia> = counting.iter().map(|target| target.media).chain([TargetMedia::Disk]).collect();
    Rule32110 {
        copies: 1 + counting.len() as i64,
        media: media.len() as i64,
        offsite: counting.iter().any(|target| target.offsite),
        immutable: counting.iter().any(|target| target.immutable),
        zero_errors: sums.in_scope > 0 && sums.verified == sums.in_scope,
    }
}

/// The earliest of two moments that may be missing.
pub fn earliest(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    match other {
        Some(other) => min_time(one, other),
        None => one,
    }
}
