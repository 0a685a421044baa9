//! Who pays for a request in the fair budgets.

use std::net::IpAddr;

use crate::base::TenantId;

/// The tenant of an authenticated caller, or the address of another client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Payer {
    Tenant(TenantId),
    Address(IpAddr),
}
