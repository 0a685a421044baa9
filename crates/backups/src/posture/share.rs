//! What a device adds to its organization, and what the devices of one add up to.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// Numbers that devices add: 0 or 1 each, but for the bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ShareCounts {
    pub total: i64,
    pub in_scope: i64,
    /// Devices in scope whose backups the policy switches off: nobody expects them on a target, or to be verified.
    pub disabled: i64,
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
}

impl ShareCounts {
    /// Devices whose targets and verification are looked at.
    pub fn judged(&self) -> i64 {
        self.in_scope - self.disabled
    }

    /// Adds what a device adds (`1`), or takes it away (`-1`).
    fn add(&mut self, share: &ShareCounts, by: i64) {
        macro_rules! add {
            ($($field:ident),+) => {
                // Without `..`: a number that the list lacks does not compile.
                let ShareCounts { $($field),+ } = share;
                $(self.$field += by * $field;)+
            };
        }
        add!(
            total,
            in_scope,
            disabled,
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
    }
}

/// What a device adds to its organization.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceShare {
    #[serde(flatten)]
    pub counts: ShareCounts,
    /// The targets of the policy with a fresh success.
    pub targets: BTreeSet<String>,
    /// The target of its newest success, if the policy names targets and not that one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown_target: Option<String>,
}

/// Sums of what devices add.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ShareSums {
    #[serde(flatten)]
    pub counts: ShareCounts,
    /// Devices with a fresh success on each target.
    pub targets: BTreeMap<String, i64>,
    /// Devices whose newest success is on a target that the policy does not name: some such targets. They are named in the
    /// details of reasons, and nothing is judged by them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub unknown_targets: BTreeMap<String, i64>,
}

/// Where every device has a target of its own that nobody knows, as many tell as much as all.
const UNKNOWN_TARGETS_MAX: usize = 5;

impl ShareSums {
    /// Adds what a device adds (`1`), or takes it away (`-1`).
    pub fn add(&mut self, share: &DeviceShare, by: i64) {
        self.counts.add(&share.counts, by);
        for target in &share.targets {
            add_devices(&mut self.targets, target, by);
        }
        if let Some(target) = &share.unknown_target
            && (self.unknown_targets.contains_key(target) || self.unknown_targets.len() < UNKNOWN_TARGETS_MAX)
        {
            add_devices(&mut self.unknown_targets, target, by);
        }
    }
}

fn add_devices(targets: &mut BTreeMap<String, i64>, target: &str, by: i64) {
    let devices = targets.entry(target.to_owned()).or_insert(0);
    *devices += by;
    if *devices <= 0 {
        targets.remove(target);
    }
}
