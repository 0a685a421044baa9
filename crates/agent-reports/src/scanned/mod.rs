//! A device that an agent scanned over the network, mostly by SNMP: the sections and fields that are parsed.
//!
//! Entries are converted when they end. So nothing is kept of the thousands of components and virtual interfaces that a
//! large switch has.

mod components;
mod interfaces;

use std::collections::HashSet;
use std::net::IpAddr;

use super::identity::{is_generic_name, real_mac, real_serial};
use super::parts::{Nic, Port, Supply};
use super::sections::{DriveEntry, NIC_IPS_MAX};
use super::text::{MIB_BYTES, clean_label, parse_addresses, parse_size, parse_whole_number};
use components::{ComponentEntry, ConsumableEntry, FirmwareEntry, level_percent};
use interfaces::{InterfaceEntry, VlanEntry};

// What a device has beyond these is left out: it is a device all the same, and others are in the message.
/// Enough for ten stacked switches of the largest kind, and for any chassis.
const PORTS_MAX: usize = 5_000;
/// Entries of interfaces with addresses.
const ADDRESSED_MAX: usize = 1_000;
/// Ten times those of a colour printer.
const SUPPLIES_MAX: usize = 100;
/// Addresses of the whole device that are read; the primary one is chosen among them.
const IPS_MAX: usize = 1_000;
/// Members of a stack that are kept: more are never stacked.
const CHASSIS_MAX: usize = 32;

/// Sections of a scanned device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScanSection {
    Device,
    Ports,
    /// Nested in a port.
    Vlans,
    Components,
    Firmwares,
    Cartridges,
    Consumables,
    PageCounters,
}

impl ScanSection {
    /// The section with this lower-case name in JSON.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "network_device" => Self::Device,
            "network_ports" => Self::Ports,
            "network_components" => Self::Components,
            "firmwares" => Self::Firmwares,
            "cartridges" => Self::Cartridges,
            "consumables" => Self::Consumables,
            "pagecounters" => Self::PageCounters,
            _ => return None,
        })
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct ScannedDevice {
    /// `NETWORKING`, `PRINTER`, `STORAGE`, `POWER`, …
    pub kind: Option<String>,
    /// The name that the device has of itself.
    pub name: Option<String>,
    pub netbios_name: Option<String>,
    /// The address, if the name server knows no name.
    pub dns_name: Option<String>,
    pub mac: Option<String>,
    /// The address that the agent scanned, which only a discovery names.
    pub scanned_ip: Option<String>,
    pub ips: Vec<String>,
    ips_read: usize,
    pub manufacturer: Option<String>,
    /// The maker of the network card.
    pub vendor: Option<String>,
    pub model: Option<String>,
    pub serial: Option<String>,
    pub asset_tag: Option<String>,
    pub firmware: Option<String>,
    pub listed_firmware: Option<ListedFirmware>,
    pub memory_bytes: Option<i64>,
    pub chassis: Vec<Chassis>,
    pub ports: Option<Vec<Port>>,
    /// Interfaces with addresses, virtual ones included.
    pub nics: Vec<Nic>,
    /// The first real hardware address of any interface, for devices that say none of their own.
    pub interface_mac: Option<String>,
    pub supplies: Option<Vec<Supply>>,
    pub pages_total: Option<i64>,
    pub pages_printed: Option<i64>,
    pub volumes: Option<Vec<DriveEntry>>,
    /// The device did not answer.
    pub has_failed: bool,
}

/// A firmware of the list that newer agents send.
#[derive(Debug, PartialEq, Eq)]
pub struct ListedFirmware {
    /// That of the device itself, not of a part of it.
    pub is_main: bool,
    pub version: String,
}

/// A chassis; of a stack, each member is one.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Chassis {
    pub serial: Option<String>,
    pub manufacturer: Option<String>,
    pub model: Option<String>,
    pub firmware: Option<String>,
}

impl ScannedDevice {
    /// The name of the device. An address is none.
    pub fn hostname(&self) -> Option<&str> {
        let dns_name = self.dns_name.as_deref().filter(|name| name.parse::<IpAddr>().is_err());
        self.name.as_deref().or(self.netbios_name.as_deref()).or(dns_name)
    }

    /// Whether only the name server knows a name: that of the address, which another device may have tomorrow.
    pub fn is_name_from_dns(&self) -> bool {
        self.name.is_none() && self.netbios_name.is_none() && self.hostname().is_some()
    }

    /// The real serial numbers of the members of a stack.
    pub fn chassis_serials(&self) -> Vec<&str> {
        self.chassis.iter().filter_map(|chassis| real_serial(chassis.serial.as_deref()?)).collect()
    }

    /// Whether there is anything by which the next scan can recognize the device.
    pub fn is_recognizable(&self) -> bool {
        self.hostname().is_some_and(|name| !is_generic_name(name))
            || self.serial.as_deref().and_then(real_serial).is_some()
            || !self.chassis_serials().is_empty()
            || self.mac.as_deref().and_then(real_mac).is_some()
            || self.interface_mac.is_some()
    }

    fn set_field(&mut self, field: &str, value: &str) {
        match field {
            "type" => self.kind = clean_label(value),
            "name" | "snmphostname" => self.name = clean_label(value),
            "netbiosname" => self.netbios_name = clean_label(value),
            "dnshostname" => self.dns_name = clean_label(value),
            "mac" | "macaddr" => self.mac = clean_label(value),
            "ip" => self.scanned_ip = parse_addresses(value).next(),
            "ips" => self.add_addresses(value),
            "manufacturer" => self.manufacturer = clean_label(value),
            "netportvendor" => self.vendor = clean_label(value),
            "model" => self.model = clean_label(value),
            "serial" => self.serial = clean_label(value),
            "assettag" => self.asset_tag = clean_label(value),
            "firmware" => self.firmware = clean_label(value),
            "ram" => self.memory_bytes = parse_size(value, MIB_BYTES),
            _ => {}
        }
    }

