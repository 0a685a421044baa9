//! The addresses that the service may call: those of the public Internet, and networks that the operator allows.
//!
//! An address is checked in its canonical form, so that IPv4 cannot be smuggled in as IPv6. A network's own NAT64 prefix
//! (RFC 6052) looks like a public address and cannot be recognized here; the firewall of such a network has to block it.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// Why a target may not be called. The detail names only the address, its range, and the setting that opens it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotAllowed {
    pub detail: String,
}

impl fmt::Display for NotAllowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

impl std::error::Error for NotAllowed {}

/// A range of addresses that are not servers on the public Internet.
#[derive(Debug)]
pub(super) struct RefusedRange {
    network: IpNet,
    name: &'static str,
}

impl fmt::Display for RefusedRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.network)
    }
}

/// Checks addresses. Unless the operator allows networks, it refuses everything that is not public.
#[derive(Clone, Debug, Default)]
pub(super) struct AddressGuard {
    allow: Vec<IpNet>,
}

impl AddressGuard {
    pub fn new(allow: Vec<IpNet>) -> Self {
        AddressGuard { allow }
    }

    pub fn allowed_networks(&self) -> &[IpNet] {
        &self.allow
    }

    /// Finds the refused range that contains this address.
    pub fn find_refusal(&self, address: IpAddr) -> Option<&'static RefusedRange> {
        let address = to_canonical(address);
        if self.allow.iter().any(|network| network.contains(&address)) {
            return None;
        }
        REFUSED.iter().find(|range| range.network.contains(&address))
    }

    pub fn check_address(&self, address: IpAddr) -> Result<(), NotAllowed> {
        match self.find_refusal(address) {
            Some(range) => {
                let detail = format!(
                    "{address} is inside {range}; only the operator can open a network, with --webhook-allow-cidr"
                );
                Err(NotAllowed { detail })
            }
            None => Ok(()),
        }
    }

    /// One refused address refuses all. A name with both private and public addresses is suspicious, and picking the public
    /// one would leave the choice to the name's DNS server.
    pub fn check_all(&self, addresses: &[IpAddr]) -> Result<(), NotAllowed> {
        addresses.iter().try_for_each(|address| self.check_address(*address))
    }
}

/// The canonical form of an address: IPv4-mapped IPv6 and NAT64 addresses become IPv4.
pub(super) fn to_canonical(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(v6) if NAT64.contains(&v6) => {
            let [.., a, b, c, d] = v6.octets();
            IpAddr::V4(Ipv4Addr::new(a, b, c, d))
        }
        other => other.to_canonical(),
    }
}

/// The well-known prefix of NAT64 (RFC 6052). The local-use prefix, 64:ff9b:1::/48, is refused like all that is not public.
const NAT64: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96);

/// The special-purpose registries of IANA for IPv4 and IPv6, and a cloud's platform address outside of them. Of IPv6, only
/// 2000::/3 is public: the last three entries are all the rest. A range inside another comes first, so that the reason names
/// the narrowest one.
static REFUSED: &[RefusedRange] = &[
    range_v4([0, 0, 0, 0], 8, "the network of this host"),
    range_v4([10, 0, 0, 0], 8, "a private network"),
    range_v4([100, 64, 0, 0], 10, "a provider's shared network"),
    range_v4([127, 0, 0, 0], 8, "this host"),
    range_v4([169, 254, 0, 0], 16, "the local link, where clouds keep their metadata"),
    range_v4([172, 16, 0, 0], 12, "a private network"),
    range_v4([192, 0, 0, 0], 24, "addresses of protocols"),
    range_v4([192, 0, 2, 0], 24, "addresses for documentation"),
    range_v4([192, 31, 196, 0], 24, "addresses of AS112"),
    range_v4([192, 52, 193, 0], 24, "addresses of AMT"),
    range_v4([192, 88, 99, 0], 24, "addresses of 6to4 relays"),
    range_v4([192, 168, 0, 0], 16, "a private network"),
    range_v4([192, 175, 48, 0], 24, "addresses of AS112"),
    range_v4([198, 18, 0, 0], 15, "addresses for benchmarks"),
    range_v4([198, 51, 100, 0], 24, "addresses for documentation"),
    range_v4([203, 0, 113, 0], 24, "addresses for documentation"),
    range_v4([224, 0, 0, 0], 4, "multicast addresses"),
    range_v4([255, 255, 255, 255], 32, "the broadcast address"),
    range_v4([240, 0, 0, 0], 4, "reserved addresses"),
    range_v4([168, 63, 129, 16], 32, "the platform service of a cloud"),
    range_v6(Ipv6Addr::LOCALHOST, 128, "this host"),
    range_v6(Ipv6Addr::UNSPECIFIED, 128, "this host"),
    short_range_v6([0xfc00, 0], 7, "a private network"),
    short_range_v6([0xfe80, 0], 10, "the local link"),
    short_range_v6([0xff00, 0], 8, "multicast addresses"),
    short_range_v6([0x2001, 0], 32, "addresses of Teredo"),
    short_range_v6([0x2001, 0], 23, "addresses of protocols"),
    short_range_v6([0x2001, 0xdb8], 32, "addresses for documentation"),
    short_range_v6([0x2002, 0], 16, "addresses of 6to4"),
    short_range_v6([0x3fff, 0], 20, "addresses for documentation"),
    range_v6(Ipv6Addr::new(0x2620, 0x4f, 0x8000, 0, 0, 0, 0, 0), 48, "addresses of AS112"),
    short_range_v6([0, 0], 3, "IPv6 that is not public"),
    short_range_v6([0x4000, 0], 2, "IPv6 that is not public"),
    short_range_v6([0x8000, 0], 1, "IPv6 that is not public"),
];

