//! Reports of devices that an agent scanned over the network.
//!
//! The ids of the message and of the agent are those of the scanner: a scanned device is known by what it says of itself.

use agent_reports::{AgentReport, DeviceFacts, DeviceTypeFact, HostFacts, MachineFacts, NetworkFacts, ScanFacts};

use super::matching::is_same_name;
use super::{DeviceIdentifiers, Reporter, agent_identities, apply_report, update_list, update_value};
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

/// Which stored values a scan changes. None is cleared because the scan does not tell it: a device that answers slowly is
/// scanned in part, and has lost nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ScanUpdate {
    /// Those that are missing: a discovery knows less than the inventory before it.
    Missing,
    /// Those that the report has.
    Told,
}

impl ScanUpdate {
    fn choose(report: &AgentReport, device: &Device) -> Self {
        if report.partial && device.inventory_at.is_some() { Self::Missing } else { Self::Told }
    }

    fn update<T>(self, stored: &mut Option<T>, reported: Option<T>) {
        if self == Self::Told || stored.is_none() {
            update_value(stored, reported, false);
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
    if let Some(HostFacts { hostname, memory_bytes, .. }) = facts.host {
        let is_known = device.hostname.as_deref().zip(hostname.as_deref()).is_some_and(|(old, new)| {
            // The same name with its domain and without it would change to and fro.
            scan.is_name_from_dns || is_same_name(old, new)
        });
        change.update(&mut device.hostname, hostname.filter(|_| !is_known));
        change.update(&mut device.memory_bytes, memory_bytes);
    }
    if let Some(MachineFacts { manufacturer, model, serial_number, asset_tag }) = facts.machine {
        change.update(&mut device.manufacturer, manufacturer);
        change.update(&mut device.model, model);
        change.update(&mut device.serial_number, serial_number);
        change.update(&mut device.asset_tag, asset_tag);
    }
    if let Some(NetworkFacts { nics, primary_ip, primary_mac }) = facts.network {
        if primary_ip.is_some() && !has_address(device, parts, &scan) {
            device.primary_ip = primary_ip;
        }
        update_list(&mut parts.nics, scan.ports.is_some().then_some(nics), false);
        // A discovery has the address of the card that answered, which is not always the device's own.
        change.update(&mut device.primary_mac, primary_mac);
    }
    update_list(&mut parts.disks, facts.disks, false);
    update_list(&mut parts.volumes, facts.volumes, false);
    apply_scan_parts(scan, full, change);
}

/// Applies what only scans tell.
fn apply_scan_parts(scan: ScanFacts, full: &mut FullDevice, change: ScanUpdate) {
    let FullDevice { device, parts } = full;
    change.update(&mut device.firmware, scan.firmware);
    change.update(&mut device.page_count, scan.page_count);
    update_list(&mut parts.ports, scan.ports, false);
    update_list(&mut parts.supplies, scan.supplies, false);
}

/// Whether the stored primary address is still one of the device's. A device with several addresses is found at each of them,
/// one at a time; at none of the stored ones, it has moved. A scan of its interfaces tells all addresses.
fn has_address(device: &Device, parts: &DeviceParts, scan: &ScanFacts) -> bool {
    let is_of_nic = |ip: &String| scan.ports.is_none() && parts.nics.iter().any(|nic| nic.ips.contains(ip));
    device.primary_ip.as_ref().is_some_and(|primary| scan.ips.iter().any(|ip| ip == primary || is_of_nic(ip)))
}
