//! Amazon EC2 and STS, by their Query APIs.
//!
//! `query.rs` sends calls, `sign.rs` signs them, `session.rs` has the keys, `../aws_partition.rs` the hosts, `xml.rs` and `errors.rs`
//! read the answers. The rest is what the service wants of EC2.

mod call_clock;
mod catalog;
mod client;
mod create;
mod dry_run;
mod errors;
mod instance_types;
mod machines;
mod query;
mod session;
mod sign;
#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests;
mod verify;
mod xml;

use std::pin::Pin;
use std::sync::Arc;

use kernel::base::Timestamp;

use crate::aws_partition::DEFAULT_REGION;
use crate::credentials::AwsCredentials;
use crate::{
    CatalogItem, CatalogKind, CloudAdapter, CloudFuture, CreatedMachine, Machine, MachinePage, MachineSpec, Transport,
    Verification,
};

use call_clock::CallClock;
use client::AwsClient;
pub use create::check_spec;
use instance_types::InstanceTypes;

const CLOUD: &str = "AWS";

pub struct AwsAdapter {
    client: AwsClient,
    instance_types: InstanceTypes,
}

impl AwsAdapter {
    pub fn new(credentials: AwsCredentials, endpoint: Option<String>, transport: Arc<dyn Transport>) -> Self {
        AwsAdapter {
            client: AwsClient::new(credentials, endpoint, transport),
            instance_types: InstanceTypes::default(),
        }
    }
}

impl CloudAdapter for AwsAdapter {
    fn verify<'a>(
        &'a self,
        regions: &'a [String],
        now: Timestamp,
    ) -> Pin<Box<dyn Future<Output = Verification> + Send + 'a>> {
        Box::pin(async move { verify::verify_access(&self.client, regions, &CallClock::start(now)).await })
    }

    fn list_catalog<'a>(
        &'a self,
        kind: CatalogKind,
        region: Option<&'a str>,
        now: Timestamp,
    ) -> CloudFuture<'a, Vec<CatalogItem>> {
        let region = region.unwrap_or(DEFAULT_REGION);
        match kind {
            CatalogKind::Regions => Box::pin(catalog::list_regions(&self.client, region, now)),
            CatalogKind::Sizes => Box::pin(catalog::list_sizes(&self.client, region, now)),
            CatalogKind::Images => Box::pin(catalog::list_images(&self.client, region, now)),
        }
    }

    fn lists_all_regions(&self) -> bool {
        false
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
        region: &'a str,
        external_id: &'a str,
        now: Timestamp,
    ) -> CloudFuture<'a, Option<Machine>> {
        Box::pin(machines::find_instance(self, region, external_id, now))
    }

    fn find_by_operation<'a>(
        &'a self,
        region: &'a str,
        operation_id: &'a str,
        now: Timestamp,
    ) -> CloudFuture<'a, Vec<Machine>> {
        Box::pin(machines::find_by_operation(self, region, operation_id, now))
    }

    fn create_machine<'a>(&'a self, spec: &'a MachineSpec, now: Timestamp) -> CloudFuture<'a, CreatedMachine> {
        Box::pin(create::create_instance(self, spec, now))
    }

    /// The operation's id is the client token, by which AWS recognizes a repeated request.
    fn creates_once(&self) -> bool {
        true
    }
}
