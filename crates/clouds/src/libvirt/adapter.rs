//! The adapter of one owner.

use std::pin::Pin;
use std::sync::Arc;

use kernel::base::Timestamp;
use virt::connect::Connect;

use super::connection::Host;
use super::create::{CreationContext, create_domain};
use super::metadata::machine_uuid;
use super::{REGION, catalog, check_spec, is_uuid, machines, verify};
use crate::spec::{check_operation_id, refuse_invalid};
use crate::{
    CatalogItem, CatalogKind, CloudAdapter, CloudError, CloudFuture, CreatedMachine, Machine, MachinePage, MachineSpec,
    Verification,
};

pub struct LibvirtAdapter {
    owner: String,
    host: Arc<Host>,
}

impl LibvirtAdapter {
    pub fn new(owner: String, uri: &str) -> Self {
        LibvirtAdapter { owner, host: Host::for_uri(uri) }
    }

    async fn list_page(&self, region: Option<&str>, cursor: Option<&str>) -> Result<MachinePage, CloudError> {
        check_region(region.unwrap_or_default())?;
        if cursor.is_some() {
            return Err(CloudError::invalid("The list of a libvirt host has one page."));
        }
        let owner = self.owner.clone();
        let machines = self.host.read(move |connect| machines::list_machines(connect, &owner)).await?;
        Ok(MachinePage { machines, next_cursor: None })
    }

    async fn create(&self, spec: &MachineSpec) -> Result<CreatedMachine, CloudError> {
        refuse_invalid(&check_spec(spec))?;
        let (owner, order) = (self.owner.clone(), spec.clone());
        let uuid = machine_uuid(&owner, &order.operation_id);
        let create = move |connect: &Connect| create_domain(&CreationContext { connect, owner: &owner }, &order);
        let machine = self.host.create(uuid, create).await?;
        Ok(CreatedMachine::new(machine, spec))
    }
}

impl CloudAdapter for LibvirtAdapter {
    fn verify<'a>(
        &'a self,
        regions: &'a [String],
        _now: Timestamp,
    ) -> Pin<Box<dyn Future<Output = Verification> + Send + 'a>> {
        Box::pin(verify::verify_access(&self.host, regions))
    }

    fn list_catalog<'a>(
        &'a self,
        kind: CatalogKind,
        region: Option<&'a str>,
        _now: Timestamp,
    ) -> CloudFuture<'a, Vec<CatalogItem>> {
        Box::pin(async move {
            check_region(region.unwrap_or(REGION))?;
            match kind {
                CatalogKind::Regions => Ok(catalog::list_regions()),
                CatalogKind::Sizes => Ok(catalog::list_sizes()),
                CatalogKind::Images => self.host.read(catalog::list_images).await,
            }
        })
    }

    fn lists_all_regions(&self) -> bool {
        false
    }

    fn list_machines<'a>(
        &'a self,
        region: Option<&'a str>,
        cursor: Option<&'a str>,
        _now: Timestamp,
    ) -> CloudFuture<'a, MachinePage> {
        Box::pin(self.list_page(region, cursor))
    }

    fn find_machine<'a>(
        &'a self,
        region: &'a str,
        external_id: &'a str,
        _now: Timestamp,
    ) -> CloudFuture<'a, Option<Machine>> {
        Box::pin(async move {
            check_region(region)?;
            if !is_uuid(external_id) {
                return Err(CloudError::invalid("The id of a machine at libvirt is a UUID."));
            }
            let (owner, uuid) = (self.owner.clone(), external_id.to_owned());
            self.host.read(move |connect| machines::find_machine(connect, &owner, &uuid)).await
        })
    }

    fn find_by_operation<'a>(
        &'a self,
        region: &'a str,
        operation_id: &'a str,
        _now: Timestamp,
    ) -> CloudFuture<'a, Vec<Machine>> {
        Box::pin(async move {
            check_region(region)?;
            check_operation_id(operation_id)?;
            let (owner, id) = (self.owner.clone(), operation_id.to_owned());
            let found = self.host.read(move |connect| machines::find_by_operation(connect, &owner, &id)).await?;
            Ok(found.into_iter().collect())
        })
    }

    fn create_machine<'a>(&'a self, spec: &'a MachineSpec, _now: Timestamp) -> CloudFuture<'a, CreatedMachine> {
        Box::pin(self.create(spec))
    }

    /// The UUID of the domain follows from the order.
    fn creates_once(&self) -> bool {
        true
    }
}

fn check_region(region: &str) -> Result<(), CloudError> {
    if region == REGION {
        return Ok(());
    }
    Err(CloudError::invalid(format!("A libvirt host has one region, {REGION}.")))
}