    fn add_addresses(&mut self, value: &str) {
        for ip in parse_addresses(value).take(IPS_MAX - self.ips_read) {
            self.ips_read += 1;
            if !self.ips.contains(&ip) {
                self.ips.push(ip);
            }
        }
    }

    fn set_counter(&mut self, field: &str, value: &str) {
        match field {
            "total" => self.pages_total = parse_whole_number(value),
            "printtotal" | "printotal" => self.pages_printed = parse_whole_number(value),
            _ => {}
        }
    }

    fn add_supply(&mut self, name: &str, level_percent: Option<i64>) {
        let supplies = self.supplies.get_or_insert_default();
        let Some(name) = clean_label(&name.to_lowercase()) else { return };
        // Agents send the same supplies in an old and in a new section.
        let is_known = supplies.iter().any(|supply| supply.name == name);
        if !is_known && supplies.len() < SUPPLIES_MAX {
            supplies.push(Supply { name, level_percent });
        }
    }
}

/// A scanned device under construction: the device, and the entry of each section that is being read.
#[derive(Default)]
pub struct ScanCollector {
    pub device: ScannedDevice,
    port: InterfaceEntry,
    /// Some agents send an interface once for each address.
    port_numbers: HashSet<i64>,
    addressed: usize,
    vlan: VlanEntry,
    component: ComponentEntry,
    firmware: FirmwareEntry,
    consumable: ConsumableEntry,
}

impl ScanCollector {
    /// Marks a section as present, even if it has no entries.
    pub fn open_section(&mut self, section: ScanSection) {
        match section {
            ScanSection::Ports => _ = self.device.ports.get_or_insert_default(),
            ScanSection::Cartridges | ScanSection::Consumables => _ = self.device.supplies.get_or_insert_default(),
            _ => {}
        }
    }

    pub fn open_entry(&mut self, section: ScanSection) {
        match section {
            ScanSection::Ports => self.port = InterfaceEntry::default(),
            ScanSection::Vlans => self.vlan = VlanEntry::default(),
            ScanSection::Components => self.component = ComponentEntry::default(),
            ScanSection::Firmwares => self.firmware = FirmwareEntry::default(),
            ScanSection::Cartridges | ScanSection::Consumables => self.consumable = ConsumableEntry::default(),
            ScanSection::Device | ScanSection::PageCounters => {}
        }
    }

    pub fn set_field(&mut self, section: ScanSection, field: &str, value: &str) {
        match section {
            ScanSection::Device => self.device.set_field(field, value),
            ScanSection::Ports => self.port.set_field(field, value),
            ScanSection::Vlans => self.vlan.set_field(field, value),
            ScanSection::Components => self.component.set_field(field, value),
            ScanSection::Firmwares => self.firmware.set_field(field, value),
            ScanSection::Consumables => self.consumable.set_field(field, value),
            ScanSection::PageCounters => self.device.set_counter(field, value),
            ScanSection::Cartridges if matches!(field, "name" | "value") => self.consumable.set_field(field, value),
            // The supplies are the names of the fields.
            ScanSection::Cartridges => self.device.add_supply(field, level_percent(value, None, None)),
        }
    }

    pub fn close_entry(&mut self, section: ScanSection) {
        match section {
            ScanSection::Ports => self.add_interface(),
            ScanSection::Vlans => self.port.vlans.add(&self.vlan),
            ScanSection::Components => {
                if let Some(chassis) = std::mem::take(&mut self.component).into_chassis()
                    && self.device.chassis.len() < CHASSIS_MAX
                {
                    self.device.chassis.push(chassis);
                }
            }
            ScanSection::Firmwares => {
                if let Some(firmware) = std::mem::take(&mut self.firmware).into_listed()
                    && self.device.listed_firmware.as_ref().is_none_or(|listed| !listed.is_main && firmware.is_main)
                {
                    self.device.listed_firmware = Some(firmware);
                }
            }
            ScanSection::Cartridges | ScanSection::Consumables => {
                if let Some((name, level)) = std::mem::take(&mut self.consumable).into_supply() {
                    self.device.add_supply(&name, level);
                }
            }
            ScanSection::Device | ScanSection::PageCounters => {}
        }
    }

    fn add_interface(&mut self) {
        let entry = std::mem::take(&mut self.port);
        let ports = self.device.ports.get_or_insert_default();
        if self.device.interface_mac.is_none() {
            self.device.interface_mac = entry.mac.as_deref().and_then(real_mac);
        }
        let is_new = entry.number.is_none_or(|number| !self.port_numbers.contains(&number));
        if is_new && entry.is_port() && ports.len() < PORTS_MAX {
            self.port_numbers.extend(entry.number);
            ports.push(entry.to_port());
        }
        let Some(mut nic) = entry.into_nic().filter(|_| self.addressed < ADDRESSED_MAX) else { return };
        self.addressed += 1;
        let nics = &mut self.device.nics;
        let at = nics.iter().position(|known| known.name == nic.name && known.mac == nic.mac);
        if let Some(known) = at.and_then(|at| nics.get_mut(at)) {
            let new: Vec<String> = nic.ips.into_iter().filter(|ip| !known.ips.contains(ip)).collect();
            known.ips.extend(new);
            known.ips.truncate(NIC_IPS_MAX);
        } else {
            nic.ips.truncate(NIC_IPS_MAX);
            nics.push(nic);
        }
    }
}
