//! Customers whose devices back up every night to two targets, judged by the product's own rules at one moment.
//!
//! One device in fifty has a reason, in four ways. Each organization begins at a minute of its own, so that what is due is
//! spread over the day.

use ::backups::job_reports::JobOutcome;
use ::backups::policy::{
    BackupPolicy, BackupSchedule, BackupTarget, DeviceClass, PolicyLevel, PolicySource, TargetMedia, TargetType,
    resolve_policy,
};
use ::backups::posture::device::{JudgedDevice, judge_device};
use ::backups::posture::organization::{DAYS_SHOWN, OrganizationRecord, earliest, find_zone, judge_organization};
use ::backups::posture::record::{DeviceRecord, FailureCount, RunFacts, min_time};
use ::backups::posture::rows::StoredPosture;
use ::backups::posture::share::DeviceShare;
use ::backups::posture::{Finding, JobKind, RunStatus};
use kernel::base::{DAY_MS, Env, HOUR_MS, MINUTE_MS, Timestamp};
use tenant_control::features::devices::{DeviceId, Type};
use tenant_control::features::organizations::OrganizationId;

use crate::chance::Chance;

pub const TARGETS: [&str; 2] = ["nas", "b2"];
/// Of an organization.
pub const DEVICES_EACH: usize = 20;
/// Reports of a device in 25 days: two backups each night, and a verification.
const REPORTS_IN_25_DAYS: usize = 51;
/// All runs of a night have ended so long after its moment; no organization begins later than that before midnight.
const NIGHT_MS: i64 = 65 * MINUTE_MS;
/// A scheduled run is judged so long after its moment.
const LATE_MS: i64 = 4 * HOUR_MS;
const KNOWN_MS: i64 = 365 * DAY_MS;

/// Those of healthy devices in turn: two servers for each workstation.
const KINDS: [Type; 3] = [Type::Workstation, Type::Server, Type::Virtual];

/// What a store is to hold.
#[derive(Clone, Copy)]
pub struct Plan {
    pub devices: usize,
    /// Of each device.
    pub reports: usize,
    /// The last reports came so long ago.
    pub silent_ms: i64,
    /// Whether one device in fifty has a reason.
    pub has_troubles: bool,
}

impl Plan {
    pub fn organizations(self) -> usize {
        self.devices.div_ceil(DEVICES_EACH).max(1)
    }

    /// Nights with reports.
    pub fn nights(self) -> i64 {
        i64::try_from((self.reports * 25 + 25) / REPORTS_IN_25_DAYS).unwrap_or(1).max(1)
    }
}

/// What is wrong with a device.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Trouble {
    /// A server that has failed for three nights.
    Failing,
    /// A workstation that has reported nothing for five nights.
    Silent,
    /// It is never verified.
    Unverified,
    NeverReported,
}

pub struct Machine {
    pub id: DeviceId,
    /// In its tenant, from 1.
    pub number: i64,
    pub kind: Type,
    pub class: DeviceClass,
    pub known_since: Timestamp,
    trouble: Option<Trouble>,
    pub record: DeviceRecord,
    pub share: DeviceShare,
    pub findings: Vec<Finding>,
    pub failures: i64,
    pub next_at: Option<Timestamp>,
}

pub struct Customer {
    pub id: OrganizationId,
    pub machines: Vec<Machine>,
    pub level: PolicyLevel,
    policy: BackupPolicy,
    minute: i64,
    pub posture: StoredPosture,
}

/// The job of all backups.
pub const JOB: &str = "nightly";

/// A run that a device has reported.
#[derive(Clone, Copy)]
pub struct Run {
    pub kind: JobKind,
    pub status: RunStatus,
    pub target: &'static str,
    pub started_at: Timestamp,
    pub ended_at: Timestamp,
    pub size_bytes: i64,
}

impl Run {
    pub fn outcome(&self) -> JobOutcome {
        let hash = Chance::new(self.ended_at.as_millis().unsigned_abs() ^ self.size_bytes.unsigned_abs()).next();
        JobOutcome {
            snapshot_id: Some(format!("{hash:016x}").repeat(4)),
            size_bytes: Some(self.size_bytes),
            added_bytes: Some(self.size_bytes / 300),
            files: Some(self.size_bytes / 250_000),
        }
    }

    fn facts(&self) -> RunFacts<'_> {
        let is_backup = self.kind == JobKind::Backup && self.status.is_success();
        RunFacts {
            job: JOB,
            kind: self.kind,
            status: self.status,
            started_at: self.started_at,
            ended_at: self.ended_at,
            received_at: self.ended_at,
            target: self.target,
            size_bytes: is_backup.then_some(self.size_bytes),
            has_found_errors: false,
            failure: "",
        }
    }
}

