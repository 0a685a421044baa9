//! Reports of devices that an agent scanned over the network.
//!
//! The ids of the message and of the agent are those of the scanner: a scanned device is known by what it says of itself.

use agent_reports::{AgentReport, DeviceFacts, DeviceTypeFact, HostFacts, MachineFacts, NetworkFacts, ScanFacts};

use super::matching::is_same_name;
use super::{DeviceIdentifiers, Reporter, agent_identities, apply_report, update_value};
use crate::devices::{Device, DeviceAgent, DeviceParts, FullDevice};

/// The identities that a report gives its device beside those that follow from the device: those of the agent on it, or the
/// serial numbers of the members of a stack.
pub fn given_identities(reporter: &Reporter, report: &AgentReport, facts: &DeviceFacts) -> Vec<Vec<String>> {
    match (&report.device_id, &facts.scan) {
        (Some(device_id), _) => agent_identities(reporter, device_id),
        (None, Some(scan)) => {
            vec![DeviceIdentifiers::from_facts(facts).member_identities(&scan.chassis_serials)]
        }
        (None, None) => Vec::new(),
    }
}

/// Applies the facts of a report to a device, whether an agent runs on it or has scanned it.
pub fn apply_facts(report: &AgentReport, mut facts: DeviceFacts, full: &mut FullDevice) {
    match facts.scan.take() {
        None => apply_report(report, facts, full),
        // An agent on the device knows it better than a scan does.
        Some(scan) if full.device.agent.device_id.is_some() => apply_scan_parts(scan, full, ScanUpdate::Told),
        Some(scan) => apply_scan(report, facts, scan, full),
    }
}

/// Which stored values a scan changes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ScanUpdate {
    /// Those that are missing: a discovery knows less than the inventory before it.
    Missing,
    /// Those that the report has.
    Told,
    /// All: the same agent has sent a whole inventory.
    All,
}

impl ScanUpdate {
    fn choose(report: &AgentReport, device: &Device) -> Self {
        let name = report.agent.as_ref().map(|agent| agent.name.as_str());
        let is_same = device.agent.name.is_some() && device.agent.name.as_deref() == name;
        match report.partial {
            true if device.inventory_at.is_some() => Self::Missing,
            false if is_same => Self::All,
            _ => Self::Told,
        }
    }

    fn update<T>(self, stored: &mut Option<T>, reported: Option<T>) {
        if self != Self::Missing || stored.is_none() {
            update_value(stored, reported, self == Self::All);
        }
    }

    fn update_list<T>(self, stored: &mut Vec<T>, reported: Option<Vec<T>>) {
        if reported.is_some() || self == Self::All {
            *stored = reported.unwrap_or_default();
        }
    }
}

fn apply_scan(report: &AgentReport, facts: DeviceFacts, scan: ScanFacts, full: &mut FullDevice) {
    let FullDevice { device, parts } = full;
    let change = ScanUpdate::choose(report, device);
    if change != ScanUpdate::Missing {
        device.r#type = facts.device_type.map_or(device.r#type, DeviceTypeFact::device_type);
        let agent = report.agent.as_ref();
        let (name, version) = agent.map_or((None, None), |agent| (Some(agent.name.clone()), agent.version.clone()));
        device.agent = DeviceAgent { name, version, device_id: None, tag: report.tag.clone() };
    }
    // A device that answers slowly is scanned in part: it has not lost its name, make and serial number.
    let told = if change == ScanUpdate::Missing { change } else { ScanUpdate::Told };
    if let Some(HostFacts { hostname, memory_bytes, .. }) = facts.host {
        let is_known = device.hostname.as_deref().zip(hostname.as_deref()).is_some_and(|(old, new)| {
            // The same name with its domain and without it would change to and fro.
            scan.is_name_from_dns || is_same_name(old, new)
        });
        told.update(&mut device.hostname, hostname.filter(|_| !is_known));
        told.update(&mut device.memory_bytes, memory_bytes);
    }
    if let Some(MachineFacts { manufacturer, model, serial_number, asset_tag }) = facts.machine {
        told.update(&mut device.manufacturer, manufacturer);
        told.update(&mut device.model, model);
        told.update(&mut device.serial_number, serial_number);
        told.update(&mut device.asset_tag, asset_tag);
    }
    if let Some(NetworkFacts { nics, primary_ip, primary_mac }) = facts.network {
        change.update_list(&mut parts.nics, scan.ports.is_some().then_some(nics));
        // A device with several addresses is found at each of them. At none of the stored ones, it has moved.
        if !has_address(device, parts, &scan.ips) && primary_ip.is_some() {
            device.primary_ip = primary_ip;
        }
        // A discovery has the address of the card that answered, which is not always the device's own.
        told.update(&mut device.primary_mac, primary_mac);
    }
    told.update_list(&mut parts.disks, facts.disks);
    told.update_list(&mut parts.volumes, facts.volumes);
    apply_scan_parts(scan, full, change);
}

/// Applies what only scans tell.
fn apply_scan_parts(scan: ScanFacts, full: &mut FullDevice, change: ScanUpdate) {
    let FullDevice { device, parts } = full;
    change.update(&mut device.firmware, scan.firmware);
    change.update(&mut device.page_count, scan.page_count);
    change.update_list(&mut parts.ports, scan.ports);
    change.update_list(&mut parts.supplies, scan.supplies);
}

/// Whether the stored primary address is still one of the device's.
fn has_address(device: &Device, parts: &DeviceParts, told: &[String]) -> bool {
    let of_nics = parts.nics.iter().flat_map(|nic| &nic.ips);
    device.primary_ip.as_ref().is_some_and(|primary| told.iter().chain(of_nics).any(|ip| ip == primary))
}
