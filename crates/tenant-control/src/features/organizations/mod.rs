//! Organizations: the tenant's own customers, which tickets, devices and machines belong to.

mod store;

pub use store::{STATEMENTS, create, exists, list};

use kernel::base::{Id, Identified, Timestamp};
use serde::Serialize;

pub type OrganizationId = Id<Organization>;

impl Identified for Organization {
    const PREFIX: &'static str = "org";
}

#[derive(Clone, Debug, Serialize)]
pub struct Organization {
    pub id: OrganizationId,
    pub slug: String,
    pub name: String,
    pub version: i64,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}
