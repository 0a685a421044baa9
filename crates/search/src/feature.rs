//! What search declares.

use feature_kit::Feature;

use super::{INVALID_QUERY, action, documents, routes, store};

pub const FEATURE: Feature = Feature {
    name: "search",
    operations: routes::mount,
    statements: &[documents::store::STATEMENTS, store::STATEMENTS],
    error_codes: &[INVALID_QUERY],
    actions: action::ACTIONS,
    ..Feature::NEW
};
