//! Creates a domain: copies the image, defines the domain, starts it. What fails half way is cleaned up.

use virt::connect::Connect;
use virt::domain::Domain;
use virt::error::{Error, ErrorNumber};
use virt::network::Network;
use virt::storage_pool::StoragePool;
use virt::storage_vol::StorageVol;

use super::CLOUD;
use super::capabilities::read_guest_kind;
use super::catalog::IMAGE_POOL;
use super::description::{DISK_POOL, DomainDescription, NETWORK, describe_volume};
use super::errors::to_cloud_error;
use super::machines::{find_domain, list_machines, read_machine};
use super::metadata::{MachineMetadata, machine_uuid};
use super::spec::{HostSize, NO_IMAGE};
use super::xml::read_element;
use crate::error::RequestEffect;
use crate::{CloudError, CloudErrorKind, Machine, MachineSpec};

/// Machines of one owner on the host, which is shared: one tenant must not take it all.
pub const MACHINES_MAX: usize = 50;

/// Where and for whom a machine is created.
pub struct CreationContext<'a> {
    pub connect: &'a Connect,
    pub owner: &'a str,
}

/// Creates the machine of an order, or goes on with one that an earlier call has defined.
pub fn create_domain(context: &CreationContext<'_>, spec: &MachineSpec) -> Result<Machine, CloudError> {
    let uuid = machine_uuid(context.owner, &spec.operation_id);
    let left = find_domain(context.connect, &uuid).map_err(|error| to_create_error(&error))?;
    let domain = if let Some(domain) = left {
        context.read(&domain)?;
        start_domain(&domain).map_err(|error| to_create_error(&error))?;
        domain
    } else {
        check_room(context)?;
        define_and_start(context, spec, &uuid)?
    };
    context.read(&domain)
}

impl CreationContext<'_> {
    /// A domain with the UUID of the order, and not its metadata, is none that may be touched.
    fn read(&self, domain: &Domain) -> Result<Machine, CloudError> {
        read_machine(domain, self.owner).map_err(|error| to_create_error(&error))?.ok_or_else(|| {
            let detail = format!("{CLOUD} has a domain with the id of this machine, which is not marked as yours.");
            CloudError::new(CloudErrorKind::Conflict, detail)
        })
    }
}

fn to_create_error(error: &Error) -> CloudError {
    to_cloud_error(error, RequestEffect::Create)
}

fn check_room(context: &CreationContext<'_>) -> Result<(), CloudError> {
    if list_machines(context.connect, context.owner)?.len() < MACHINES_MAX {
        return Ok(());
    }
    let detail =
        format!("You have {MACHINES_MAX} machines on the {CLOUD} host, which is as many as you can have there.");
    Err(CloudError::new(CloudErrorKind::Quota, detail))
}

fn define_and_start(context: &CreationContext<'_>, spec: &MachineSpec, uuid: &str) -> Result<Domain, CloudError> {
    let explain = |error: Error| to_create_error(&error);
    let capabilities = context.connect.get_capabilities().map_err(explain)?;
    let guest =
        read_guest_kind(&capabilities).ok_or_else(|| CloudError::invalid("The host runs no full virtual machines."))?;
    let size = HostSize::find(&spec.size).ok_or_else(|| CloudError::invalid("There is no such size."))?;
    let has_network =
        Network::lookup_by_name(context.connect, NETWORK).and_then(|network| network.is_active()).unwrap_or(false);
    let disk = if spec.image == NO_IMAGE { None } else { Some(copy_image(context, &spec.image, uuid)?) };
    let metadata = MachineMetadata::of_order(context.owner, spec);
    let description = DomainDescription {
        uuid,
        metadata: &metadata,
        size,
        guest: &guest,
        disk_format: disk.as_ref().map(|disk| disk.format.as_str()),
        has_network,
    };
    let domain = match Domain::define_xml(context.connect, &description.write()) {
        Ok(domain) => domain,
        Err(error) => {
            delete_disk(disk);
            return Err(explain(error));
        }
    };
    match start_domain(&domain) {
        Ok(()) => Ok(domain),
        Err(error) => {
            // If that fails, too, the domain stays: the next look finds it, and the next attempt starts it.
            if domain.undefine().is_ok() {
                delete_disk(disk);
            }
            Err(explain(error))
        }
    }
}

/// Starts a domain that does not run.
fn start_domain(domain: &Domain) -> Result<(), Error> {
    if domain.is_active()? {
        return Ok(());
    }
    match domain.create() {
        Ok(_) => Ok(()),
        // Another call was quicker.
        Err(_) if domain.is_active().unwrap_or(false) => Ok(()),
        Err(error) => Err(error),
    }
}

/// The disk of a machine.
struct MachineDisk {
    volume: StorageVol,
    format: String,
}

fn delete_disk(disk: Option<MachineDisk>) {
    if let Some(disk) = disk {
        // What is left of it is replaced by the next attempt.
        let _ = disk.volume.delete(0);
    }
}

/// Copies an image. A copy that an earlier call has left may not be whole, and is made again.
fn copy_image(context: &CreationContext<'_>, image: &str, uuid: &str) -> Result<MachineDisk, CloudError> {
    let explain = |error: Error| match error.code() {
        ErrorNumber::NoStoragePool => CloudError::invalid(format!(
            "The host has no pool {IMAGE_POOL} or {DISK_POOL}, so machines can only have the image {NO_IMAGE}."
        )),
        ErrorNumber::NoStorageVolume => CloudError::invalid(format!("There is no image {image:?}.")),
        _ => to_create_error(&error),
    };
    let images = StoragePool::lookup_by_name(context.connect, IMAGE_POOL).map_err(explain)?;
    let disks = StoragePool::lookup_by_name(context.connect, DISK_POOL).map_err(explain)?;
    let source = StorageVol::lookup_by_name(&images, image).map_err(explain)?;
    if let Ok(left) = StorageVol::lookup_by_name(&disks, uuid) {
        left.delete(0).map_err(explain)?;
    }
    let capacity = source.get_info().map_err(explain)?.capacity;
    let format = read_format(&source.get_xml_desc(0).map_err(explain)?);
    let description = describe_volume(uuid, &format, capacity);
    let volume = StorageVol::create_xml_from(&disks, &description, &source, 0).map_err(explain)?;
    Ok(MachineDisk { volume, format })
}

fn read_format(description: &str) -> String {
    let root = read_element(description);
    let format = root.as_ref().and_then(|root| root.find(&["target", "format"])).and_then(|it| it.attribute("type"));
    format.unwrap_or("raw").to_owned()
}
