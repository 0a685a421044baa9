//! The facts of a scanned device.

use super::device_type::{DeviceTypeFact, detect_scanned_type};
use super::facts::{
    DeviceFacts, HostFacts, MachineFacts, NetworkFacts, ScanFacts, convert_disk, convert_volumes, first_real_label,
};
use super::identity::{normal_mac, real_label, real_mac, real_serial};
use super::network_cards::address_rank;
use super::parts::DeviceType;
use super::report::AgentReport;
use super::scanned::ScannedDevice;

pub fn extract_scan_facts(report: &AgentReport, scanned: ScannedDevice) -> DeviceFacts {
    let has_pages = scanned.pages_total.is_some() || scanned.supplies.as_ref().is_some_and(|all| !all.is_empty());
    let told = detect_scanned_type(scanned.kind.as_deref(), report.item_type.as_deref());
    DeviceFacts {
        // Nothing else counts pages or has toner.
        device_type: told
            .or_else(|| (scanned.kind.is_none() && has_pages).then_some(DeviceType::Printer))
            .map(DeviceTypeFact::Told),
        host: Some(HostFacts {
            hostname: scanned.hostname().map(str::to_owned),
            memory_bytes: scanned.memory_bytes.filter(|&bytes| bytes > 0),
            ..HostFacts::default()
        }),
        machine: Some(machine_facts(&scanned)),
        network: Some(network_facts(&scanned)),
        disks: report.disks.as_ref().map(|entries| entries.iter().filter_map(convert_disk).collect()),
        volumes: report.volumes.as_ref().map(|entries| convert_volumes(entries, None)),
        scan: Some(scan_facts(scanned)),
        ..DeviceFacts::default()
    }
}

/// A stack has no make of its own: that of its first member counts.
fn machine_facts(scanned: &ScannedDevice) -> MachineFacts {
    let first = scanned.chassis.first();
    let serial = scanned.serial.as_deref().and_then(real_serial);
    MachineFacts {
        manufacturer: first_real_label(
            [&scanned.manufacturer, &scanned.vendor].into_iter().chain(first.map(|chassis| &chassis.manufacturer)),
        ),
        model: first_real_label([&scanned.model].into_iter().chain(first.map(|chassis| &chassis.model))),
        serial_number: serial.or_else(|| scanned.chassis_serials().into_iter().next()).map(str::to_owned),
        asset_tag: scanned.asset_tag.as_deref().and_then(real_label).map(str::to_owned),
    }
}

/// The scanned address is the primary one; if the agent does not name it, that of the interface with the device's own MAC;
/// else the most useful one.
fn network_facts(scanned: &ScannedDevice) -> NetworkFacts {
    let own_mac = scanned.mac.as_deref().and_then(normal_mac);
    let own = scanned.nics.iter().find(|nic| own_mac.is_some() && nic.mac == own_mac);
    let is_reachable = |ip: &&String| address_rank(ip).is_some_and(|rank| rank > 1);
    let scanned_ip = scanned.scanned_ip.iter().find(is_reachable);
    let own_ip = own.iter().flat_map(|nic| &nic.ips).find(is_reachable);
    let of_nics = scanned.nics.iter().flat_map(|nic| &nic.ips);
    let best = scanned.ips.iter().chain(of_nics).filter(is_reachable);
    // `max_by_key` returns the last of equals; reversed, it returns the first.
    let best = best.collect::<Vec<_>>().into_iter().rev().max_by_key(|ip| address_rank(ip));
    let primary_ip = scanned_ip.or(own_ip).or(best).cloned();
    let of_primary = scanned.nics.iter().find(|nic| primary_ip.as_ref().is_some_and(|ip| nic.ips.contains(ip)));
    // Its own, even if redundant devices share it; else one by which it can be recognized.
    let of_primary = of_primary.and_then(|nic| nic.mac.clone()).filter(|mac| real_mac(mac).is_some());
    let primary_mac = own_mac.or(of_primary).or_else(|| scanned.interface_mac.clone());
    NetworkFacts { nics: scanned.nics.clone(), primary_ip, primary_mac }
}

fn scan_facts(scanned: ScannedDevice) -> ScanFacts {
    let is_name_from_dns = scanned.is_name_from_dns();
    let chassis_serials = scanned.chassis_serials().into_iter().map(str::to_owned).collect();
    let of_nics = scanned.nics.into_iter().flat_map(|nic| nic.ips);
    let of_chassis = scanned.chassis.into_iter().find_map(|chassis| chassis.firmware);
    ScanFacts {
        firmware: scanned.firmware.or(scanned.listed_firmware.map(|firmware| firmware.version)).or(of_chassis),
        page_count: scanned.pages_total.or(scanned.pages_printed),
        ports: scanned.ports,
        supplies: scanned.supplies,
        ips: scanned.scanned_ip.into_iter().chain(scanned.ips).chain(of_nics).collect(),
        chassis_serials,
        is_name_from_dns,
    }
}
