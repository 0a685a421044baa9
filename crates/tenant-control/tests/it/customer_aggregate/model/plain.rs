//! The aggregate from scratch: a plain computation over all that was ever done, without anything kept.

mod device;
mod rule;

use std::cmp::Reverse;
use std::collections::BTreeMap;

use feature_kit::schedule::CronSchedule;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use kernel::base::{DAY_MS, HOUR_MS, Timestamp};
use serde_json::{Value, json};
use tenant_control::features::devices::Type;

use device::Told;
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
    pub size: Option<i64>,
    /// When the report came.
    pub received: Timestamp,
    /// Where the device was then.
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
    /// When a customer first had a device in scope that has reported.
    first_reports: BTreeMap<Option<usize>, Timestamp>,
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
        first_reports: BTreeMap::new(),
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
                self.runs.push(Run { customer: self.machines[run.device].customer, received: now, ..run.clone() });
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
            let Machine { customer, is_gone, .. } = self.machines[device];
            let is_excluded = self.policy(customer, Some(device)).excluded.contains(&device);
            if !is_gone && !is_excluded && self.backups(device).next().is_some() {
                self.first_reports.entry(customer).or_insert(now);
            }
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
        let last = self.backups(device).max_by_key(|run| (run.ended, Reverse(run.started)));
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
        let restore_failed = own_runs().filter(|run| run.kind == "restore_test" && run.status == "failed");
        let restore_failed = restore_failed.map(|run| run.ended).max().filter(|at| Some(*at) > restore_tested);
        let first_success = good("backup").min();
        let (total, in_scope) = (told.len() as i64, scope.len() as i64);
        let count = |is: &dyn Fn(&Told) -> bool| scope.iter().filter(|one| is(one)).count() as i64;
        let protected = count(&|one| one.is_protected);
        let never_succeeded = count(&|one| one.last_success.is_none());
        let judged: Vec<&Told> = scope.iter().copied().filter(|one| !one.is_disabled).collect();
        let rule = Rule::of(&policy, &judged);
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
        } else if judged.is_empty() {
            grades[0] = name(scope.iter().map(|one| one.protection).max().unwrap_or(0));
        } else {
            let from = restore_tested.or(first_success).max(self.first_reports.get(&customer).copied());
            let due = from.filter(|_| restore_tested.or(first_success).is_some()).zip(policy.verification.1);
            let due = due.map(|(from, days)| from.plus_ms(days * DAY_MS)).filter(|due| now > *due);
            let since = due.into_iter().chain(restore_failed).min();
            is_overdue = since.is_some();
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

pub const GRADES: [&str; 4] = ["ok", "unknown", "warning", "critical"];

fn name(rank: i64) -> &'static str {
    GRADES[usize::try_from(rank).unwrap()]
}

fn rank(name: &str) -> i64 {
    GRADES.iter().position(|one| *one == name).unwrap() as i64
}
