//! Adapters to clouds: what credentials may do, what a region offers, which machines there are, and how one is created.
//!
//! An adapter turns a question into requests of its cloud and reads the answers. It knows no tenant, no database and no HTTP
//! client: requests go through a [`Transport`], which the service implements over its guarded client. The host of a request
//! comes from the kind and the region, or from the operator; never from a tenant. `libvirt`, behind a feature, has a library of
//! its own in the place of requests.
//!
//! Left out on purpose: retries and pacing (the caller decides, by [`CloudErrorKind`]), and every call that would change or
//! delete a machine that exists.

mod adapter;
mod aws;
mod aws_partition;
mod credentials;
mod digitalocean;
mod error;
mod hetzner;
mod json;
mod kind;
mod libvirt;
mod machine;
mod message;
mod rest;
mod spec;
#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod test_support;
mod transport;
mod user_data;
mod verification;

pub use adapter::{CatalogItem, CatalogKind, CloudAdapter, CloudFuture, MachinePage, open_cloud};
pub use credentials::{ApiToken, AwsCredentials, CloudCredentials, CredentialsFieldError};
pub use error::{CloudError, CloudErrorKind};
pub use kind::{CloudEndpoints, CloudKind};
pub use machine::{CreatedMachine, Machine, MachineCost, MachineSize, MachineSpec, MachineState, OPERATION_TAG};
pub use spec::SpecFieldError;
pub use transport::{CloudRequest, CloudResponse, Transport, TransportFailure, TransportFuture};
pub use verification::{AccessCheck, AccessResult, CloudIdentity, Verification, names_account};
