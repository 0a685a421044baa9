//! The policy for backups: what is wanted of the devices of a tenant, an organization, or of one device.
//!
//! A level sets some fields, and inherits the others from the level above; objects and lists are inherited whole.

pub mod store;

use std::collections::HashMap;

use feature_kit::schedule::CronSchedule;
use fleet::devices::{DeviceId, Type};
use kernel::base::{DAY_MS, HOUR_MS, MINUTE_MS, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::stored_values::{read_id, read_name};

kernel::string_enum! {
    /// The level that a value comes from.
    #[schema(as = BackupConfigSource)]
    pub enum PolicySource { Default "default", Tenant "tenant", Organization "organization", Device "device" }
}

kernel::string_enum! {
    /// Where a target is.
    #[schema(as = BackupTargetType)]
    pub enum TargetType { Local "local", Nas "nas", Sftp "sftp", S3 "s3", Rest "rest", Other "other" }
}

kernel::string_enum! {
    /// What a target writes on.
    #[schema(as = BackupTargetMedia)]
    pub enum TargetMedia { Disk "disk", Object "object", Tape "tape", Other "other" }
}

/// When backups are to run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BackupSchedule {
    /// Five fields of cron.
    #[schema(max_length = 100)]
    pub cron: String,
    /// An IANA time zone.
    #[schema(max_length = 64)]
    pub timezone: String,
}

/// How old the newest backup may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RpoHours {
    #[schema(minimum = 1, maximum = 8784)]
    pub server: i64,
    /// Of workstations, laptops and mobiles, which are not always on.
    #[schema(minimum = 1, maximum = 8784)]
    pub workstation: i64,
}

/// How many backups are kept: so many of the last runs, hours, days, weeks, months and years.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Retention {
    #[schema(minimum = 0, maximum = 10000)]
    pub keep_last: i64,
    #[schema(minimum = 0, maximum = 10000)]
    pub hourly: i64,
    #[schema(minimum = 0, maximum = 10000)]
    pub daily: i64,
    #[schema(minimum = 0, maximum = 10000)]
    pub weekly: i64,
    #[schema(minimum = 0, maximum = 10000)]
    pub monthly: i64,
    #[schema(minimum = 0, maximum = 10000)]
    pub yearly: i64,
}

/// A place that backups are written to. Reports name it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BackupTarget {
    #[schema(min_length = 1, max_length = 200)]
    pub name: String,
    #[schema(value_type = TargetType)]
    #[serde(deserialize_with = "read_name")]
    pub r#type: TargetType,
    #[schema(value_type = TargetMedia)]
    #[serde(deserialize_with = "read_name")]
    pub media: TargetMedia,
    /// Whether it is at another site than the devices.
    pub offsite: bool,
    /// Whether nobody can change or delete what is written, for `immutable_days`.
    pub immutable: bool,
    #[schema(required, minimum = 1, maximum = 36500)]
    pub immutable_days: Option<i64>,
}

/// How often backups are proved to be good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VerificationPolicy {
    /// Every device's backups are verified so often; null: never asked for.
    #[schema(required, minimum = 1, maximum = 3660)]
    pub every_days: Option<i64>,
    /// Something of each organization is restored so often, as a test; null: never asked for.
    #[schema(required, minimum = 1, maximum = 3660)]
    pub restore_test_every_days: Option<i64>,
}

/// A device that is not to be backed up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExcludedDevice {
    #[schema(value_type = String)]
    #[serde(deserialize_with = "read_id")]
    pub id: DeviceId,
    /// Why.
    #[schema(min_length = 1, max_length = 200)]
    pub reason: String,
}

/// What one level sets; null is inherited.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = BackupConfigSet)]
pub struct PolicyLevel {
    #[schema(required)]
    pub enabled: Option<bool>,
    #[schema(required)]
    pub schedule: Option<BackupSchedule>,
    #[schema(required)]
    pub rpo_hours: Option<RpoHours>,
    #[schema(required)]
    pub retention: Option<Retention>,
    #[schema(required)]
    pub targets: Option<Vec<BackupTarget>>,
    #[schema(required)]
    pub encryption_required: Option<bool>,
    #[schema(required)]
    pub verification: Option<VerificationPolicy>,
    #[schema(required)]
    pub alert_after_failures: Option<i64>,
    #[schema(required)]
    pub excluded_devices: Option<Vec<ExcludedDevice>>,
}

