//! Reports of agents: how a report becomes a device, and how a device is recognized again.
//!
//! The crate `agent-reports` parses the messages of agents in every format; this module applies them to devices.

pub mod feature;
pub mod import;
pub mod matching;
pub mod merge {
    pub mod store;
}
pub mod routes;
pub mod scans;
pub mod store;

use std::collections::BTreeSet;

use agent_reports::{
    AgentReport, DeviceFacts, DeviceTypeFact, HostFacts, MachineFacts, SystemFacts, guess_device_type,
    is_virtual_interface, maker_name, real_label, real_mac, real_serial, real_uuid, swap_uuid_byte_order,
};
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD as BASE64;
use kernel::base::{RecordId, Timestamp, sha256};
use people::organizations::OrganizationId;
use serde_json::Map;

use self::matching::MachineEvidence;
use crate::devices::{
    Cpu, Device, DeviceAgent, DeviceHealth, DeviceId, DeviceParts, DevicePatch, DeviceStatus, FullDevice, Nic, Os,
    Platform, Type, Warranty, WarrantyStatus,
};

/// The sender of a report.
#[derive(Clone, Debug)]
pub struct Reporter {
    /// The organization that the ingest key is bound to.
    pub organization: Option<OrganizationId>,
    /// The id that a GLPI agent sends in its header.
    pub agent_id: Option<String>,
}

/// Hardware addresses of one device that become identities. A container host has many more, and they are not its own.
const MACS_MAX: usize = 32;
/// A longer identity is stored as a digest, because it would not fit into an index.
const IDENTITY_BYTES_MAX: usize = 400;
/// Largest difference between two times of one boot: agents compute the time from the uptime.
const BOOT_TOLERANCE_MS: i64 = 10_000;

/// The fields that identify a device.
#[derive(Clone, Debug, Default)]
pub struct DeviceIdentifiers<'a> {
    pub uuid: Option<&'a str>,
    pub serial_number: Option<&'a str>,
    pub manufacturer: Option<&'a str>,
    pub hostname: Option<&'a str>,
    pub display_name: Option<&'a str>,
    pub primary_mac: Option<&'a str>,
    pub nics: &'a [Nic],
}

impl<'a> DeviceIdentifiers<'a> {
    pub fn from_device(full: &'a FullDevice) -> Self {
        let device = &full.device;
        DeviceIdentifiers {
            uuid: device.uuid.as_deref(),
            serial_number: device.serial_number.as_deref(),
            manufacturer: device.manufacturer.as_deref(),
            hostname: device.hostname.as_deref(),
            display_name: device.display_name.as_deref(),
            primary_mac: device.primary_mac.as_deref(),
            nics: &full.parts.nics,
        }
    }

    /// The identifiers of a report, before its device is known.
    pub fn from_facts(facts: &'a DeviceFacts) -> Self {
        let (host, machine, network) = (facts.host.as_ref(), facts.machine.as_ref(), facts.network.as_ref());
        DeviceIdentifiers {
            uuid: host.and_then(|host| host.uuid.as_deref()),
            serial_number: machine.and_then(|machine| machine.serial_number.as_deref()),
            manufacturer: machine.and_then(|machine| machine.manufacturer.as_deref()),
            hostname: host.and_then(|host| host.hostname.as_deref()),
            display_name: None,
            primary_mac: network.and_then(|network| network.primary_mac.as_deref()),
            nics: network.map_or(&[], |network| &network.nics),
        }
    }

    /// The identities of a device beside those that agents give, the most reliable level first. Placeholders are ignored,
    /// whatever their source.
    pub fn identity_levels(&self) -> Vec<Vec<String>> {
        let uuid = self.uuid.and_then(real_uuid);
        let twin = uuid.as_deref().and_then(swap_uuid_byte_order);
        let uuids: BTreeSet<String> = uuid.into_iter().chain(twin).map(|uuid| format_identity('u', &uuid)).collect();
        let serials = self.serial_identities(self.serial_number);
        let host = self.hostname.unwrap_or_default();
        let hosts = self.real_macs().into_iter().filter(|_| !host.is_empty());
        let hosts = hosts.map(|mac| format_identity('m', &format!("{host}\u{1f}{mac}")));
        vec![uuids.into_iter().collect(), serials.into_iter().collect(), hosts.collect()]
    }

    /// A serial number with the manufacturer.
    fn serial_identities(&self, serial: Option<&str>) -> BTreeSet<String> {
        let serial = serial.and_then(real_serial);
        // As it is written, too: nodes of an older version know no other form.
        let makers =
            [self.manufacturer.and_then(real_label).map(str::to_owned), self.manufacturer.and_then(maker_name)];
        makers
            .into_iter()
            .flatten()
            .zip(serial.into_iter().cycle())
            .map(|(maker, serial)| format_identity('n', &format!("{maker}\u{1f}{serial}")))
            .collect()
    }

