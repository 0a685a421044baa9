//! The aggregate from scratch: a plain computation over all that was ever done, without anything kept.

mod rule;

use std::collections::{BTreeMap, BTreeSet};

use feature_kit::schedule::CronSchedule;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use kernel::base::{DAY_MS, HOUR_MS, Timestamp};
use serde_json::{Value, json};
use tenant_control::features::devices::Type;

use rule::Rule;

/// Whom a level of the policy is of; devices and customers by their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    Tenant,
    Customer(usize),
    Device(usize),
}

/// What a level sets.
#[derive(Clone, Debug, Default)]
pub struct Level {
    pub enabled: Option<bool>,
    pub schedule: Option<(&'static str, &'static str)>,
    /// Hours of servers and of workstations.
    pub rpo: Option<(i64, i64)>,
    pub targets: Option<Vec<Target>>,
    /// Days of verifications and of restore tests.
    pub verification: Option<(Option<i64>, Option<i64>)>,
    pub alert: Option<i64>,
    pub excluded: Option<Vec<usize>>,
}

#[derive(Clone, Copy, Debug)]
pub struct Target {
    pub name: &'static str,
    pub media: &'static str,
    pub offsite: bool,
    pub immutable: bool,
}

#[derive(Clone, Debug)]
pub struct Run {
    pub device: usize,
    pub job: &'static str,
    pub kind: &'static str,
    pub status: &'static str,
    pub started: Timestamp,
    pub ended: Timestamp,
    pub target: &'static str,
    pub size: i64,
    /// Where the device was when the report came.
    pub customer: Option<usize>,
}

#[derive(Clone, Debug)]
pub enum Deed {
    Report(Run),
    Move(usize, Option<usize>),
    Retype(usize, Type),
    Delete(usize),
    Set(Owner, Level),
    Wait,
}

#[derive(Clone, Copy, Debug)]
pub struct Machine {
    pub kind: Type,
    pub customer: Option<usize>,
    pub is_gone: bool,
    pub known_since: Timestamp,
}

/// A scheduled run that was judged.
struct Slot {
    device: usize,
    customer: Option<usize>,
    /// Which of the schedules that the device had in turn.
    epoch: usize,
    at: Timestamp,
    opens: Timestamp,
    closes: Timestamp,
}

/// By which schedule a device is judged, and up to where.
#[derive(Clone, Copy)]
struct Judging {
    schedule: Option<(&'static str, &'static str)>,
    until: Timestamp,
    epoch: usize,
}

struct World {
    machines: Vec<Machine>,
    levels: BTreeMap<Owner, Level>,
    runs: Vec<Run>,
    slots: Vec<Slot>,
    judging: Vec<Judging>,
    /// Of the slots, those without any run that was under way within their window.
    missed: Vec<usize>,
}

/// The rows of all customers, and of none, that follow from a history.
pub fn tell_rows(
    machines: &[Machine],
    customers: usize,
    history: &[(Timestamp, Deed)],
    now: Timestamp,
) -> BTreeMap<Option<usize>, Value> {
    let none = Judging { schedule: None, until: Timestamp::from_millis(0), epoch: 0 };
    let mut world = World {
        machines: machines.to_vec(),
        levels: BTreeMap::new(),
        runs: Vec::new(),
        slots: Vec::new(),
        judging: vec![none; machines.len()],
        missed: Vec::new(),
    };
    for (at, deed) in history {
        world.apply(*at, deed);
    }
    world.find_missed();
    let all = [None].into_iter().chain((0..customers).map(Some));
    all.map(|customer| (customer, world.tell_row(customer, now))).collect()
}

fn is_workstation(kind: Type) -> bool {
    matches!(kind, Type::Laptop | Type::Workstation | Type::Mobile)
}

impl World {
    fn apply(&mut self, now: Timestamp, deed: &Deed) {
        let mut first = None;
        match deed {
            Deed::Report(run) => {
                let is_first = run.kind == "backup" && self.backups(run.device).next().is_none();
                first = is_first.then_some((run.device, run.ended));
                self.runs.push(Run { customer: self.machines[run.device].customer, ..run.clone() });
            }
            Deed::Move(device, customer) => self.machines[*device].customer = *customer,
            Deed::Retype(device, kind) => self.machines[*device].kind = *kind,
            Deed::Delete(device) => self.machines[*device].is_gone = true,
            Deed::Set(owner, level) => drop(self.levels.insert(*owner, level.clone())),
            Deed::Wait => {}
        }
        for device in 0..self.machines.len() {
            let from = first.filter(|(reported, _)| *reported == device).map_or(now, |(_, ended)| ended);
            self.judge_slots(device, from, now);
        }
    }