/// The policy in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = BackupPolicy)]
pub struct BackupPolicy {
    pub enabled: bool,
    /// Null: nobody has said when backups run, so none is missed.
    #[schema(required)]
    pub schedule: Option<BackupSchedule>,
    pub rpo_hours: RpoHours,
    pub retention: Retention,
    pub targets: Vec<BackupTarget>,
    pub encryption_required: bool,
    pub verification: VerificationPolicy,
    pub alert_after_failures: i64,
    pub excluded_devices: Vec<ExcludedDevice>,
}

/// Where each field of the policy comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = BackupConfigSources)]
pub struct PolicySources {
    pub enabled: PolicySource,
    pub schedule: PolicySource,
    pub rpo_hours: PolicySource,
    pub retention: PolicySource,
    pub targets: PolicySource,
    pub encryption_required: PolicySource,
    pub verification: PolicySource,
    pub alert_after_failures: PolicySource,
    pub excluded_devices: PolicySource,
}

impl Default for BackupPolicy {
    /// A day with two hours for runs that take longer than those of the day before; workstations are off at the weekend.
    /// Nothing is assumed of schedules and targets: what is assumed wrongly is an alarm, or a green light, that means nothing.
    fn default() -> Self {
        BackupPolicy {
            enabled: true,
            schedule: None,
            rpo_hours: RpoHours { server: 26, workstation: 72 },
            retention: Retention { keep_last: 0, hourly: 0, daily: 14, weekly: 8, monthly: 12, yearly: 0 },
            targets: Vec::new(),
            encryption_required: false,
            verification: VerificationPolicy { every_days: Some(30), restore_test_every_days: Some(90) },
            alert_after_failures: 1,
            excluded_devices: Vec::new(),
        }
    }
}

/// The policy that the levels make together, and where each field comes from. The levels go from the tenant down.
pub fn resolve_policy(levels: &[(PolicySource, &PolicyLevel)]) -> (BackupPolicy, PolicySources) {
    let mut policy = BackupPolicy::default();
    let source = PolicySource::Default;
    let mut sources = PolicySources {
        enabled: source,
        schedule: source,
        rpo_hours: source,
        retention: source,
        targets: source,
        encryption_required: source,
        verification: source,
        alert_after_failures: source,
        excluded_devices: source,
    };
    macro_rules! inherit {
        ($level:ident, $from:ident: $($field:ident),+; $($optional:ident),+) => {
            $(if let Some(value) = &$level.$field {
                policy.$field = value.clone();
                sources.$field = *$from;
            })+
            $(if $level.$optional.is_some() {
                policy.$optional = $level.$optional.clone();
                sources.$optional = *$from;
            })+
        };
    }
    for (from, level) in levels {
        inherit!(level, from: enabled, rpo_hours, retention, targets, encryption_required, verification,
            alert_after_failures, excluded_devices; schedule);
    }
    (policy, sources)
}

kernel::string_enum! {
    /// How a device is judged.
    pub enum DeviceClass {
        Server "server",
        /// It is not always on: it has an RPO of its own, and no schedule.
        Workstation "workstation",
        /// Nothing of it is usually backed up: switches, printers. It is judged if it reports backups all the same.
        Appliance "appliance",
    }
}

impl DeviceClass {
    pub fn of(kind: Type) -> Self {
        match kind {
            Type::Laptop | Type::Workstation | Type::Mobile => DeviceClass::Workstation,
            Type::Network | Type::Printer => DeviceClass::Appliance,
            Type::Server | Type::Virtual | Type::Other => DeviceClass::Server,
        }
    }
}

impl BackupPolicy {
    pub fn rpo_ms(&self, class: DeviceClass) -> i64 {
        let hours = match class {
            DeviceClass::Workstation => self.rpo_hours.workstation,
            DeviceClass::Server | DeviceClass::Appliance => self.rpo_hours.server,
        };
        hours * HOUR_MS
    }

