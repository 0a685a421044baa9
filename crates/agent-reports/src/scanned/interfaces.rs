//! Interfaces of a scanned device: which of them are ports, and which have addresses.

use std::collections::HashSet;
use std::net::IpAddr;

use super::super::identity::normal_mac;
use super::super::parts::{Nic, Port};
use super::super::sections::NIC_IPS_MAX;
use super::super::text::{clean_label, parse_addresses, parse_flag, parse_whole_number};

/// VLANs of IEEE 802.1Q.
const VLAN_NUMBER_MAX: i64 = 4_094;
/// The largest value of SNMP's gauge stands for every speed above it.
const SPEED_UNKNOWN: i64 = 4_294_967_295;
/// Agents send one address of an interface twice.
const ADDRESSES_READ_MAX: usize = 2 * NIC_IPS_MAX;

/// An interface of SNMP's table of them, of which a few are ports.
#[derive(Debug, Default)]
pub struct InterfaceEntry {
    name: Option<String>,
    description: Option<String>,
    pub number: Option<i64>,
    /// Of IANA's list of interface types.
    kind: Option<i64>,
    status: Option<String>,
    admin_status: Option<String>,
    speed_bps: Option<i64>,
    pub mac: Option<String>,
    ips: Vec<String>,
    is_trunk: bool,
    pub vlans: InterfaceVlans,
}

/// Interface types that are no ports: loopback, virtual, LAG, tunnel, VLAN, IP forwarding, MPLS, bridge.
const VIRTUAL_KINDS: [i64; 12] = [24, 53, 54, 131, 135, 136, 137, 142, 150, 161, 166, 209];
/// The type of what has no type. A null interface has it; so do some ports.
const OTHER_KIND: i64 = 1;
/// Starts of names of virtual interfaces: some devices say that every interface is Ethernet.
const VIRTUAL_NAMES: [&str; 13] = [
    "vlan",
    "loopback",
    "null",
    "port-channel",
    "bridge-aggregation",
    "tunnel",
    // Of containers and guests, which come and go.
    "veth",
    "docker",
    "br-",
    "tap",
    "ifb",
    "vnet",
    "virbr",
];

impl InterfaceEntry {
    pub fn set_field(&mut self, field: &str, value: &str) {
        match field {
            "ifname" => self.name = clean_label(value),
            "ifdescr" => self.description = clean_label(value),
            "ifnumber" => self.number = parse_whole_number(value),
            "iftype" => self.kind = parse_whole_number(value),
            "ifstatus" => self.status = clean_label(value),
            "ifinternalstatus" => self.admin_status = clean_label(value),
            "ifspeed" => self.speed_bps = parse_whole_number(value).filter(|&bits| bits > 0 && bits != SPEED_UNKNOWN),
            "mac" => self.mac = normal_mac(value),
            "trunk" => self.is_trunk = parse_flag(value) == Some(true),
            "ip" | "ips" => {
                let room = ADDRESSES_READ_MAX.saturating_sub(self.ips.len());
                self.ips.extend(parse_addresses(value).take(room));
            }
            _ => {}
        }
    }

    fn label(&self) -> Option<String> {
        let name = self.name.as_ref().or(self.description.as_ref()).cloned();
        name.or_else(|| self.number.map(|number| number.to_string()))
    }

    pub fn is_port(&self) -> bool {
        let names = [&self.name, &self.description].into_iter().flatten().map(|name| name.to_ascii_lowercase());
        let has_virtual_name =
            names.into_iter().any(|name| name == "lo" || VIRTUAL_NAMES.iter().any(|start| name.starts_with(start)));
        let is_virtual = match self.kind {
            Some(OTHER_KIND) => self.mac.is_none(),
            Some(kind) => VIRTUAL_KINDS.contains(&kind),
            None => false,
        };
        self.label().is_some() && !is_virtual && !has_virtual_name
    }

    fn link_status(&self) -> Option<String> {
        let status = self.status.as_deref().and_then(parse_link_status);
        // An interface that is switched off is down; one that is switched on may be either.
        let is_off = || self.admin_status.as_deref().and_then(parse_link_status) == Some("down");
        status.or_else(|| is_off().then_some("down")).map(str::to_owned)
    }

    pub fn to_port(&self) -> Port {
        Port {
            name: self.label(),
            mac: self.mac.clone(),
            status: self.link_status(),
            speed_bps: self.speed_bps,
            vlan: self.vlans.untagged_vlan(self.is_trunk),
        }
    }

    /// The interface as a network card, if it has addresses by which it is reached.
    pub fn into_nic(mut self) -> Option<Nic> {
        let mut known = HashSet::new();
        let is_outside = |ip: &str| ip.parse::<IpAddr>().is_ok_and(|ip| !ip.is_loopback());
        self.ips.retain(|ip| is_outside(ip) && known.insert(ip.clone()));
        if self.ips.is_empty() {
            return None;
        }
        let kind = match self.kind {
            Some(6 | 7 | 26 | 62 | 69 | 117) => Some("ethernet"),
            Some(71) => Some("wifi"),
            Some(24) => Some("loopback"),
            Some(23) => Some("dialup"),
            Some(131) => Some("tunnel"),
            Some(135 | 136) => Some("vlan"),
            Some(161) => Some("aggregate"),
            Some(209) => Some("bridge"),
            _ => None,
        };
        Some(Nic {
            name: self.label(),
            status: self.link_status(),
            r#type: kind.map(str::to_owned),
            mac: self.mac,
            ips: self.ips,
        })
    }
}

/// The operational or administrative status of an interface, as a number or a word: `1`, `up`, `lowerLayerDown(7)`.
fn parse_link_status(value: &str) -> Option<&'static str> {
    let word = value.split('(').next().unwrap_or_default().trim().to_ascii_lowercase();
    match word.as_str() {
        "1" | "up" => Some("up"),
        // Down, testing, dormant, not present, lower layer down: none of them carries traffic.
        "2" | "down" | "3" | "testing" | "5" | "dormant" | "6" | "notpresent" | "7" | "lowerlayerdown" => Some("down"),
        _ => None,
    }
}

#[derive(Debug, Default)]
pub struct VlanEntry {
    number: Option<i64>,
    is_tagged: Option<bool>,
}

impl VlanEntry {
    pub fn set_field(&mut self, field: &str, value: &str) {
        match field {
            "number" | "id" => self.number = parse_whole_number(value),
            "tagged" => self.is_tagged = parse_flag(value),
            _ => {}
        }
    }
}

/// What matters of the VLANs of an interface, of which there may be thousands.
#[derive(Debug, Default)]
pub struct InterfaceVlans {
    untagged: Option<i64>,
    first: Option<i64>,
    count: usize,
    has_tags: bool,
}

impl InterfaceVlans {
    pub fn add(&mut self, vlan: &VlanEntry) {
        let Some(number) = vlan.number.filter(|number| (1..=VLAN_NUMBER_MAX).contains(number)) else { return };
        self.count += 1;
        self.first.get_or_insert(number);
        self.has_tags |= vlan.is_tagged.is_some();
        if vlan.is_tagged == Some(false) {
            self.untagged.get_or_insert(number);
        }
    }

    /// Older agents do not send which VLANs are tagged: the only VLAN of a port that is no trunk is untagged.
    fn untagged_vlan(&self, is_trunk: bool) -> Option<i64> {
        self.untagged.or(self.first.filter(|_| !self.has_tags && !is_trunk && self.count == 1))
    }
}
