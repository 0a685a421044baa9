//! The only HTTP client of the service, and its one guard against server-side request forgery (SSRF).
//!
//! Tenants decide which URLs the service calls, so every connection goes through one connector that resolves the host,
//! checks all its addresses, and connects to one of those. HTTP/1.1 over TCP or TLS. Deliberately left out: redirects (a
//! redirect is returned like any response), proxies from the environment, cookies, compression and retries.

mod client;
mod connector;
mod exchange;
mod guard;
mod request_permits;
mod resolver;
mod retry_after;
mod socket;
mod target;
mod tls;
mod txt;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use tokio::time::timeout;

pub use exchange::{Failure, FailureKind, OutboundRequest, OutboundResponse, OutboundTimings};
pub use guard::NotAllowed;
pub use request_permits::{LaneRequestPermit, LaneRequestPermits};
pub use resolver::{NameSource, NameTable};
pub use retry_after::{cap_retry_after, find_retry_after};
pub use target::{BadTarget, Target};
pub use txt::look_up_txt;

use crate::base::{Result, TenantId};
use client::HttpClient;
use connector::Connector;
use guard::AddressGuard;
use resolver::Resolver;
use target::TargetHost;
use tls::TlsClient;

/// How long the check of a target at saving waits for its name. The name must resolve only when the target is called.
const CHECK_MAX: Duration = Duration::from_secs(2);

#[derive(Clone, Debug)]
pub struct OutboundSettings {
    /// Networks that may be called although they are not public.
    pub allow: Vec<IpNet>,
    /// A PEM file of certificate authorities to trust besides the system's.
    pub extra_roots: Option<PathBuf>,
    pub names: NameSource,
    /// How long a lookup waits for a permit.
    pub lookup_wait_max: Duration,
    /// Whether the service sends nothing by itself; see [`Outbound::is_holding`].
    pub hold: bool,
}

/// No private networks, and the system's certificates and resolver.
impl Default for OutboundSettings {
    fn default() -> Self {
        // Time for a few rounds of slow lookups.
        let lookup_wait_max = Duration::from_secs(10);
        OutboundSettings {
            allow: Vec::new(),
            extra_roots: None,
            names: NameSource::default(),
            lookup_wait_max,
            hold: false,
        }
    }
}

/// Sends requests to other servers. Cheap to clone; clones share their idle connections.
#[derive(Clone)]
pub struct Outbound(Arc<OutboundInner>);

struct OutboundInner {
    connector: Connector,
    client: HttpClient,
    request_permits: LaneRequestPermits,
    hold: bool,
}

impl Outbound {
    /// Fails if the file of extra certificates cannot be used. A system without certificates is no error here; requests by
    /// https fail then.
    pub fn new(settings: OutboundSettings) -> Result<Outbound> {
        let OutboundSettings { allow, extra_roots, names, lookup_wait_max, hold } = settings;
        let resolver = Resolver::new(names, lookup_wait_max);
        let connector = Connector::new(AddressGuard::new(allow), resolver, TlsClient::new(extra_roots.as_deref())?);
        let client = HttpClient::new(connector.clone());
        let request_permits = LaneRequestPermits::default();
        Ok(Outbound(Arc::new(OutboundInner { connector, client, request_permits, hold })))
    }

    /// Whether the operator holds what the service sends by itself, as on a copy of a store whose original still sends.
    /// Background work that calls other servers checks this first, and waits as long. Requests that a person waits for, as
    /// at a sign-on, are sent.
    pub fn is_holding(&self) -> bool {
        self.0.hold
    }

    /// The networks that the operator has allowed.
    pub fn allowed_networks(&self) -> &[IpNet] {
        self.0.connector.guard().allowed_networks()
    }

    /// The permits for requests of lanes, shared by all senders of this node.
    pub fn request_permits(&self) -> &LaneRequestPermits {
        &self.0.request_permits
    }

    /// Whether a target may be saved: not if its address is refused, or its name resolves to such an address. A name that
    /// does not resolve now passes, because it may be set up later. Each connection repeats the check.
    pub async fn check_target(&self, target: &Target, tenant: Option<TenantId>) -> Result<(), NotAllowed> {
        let host = TargetHost::parse(target.host()).map_err(|bad| NotAllowed { detail: bad.to_string() })?;
        match timeout(CHECK_MAX, self.0.connector.resolver().look_up(&host, tenant).await_addresses()).await {
            Ok(Ok(addresses)) => self.0.connector.guard().check_all(&addresses),
            Ok(Err(_)) | Err(_) => Ok(()),
        }
    }

    /// The same check for a target with a literal address; a name passes without a lookup.
    pub fn check_address(&self, target: &Target) -> Result<(), NotAllowed> {
        match TargetHost::parse(target.host()).map_err(|bad| NotAllowed { detail: bad.to_string() })? {
            TargetHost::Address(address) => self.0.connector.guard().check_address(address),
            TargetHost::Name(_) => Ok(()),
        }
    }

    /// Sends a request and reads its response, whatever the status.
    pub async fn send_request(&self, request: OutboundRequest) -> Result<OutboundResponse, Failure> {
        self.0.client.send_request(request).await
    }
}

#[cfg(test)]
mod target_tests;
