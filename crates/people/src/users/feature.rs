//! What users declare.

use feature_kit::{EventFamily, Feature};
use kernel::auth::{Scope, USERS};

use super::{USER_CREATED, USER_DISABLED, USER_UPDATED, find, routes, sign_on, store};

pub const FEATURE: Feature = Feature {
    name: "users",
    more_operations: routes::mount,
    statements: &[find::store::STATEMENTS, sign_on::store::STATEMENTS, store::STATEMENTS],
    event_kinds: &[|| USER_CREATED.describe(), || USER_UPDATED.describe(), || USER_DISABLED.describe()],
    event_families: &[EventFamily { name: "user", scope: Scope::UsersRead }],
    referable: &[USERS],
    ..Feature::NEW
};
