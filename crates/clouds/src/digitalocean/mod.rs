//! DigitalOcean. A token belongs to one team.
//!
//! The API lists the droplets of all regions together. So a walk of one region reads all pages and keeps what is there; a
//! sweep of several is one walk without a region.

mod catalog;
mod create;
mod errors;
mod machines;
mod tags;
#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests;
mod verify;

use std::pin::Pin;
use std::sync::Arc;

use kernel::base::Timestamp;

use crate::credentials::ApiToken;
use crate::rest::RestClient;
use crate::{
    CatalogItem, CatalogKind, CloudAdapter, CloudFuture, CreatedMachine, Machine, MachinePage, MachineSpec, Transport,
    Verification,
};

pub use create::check_spec;

const CLOUD: &str = "DigitalOcean";
const BASE_URL: &str = "https://api.digitalocean.com/v2";
/// All prices are in it.
const CURRENCY: &str = "USD";

pub struct DigitaloceanAdapter {
    client: RestClient,
}

impl DigitaloceanAdapter {
    pub fn new(token: ApiToken, endpoint: Option<String>, transport: Arc<dyn Transport>) -> Self {
        let base_url = endpoint.unwrap_or_else(|| BASE_URL.to_owned());
        DigitaloceanAdapter { client: RestClient::new(token, base_url, transport, &errors::DIALECT) }
    }
}

impl CloudAdapter for DigitaloceanAdapter {
    fn verify<'a>(
        &'a self,
        regions: &'a [String],
        now: Timestamp,
    ) -> Pin<Box<dyn Future<Output = Verification> + Send + 'a>> {
        Box::pin(verify::verify_access(&self.client, regions, now))
    }

    fn list_catalog<'a>(
        &'a self,
        kind: CatalogKind,
        region: Option<&'a str>,
        now: Timestamp,
    ) -> CloudFuture<'a, Vec<CatalogItem>> {
        match kind {
            CatalogKind::Regions => Box::pin(catalog::list_open_regions(&self.client, now)),
            CatalogKind::Sizes => Box::pin(catalog::list_sizes(&self.client, region, now)),
            CatalogKind::Images => Box::pin(catalog::list_images(&self.client, region, now)),
        }
    }

    fn lists_all_regions(&self) -> bool {
        true
    }

    fn list_machines<'a>(
        &'a self,
        region: Option<&'a str>,
        cursor: Option<&'a str>,
        now: Timestamp,
    ) -> CloudFuture<'a, MachinePage> {
        Box::pin(machines::list_page(&self.client, region, cursor, now))
    }

    fn find_machine<'a>(
        &'a self,
        _region: &'a str,
        external_id: &'a str,
        now: Timestamp,
    ) -> CloudFuture<'a, Option<Machine>> {
        Box::pin(machines::find_droplet(&self.client, external_id, now))
    }

    fn find_by_operation<'a>(
        &'a self,
        _region: &'a str,
        operation_id: &'a str,
        now: Timestamp,
    ) -> CloudFuture<'a, Vec<Machine>> {
        Box::pin(machines::find_by_operation(&self.client, operation_id, now))
    }

    fn create_machine<'a>(&'a self, spec: &'a MachineSpec, now: Timestamp) -> CloudFuture<'a, CreatedMachine> {
        Box::pin(create::create_droplet(&self.client, spec, now))
    }

    /// There are neither client tokens nor unique names. And a droplet gets its tags a moment after it is created, so an
    /// early look may miss it.
    fn creates_once(&self) -> bool {
        false
    }
}