    /// The same of the other members of a stack, of which any may become the one that the stack reports.
    pub fn member_identities(&self, serials: &[String]) -> Vec<String> {
        serials.iter().flat_map(|serial| self.serial_identities(Some(serial))).collect()
    }

    /// The hardware addresses alone.
    pub fn mac_identities(&self) -> Vec<String> {
        self.real_macs().into_iter().map(|mac| format_identity('k', &mac)).collect()
    }

    /// Weaker identities for rows of a file: the serial number alone, the hostname, the display name.
    pub fn alias_identities(&self) -> Vec<String> {
        let serial = self.serial_number.and_then(real_serial).map(|serial| format_identity('z', serial));
        let host = self.hostname.map(|host| format_identity('h', host));
        let display_name = self.display_name.map(|display_name| format_identity('y', display_name));
        serial.into_iter().chain(host).chain(display_name).collect()
    }

    /// Whether two sets of identifiers cannot be of one machine, even under the same name.
    pub fn conflicts_with(&self, other: &DeviceIdentifiers<'_>) -> bool {
        let evidence = MachineEvidence::from_identifiers(self);
        let makers = self.manufacturer.and_then(maker_name).zip(other.manufacturer.and_then(maker_name));
        let has_serial = self.serial_number.and_then(real_serial).is_some();
        evidence.contradicts(&MachineEvidence::from_identifiers(other))
            || (has_serial && makers.is_some_and(|(maker, other)| maker != other))
    }

    /// The primary address first, then those of the network cards, without virtual interfaces.
    pub fn real_macs(&self) -> Vec<String> {
        let cards = self.nics.iter().filter(|nic| !is_virtual_interface(nic.name.as_deref().unwrap_or_default()));
        let all = [self.primary_mac].into_iter().chain(cards.map(|nic| nic.mac.as_deref()));
        let mut macs: Vec<String> = Vec::new();
        for mac in all.filter_map(|mac| real_mac(mac?)) {
            if !macs.contains(&mac) && macs.len() < MACS_MAX {
                macs.push(mac);
            }
        }
        macs
    }
}

/// The identities that an agent gives: its own id, then the id that it made for the device.
pub fn agent_identities(reporter: &Reporter, device_id: &str) -> Vec<Vec<String>> {
    vec![
        reporter.agent_id.as_deref().map(|id| format_identity('a', id)).into_iter().collect(),
        vec![format_identity('d', device_id)],
    ]
}

fn format_identity(letter: char, value: &str) -> String {
    let value = value.trim().to_lowercase();
    if value.len() <= IDENTITY_BYTES_MAX {
        return format!("{letter}:{value}");
    }
    format!("{letter}:#{}", BASE64.encode(sha256(value.as_bytes())))
}

/// A device without any facts.
pub fn blank_device(now: Timestamp) -> FullDevice {
    let device = Device {
        id: DeviceId::NONE,
        hostname: None,
        display_name: None,
        r#type: Type::Other,
        platform: Platform::Other,
        os: Os::default(),
        status: DeviceStatus::Stale,
        health: DeviceHealth::Unknown,
        organization_id: None,
        manufacturer: None,
        model: None,
        serial_number: None,
        asset_tag: None,
        uuid: None,
        cpu: Cpu::default(),
        memory_bytes: None,
        firmware: None,
        page_count: None,
        primary_ip: None,
        primary_mac: None,
        last_logged_user: None,
        last_boot_at: None,
        needs_reboot: None,
        patch: DevicePatch::default(),
        warranty: Warranty { start_date: None, end_date: None, status: WarrantyStatus::Unknown },
        agent: DeviceAgent::default(),
        tags: Vec::new(),
        custom_fields: Map::new(),
        possible_duplicate_of: None,
        first_seen_at: None,
        last_seen_at: None,
        inventory_at: None,
        deleted_at: None,
        version: 1,
        created_at: now,
        updated_at: now,
    };
    FullDevice { device, parts: DeviceParts::default() }
}

