//! The one trait of all clouds.

use std::pin::Pin;
use std::sync::Arc;

use kernel::base::Timestamp;

use crate::{
    CloudCredentials, CloudEndpoints, CloudError, CreatedMachine, Machine, MachineCost, MachineSpec, Transport,
    Verification,
};

pub type CloudFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, CloudError>> + Send + 'a>>;

/// One cloud with one set of credentials. Each call is a few requests at most. `now` dates signatures.
pub trait CloudAdapter: Send + Sync {
    /// Finds out what the credentials may do in these regions. A denied check is a result, not an error.
    fn verify<'a>(
        &'a self,
        regions: &'a [String],
        now: Timestamp,
    ) -> Pin<Box<dyn Future<Output = Verification> + Send + 'a>>;

    fn list_catalog<'a>(
        &'a self,
        kind: CatalogKind,
        region: Option<&'a str>,
        now: Timestamp,
    ) -> CloudFuture<'a, Vec<CatalogItem>>;

    /// Whether the cloud lists machines of all regions together, because it has no filter by region. A sweep of several
    /// regions is then one walk of `list_machines` without a region; one walk per region would read everything each time.
    fn lists_all_regions(&self) -> bool;

    /// One page of the machines of a region, from `cursor` on. Without a region, of all regions, where
    /// `lists_all_regions` says so; elsewhere that is `Invalid`. A page that cannot be read whole is an error, so a sweep
    /// that reaches its last page is complete.
    fn list_machines<'a>(
        &'a self,
        region: Option<&'a str>,
        cursor: Option<&'a str>,
        now: Timestamp,
    ) -> CloudFuture<'a, MachinePage>;

    /// `None` if the cloud does not know it (any more).
    fn find_machine<'a>(
        &'a self,
        region: &'a str,
        external_id: &'a str,
        now: Timestamp,
    ) -> CloudFuture<'a, Option<Machine>>;

    /// The machines with the tag of an operation. More than one means that something went wrong before.
    fn find_by_operation<'a>(
        &'a self,
        region: &'a str,
        operation_id: &'a str,
        now: Timestamp,
    ) -> CloudFuture<'a, Vec<Machine>>;

    /// Creates a machine. After `Ambiguous`, look with `find_by_operation` before asking again.
    fn create_machine<'a>(&'a self, spec: &'a MachineSpec, now: Timestamp) -> CloudFuture<'a, CreatedMachine>;

    /// Whether a second `create_machine` with the same specification cannot make a second machine.
    fn creates_once(&self) -> bool;
}

kernel::string_enum! {
    /// A list of what a cloud offers.
    #[schema(as = CloudCatalogKind)]
    pub enum CatalogKind { Regions "regions", Sizes "sizes", Images "images" }
}

/// The last four are of sizes alone.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CatalogItem {
    pub id: String,
    pub name: String,
    pub vcpus: Option<i64>,
    pub memory_bytes: Option<i64>,
    pub disk_bytes: Option<i64>,
    /// In the region that was asked for, where the cloud tells it.
    pub cost: Option<MachineCost>,
}

#[derive(Clone, Debug)]
pub struct MachinePage {
    pub machines: Vec<Machine>,
    /// None on the last page.
    pub next_cursor: Option<String>,
}

/// The adapter for some credentials.
pub fn open_cloud(
    credentials: CloudCredentials,
    endpoints: &CloudEndpoints,
    transport: Arc<dyn Transport>,
) -> Box<dyn CloudAdapter> {
    crate::kind::open_adapter(credentials, endpoints, transport)
}
