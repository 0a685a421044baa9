//! The client's address: the peer's, or the one that a trusted proxy reports.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use axum::http::HeaderMap;
use ipnet::IpNet;

/// The client's own address, behind any trusted proxies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientAddress(pub IpAddr);

impl ClientAddress {
    /// The rightmost address of `X-Forwarded-For` that is no trusted proxy. The peer's if one cannot be parsed.
    pub fn from_request(peer: SocketAddr, headers: &HeaderMap, trusted: &[IpNet]) -> Self {
        let peer = peer.ip().to_canonical();
        let is_trusted = |address: &IpAddr| trusted.iter().any(|network| network.contains(address));
        if !is_trusted(&peer) {
            return ClientAddress(peer);
        }
        let mut client = peer;
        for line in headers.get_all("x-forwarded-for").iter().rev() {
            let Ok(line) = line.to_str() else { return ClientAddress(peer) };
            for part in line.rsplit(',') {
                let Some(address) = parse_address(part.trim()) else { return ClientAddress(peer) };
                if !is_trusted(&address) {
                    return ClientAddress(address);
                }
                client = address;
            }
        }
        ClientAddress(client)
    }

    /// The address that limits count by: an IPv6 customer has a whole /64.
    pub fn bucket_address(self) -> IpAddr {
        match self.0 {
            IpAddr::V4(_) => self.0,
            IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & (!0 << 64))),
        }
    }
}

/// An address, with or without a port.
fn parse_address(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|rest| rest.split_once(']')).map_or(text, |(address, _)| address);
    let address = bare.parse().ok().or_else(|| text.parse::<SocketAddr>().ok().map(|socket| socket.ip()))?;
    Some(IpAddr::to_canonical(&address))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn resolve_client(peer: &str, forwarded: &[&str]) -> String {
        let mut headers = HeaderMap::new();
        for line in forwarded {
            headers.append("x-forwarded-for", line.parse().unwrap());
        }
        let trusted = ["10.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap()];
        ClientAddress::from_request(SocketAddr::new(peer.parse().unwrap(), 1), &headers, &trusted).0.to_string()
    }

    #[test]
    fn a_stranger_cannot_choose_its_address() {
        assert_eq!(resolve_client("192.0.2.1", &["198.51.100.7"]), "192.0.2.1");
        assert_eq!(resolve_client("10.0.0.1", &["1.1.1.1, 198.51.100.7"]), "198.51.100.7");
        assert_eq!(resolve_client("10.0.0.1", &["1.1.1.1", "198.51.100.7, 10.2.2.2"]), "198.51.100.7");
    }

    #[test]
    fn an_unparsable_address_means_the_peer() {
        assert_eq!(resolve_client("10.0.0.1", &["198.51.100.7, unknown"]), "10.0.0.1");
        assert_eq!(resolve_client("10.0.0.1", &[]), "10.0.0.1");
    }

    #[test]
    fn ports_brackets_and_mapped_addresses_are_understood() {
        assert_eq!(resolve_client("10.0.0.1", &["198.51.100.7:4711"]), "198.51.100.7");
        assert_eq!(resolve_client("fd00::1", &["[2001:db8::7]:443"]), "2001:db8::7");
        assert_eq!(resolve_client("::ffff:10.0.0.1", &["::ffff:198.51.100.7"]), "198.51.100.7");
    }

    #[test]
    fn a_v6_customer_counts_as_one() {
        let address = ClientAddress("2001:db8:1:2:3:4:5:6".parse().unwrap());
        assert_eq!(address.bucket_address().to_string(), "2001:db8:1:2::");
    }
}