/// Applies the facts of a report to a device.
///
/// A whole report of the same agent replaces every section: what it no longer reports is cleared. Another agent may just not
/// know a value, so two agents on one machine do not clear each other's values. A guess never replaces what was told.
pub fn apply_report(report: &AgentReport, facts: DeviceFacts, full: &mut FullDevice) {
    let agent = report.agent.as_ref();
    let is_same =
        full.device.agent.name.is_some() && full.device.agent.name.as_deref() == agent.map(|agent| agent.name.as_str());
    let is_authoritative = is_same && !report.partial;
    let FullDevice { device, parts } = full;
    match facts.device_type {
        Some(DeviceTypeFact::Told(told)) => device.r#type = told,
        // A type that is not the guess for its platform was told.
        Some(DeviceTypeFact::Guessed(guess))
            if [Type::Other, guess_device_type(device.platform)].contains(&device.r#type) =>
        {
            device.r#type = guess;
        }
        _ => {}
    }
    device.platform = facts.platform.unwrap_or(device.platform);
    if let Some(HostFacts { hostname, uuid, memory_bytes, last_logged_user }) =
        section_or_empty(facts.host, is_authoritative)
    {
        // A missing name means that the agent does not know it, not that the machine has none.
        update_value(&mut device.hostname, hostname, false);
        update_value(&mut device.uuid, uuid, is_authoritative);
        update_value(&mut device.memory_bytes, memory_bytes, is_authoritative);
        update_value(&mut device.last_logged_user, last_logged_user, is_authoritative);
    }
    if let Some(MachineFacts { manufacturer, model, serial_number, asset_tag }) =
        section_or_empty(facts.machine, is_authoritative)
    {
        update_value(&mut device.manufacturer, manufacturer, is_authoritative);
        update_value(&mut device.model, model, is_authoritative);
        update_value(&mut device.serial_number, serial_number, is_authoritative);
        update_value(&mut device.asset_tag, asset_tag, false);
    }
    if let Some(SystemFacts { os, guessed_build, last_boot_at }) = section_or_empty(facts.system, is_authoritative) {
        update_value(&mut device.os.name, os.name, is_authoritative);
        update_value(&mut device.os.version, os.version, is_authoritative);
        update_value(&mut device.os.build, os.build, is_authoritative);
        // A build such as `19045` may itself be a guess; one such as `19045.3803` was told.
        if device.os.build.as_deref().is_none_or(|build| build.bytes().all(|byte| byte.is_ascii_digit())) {
            update_value(&mut device.os.build, guessed_build, false);
        }
        update_value(&mut device.os.kernel, os.kernel, is_authoritative);
        update_value(&mut device.os.arch, os.arch, is_authoritative);
        let last_boot_at = stable_boot_time(device.last_boot_at, last_boot_at);
        update_value(&mut device.last_boot_at, last_boot_at, is_authoritative);
    }
    if let Some(cpu) = section_or_empty(facts.cpu, is_authoritative) {
        update_value(&mut device.cpu.model, cpu.model, is_authoritative);
        update_value(&mut device.cpu.sockets, cpu.sockets, is_authoritative);
        update_value(&mut device.cpu.cores, cpu.cores, is_authoritative);
    }
    if let Some(network) = section_or_empty(facts.network, is_authoritative) {
        parts.nics = network.nics;
        // The gateway is part of the hardware section. Without it, the wrong card might look like the primary one.
        let is_there = parts.nics.iter().any(|nic| nic.mac.is_some() && nic.mac == device.primary_mac);
        if report.hardware.is_some() || !is_there {
            update_value(&mut device.primary_ip, network.primary_ip, is_authoritative);
            update_value(&mut device.primary_mac, network.primary_mac, is_authoritative);
        }
    }
    update_list(&mut parts.disks, facts.disks, is_authoritative);
    update_list(&mut parts.volumes, facts.volumes, is_authoritative);
    update_list(&mut parts.software, facts.software, is_authoritative);
    let (name, version) = agent.map_or((None, None), |agent| (Some(agent.name.clone()), agent.version.clone()));
    device.agent = DeviceAgent { name, version, device_id: report.device_id.clone(), tag: report.tag.clone() };
}

/// A section that an authoritative report does not have is empty.
fn section_or_empty<T: Default>(section: Option<T>, is_authoritative: bool) -> Option<T> {
    section.or_else(|| is_authoritative.then(T::default))
}

fn update_list<T>(stored: &mut Vec<T>, reported: Option<Vec<T>>, is_authoritative: bool) {
    if let Some(reported) = section_or_empty(reported, is_authoritative) {
        *stored = reported;
    }
}

/// Replaces a value by the reported one; clears it only if the report is authoritative (`is_authoritative`).
fn update_value<T>(stored: &mut Option<T>, reported: Option<T>, is_authoritative: bool) {
    if reported.is_some() || is_authoritative {
        *stored = reported;
    }
}

/// The stored boot time, if the reported one differs only by rounding.
fn stable_boot_time(stored: Option<Timestamp>, reported: Option<Timestamp>) -> Option<Timestamp> {
    match (stored, reported) {
        (Some(stored), Some(reported)) if (stored.as_millis() - reported.as_millis()).abs() <= BOOT_TOLERANCE_MS => {
            Some(stored)
        }
        (_, reported) => reported,
    }
}
