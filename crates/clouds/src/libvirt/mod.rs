//! Virtual machines of a libvirt host.
//!
//! The host is the operator's: its URI is a setting of the server, never of a tenant, and tenants have no credentials for it.
//! So each machine carries its owner in the domain's metadata, and an adapter shows its own owner's machines alone. The
//! operator gives a domain to a tenant by writing that metadata.
//!
//! The calls need libvirt's C library and the feature `libvirt`; without it `UnofferedAdapter` answers. What can be said
//! without the library is compiled always, or for tests.

#[cfg(feature = "libvirt")]
mod adapter;
#[cfg(any(feature = "libvirt", test))]
mod capabilities;
#[cfg(feature = "libvirt")]
mod catalog;
#[cfg(feature = "libvirt")]
mod connection;
#[cfg(feature = "libvirt")]
mod create;
#[cfg(any(feature = "libvirt", test))]
mod description;
#[cfg(feature = "libvirt")]
mod errors;
#[cfg(feature = "libvirt")]
mod machines;
#[cfg(any(feature = "libvirt", test))]
mod metadata;
mod spec;
#[cfg(any(feature = "libvirt", test))]
mod state;
#[cfg(all(feature = "libvirt", test))]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests;
mod unoffered;
mod uri;
#[cfg(feature = "libvirt")]
mod verify;
#[cfg(any(feature = "libvirt", test))]
mod xml;

pub use spec::{check_spec, is_uuid};
pub use uri::check_uri;

use crate::CloudAdapter;

#[cfg(feature = "libvirt")]
const CLOUD: &str = "libvirt";
/// A host has one region.
pub const REGION: &str = "default";

/// The adapter of an owner for the operator's host.
#[cfg(feature = "libvirt")]
pub fn open_host(owner: Option<String>, uri: Option<String>) -> Box<dyn CloudAdapter> {
    match owner.zip(uri) {
        Some((owner, uri)) => Box::new(adapter::LibvirtAdapter::new(owner, &uri)),
        None => Box::new(unoffered::UnofferedAdapter),
    }
}

/// The adapter where libvirt is not built in: providers of this kind may be stored by a server that has it.
#[cfg(not(feature = "libvirt"))]
pub fn open_host(_owner: Option<String>, _uri: Option<String>) -> Box<dyn CloudAdapter> {
    Box::new(unoffered::UnofferedAdapter)
}
