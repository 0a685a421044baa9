//! Hetzner Cloud. A token belongs to one project, which the API does not name.
//!
//! The API lists the servers of all locations together. So a walk of one region reads all pages and keeps what is there;
//! a sweep of several is one walk without a region.

mod catalog;
mod create;
mod errors;
mod machines;
#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests;
mod verify;

use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use kernel::base::Timestamp;

use crate::credentials::ApiToken;
use crate::rest::RestClient;
use crate::{
    CatalogItem, CatalogKind, CloudAdapter, CloudFuture, CreatedMachine, Machine, MachinePage, MachineSpec, Transport,
    Verification,
};

pub use create::check_spec;
pub use errors::RETRY_AFTER_MS_MAX;

const CLOUD: &str = "Hetzner";
const BASE_URL: &str = "https://api.hetzner.cloud/v1";
/// A key of a label has no colon: this is `OPERATION_TAG` at Hetzner.
const OPERATION_LABEL: &str = "tenant-control/operation";
/// The prefix of the service's own tags, and of its labels at Hetzner.
const OWN_TAG: &str = "tenant-control:";
const OWN_LABEL: &str = "tenant-control/";

/// The label of a tag.
fn to_label(tag: &str) -> String {
    tag.strip_prefix(OWN_TAG).map_or_else(|| tag.to_owned(), |name| format!("{OWN_LABEL}{name}"))
}

/// The tag of a label.
fn from_label(label: &str) -> String {
    label.strip_prefix(OWN_LABEL).map_or_else(|| label.to_owned(), |name| format!("{OWN_TAG}{name}"))
}

pub struct HetznerAdapter {
    client: RestClient,
    /// In which the project is billed: none if the API does not tell. Read once in the life of an adapter.
    currency: OnceLock<Option<String>>,
}

impl HetznerAdapter {
    pub fn new(token: ApiToken, endpoint: Option<String>, transport: Arc<dyn Transport>) -> Self {
        let base_url = endpoint.unwrap_or_else(|| BASE_URL.to_owned());
        HetznerAdapter {
            client: RestClient::new(token, base_url, transport, &errors::DIALECT),
            currency: OnceLock::new(),
        }
    }
}

impl CloudAdapter for HetznerAdapter {
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
            CatalogKind::Regions => Box::pin(catalog::list_locations(&self.client, now)),
            CatalogKind::Sizes => Box::pin(catalog::list_server_types(self, region, now)),
            CatalogKind::Images => Box::pin(catalog::list_images(&self.client, now)),
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
        Box::pin(machines::list_page(self, region, cursor, now))
    }

    fn find_machine<'a>(
        &'a self,
        _region: &'a str,
        external_id: &'a str,
        now: Timestamp,
    ) -> CloudFuture<'a, Option<Machine>> {
        Box::pin(machines::find_server(self, external_id, now))
    }

    fn find_by_operation<'a>(
        &'a self,
        _region: &'a str,
        operation_id: &'a str,
        now: Timestamp,
    ) -> CloudFuture<'a, Vec<Machine>> {
        Box::pin(machines::find_by_operation(self, operation_id, now))
    }

    fn create_machine<'a>(&'a self, spec: &'a MachineSpec, now: Timestamp) -> CloudFuture<'a, CreatedMachine> {
        Box::pin(create::create_server(self, spec, now))
    }

    /// Names are unique within a project: as long as the first server has its name, a second request for it is a conflict.
    /// A server that somebody deleted or renamed in between would be made again, so look for it first.
    fn creates_once(&self) -> bool {
        true
    }
}
