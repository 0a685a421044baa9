//! A device from scratch.

use std::collections::{BTreeMap, BTreeSet};

use kernel::base::{DAY_MS, HOUR_MS, Timestamp};
use serde_json::{Value, json};
use tenant_control::features::devices::Type;

use super::{Owner, Run, World, is_workstation, name, rank};

/// How a device stands. Grades are numbers: see `rank`.
#[expect(clippy::struct_excessive_bools, reason = "each is a question of its own")]
pub struct Told {
    pub is_excluded: bool,
    pub is_disabled: bool,
    pub has_run: bool,
    pub is_protected: bool,
    pub last_success: Option<Timestamp>,
    pub failures: i64,
    pub verified: Option<Timestamp>,
    pub is_verified: bool,
    pub is_overdue: bool,
    pub size: i64,
    pub targets: BTreeSet<&'static str>,
    pub protection: i64,
    pub recovery: i64,
    pub reasons: Vec<Value>,
}

impl World {
    /// The newest verification of a device that was good, or was not; of one target, or of any.
    fn tell_verification(&self, device: usize, is_good: bool, target: Option<&str>) -> Option<Timestamp> {
        let own = self.runs.iter().filter(|run| run.device == device && run.kind == "verify");
        let own = own.filter(|run| (run.status != "failed") == is_good);
        own.filter(|run| target.is_none_or(|target| run.target == target)).map(|run| run.ended).max()
    }

    /// How a device stands; none of one that is not backed up.
    pub fn tell_device(&self, device: usize, now: Timestamp) -> Option<Told> {
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
        let mut failing = tell_failing(&backups, now);
        failing
            .retain(|one| policy.targets.is_empty() || policy.targets.iter().any(|target| target.name == one.target));
        let verifications = |is_good, target| self.tell_verification(device, is_good, target);
        let mut told = Told {
            is_excluded: policy.excluded.contains(&device),
            is_disabled: !policy.enabled,
            has_run,
            is_protected: false,
            last_success,
            failures: failing.iter().map(|one| one.failures).max().unwrap_or(0),
            verified: verifications(true, None),
            is_verified: false,
            is_overdue: false,
            size: tell_size(&good),
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
                let since = self
                    .first_reports
                    .get(&machine.customer)
                    .map_or(machine.known_since, |first| machine.known_since.max(*first));
                told.reasons.push(reason("never_reported", name(age(since).max(1)), since));
            }
            (true, None) => told.reasons.push(reason("never_succeeded", "critical", backups[0].ended)),
            (true, Some(last)) if age(last) > 0 => {
                told.reasons.push(reason("rpo_missed", name(age(last)), last.plus_ms(rpo_ms)));
            }
            (true, Some(_)) => told.is_protected = true,
        }
        let alarming = failing.iter().filter(|one| one.failures >= policy.alert);
        if let Some(since) = alarming.map(|one| one.since).min() {
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
            let received = backups.iter().map(|run| run.received).min();
            let since =
                Some(told.verified.unwrap_or(first.ended)).max(received).expect("a report").plus_ms(days * DAY_MS);
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

/// A job that fails on a target.
struct Failing {
    target: &'static str,
    failures: i64,
    since: Timestamp,
}

/// Failures in a row of each job on each target, and since when. What did not run for 35 days is forgotten.
fn tell_failing(backups: &[&Run], now: Timestamp) -> Vec<Failing> {
    let jobs: BTreeSet<(&'static str, &'static str)> = backups.iter().map(|run| (run.job, run.target)).collect();
    let mut told = Vec::new();
    for job in jobs {
        let own = || backups.iter().filter(|run| (run.job, run.target) == job);
        let last_success = own().filter(|run| run.status != "failed").map(|run| run.ended).max();
        let failed: Vec<Timestamp> = own().map(|run| run.ended).filter(|ended| Some(*ended) > last_success).collect();
        if let (Some(first), Some(last)) = (failed.iter().min(), failed.iter().max())
            && last.plus_ms(35 * DAY_MS) >= now
        {
            told.push(Failing { target: job.1, failures: failed.len() as i64, since: *first });
        }
    }
    told
}

/// What the newest backup of each job on each target says that it protects. Beside one that goes on, what did not run for 35
/// days is forgotten.
fn tell_size(good: &[&Run]) -> i64 {
    let Some(last) = good.last() else { return 0 };
    let mut newest: BTreeMap<(&str, &str), (Timestamp, i64)> = BTreeMap::new();
    for run in good {
        if let Some(size) = run.size {
            let known = newest.entry((run.job, run.target)).or_insert((run.ended, size));
            *known = (*known).max((run.ended, size));
        }
    }
    newest.into_values().filter(|(at, _)| at.plus_ms(35 * DAY_MS) >= last.ended).map(|(_, size)| size).sum()
}
