//! Parses networks as people write them.

use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net};

/// The bits of an IPv4-mapped IPv6 address before the IPv4 address.
const MAPPED_BITS: u8 = 96;

/// Parses a network, or a single address as a network of one. Bits beyond the prefix are cleared, and IPv4-mapped IPv6
/// becomes IPv4, as it does for callers' addresses.
pub fn parse_network(text: &str) -> Option<IpNet> {
    let network = text.parse::<IpNet>().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from))?;
    if let IpNet::V6(v6) = network
        && let Some(v4) = v6.addr().to_ipv4_mapped()
        && let Some(bits) = v6.prefix_len().checked_sub(MAPPED_BITS)
    {
        return Ipv4Net::new(v4, bits).ok().map(|network| IpNet::V4(network.trunc()));
    }
    Some(network.trunc())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_read_in_their_plainest_form() {
        let read = |text| parse_network(text).map(|network| network.to_string());
        assert_eq!(read("198.51.100.7/24").as_deref(), Some("198.51.100.0/24"));
        assert_eq!(read("198.51.100.7").as_deref(), Some("198.51.100.7/32"));
        assert_eq!(read("::ffff:198.51.100.7/120").as_deref(), Some("198.51.100.0/24"));
        assert_eq!(read("2001:db8::1/32").as_deref(), Some("2001:db8::/32"));
        assert_eq!(read("::ffff:0:0/90").as_deref(), Some("::ffc0:0:0/90"));
        for bad in ["", "198.51.100.0/33", "example.org", "198.51.100.0/24 "] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
