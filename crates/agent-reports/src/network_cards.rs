//! Network cards and addresses: which entries are cards, and which card is the primary one.

use std::net::{IpAddr, Ipv4Addr};

use super::identity::normal_mac;
use super::parts::Nic;
use super::sections::NicEntry;

/// Name prefixes of virtual interfaces. One of them is primary only if there is no other card.
const VIRTUAL_NAMES: [&str; 14] =
    ["docker", "veth", "br-", "virbr", "ifb", "lo", "tun", "tap", "wg", "zt", "cni", "flannel", "cali", "vethernet"];

/// Whether the entry is a loopback interface.
pub fn is_loopback(entry: &NicEntry) -> bool {
    let is_kind = |word: &str| entry.kind.as_deref().is_some_and(|kind| kind.eq_ignore_ascii_case(word));
    let name = entry.name.as_deref().unwrap_or_default();
    is_kind("loopback") || matches!(name, "lo" | "lo0") || name.starts_with("Software Loopback Interface")
}

pub fn convert_nic(entry: &NicEntry) -> Nic {
    Nic {
        name: entry.name.clone(),
        mac: entry.mac.as_deref().and_then(normal_mac),
        r#type: entry.kind.as_deref().map(|kind| match kind.to_ascii_lowercase().as_str() {
            // The kernel's name, which the OCS agent sends for some cards.
            "ether" => "ethernet".to_owned(),
            other => other.to_owned(),
        }),
        status: entry.is_up.map(|is_up| if is_up { "up" } else { "down" }.to_owned()),
        ips: entry.ips.clone(),
    }
}

/// The address and the MAC of the primary card: it is up, has an IPv4 address, leads to the gateway, and is not virtual.
pub fn primary_address(entries: &[NicEntry], default_gateway: Option<&str>) -> (Option<String>, Option<String>) {
    let gateway: Option<Ipv4Addr> = default_gateway.and_then(|gateway| gateway.parse().ok());
    // `max_by_key` returns the last of equals; reversed, it returns the first.
    let best = entries.iter().rev().filter(|entry| !is_loopback(entry)).max_by_key(|entry| {
        let looks_virtual = looks_virtual(entry);
        (
            entry.is_up != Some(false),
            entry.ips.iter().any(|ip| address_rank(ip) == Some(3)),
            !looks_virtual && leads_to_gateway(entry, gateway),
            !looks_virtual,
            entry.is_virtual != Some(true),
            !entry.ips.is_empty(),
            entry.mac.is_some(),
        )
    });
    let Some(best) = best else { return (None, None) };
    let address = best.ips.iter().rev().max_by_key(|ip| address_rank(ip)).cloned();
    (address, best.mac.as_deref().and_then(normal_mac))
}

/// How useful an address is to reach the machine; higher is better.
pub fn address_rank(ip: &str) -> Option<u8> {
    Some(match ip.parse().ok()? {
        IpAddr::V4(address) if address.is_link_local() || address.is_loopback() => 1,
        IpAddr::V4(_) => 3,
        IpAddr::V6(address) if address.is_unicast_link_local() || address.is_loopback() => 0,
        IpAddr::V6(_) => 2,
    })
}

fn looks_virtual(entry: &NicEntry) -> bool {
    is_virtual_interface(entry.name.as_deref().unwrap_or_default())
}

/// Whether an interface with this name is virtual.
pub fn is_virtual_interface(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    VIRTUAL_NAMES.iter().any(|start| name.starts_with(start))
}

/// Whether the gateway belongs to this card: the agent says so, or the gateway shares the first three octets with an address
/// of the card. Netmasks are not parsed.
fn leads_to_gateway(entry: &NicEntry, gateway: Option<Ipv4Addr>) -> bool {
    let own: Option<Ipv4Addr> = entry.gateway.as_deref().and_then(|gateway| gateway.parse().ok());
    let Some(gateway) = gateway else { return own.is_some_and(|own| !own.is_unspecified()) };
    own == Some(gateway)
        || entry
            .ips
            .iter()
            .filter_map(|ip| ip.parse::<Ipv4Addr>().ok())
            .any(|ip| ip.octets()[..3] == gateway.octets()[..3])
}
