//! What the asset inventory declares.

use feature_kit::Feature;

use super::{find, routes, store, summary};

pub const FEATURE: Feature = Feature {
    name: "asset_inventory",
    operations: routes::mount,
    statements: &[find::store::STATEMENTS, store::STATEMENTS, summary::store::STATEMENTS],
    ..Feature::NEW
};