const fn range_v4([a, b, c, d]: [u8; 4], bits: u8, name: &'static str) -> RefusedRange {
    RefusedRange { network: IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), bits)), name }
}

const fn short_range_v6([a, b]: [u16; 2], bits: u8, name: &'static str) -> RefusedRange {
    range_v6(Ipv6Addr::new(a, b, 0, 0, 0, 0, 0, 0), bits, name)
}

const fn range_v6(start: Ipv6Addr, bits: u8, name: &'static str) -> RefusedRange {
    RefusedRange { network: IpNet::V6(Ipv6Net::new_assert(start, bits)), name }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard(allow: &[&str]) -> AddressGuard {
        AddressGuard::new(allow.iter().filter_map(|network| network.parse().ok()).collect())
    }

    fn refusal(guard: &AddressGuard, address: &str) -> Option<String> {
        let address = address.parse().ok()?;
        guard.find_refusal(address).map(ToString::to_string)
    }

    #[test]
    fn every_range_is_whole_and_refused_from_end_to_end() {
        let guard = guard(&[]);
        for range in REFUSED {
            assert_eq!(range.network, range.network.trunc(), "{range} has bits beyond its prefix");
            for address in [range.network.network(), range.network.broadcast()] {
                assert!(guard.find_refusal(address).is_some(), "{address} of {range}");
            }
        }
    }

    #[test]
    fn the_neighbours_of_a_range_are_not_refused_with_it() {
        let guard = guard(&[]);
        for address in [
            "1.0.0.0",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "169.253.255.255",
            "169.255.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "191.255.255.255",
            "192.0.1.0",
            "192.0.3.0",
            "192.167.255.255",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "198.51.99.255",
            "198.51.101.0",
            "203.0.112.255",
            "203.0.114.0",
            "223.255.255.255",
            "168.63.129.15",
            "168.63.129.17",
            "2001:200::",
            "2001:db7:ffff::1",
            "2001:db9::",
            "2003::",
            "2620:4f:7fff::1",
            "2620:4f:8001::",
            "3fff:1000::",
            "3ffe:ffff::1",
            "2000::",
            "2606:4700:4700::1111",
        ] {
            assert_eq!(refusal(&guard, address), None, "{address}");
        }
    }

    #[test]
    fn the_reason_names_the_nearest_range() {
        let guard = guard(&[]);
        for (address, reason) in [
            ("10.0.0.7", "a private network (10.0.0.0/8)"),
            ("169.254.169.254", "the local link, where clouds keep their metadata (169.254.0.0/16)"),
            ("::ffff:10.0.0.7", "a private network (10.0.0.0/8)"),
            ("64:ff9b::a00:7", "a private network (10.0.0.0/8)"),
            ("64:ff9b:1::808:808", "IPv6 that is not public (::/3)"),
            ("::8.8.8.8", "IPv6 that is not public (::/3)"),
            ("::1", "this host (::1/128)"),
            ("2001::1", "addresses of Teredo (2001::/32)"),
            ("2002:808:808::1", "addresses of 6to4 (2002::/16)"),
            ("4000::1", "IPv6 that is not public (4000::/2)"),
            ("9000::1", "IPv6 that is not public (8000::/1)"),
        ] {
            assert_eq!(refusal(&guard, address).as_deref(), Some(reason), "{address}");
        }
        let detail = guard.check_address(IpAddr::from([10, 0, 0, 7])).map_err(|refused| refused.detail);
        let wanted = "10.0.0.7 is inside a private network (10.0.0.0/8); only the operator can open a network, with \
            --webhook-allow-cidr";
        assert_eq!(detail, Err(wanted.to_owned()));
    }

    #[test]
    fn ipv4_in_ipv6_is_judged_as_ipv4() {
        let guard = guard(&[]);
        for public in ["::ffff:8.8.8.8", "::ffff:808:808", "64:ff9b::8.8.8.8", "64:ff9b::808:808"] {
            assert_eq!(refusal(&guard, public), None, "{public}");
            assert_eq!(public.parse().map(to_canonical), Ok(IpAddr::from([8, 8, 8, 8])), "{public}");
        }
    }

    #[test]
    fn what_the_operator_allows_is_allowed_in_every_form_and_nothing_beside_it() {
        let guard = guard(&["10.1.0.0/16", "fd00:1::/32"]);
        for allowed in ["10.1.2.3", "::ffff:10.1.2.3", "64:ff9b::10.1.2.3", "fd00:1::7"] {
            assert_eq!(refusal(&guard, allowed), None, "{allowed}");
        }
        for refused in ["10.2.0.1", "::ffff:10.2.0.1", "fd00:2::7", "::10.1.2.3", "2002:a01:203::1"] {
            assert!(refusal(&guard, refused).is_some(), "{refused}");
        }
    }

    #[test]
    fn one_bad_address_condemns_all() {
        let (good, bad) = (IpAddr::from([8, 8, 8, 8]), IpAddr::from([192, 168, 0, 1]));
        let guard = guard(&[]);
        assert!(guard.check_all(&[good]).is_ok());
        assert!(guard.check_all(&[good, bad]).is_err());
        assert!(guard.check_all(&[bad, good]).is_err());
    }
}
