//! What a change of a level does to the levels below it: one that sets a schedule, an RPO or a retention of its own may
//! contradict what it inherits from then on. A contradiction that was there before is nobody's fault now, and is left alone.

use std::collections::HashMap;

use kernel::base::{FieldError, StringEnum};

use super::ConfigLevel;
use crate::policy::{
    BackupPolicy, GapMeter, PolicyConflict, PolicyField, PolicyLevel, PolicySource, find_conflicts, resolve_policy,
};

/// A level below the one that is changed.
pub struct LowerLevel {
    pub owner: String,
    pub level: ConfigLevel,
    pub policy: PolicyLevel,
    /// Of its organization or device.
    pub name: String,
    /// The organization of a device, unless it has none.
    pub organization: Option<String>,
}

/// A change of the level of the tenant or of an organization.
pub struct LevelChange<'a> {
    pub level: ConfigLevel,
    /// The tenant's level above an organization.
    pub above: Option<&'a PolicyLevel>,
    pub before: &'a PolicyLevel,
    pub after: &'a PolicyLevel,
}

/// Levels that one answer names.
const NAMED_MAX: usize = 5;
/// Runs of schedules that are looked at for their gaps in one change: a hundred daily schedules take fewer.
const GAP_RUNS_MAX: usize = 100_000;

impl LevelChange<'_> {
    /// Whether levels below can contradict anything of it that is new to them.
    pub fn may_contradict(&self) -> bool {
        let (before, after) = (self.before, self.after);
        (&before.schedule, &before.rpo_hours, &before.retention)
            != (&after.schedule, &after.rpo_hours, &after.retention)
    }

    /// The contradictions that it would cause, at the fields that cause them.
    pub fn find_caused(&self, lower: &[LowerLevel]) -> Vec<FieldError> {
        let of_organizations = lower.iter().filter(|one| one.level == ConfigLevel::Organization);
        let organizations: HashMap<&str, &PolicyLevel> =
            of_organizations.map(|one| (one.owner.as_str(), &one.policy)).collect();
        let mut meter = GapMeter::new(GAP_RUNS_MAX);
        let mut caused = Vec::new();
        for one in lower {
            let organization = one.organization.as_deref().and_then(|id| organizations.get(id).copied());
            let (before, after) =
                (self.resolve(self.before, organization, one), self.resolve(self.after, organization, one));
            let conflicts = find_conflicts(&after, &one.policy, &mut meter);
            if conflicts.is_empty() {
                continue;
            }
            let known = find_conflicts(&before, &one.policy, &mut meter);
            let is_new = |conflict: &PolicyConflict| known.iter().all(|known| known.between != conflict.between);
            if let Some(conflict) = conflicts.into_iter().find(is_new) {
                caused.push(to_error(one, &conflict, &before, &after));
            }
        }
        name_first(caused)
    }

    /// The policy of a level below, with one of the states of the level that is changed.
    fn resolve(&self, changed: &PolicyLevel, organization: Option<&PolicyLevel>, lower: &LowerLevel) -> BackupPolicy {
        let levels = [
            self.above.map(|level| (PolicySource::Tenant, level)),
            Some((PolicySource::from(self.level), changed)),
            organization.map(|level| (PolicySource::Organization, level)),
            Some((PolicySource::from(lower.level), &lower.policy)),
        ];
        let levels: Vec<_> = levels.into_iter().flatten().collect();
        resolve_policy(&levels).0
    }
}

fn to_error(lower: &LowerLevel, conflict: &PolicyConflict, before: &BackupPolicy, after: &BackupPolicy) -> FieldError {
    let changed = conflict.between.iter().find(|field| field.differs(before, after));
    let pointer = changed.copied().map_or("", PolicyField::pointer).to_owned();
    let LowerLevel { owner, level, name, .. } = lower;
    let (level, why) = (level.as_str(), &conflict.detail);
    let detail = format!("contradicts what the {level} {name} ({owner}) sets itself: {why}. Change that policy first.");
    FieldError { pointer, code: "conflict", detail }
}

fn name_first(mut caused: Vec<FieldError>) -> Vec<FieldError> {
    let more = caused.len().saturating_sub(NAMED_MAX);
    caused.truncate(NAMED_MAX);
    if let Some(last) = caused.last_mut().filter(|_| more > 0) {
        last.detail = format!("{} So do {more} more levels.", last.detail);
    }
    caused
}
