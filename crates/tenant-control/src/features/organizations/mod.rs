//! Organizations: the tenant's own customers, which tickets, devices and machines belong to.

mod store;

pub use store::{STATEMENTS, create, find_by_slug, list};

use kernel::base::{Id, Identified, RecordId, Timestamp};
use kernel::store::refer::Referable;
use serde::Serialize;

pub type OrganizationId = Id<Organization>;

impl Identified for Organization {
    const PREFIX: &'static str = "org";
}

/// Organizations as others refer to them.
pub const ORGANIZATIONS: Referable = Referable { prefix: OrganizationId::PREFIX, table: "organizations", only: None };

#[derive(Clone, Debug, Serialize)]
pub struct Organization {
    pub id: OrganizationId,
    pub slug: String,
    pub name: String,
    pub version: i64,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}
