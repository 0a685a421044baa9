//! Settings of clouds, and what the requests to them share on this node.

use std::sync::Arc;

use clouds::{CloudEndpoints, CloudKind};
use ipnet::IpNet;
use kernel::base::{MINUTE_MS, Result};
use kernel::outbound::{Outbound, OutboundSettings};

use crate::open_accounts::OpenAccounts;
use crate::pace::AccountPaces;
use crate::providers::catalog_cache::CatalogCache;

/// How often a region is synced.
const SYNC_EVERY_MS: i64 = 5 * MINUTE_MS;
/// How often credentials are verified again.
const VERIFY_EVERY_MS: i64 = 6 * 60 * MINUTE_MS;

#[derive(Clone)]
pub struct CloudSettings {
    pub endpoints: CloudEndpoints,
    pub sync_every_ms: i64,
    pub verify_every_ms: i64,
    /// Requests a second to one host of an account, instead of what the cloud allows.
    pub requests_per_second: Option<f64>,
    /// For endpoints that the operator has set, which may be inside a private network. `None` without such an endpoint.
    endpoint_client: Option<Outbound>,
    pub(crate) paces: Arc<AccountPaces>,
    pub(crate) accounts: Arc<OpenAccounts>,
    pub(crate) catalogs: Arc<CatalogCache>,
}

impl Default for CloudSettings {
    fn default() -> Self {
        CloudSettings {
            endpoints: CloudEndpoints::default(),
            sync_every_ms: SYNC_EVERY_MS,
            verify_every_ms: VERIFY_EVERY_MS,
            requests_per_second: None,
            endpoint_client: None,
            paces: Arc::default(),
            accounts: Arc::default(),
            catalogs: Arc::default(),
        }
    }
}

impl CloudSettings {
    /// Settings with endpoints of the operator. Only requests to those may go to any network: they have a client of their own,
    /// and no tenant can choose their host.
    pub fn with_endpoints(endpoints: CloudEndpoints, outbound: OutboundSettings) -> Result<Self> {
        let endpoint_client = if endpoints.0.is_empty() {
            None
        } else {
            let everywhere = ["0.0.0.0/0", "::/0"].iter().filter_map(|network| network.parse::<IpNet>().ok());
            Some(Outbound::new(OutboundSettings { allow: everywhere.collect(), ..outbound })?)
        };
        Ok(CloudSettings { endpoints, endpoint_client, ..CloudSettings::default() })
    }

    /// The client for requests to clouds of this kind.
    pub(crate) fn client_for(&self, kind: CloudKind, guarded: &Outbound) -> Outbound {
        let endpoint = self.endpoint_client.as_ref().filter(|_| self.endpoints.0.contains_key(&kind));
        endpoint.unwrap_or(guarded).clone()
    }
}
