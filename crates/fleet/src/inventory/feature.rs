//! What the inventory of agents declares.

use feature_kit::Feature;

use super::{import, matching, routes, store};

pub const FEATURE: Feature = Feature {
    name: "inventory",
    operations: routes::mount,
    statements: &[import::store::STATEMENTS, matching::store::STATEMENTS, store::STATEMENTS],
    error_codes: &[routes::MALFORMED_REPORT],
    ..Feature::NEW
};
