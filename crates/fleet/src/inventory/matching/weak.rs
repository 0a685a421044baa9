//! Evidence that is not enough where agents run: a hardware address, a serial number or a name alone. What is scanned over the
//! network often tells no more. None of it joins a computer with a printer or network equipment.

use agent_reports::{is_generic_name, maker_name};

use super::super::DeviceIdentifiers;
use super::{MatchCandidate, ReportedMachine};

/// The only evidence that a report and a device share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeakEvidence {
    Mac,
    Serial,
    Name,
}

/// The weak identities of a machine, the most reliable first. The name counts only where nothing else is known. An agent's
/// report has its address alone, by which it finds what a scan has found before. On a VMware host runs no agent.
pub fn weak_identities(machine: &ReportedMachine<'_>, is_of_agent: bool) -> Vec<(WeakEvidence, Vec<String>)> {
    let macs = machine.identifiers.mac_identities();
    if !machine.is_scanned && (is_of_agent || !machine.evidence.is_empty()) {
        return vec![(WeakEvidence::Mac, macs)];
    }
    let (serials, mut names): (Vec<_>, Vec<_>) =
        machine.alias_identities().into_iter().partition(|name| name.starts_with("z:"));
    if !(macs.is_empty() && serials.is_empty()) {
        names.clear();
    }
    vec![(WeakEvidence::Mac, macs), (WeakEvidence::Serial, serials), (WeakEvidence::Name, names)]
}

impl ReportedMachine<'_> {
    /// The serial number alone and the name; of what was scanned no name that many devices have.
    pub fn alias_identities(&self) -> Vec<String> {
        let hostname = self.identifiers.hostname.filter(|name| !(self.is_scanned && is_generic_name(name)));
        DeviceIdentifiers { hostname, ..self.identifiers.clone() }.alias_identities()
    }

    /// Whether one of these devices may be the machine though an agent runs on it: a serial number or a name alone is too
    /// little to say so, and too much for a device of its own.
    pub fn may_have_agent(&self, candidates: &[MatchCandidate], kind: WeakEvidence) -> bool {
        let is_little =
            kind != WeakEvidence::Mac && self.told_type.is_none() && self.identifiers.real_macs().is_empty();
        is_little && candidates.iter().any(|candidate| candidate.has_agent)
    }

    /// Whether a device with no more in common than this may be the machine.
    pub fn may_be_by_weak_evidence(&self, candidate: &MatchCandidate, kind: WeakEvidence) -> bool {
        let is_possible = match kind {
            // Redundant switches share an address, and docks move from one laptop to the next.
            WeakEvidence::Mac => {
                self.has_name_of(candidate) != Some(false) && (self.is_scanned || !candidate.has_agent)
            }
            // Two makers may count alike.
            WeakEvidence::Serial => {
                let own = self.identifiers.manufacturer.and_then(maker_name);
                let makers = own.zip(candidate.manufacturer.as_deref().and_then(maker_name));
                makers.is_none_or(|(own, other)| own == other) && !candidate.has_agent
            }
            WeakEvidence::Name => !candidate.has_agent,
        };
        is_possible && !self.is_of_another_kind(candidate)
    }
}

/// The longest NetBIOS name; longer hostnames are cut to it.
const NETBIOS_NAME_BYTES: usize = 15;

/// Whether two hostnames are of one machine: with or without its domain, or cut to a NetBIOS name.
pub fn is_same_name(one: &str, other: &str) -> bool {
    let label = |name: &str| name.split('.').next().unwrap_or_default().to_lowercase();
    let (one, other) = (label(one), label(other));
    let cut = |name: &str| name.get(..NETBIOS_NAME_BYTES).map(str::to_owned);
    one == other || cut(&one).as_ref() == Some(&other) || cut(&other).as_ref() == Some(&one)
}

#[cfg(test)]
mod tests {
    use super::is_same_name;

    #[test]
    fn a_name_is_the_same_with_a_domain_and_cut_short() {
        assert!(is_same_name("PC-17", "pc-17.acme.test"));
        assert!(is_same_name("accounting-laptop-3", "ACCOUNTING-LAPT"));
        assert!(!is_same_name("accounting-laptop-3", "accounting"));
        assert!(!is_same_name("core1", "core2"));
    }
}