    fn backups(&self, device: usize) -> impl Iterator<Item = &Run> {
        self.runs.iter().filter(move |run| run.device == device && run.kind == "backup")
    }

    fn judge_slots(&mut self, device: usize, from: Timestamp, now: Timestamp) {
        let machine = self.machines[device];
        if machine.is_gone {
            return;
        }
        let policy = self.policy(machine.customer, Some(device));
        let has_run = self.backups(device).next().is_some();
        let is_judged =
            policy.enabled && !policy.excluded.contains(&device) && !is_workstation(machine.kind) && has_run;
        let schedule = policy.schedule.filter(|_| is_judged);
        // It is reported when it ends: as long again as the last run took, and half of that, is waited for.
        let last = self.backups(device).max_by_key(|run| run.ended);
        let length = last.map_or(0, |run| run.ended.as_millis() - run.started.as_millis()).min(DAY_MS);
        let judging = &mut self.judging[device];
        if judging.schedule != schedule {
            *judging = Judging { schedule, until: from, epoch: judging.epoch + 1 };
        }
        let Some((cron, zone)) = schedule else { return };
        let cron = CronSchedule::parse(cron, zone).expect("a schedule");
        loop {
            let at = cron.next_after(judging.until).expect("a moment");
            let gap = cron.next_after(at).expect("a moment").as_millis() - at.as_millis();
            let earlier =
                std::iter::successors(cron.next_after(at.plus_ms(-DAY_MS)), |earlier| cron.next_after(*earlier));
            let earlier = earlier.take_while(|earlier| *earlier < at).last();
            let before = earlier.map_or(DAY_MS, |earlier| at.as_millis() - earlier.as_millis());
            let (opens, closes) = (at.plus_ms(-(before / 4).min(HOUR_MS)), at.plus_ms((gap / 2).min(4 * HOUR_MS)));
            if closes.max(at.plus_ms(length * 3 / 2)) > now {
                return;
            }
            judging.until = at;
            let (customer, epoch) = (machine.customer, judging.epoch);
            self.slots.push(Slot { device, customer, epoch, at, opens, closes });
        }
    }

    fn find_missed(&mut self) {
        let runs: Vec<Vec<&Run>> = (0..self.machines.len()).map(|device| self.backups(device).collect()).collect();
        let is_met =
            |slot: &Slot| runs[slot.device].iter().any(|run| run.started < slot.closes && run.ended >= slot.opens);
        self.missed = (0..self.slots.len()).filter(|at| !is_met(&self.slots[*at])).collect();
    }

    fn missed(&self) -> impl Iterator<Item = &Slot> {
        self.missed.iter().map(|at| &self.slots[*at])
    }

    fn policy(&self, customer: Option<usize>, device: Option<usize>) -> Policy {
        let mut policy = Policy {
            enabled: true,
            schedule: None,
            rpo: (26, 72),
            targets: Vec::new(),
            verification: (Some(30), Some(90)),
            alert: 1,
            excluded: Vec::new(),
        };
        let owners = [Some(Owner::Tenant), customer.map(Owner::Customer), device.map(Owner::Device)];
        for level in owners.into_iter().flatten().filter_map(|owner| self.levels.get(&owner)) {
            policy.enabled = level.enabled.unwrap_or(policy.enabled);
            policy.schedule = level.schedule.or(policy.schedule);
            policy.rpo = level.rpo.unwrap_or(policy.rpo);
            policy.targets = level.targets.clone().unwrap_or(policy.targets);
            policy.verification = level.verification.unwrap_or(policy.verification);
            policy.alert = level.alert.unwrap_or(policy.alert);
            policy.excluded = level.excluded.clone().unwrap_or(policy.excluded);
        }
        policy
    }

