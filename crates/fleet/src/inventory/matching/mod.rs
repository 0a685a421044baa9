//! Which device a report belongs to, and which evidence speaks against it.

pub mod store;
mod weak;

use std::collections::BTreeSet;

use agent_reports::{
    DeviceFacts, DeviceTypeFact, is_generic_name, is_random_mac, real_serial, real_uuid, swap_uuid_byte_order,
};
use people::organizations::OrganizationId;

pub use self::weak::is_same_name;
use super::DeviceIdentifiers;
use crate::devices::Type;

/// The device that a report belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceMatch {
    One(i64),
    /// None for certain: the report makes a new device, flagged as a possible duplicate of this one.
    Duplicate(i64),
    /// A part of an inventory without any evidence that may be of several devices, or a discovery of what may have an agent: it
    /// changes none.
    Unclear,
    None,
}

/// What a machine has of its own, whatever agent runs on it. Placeholders are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineEvidence {
    uuid: Option<String>,
    /// One, or those of all members of a stack.
    serials: BTreeSet<String>,
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
            serials: identifiers.serial_number.and_then(real_serial).map(str::to_lowercase).into_iter().collect(),
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
        self.uuid.is_none() && self.serials.is_empty() && self.macs.is_empty()
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
        have_common(&self.serials, &other.serials)
    }

    fn same_macs(&self, other: &MachineEvidence) -> Option<bool> {
        have_common(&self.macs, &other.macs)
    }
}

/// Whether two sets have something in common; `None` if one of them is empty.
fn have_common(one: &BTreeSet<String>, other: &BTreeSet<String>) -> Option<bool> {
    let both = !one.is_empty() && !other.is_empty();
    both.then(|| !one.is_disjoint(other))
}

/// The machine that a report describes.
pub struct ReportedMachine<'a> {
    pub identifiers: DeviceIdentifiers<'a>,
    pub evidence: MachineEvidence,
    /// Of the members of a stack.
    member_serials: &'a [String],
    told_type: Option<Type>,
    /// An agent elsewhere has scanned it.
    pub is_scanned: bool,
    /// Only the name server knows its name.
    is_name_from_dns: bool,
}

impl<'a> ReportedMachine<'a> {
    pub fn from_facts(facts: &'a DeviceFacts) -> Self {
        let identifiers = DeviceIdentifiers::from_facts(facts);
        let mut evidence = MachineEvidence::from_identifiers(&identifiers);
        let member_serials: &[String] = facts.scan.as_ref().map_or(&[], |scan| &scan.chassis_serials);
        evidence.serials.extend(member_serials.iter().map(|serial| serial.to_lowercase()));
        let told_type = match facts.device_type {
            Some(DeviceTypeFact::Told(told)) => Some(told),
            _ => None,
        };
        let is_name_from_dns = facts.scan.as_ref().is_some_and(|scan| scan.is_name_from_dns);
        let is_scanned = facts.scan.is_some();
        ReportedMachine { identifiers, evidence, member_serials, told_type, is_scanned, is_name_from_dns }
    }

    /// Whether there is anything by which the next report can recognize the machine, if no agent on it says who it is.
    pub fn is_recognizable(&self) -> bool {
        !self.evidence.is_empty() || self.identifiers.hostname.is_some_and(|name| !is_generic_name(name))
    }

    /// Whether a scan tells no more of the machine than a random hardware address. Phones come and go with such addresses:
    /// one may be a device that is known, but makes none.
    pub fn is_passing(&self) -> bool {
        let MachineEvidence { uuid, serials, macs } = &self.evidence;
        let has_name = self.identifiers.hostname.is_some() && !self.is_name_from_dns;
        let has_more = has_name || self.told_type.is_some() || uuid.is_some() || !serials.is_empty();
        self.is_scanned && !has_more && !macs.is_empty() && macs.iter().all(|mac| is_random_mac(mac))
    }

    /// Identities of the machine beside those that its agent gives, the most reliable level first.
    fn identity_levels(&self) -> Vec<Vec<String>> {
        let mut levels = self.identifiers.identity_levels();
        levels.insert(SERIAL_LEVEL + 1, self.identifiers.member_identities(self.member_serials));
        levels
    }

    /// Whether a device with an identity of this level may be the machine.
    fn may_be(&self, candidate: &MatchCandidate, level: usize) -> bool {
        // The stack has lost the member that it reported before: its name stays.
        let is_former_member = self.is_scanned && level == SERIAL_LEVEL && self.has_name_of(candidate) == Some(true);
        !candidate.evidence.contradicts(&self.evidence) || is_former_member
    }

    /// Whether the machine has the name of a device; `None` if one of them has none. A name that only the name server knows
    /// is that of an address, which the next device may have tomorrow: that it differs says nothing.
    fn has_name_of(&self, candidate: &MatchCandidate) -> Option<bool> {
        let is_same = is_same_name(candidate.hostname.as_deref()?, self.identifiers.hostname?);
        let is_of_address = self.is_name_from_dns || candidate.may_have_name_from_dns();
        (is_same || !is_of_address).then_some(is_same)
    }

    /// Whether one is a printer or network equipment, and the other a computer.
    fn is_of_another_kind(&self, candidate: &MatchCandidate) -> bool {
        if self.told_type.is_some_and(is_equipment) {
            return candidate.has_agent
                || !(is_equipment(candidate.device_type) || candidate.device_type == Type::Other);
        }
        !self.is_scanned && is_equipment(candidate.device_type)
    }
}

/// The place of serial numbers among the levels.
const SERIAL_LEVEL: usize = 1;

fn is_equipment(device_type: Type) -> bool {
    matches!(device_type, Type::Network | Type::Printer)
}

/// A device that a report may belong to.
#[derive(Clone, Debug)]
pub struct MatchCandidate {
    pub number: i64,
    pub organization: Option<OrganizationId>,
    /// Created as a possible duplicate.
    pub is_flagged: bool,
    pub evidence: MachineEvidence,
    pub hostname: Option<String>,
    pub manufacturer: Option<String>,
    pub device_type: Type,
    /// An agent runs on it.
    pub has_agent: bool,
    /// It was imported, and nothing has reported it.
    pub is_imported: bool,
}

impl MatchCandidate {
    /// Whether the device belongs to another customer than the report.
    pub fn is_of_another(&self, own: Option<OrganizationId>) -> bool {
        self.organization.zip(own).is_some_and(|(organization, own)| organization != own)
    }

    /// Whether only the name server may have told the hostname. Where it came from is not stored; what answers to no more
    /// than a ping has a name with a domain from nowhere else.
    fn may_have_name_from_dns(&self) -> bool {
        let is_little_known = self.device_type == Type::Other && self.evidence.serials.is_empty();
        let has_domain = self.hostname.as_deref().is_some_and(|name| name.contains('.'));
        is_little_known && has_domain && !self.has_agent && !self.is_imported
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
            serials: text(serial).into_iter().collect(),
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
