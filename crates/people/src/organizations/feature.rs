//! What organizations declare.

use feature_kit::{EventFamily, Feature};
use kernel::auth::Scope;

use super::{
    ORGANIZATION_CREATED, ORGANIZATION_DELETED, ORGANIZATION_UPDATED, ORGANIZATIONS, STATEMENTS, find, routes,
};

pub const FEATURE: Feature = Feature {
    name: "organizations",
    more_operations: routes::mount,
    statements: &[find::store::STATEMENTS, STATEMENTS],
    event_kinds: &[
        || ORGANIZATION_CREATED.describe(),
        || ORGANIZATION_UPDATED.describe(),
        || ORGANIZATION_DELETED.describe(),
    ],
    event_families: &[EventFamily { name: "organization", scope: Scope::OrganizationsRead }],
    referable: &[ORGANIZATIONS],
    ..Feature::NEW
};