    fn tell_row(&self, customer: Option<usize>, now: Timestamp) -> Value {
        let policy = self.policy(customer, None);
        let known = (0..self.machines.len())
            .filter(|at| self.machines[*at].customer == customer && !self.machines[*at].is_gone);
        let told: Vec<Told> = known.filter_map(|device| self.tell_device(device, now)).collect();
        let scope: Vec<&Told> = told.iter().filter(|one| !one.is_excluded).collect();
        let own_runs = || self.runs.iter().filter(move |run| run.customer == customer);
        let good = |kind: &'static str| {
            own_runs().filter(move |run| run.kind == kind && run.status != "failed").map(|run| run.ended)
        };
        let restore_tested = good("restore_test").max();
        let first_success = good("backup").min();
        let (total, in_scope) = (told.len() as i64, scope.len() as i64);
        let count = |is: &dyn Fn(&Told) -> bool| scope.iter().filter(|one| is(one)).count() as i64;
        let protected = count(&|one| one.is_protected);
        let never_succeeded = count(&|one| one.last_success.is_none());
        let rule = Rule::of(&policy, &scope);
        let has_reports = scope.iter().any(|one| one.has_run);
        let mut reasons: Vec<Value> = Vec::new();
        let mut is_overdue = false;
        let mut grades = ["unknown"; 2];
        let own = |code: &str, severity: &str, since: Option<Timestamp>| json!([code, severity, null, since]);
        if !policy.enabled {
            reasons.push(own("disabled", "unknown", None));
            if has_reports {
                let worst = |of: &dyn Fn(&Told) -> i64| scope.iter().map(|one| of(one)).max().unwrap_or(0).max(1);
                grades = [worst(&|one| one.protection), worst(&|one| one.recovery)].map(name);
            }
        } else if !has_reports {
            reasons.extend((in_scope > 0).then(|| own("never_reported", "unknown", None)));
        } else {
            let since = restore_tested
                .or(first_success)
                .zip(policy.verification.1)
                .map(|(since, days)| since.plus_ms(days * DAY_MS));
            is_overdue = since.is_some_and(|since| now > since);
            if is_overdue {
                reasons.push(own("restore_test_overdue", "warning", since));
            }
            let severity = if policy.targets.is_empty() { "unknown" } else { "warning" };
            reasons.extend(rule.lacks().into_iter().map(|code| own(code, severity, None)));
            let of_recovery =
                reasons.iter().map(|one| rank(one[1].as_str().unwrap())).chain(scope.iter().map(|one| one.recovery));
            let unknown = i64::from(never_succeeded == in_scope);
            let recovery = of_recovery.max().unwrap_or(0).max(unknown);
            let protection = scope.iter().map(|one| one.protection).max().unwrap_or(0);
            grades = [protection, recovery].map(name);
        }
        if has_reports {
            reasons.extend(scope.iter().flat_map(|one| one.reasons.iter().cloned()));
        }
        reasons.sort_by_key(Value::to_string);
        #[expect(clippy::cast_precision_loss, reason = "devices are few")]
        let percent = (in_scope > 0).then(|| (1_000.0 * protected as f64 / in_scope as f64).round() / 10.0);
        let (jobs_24h, days) = self.count_runs(customer, &policy, now);
        json!({
            "devices": {
                "total": total, "in_scope": in_scope, "excluded": total - in_scope, "protected": protected,
                "unprotected": in_scope - protected, "never_succeeded": never_succeeded,
            },
            "coverage_percent": percent,
            "rpo": {"met": protected, "missed": in_scope - protected, "percent": percent},
            "jobs_24h": jobs_24h, "days": days,
            "last_success_at": scope.iter().filter_map(|one| one.last_success).max(),
            "oldest_last_success_at": scope.iter().filter_map(|one| one.last_success).min(),
            "max_consecutive_failures": scope.iter().map(|one| one.failures).max().unwrap_or(0),
            "verification": {
                "every_days": policy.verification.0, "last_success_at": good("verify").max(),
                "oldest_last_success_at": scope.iter().filter_map(|one| one.verified).min(), "overdue": count(&|one| one.is_overdue),
            },
            "restore_test": {"every_days": policy.verification.1, "last_success_at": restore_tested, "overdue": is_overdue},
            "rule_32110": rule.to_json(),
            "storage_bytes": scope.iter().map(|one| one.size).sum::<i64>(),
            "protection_health": grades[0], "recoverability_health": grades[1],
            "health": name(rank(grades[0]).max(rank(grades[1]))), "reasons": reasons,
        })
    }

    /// Of the last 24 hours, and by day.
    fn count_runs(&self, customer: Option<usize>, policy: &Policy, now: Timestamp) -> (Value, Vec<Value>) {
        let zone = TimeZone::get(policy.schedule.map_or("UTC", |(_, zone)| zone)).expect("a zone");
        let date = |at: Timestamp| zone.to_datetime(jiff::Timestamp::from_millisecond(at.as_millis()).unwrap()).date();
        let reported = self.runs.iter().filter(|run| run.customer == customer && run.kind == "backup");
        let missed = self.missed().filter(|slot| slot.customer == customer).map(|slot| ("missed", slot.at));
        let all =
            reported.map(|run| (run.status, run.ended)).chain(missed).filter(|(_, at)| *at > now.plus_ms(-30 * DAY_MS));
        let all: Vec<(&str, Timestamp, Date)> = all.map(|(status, at)| (status, at, date(at))).collect();
        let count = |is: &dyn Fn(Timestamp, Date) -> bool| {
            let of = |status: &str| all.iter().filter(|(one, at, day)| *one == status && is(*at, *day)).count();
            json!({"success": of("success"), "warning": of("warning"), "failed": of("failed"), "missed": of("missed")})
        };
        let today = date(now);
        let day = |back: i32| {
            let day = today.checked_sub(jiff::Span::new().days(back)).expect("a day");
            let mut counts = count(&|_, date| date == day);
            counts["date"] = json!(day.to_string());
            counts
        };
        let from = now.plus_ms(-DAY_MS);
        (count(&|at, _| at > from), (0..28).rev().map(day).collect())
    }

    /// How a device stands; none of one that is not backed up.
    fn tell_device(&self, device: usize, now: Timestamp) -> Option<Told> {
        let machine = self.machines[device];
        let policy = self.policy(machine.customer, Some(device));
        let mut backups: Vec<&Run> = self.backups(device).collect();
        backups.sort_by_key(|run| run.ended);
        let has_run = !backups.is_empty();
        if matches!(machine.kind, Type::Network | Type::Printer) && !has_run {
            return None;
        }
        let good: Vec<&Run> = backups.iter().copied().filter(|run| run.status != "failed").collect();
        let last_success = good.last().map(|run| run.ended);
        let failing = tell_failing(&backups, now);
        let verifications = |is_good: bool, target: Option<&str>| {
            let own = self
                .runs
                .iter()
                .filter(|run| run.device == device && run.kind == "verify" && (run.status != "failed") == is_good);
            own.filter(|run| target.is_none_or(|target| run.target == target)).map(|run| run.ended).max()
        };
        let mut told = Told {
            is_excluded: policy.excluded.contains(&device),
            has_run,
            is_protected: false,
            last_success,
            failures: failing.iter().map(|(failures, _)| *failures).max().unwrap_or(0),
            verified: verifications(true, None),
            is_verified: false,
            is_overdue: false,
            size: good.last().map_or(0, |run| run.size),
            targets: BTreeSet::new(),
            protection: 0,
            recovery: 0,
            reasons: Vec::new(),
        };
        let reason = |code: &str, severity: &str, since: Timestamp| json!([code, severity, device, since]);
        if !policy.enabled {
            let own = self.levels.get(&Owner::Device(device)).and_then(|level| level.enabled);
            if own == Some(false) {
                told.protection = 1;
                told.reasons.push(json!(["disabled", "unknown", device, machine.known_since]));
            }
            return Some(told);
        }
        let rpo_ms = HOUR_MS * if is_workstation(machine.kind) { policy.rpo.1 } else { policy.rpo.0 };
        let age = |since: Timestamp| match now.as_millis() - since.as_millis() {
            age if age > 2 * rpo_ms => 3,
            age if age > rpo_ms => 2,
            _ => 0,
        };
        match (has_run, last_success) {
            (false, _) => {
                told.reasons.push(reason("never_reported", name(age(machine.known_since).max(1)), machine.known_since));
            }
            (true, None) => told.reasons.push(reason("never_succeeded", "critical", backups[0].ended)),
            (true, Some(last)) if age(last) > 0 => {
                told.reasons.push(reason("rpo_missed", name(age(last)), last.plus_ms(rpo_ms)));
            }
            (true, Some(_)) => told.is_protected = true,
        }
        let alarming = failing.iter().filter(|(failures, _)| *failures >= policy.alert);
        if let Some(since) = alarming.map(|(_, since)| *since).min() {
            told.reasons.push(reason("failures", "warning", since));
        }
        let epoch = self.judging[device].epoch;
        let last_run = backups.last().map(|run| run.ended);
        let mut missed =
            self.missed().filter(|slot| slot.device == device && slot.epoch == epoch && Some(slot.at) > last_run);
        if let Some(slot) = missed.next() {
            told.reasons.push(reason("missed_run", "warning", slot.at));
        }
        told.protection = told.reasons.iter().map(|one| rank(one[1].as_str().unwrap())).max().unwrap_or(0);
        for target in &policy.targets {
            let last = good.iter().filter(|run| run.target == target.name).map(|run| run.ended).max();
            if last.is_some_and(|last| age(last) == 0) {
                told.targets.insert(target.name);
            }
        }
        let Some(first) = good.first() else { return Some(told) };
        let all_targets: BTreeSet<&str> = self.runs.iter().map(|run| run.target).collect();
        let errors = all_targets.into_iter().filter_map(|target| {
            verifications(false, Some(target)).filter(|at| Some(*at) >= verifications(true, Some(target)))
        });
        let errors = errors.min();
        if let Some(since) = errors {
            told.reasons.push(reason("errors_found", "critical", since));
            told.recovery = 3;
        }
        if let Some(days) = policy.verification.0 {
            let since = told.verified.unwrap_or(first.ended).plus_ms(days * DAY_MS);
            told.is_overdue = now > since;
            if told.is_overdue {
                told.reasons.push(reason("verification_overdue", "warning", since));
                told.recovery = told.recovery.max(2);
            }
        }
        told.is_verified = told.verified.is_some() && !told.is_overdue && errors.is_none();
        Some(told)
    }
}