/// The policy of the tenant: two targets, which together make three copies on two media.
pub fn tenant_level() -> PolicyLevel {
    let target = |name: &str, kind, media, offsite: bool| BackupTarget {
        name: name.to_owned(),
        r#type: kind,
        media,
        offsite,
        immutable: offsite,
        immutable_days: offsite.then_some(30),
    };
    let targets = vec![
        target(TARGETS[0], TargetType::Nas, TargetMedia::Disk, false),
        target(TARGETS[1], TargetType::S3, TargetMedia::Object, true),
    ];
    PolicyLevel { targets: Some(targets), ..PolicyLevel::default() }
}

/// The customers of a tenant, judged at `end`.
pub fn make_customers(plan: Plan, end: Timestamp) -> Vec<Customer> {
    let (env, tenant, count) = (Env::default(), tenant_level(), plan.organizations());
    let last_minute = (DAY_MS - NIGHT_MS) / MINUTE_MS;
    let number = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
    let customers = (0..count).map(|n| {
        let minute = number(n) * last_minute / number(count);
        let mut customer = Customer::new(&env, &tenant, minute, end);
        let first = n * DEVICES_EACH;
        for device in first..plan.devices.min(first + DEVICES_EACH) {
            customer.machines.push(Machine::new(&env, number(device) + 1, plan, end));
        }
        customer.report_nights(plan, end);
        customer
    });
    customers.collect()
}

impl Customer {
    fn new(env: &Env, tenant: &PolicyLevel, minute: i64, end: Timestamp) -> Self {
        let cron = format!("{} {} * * *", minute % 60, minute / 60);
        let schedule = BackupSchedule { cron, timezone: "UTC".to_owned() };
        let level = PolicyLevel { schedule: Some(schedule), ..PolicyLevel::default() };
        let (policy, _) = resolve_policy(&[(PolicySource::Tenant, tenant), (PolicySource::Organization, &level)]);
        Customer {
            id: OrganizationId::new_at(env, end.plus_ms(-KNOWN_MS)),
            machines: Vec::with_capacity(DEVICES_EACH),
            level,
            policy,
            minute,
            posture: StoredPosture {
                record: OrganizationRecord { zone: "UTC".to_owned(), ..OrganizationRecord::default() },
                ..StoredPosture::default()
            },
        }
    }

    /// The first scheduled moment after that time.
    fn next_moment(&self, after: Timestamp) -> Timestamp {
        let phase = self.minute * MINUTE_MS;
        let days = (after.as_millis() - phase).div_euclid(DAY_MS) + 1;
        Timestamp::from_millis(days * DAY_MS + phase)
    }

    /// The last night of which all runs have been reported.
    fn last_night(&self, plan: Plan, end: Timestamp) -> Timestamp {
        self.next_moment(end.plus_ms(-plan.silent_ms - NIGHT_MS - DAY_MS))
    }

    /// The runs of a device in the night so many nights before the last one.
    pub fn runs_of(&self, machine: &Machine, plan: Plan, end: Timestamp, nights_ago: i64) -> Vec<Run> {
        machine.runs_of(self.last_night(plan, end).plus_ms(-nights_ago * DAY_MS), nights_ago)
    }

    /// All nights, the oldest first, and how things stand then.
    fn report_nights(&mut self, plan: Plan, end: Timestamp) {
        let zone = find_zone("UTC");
        for nights_ago in (0..plan.nights()).rev() {
            let night = self.last_night(plan, end).plus_ms(-nights_ago * DAY_MS);
            let mut counts = [(RunStatus::Success, 0), (RunStatus::Failed, 0)];
            for machine in &mut self.machines {
                for run in machine.runs_of(night, nights_ago) {
                    add_run(&mut machine.record, &run);
                    note_run(&mut self.posture.record, &run);
                    if run.kind == JobKind::Backup && nights_ago < 2 {
                        self.posture.record.count_run(run.status, run.ended_at, 1, &zone, end);
                    } else if run.kind == JobKind::Backup {
                        counts[usize::from(run.status == RunStatus::Failed)].1 += 1;
                    }
                }
            }
            // No night goes beyond midnight, so the older ones, which count by days alone, are counted at once.
            for (status, runs) in counts.into_iter().filter(|(_, runs)| *runs > 0) {
                if usize::try_from(nights_ago).is_ok_and(|nights| nights <= DAYS_SHOWN) {
                    self.posture.record.count_day(status, night, runs, &zone, end);
                }
            }
        }
        for place in 0..self.machines.len() {
            self.judge_machine(place, end);
        }
        self.judge(end);
    }

    /// A device reports one more run at `now`.
    pub fn report(&mut self, place: usize, run: &Run, now: Timestamp) {
        add_run(&mut self.machines[place].record, run);
        note_run(&mut self.posture.record, run);
        self.posture.record.count_run(run.status, run.ended_at, 1, &find_zone("UTC"), now);
        self.judge_machine(place, now);
        self.judge(now);
    }

