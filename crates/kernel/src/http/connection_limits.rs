//! How many connections one address may have, and for how long they may idle.

use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;

use super::address::ClientAddress;
use super::connection_timeouts::ConnectionTimeouts;
use crate::base::{BudgetPermit, FairBudget};

/// Limits of connections.
#[derive(Clone, Debug)]
pub struct ConnectionLimits {
    /// A connection whose client exceeds one of them is closed.
    pub timeouts: ConnectionTimeouts,
    /// Connections of one address, so that one host cannot take them all. IPv6 is counted by /64.
    pub per_address_max: usize,
    /// Proxies, which connect for many clients.
    pub exempt: Vec<IpNet>,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        let timeouts = ConnectionTimeouts {
            head: Duration::from_secs(10),
            // Load balancers keep idle connections for 60 s and expect them to be open.
            idle: Duration::from_secs(75),
            stall: Duration::from_secs(30),
        };
        // An eighth of all connections: more than a load test or an office behind one address needs.
        ConnectionLimits { timeouts, per_address_max: 1024, exempt: Vec::new() }
    }
}

impl ConnectionLimits {
    /// Counts a connection of this address; none if it has too many.
    pub(super) fn count_connection(
        &self,
        counts: &FairBudget<IpAddr>,
        address: ClientAddress,
    ) -> Option<BudgetPermit<IpAddr>> {
        let key = address.bucket_address().into();
        let is_exempt = self.exempt.iter().any(|network| network.contains(&address.0));
        if is_exempt { Some(counts.acquire_over_limit(key, 1)) } else { counts.try_acquire(key, 1) }
    }
}