/// Failures in a row of each job on each target, and since when. What did not run for 35 days is forgotten.
fn tell_failing(backups: &[&Run], now: Timestamp) -> Vec<(i64, Timestamp)> {
    let jobs: BTreeSet<(&str, &str)> = backups.iter().map(|run| (run.job, run.target)).collect();
    let mut told = Vec::new();
    for job in jobs {
        let own = || backups.iter().filter(|run| (run.job, run.target) == job);
        let last_success = own().filter(|run| run.status != "failed").map(|run| run.ended).max();
        let failed: Vec<Timestamp> = own().map(|run| run.ended).filter(|ended| Some(*ended) > last_success).collect();
        if let (Some(first), Some(last)) = (failed.iter().min(), failed.iter().max())
            && last.plus_ms(35 * DAY_MS) >= now
        {
            told.push((failed.len() as i64, *first));
        }
    }
    told
}

struct Policy {
    enabled: bool,
    schedule: Option<(&'static str, &'static str)>,
    rpo: (i64, i64),
    targets: Vec<Target>,
    verification: (Option<i64>, Option<i64>),
    alert: i64,
    excluded: Vec<usize>,
}

/// How a device stands. Grades are numbers: see `rank`.
#[expect(clippy::struct_excessive_bools, reason = "each is a question of its own")]
struct Told {
    is_excluded: bool,
    has_run: bool,
    is_protected: bool,
    last_success: Option<Timestamp>,
    failures: i64,
    verified: Option<Timestamp>,
    is_verified: bool,
    is_overdue: bool,
    size: i64,
    targets: BTreeSet<&'static str>,
    protection: i64,
    recovery: i64,
    reasons: Vec<Value>,
}

pub const GRADES: [&str; 4] = ["ok", "unknown", "warning", "critical"];

fn name(rank: i64) -> &'static str {
    GRADES[usize::try_from(rank).unwrap()]
}

fn rank(name: &str) -> i64 {
    GRADES.iter().position(|one| *one == name).unwrap() as i64
}
