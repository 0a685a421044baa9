//! Organizations: the tenant's own customers, which tickets, devices and machines belong to.
//!
//! `input` parses request bodies, `find` lists and searches organizations, `slug` makes slugs from names.

pub mod feature;
pub mod find;
pub mod input;
pub mod routes;
mod slug;
mod store;

use std::collections::BTreeMap;

use kernel::audit::{FieldChange, changed_fields};
use kernel::base::{Id, Identified, RecordId, Result, Timestamp};
use kernel::events::EventKind;
use kernel::http::Record;
use kernel::store::references::Referable;
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

pub use store::{
    NamedOrganization, OrganizationUpdate, STATEMENTS, clamp_future_timestamps, create_named_organization,
    create_organization, delete_organization, find_by_slug, find_by_slugs, find_slug, fold_name, list_by_slugs,
    list_organizations, update_organization,
};

pub const ORGANIZATION_CREATED: EventKind<Organization> =
    EventKind::new("organization.created", "An organization was created.");
pub const ORGANIZATION_UPDATED: EventKind<UpdatedOrganization> = EventKind::new(
    "organization.updated",
    "Fields of an organization changed; `changes` says which, from what and to what.",
);
pub const ORGANIZATION_DELETED: EventKind<Organization> =
    EventKind::new("organization.deleted", "An organization was deleted; nothing referred to it any more.");

pub type OrganizationId = Id<Organization>;

impl Identified for Organization {
    const PREFIX: &'static str = "org";
    const ABOUT: &'static str = "The organization to act on.";
}

/// Organizations as other records refer to them. An archived one takes no new references; existing references stay.
pub const ORGANIZATIONS: Referable =
    Referable { prefix: OrganizationId::PREFIX, table: "organizations", only: Some("NOT archived") };

/// Organizations of a tenant, archived ones included: the rows that `q` may examine.
pub const ORGANIZATIONS_MAX: i64 = 10_000;
pub const DOMAINS_MAX: usize = 20;

/// An organization: a customer of the tenant.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(example = json!({
    "id": "org_01jd8z6v2mfkpb7h3q9xw5t4ra", "name": "Globex Inc.", "slug": "globex", "external_id": "crm-4711",
    "domains": ["globex.example"], "tags": ["gold"], "custom_fields": {"contract": {"ends": "2027-12-31"}},
    "archived": false, "version": 1, "created_at": "2026-11-15T08:00:00.000Z", "updated_at": "2026-11-15T08:00:00.000Z"
}))]
pub struct Organization {
    #[schema(value_type = String)]
    pub id: OrganizationId,
    pub name: String,
    /// Short name for commands and agents; unique in the tenant.
    pub slug: String,
    /// Its id in another system; unique in the tenant.
    #[schema(required)]
    pub external_id: Option<String>,
    /// Domain names that are its own, in small letters.
    pub domains: Vec<String>,
    pub tags: Vec<String>,
    pub custom_fields: Map<String, Value>,
    /// Hidden from lists, and nothing new can refer to it.
    pub archived: bool,
    pub version: i64,
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    pub updated_at: Timestamp,
}

impl Record for Organization {
    fn version(&self) -> i64 {
        self.version
    }
}

/// Fields before and after.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = OrganizationChanges)]
#[serde(transparent)]
pub struct OrganizationChanges(pub BTreeMap<String, FieldChange>);

/// An organization with what has just changed in it.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(example = json!({
    "id": "org_01jd8z6v2mfkpb7h3q9xw5t4ra", "name": "Globex Inc.", "slug": "globex", "external_id": "crm-4711",
    "domains": ["globex.example"], "tags": ["gold"], "custom_fields": {"contract": {"ends": "2027-12-31"}},
    "archived": false, "version": 2, "created_at": "2026-11-15T08:00:00.000Z", "updated_at": "2026-11-15T08:01:00.000Z",
    "changes": {"name": {"from": "Globex", "to": "Globex Inc."}}
}))]
pub struct UpdatedOrganization {
    #[serde(flatten)]
    pub organization: Organization,
    pub changes: OrganizationChanges,
}

/// Fields that change with every write, and are not reported as changes.
const UNREPORTED_FIELDS: [&str; 2] = ["version", "updated_at"];

/// The fields in which two states of an organization differ.
pub fn diff_organizations(old: &Organization, new: &Organization) -> Result<OrganizationChanges> {
    changed_fields(old, new, &UNREPORTED_FIELDS).map(OrganizationChanges)
}
