//! What a host offers: one region, a few sizes, and the volumes of the operator's image pool.

use virt::connect::Connect;
use virt::error::{Error, ErrorNumber};
use virt::storage_pool::StoragePool;

use super::REGION;
use super::errors::to_cloud_error;
use super::spec::{HostSize, NO_IMAGE, SIZES};
use crate::error::RequestEffect;
use crate::{CatalogItem, CloudError};

/// Volumes of this pool are offered as images. The operator puts there what every tenant may copy, and nothing else.
pub const IMAGE_POOL: &str = "tenant-control-images";
const MIB: i64 = 1 << 20;

pub fn list_regions() -> Vec<CatalogItem> {
    vec![CatalogItem { id: REGION.to_owned(), name: "The host".to_owned(), ..CatalogItem::default() }]
}

pub fn list_sizes() -> Vec<CatalogItem> {
    let to_item = |size: &HostSize| CatalogItem {
        id: size.id(),
        name: size.id(),
        vcpus: Some(size.vcpus),
        memory_bytes: Some(size.memory_mib * MIB),
        ..CatalogItem::default()
    };
    SIZES.iter().map(to_item).collect()
}

/// Without the pool there is the empty machine alone. Other pools have the disks of machines, which are nobody else's.
pub fn list_images(connect: &Connect) -> Result<Vec<CatalogItem>, CloudError> {
    let to_item =
        |id: &str, name: &str| CatalogItem { id: id.to_owned(), name: name.to_owned(), ..CatalogItem::default() };
    let mut items = vec![to_item(NO_IMAGE, "No disk; starts from the network")];
    let names = list_volumes(connect).map_err(|error| to_cloud_error(&error, RequestEffect::Read))?;
    items.extend(names.iter().map(|name| to_item(name, name)));
    Ok(items)
}

fn list_volumes(connect: &Connect) -> Result<Vec<String>, Error> {
    let pool = match StoragePool::lookup_by_name(connect, IMAGE_POOL) {
        Ok(pool) => pool,
        Err(error) if matches!(error.code(), ErrorNumber::NoStoragePool | ErrorNumber::NoSupport) => {
            return Ok(Vec::new());
        }
        Err(error) => return Err(error),
    };
    if !pool.is_active()? {
        return Ok(Vec::new());
    }
    pool.list_all_volumes(0)?.iter().map(|volume| volume.get_name()).collect()
}