    pub fn verify_every_ms(&self) -> Option<i64> {
        self.verification.every_days.map(|days| days * DAY_MS)
    }

    pub fn restore_test_every_ms(&self) -> Option<i64> {
        self.verification.restore_test_every_days.map(|days| days * DAY_MS)
    }

    /// Whether backups on a target matter: where no targets are named, all do.
    pub fn uses_target(&self, name: &str) -> bool {
        self.targets.is_empty() || self.targets.iter().any(|target| target.name == name)
    }

    /// Why a backup on a target is no copy that the policy asks for; none if it is one, or if the policy names no targets.
    pub fn explain_unknown_target(&self, target: &str) -> Option<String> {
        (!self.uses_target(target))
            .then(|| format!("The policy names {}; this run is on \"{target}\".", self.list_target_names()))
    }

    /// Such as `nas, b2 and tape`.
    pub fn list_target_names(&self) -> String {
        let names: Vec<&str> = self.targets.iter().map(|target| target.name.as_str()).collect();
        match names.split_last() {
            Some((last, [])) => (*last).to_owned(),
            Some((last, others)) => format!("{} and {last}", others.join(", ")),
            None => String::new(),
        }
    }

    pub fn excludes_device(&self, id: DeviceId) -> bool {
        self.excluded_devices.iter().any(|excluded| excluded.id == id)
    }
}

/// A contradiction between fields, at the field to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyConflict {
    pub pointer: &'static str,
    pub detail: String,
    /// The fields that contradict each other.
    pub between: &'static [PolicyField],
}

/// A field that may contradict another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyField {
    Schedule,
    RpoHours,
    Retention,
}

impl PolicyField {
    pub fn pointer(self) -> &'static str {
        match self {
            PolicyField::Schedule => "/schedule",
            PolicyField::RpoHours => "/rpo_hours",
            PolicyField::Retention => "/retention",
        }
    }

    /// Whether two policies in force differ in it.
    pub fn differs(self, one: &BackupPolicy, other: &BackupPolicy) -> bool {
        match self {
            PolicyField::Schedule => one.schedule != other.schedule,
            PolicyField::RpoHours => one.rpo_hours != other.rpo_hours,
            PolicyField::Retention => one.retention != other.retention,
        }
    }
}

/// Contradictions of a policy in force that a level takes part in. Each is reported at a field which that level sets.
pub fn find_conflicts(policy: &BackupPolicy, set: &PolicyLevel, meter: &mut GapMeter) -> Vec<PolicyConflict> {
    let mut conflicts = Vec::new();
    let gaps = policy.schedule.as_ref().and_then(|given| meter.measure(&given.cron));
    let gap_ms = gaps.map(|gaps| gaps.longest_ms);
    if gaps.is_some_and(|gaps| gaps.shortest_ms < SHORTEST_GAP_MS) && set.schedule.is_some() {
        let detail = "asks for a run more often than every 15 minutes".to_owned();
        conflicts.push(PolicyConflict { pointer: "/schedule/cron", detail, between: &[PolicyField::Schedule] });
    }
    let (server, workstation) = (policy.rpo_hours.server, policy.rpo_hours.workstation);
    if let Some(gap_ms) = gap_ms
        && gap_ms > server * HOUR_MS
        && (set.schedule.is_some() || set.rpo_hours.is_some())
    {
        let pointer = if set.schedule.is_some() { "/schedule/cron" } else { "/rpo_hours/server" };
        let hours = gap_ms.div_euclid(HOUR_MS);
        let detail =
            format!("the schedule leaves {hours} hours between two runs, and the RPO of servers is {server} hours");
        let between = &[PolicyField::RpoHours, PolicyField::Schedule];
        conflicts.push(PolicyConflict { pointer, detail, between });
    }
    let kept_hours = kept_hours(&policy.retention, gap_ms);
    let rpos = [(server, "servers"), (workstation, "workstations")];
    if let Some((rpo, whom)) = rpos.into_iter().find(|(rpo, _)| kept_hours < *rpo)
        && (set.retention.is_some() || set.rpo_hours.is_some())
    {
        let pointer = if set.retention.is_some() { "/retention" } else { "/rpo_hours" };
        let detail = format!(
            "the retention reaches back {kept_hours} hours, which is shorter than the RPO of {whom}: {rpo} hours"
        );
        // Of `keep_last` the schedule says how far back it reaches.
        let between = &[PolicyField::RpoHours, PolicyField::Retention, PolicyField::Schedule];
        conflicts.push(PolicyConflict { pointer, detail, between });
    }
    conflicts
}

