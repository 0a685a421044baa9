//! What API keys declare.

use feature_kit::{EventFamily, Feature};
use kernel::auth::Scope;
use kernel::jobs::Retention;

use super::{API_KEY_CREATED, API_KEY_EXPIRING, API_KEY_REVOKED, API_KEY_ROTATED, descendants, find, routes, store};

pub const FEATURE: Feature = Feature {
    name: "api_keys",
    operations: routes::mount,
    statements: &[descendants::store::STATEMENTS, find::store::STATEMENTS, store::STATEMENTS],
    event_kinds: &[
        || API_KEY_CREATED.describe(),
        || API_KEY_ROTATED.describe(),
        || API_KEY_REVOKED.describe(),
        || API_KEY_EXPIRING.describe(),
    ],
    event_families: &[EventFamily { name: "api_key", scope: Scope::ApiKeysRead }],
    // The outgoing secret of a rotation, until its overlap ends.
    retention: &[Retention { sql: store::CLEAN_SECRETS, before: |_, now| now }],
    ..Feature::NEW
};