    fn judge_machine(&mut self, place: usize, now: Timestamp) {
        let closed = self.next_moment(now.plus_ms(-LATE_MS - DAY_MS));
        let machine = &self.machines[place];
        let judged_until = machine.record.first_run_at.filter(|_| machine.class == DeviceClass::Server);
        let judged_until = judged_until.map(|first| first.max(closed));
        let closes_at = judged_until.map(|until| self.next_moment(until).plus_ms(LATE_MS));
        let schedule = self.policy.schedule.as_ref().map(|given| format!("{} {}", given.cron, given.timezone));
        let machine = &mut self.machines[place];
        machine.record.judged_until = judged_until;
        machine.record.schedule = judged_until.and(schedule);
        let judged = JudgedDevice {
            class: machine.class,
            is_excluded: false,
            known_since: machine.known_since,
            first_report_at: self.posture.record.first_report_at,
            is_disabled: false,
        };
        let judgement = judge_device(&machine.record, judged, &self.policy, now);
        self.posture.record.sums.add(&machine.share, -1);
        self.posture.record.sums.add(&judgement.share, 1);
        (machine.share, machine.findings, machine.failures) = (judgement.share, judgement.findings, judgement.failures);
        machine.next_at = earliest(judgement.next_at, closes_at);
    }

    fn judge(&mut self, now: Timestamp) {
        let StoredPosture { grades, record, next_at } = &mut self.posture;
        let judgement = judge_organization(record, &self.policy, now);
        (record.findings, record.judged) = (judgement.findings, judgement.shown);
        *next_at = earliest(judgement.next_at, record.window_ends_at);
        *grades = judgement.grades;
    }
}

/// Adds a run that came in time.
fn add_run(record: &mut DeviceRecord, run: &Run) {
    if matches!(record.add_run(&run.facts()), FailureCount::IsFirst { .. }) {
        record.add_first_failure(&run.facts());
    }
}

/// What an organization knows of a run beside its number.
fn note_run(record: &mut OrganizationRecord, run: &Run) {
    match run.kind {
        JobKind::Backup => {
            record.first_report_at = min_time(record.first_report_at, run.ended_at);
            if run.status.is_success() {
                record.first_success_at = min_time(record.first_success_at, run.ended_at);
            }
        }
        JobKind::Verify => record.verified_at = record.verified_at.max(Some(run.ended_at)),
        _ => {}
    }
}

impl Machine {
    fn new(env: &Env, number: i64, plan: Plan, end: Timestamp) -> Self {
        let trouble = match number % 200 {
            _ if !plan.has_troubles => None,
            1 => Some(Trouble::Failing),
            52 => Some(Trouble::Silent),
            103 => Some(Trouble::Unverified),
            154 => Some(Trouble::NeverReported),
            _ => None,
        };
        let kind = match trouble {
            Some(Trouble::Silent) => Type::Workstation,
            Some(Trouble::Failing) => Type::Server,
            _ => KINDS[usize::try_from(number % 3).unwrap_or(0)],
        };
        let known_since = end.plus_ms(-KNOWN_MS);
        Machine {
            id: DeviceId::new_numbered(env, known_since, number),
            number,
            kind,
            class: DeviceClass::of(kind),
            known_since,
            trouble,
            record: DeviceRecord::default(),
            share: DeviceShare::default(),
            findings: Vec::new(),
            failures: 0,
            next_at: None,
        }
    }

    pub fn hostname(&self) -> String {
        format!("host-{:06}", self.number)
    }

    fn runs_of(&self, night: Timestamp, nights_ago: i64) -> Vec<Run> {
        if self.trouble == Some(Trouble::NeverReported) || (self.trouble == Some(Trouble::Silent) && nights_ago < 5) {
            return Vec::new();
        }
        let is_failed = self.trouble == Some(Trouble::Failing) && nights_ago < 3;
        let status = if is_failed { RunStatus::Failed } else { RunStatus::Success };
        let mut chance = Chance::new(night.as_millis().unsigned_abs() ^ self.number.unsigned_abs());
        let size_bytes = (20 + self.number % 400) * 1_000_000_000 + (KNOWN_MS / DAY_MS - nights_ago) * 31_000_000;
        let mut run = |kind, status, after_minutes: i64, target| {
            let started_at = night.plus_ms(after_minutes * MINUTE_MS + chance.below(15 * 60_000) as i64);
            let ended_at = started_at.plus_ms(5 * MINUTE_MS + chance.below(10 * 60_000) as i64);
            Run { kind, status, target, started_at, ended_at, size_bytes }
        };
        let mut runs = vec![run(JobKind::Backup, status, 0, TARGETS[0]), run(JobKind::Backup, status, 30, TARGETS[1])];
        if (nights_ago + self.number) % 25 == 0 && self.trouble != Some(Trouble::Unverified) {
            runs.push(run(JobKind::Verify, RunStatus::Success, 35, TARGETS[0]));
        }
        runs
    }
}
