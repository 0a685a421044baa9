//! What providers declare.

use feature_kit::{EventFamily, Feature};
use kernel::auth::Scope;

use super::{CLOUD_PROVIDER_FAILED, CLOUD_PROVIDER_VERIFIED, PROVIDER_UNSUPPORTED, actions, routes, store, verify};

pub const FEATURE: Feature = Feature {
    name: "cloud providers",
    operations: routes::mount,
    statements: &[store::STATEMENTS, verify::store::STATEMENTS],
    event_kinds: &[|| CLOUD_PROVIDER_VERIFIED.describe(), || CLOUD_PROVIDER_FAILED.describe()],
    event_families: &[EventFamily { name: "cloud", scope: Scope::CloudRead }],
    error_codes: &[PROVIDER_UNSUPPORTED],
    actions: actions::ACTIONS,
    sealed_columns: store::SEALED_COLUMNS,
    ..Feature::NEW
};
