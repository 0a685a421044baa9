//! Which device a report belongs to, and which evidence speaks against it.

pub mod store;

use std::collections::BTreeSet;

use agent_reports::{real_serial, real_uuid, swap_uuid_byte_order};
use people::organizations::OrganizationId;

use super::DeviceIdentifiers;

/// The device that a report belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceMatch {
    One(i64),
    /// None for certain: the report makes a new device, flagged as a possible duplicate of this one.
    Duplicate(i64),
    /// A part of an inventory without any evidence that may be of several devices: it changes none.
    Unclear,
    None,
}

/// What a machine has of its own, whatever agent runs on it. Placeholders are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineEvidence {
    uuid: Option<String>,
    serial: Option<String>,
    macs: BTreeSet<String>,
}

impl MachineEvidence {
    pub fn from_identifiers(identifiers: &DeviceIdentifiers<'_>) -> Self {
        // Of the two byte orders always the same.
        let uuid = identifiers.uuid.and_then(real_uuid).map(|uuid| match swap_uuid_byte_order(&uuid) {
            Some(twin) if twin < uuid => twin,
            _ => uuid,
        });
        MachineEvidence {
            uuid,
            serial: identifiers.serial_number.and_then(real_serial).map(str::to_lowercase),
            macs: identifiers.real_macs().into_iter().collect(),
        }
    }

    /// Whether two machines differ in a UUID or a serial number that both have.
    pub fn contradicts(&self, other: &MachineEvidence) -> bool {
        [self.same_uuid(other), self.same_serial(other)].contains(&Some(false))
    }

    /// Whether two reports with one agent's id are of two machines: everything differs that both have, and that is at least
    /// two of UUID, serial number and hardware addresses. A new mainboard keeps the serial number; clones share nothing.
    pub fn is_another_machine(&self, other: &MachineEvidence) -> bool {
        let compared = self.compare(other);
        compared.len() >= 2 && !compared.contains(&true)
    }

    pub fn is_empty(&self) -> bool {
        self.uuid.is_none() && self.serial.is_none() && self.macs.is_empty()
    }

    /// How much both have in common.
    fn agreement(&self, other: &MachineEvidence) -> usize {
        self.compare(other).into_iter().filter(|is_same| *is_same).count()
    }

    /// Whether both have hardware addresses, and none in common.
    pub fn has_other_macs(&self, other: &MachineEvidence) -> bool {
        self.same_macs(other) == Some(false)
    }

    /// For each kind of evidence that both have, whether it is the same.
    fn compare(&self, other: &MachineEvidence) -> Vec<bool> {
        [self.same_uuid(other), self.same_serial(other), self.same_macs(other)].into_iter().flatten().collect()
    }

    fn same_uuid(&self, other: &MachineEvidence) -> Option<bool> {
        Some(self.uuid.as_ref()? == other.uuid.as_ref()?)
    }

    fn same_serial(&self, other: &MachineEvidence) -> Option<bool> {
        Some(self.serial.as_ref()? == other.serial.as_ref()?)
    }

    fn same_macs(&self, other: &MachineEvidence) -> Option<bool> {
        let both = !self.macs.is_empty() && !other.macs.is_empty();
        both.then(|| !self.macs.is_disjoint(&other.macs))
    }
}

/// A device that a report may belong to.
#[derive(Clone, Debug)]
pub struct MatchCandidate {
    pub number: i64,
    pub organization: Option<OrganizationId>,
    /// Created as a possible duplicate.
    pub is_flagged: bool,
    pub evidence: MachineEvidence,
}

impl MatchCandidate {
    /// Whether the device belongs to another customer than the report.
    pub fn is_of_another(&self, own: Option<OrganizationId>) -> bool {
        self.organization.zip(own).is_some_and(|(organization, own)| organization != own)
    }
}

/// The device of a report, of those that nothing speaks against: the only one; else the only one of the report's own
/// organization, or the one with most in common; else the newest that was created as a duplicate, because that is where such
/// reports went before.
pub fn choose_candidate(
    mut candidates: Vec<MatchCandidate>,
    own: Option<OrganizationId>,
    evidence: &MachineEvidence,
) -> DeviceMatch {
    if candidates.iter().any(|candidate| candidate.organization == own) {
        candidates.retain(|candidate| candidate.organization == own);
    }
    let agreement = |candidate: &MatchCandidate| candidate.evidence.agreement(evidence);
    let most = candidates.iter().map(agreement).max().unwrap_or(0);
    candidates.retain(|candidate| agreement(candidate) == most);
    if let [one] = candidates.as_slice() {
        return DeviceMatch::One(one.number);
    }
    let newest_flagged = candidates.iter().filter(|candidate| candidate.is_flagged).map(|one| one.number).max();
    let oldest = candidates.iter().map(|candidate| candidate.number).min();
    newest_flagged.map(DeviceMatch::One).or(oldest.map(DeviceMatch::Duplicate)).unwrap_or(DeviceMatch::None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evidence(uuid: &str, serial: &str, macs: &[&str]) -> MachineEvidence {
        let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        MachineEvidence {
            uuid: text(uuid),
            serial: text(serial),
            macs: macs.iter().map(|mac| (*mac).to_owned()).collect(),
        }
    }

    #[test]
    fn clones_differ_in_all_that_both_have() {
        let known = evidence("u", "s", &["m"]);
        for (other, is_another) in [
            (evidence("u2", "s2", &["m2"]), true),
            (evidence("u2", "s", &["m2"]), false), // a new mainboard
            (evidence("u", "s", &["m2"]), false),  // a new card
            (evidence("u2", "s2", &["m2", "m"]), false),
            (evidence("u2", "", &["m2"]), true),
            (evidence("u2", "", &[]), false), // one kind alone is not enough
            (evidence("", "", &[]), false),
        ] {
            assert_eq!(known.is_another_machine(&other), is_another, "{other:?}");
            assert_eq!(other.is_another_machine(&known), is_another, "{other:?}");
        }
        assert!(known.contradicts(&evidence("u", "s2", &["m"])) && known.contradicts(&evidence("u2", "s", &["m"])));
        assert!(!known.contradicts(&evidence("u", "", &["m2"])) && !known.contradicts(&evidence("", "s", &[])));
    }
}
