//! On whose account a request goes, in everything that clients share.

use std::net::IpAddr;

use crate::base::TenantId;

/// The tenant of a known caller, or the address of somebody who is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Payer {
    Tenant(TenantId),
    Address(IpAddr),
}