/// How far back the retention reaches. Of `keep_last` that is as long as so many runs of the schedule take, or a day each.
fn kept_hours(retention: &Retention, gap_ms: Option<i64>) -> i64 {
    let run_hours = gap_ms.map_or(24, |gap| (gap / HOUR_MS).max(1));
    let Retention { keep_last, hourly, daily, weekly, monthly, yearly } = *retention;
    let reaches = [keep_last * run_hours, hourly, daily * 24, weekly * 7 * 24, monthly * 30 * 24, yearly * 365 * 24];
    reaches.into_iter().max().unwrap_or(0)
}

/// Scheduled runs that are missed are counted one by one.
const SHORTEST_GAP_MS: i64 = 15 * MINUTE_MS;
/// How many runs of a schedule, and how long, are looked at for its gaps: seven weeks of runs every fifteen minutes.
const GAP_RUNS_MAX: usize = 5_000;
const GAP_DAYS_MAX: i64 = 800;
/// A Monday, so that a week of working hours is seen whole.
const GAPS_FROM: Timestamp = Timestamp::from_millis(1_767_571_200_000);

/// The shortest and the longest time between two runs.
#[derive(Clone, Copy)]
pub struct ScheduleGaps {
    shortest_ms: i64,
    longest_ms: i64,
}

/// Measures the gaps of schedules, of each once.
pub struct GapMeter {
    known: HashMap<String, Option<ScheduleGaps>>,
    /// How many more runs are looked at, of all schedules together.
    runs_left: usize,
}

impl Default for GapMeter {
    /// For one policy.
    fn default() -> Self {
        GapMeter::new(GAP_RUNS_MAX)
    }
}

impl GapMeter {
    pub fn new(runs_max: usize) -> Self {
        GapMeter { known: HashMap::new(), runs_left: runs_max }
    }

    /// None of a schedule that is not looked at any more.
    fn measure(&mut self, cron: &str) -> Option<ScheduleGaps> {
        if let Some(known) = self.known.get(cron) {
            return *known;
        }
        // In UTC: the hour that a change of clocks adds once a year is no fault of the schedule.
        let schedule = CronSchedule::parse(cron, "UTC").ok().filter(|_| self.runs_left > 0);
        let gaps = schedule.map(|schedule| measure_gaps(&schedule, &mut self.runs_left));
        self.known.insert(cron.to_owned(), gaps);
        gaps
    }
}

fn measure_gaps(schedule: &CronSchedule, runs_left: &mut usize) -> ScheduleGaps {
    let mut gaps = ScheduleGaps { shortest_ms: i64::MAX, longest_ms: 0 };
    let Some(mut at) = schedule.next_after(GAPS_FROM) else { return ScheduleGaps { longest_ms: i64::MAX, ..gaps } };
    for _ in 0..GAP_RUNS_MAX.min(*runs_left) {
        *runs_left -= 1;
        let Some(next) = schedule.next_after(at) else { return ScheduleGaps { longest_ms: i64::MAX, ..gaps } };
        let gap_ms = next.as_millis() - at.as_millis();
        gaps = ScheduleGaps { shortest_ms: gaps.shortest_ms.min(gap_ms), longest_ms: gaps.longest_ms.max(gap_ms) };
        at = next;
        let is_far = at.as_millis() - GAPS_FROM.as_millis() > GAP_DAYS_MAX * DAY_MS;
        if is_far || gaps.shortest_ms < SHORTEST_GAP_MS {
            break;
        }
    }
    gaps
}
