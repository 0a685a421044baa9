//! What the figures of a tenant declare.

use feature_kit::Feature;
use kernel::jobs::Retention;

use super::routes;
use crate::{fold, rollups};

pub const FEATURE: Feature = Feature {
    name: "tenant analytics",
    operations: routes::mount,
    statements: &[fold::store::STATEMENTS, rollups::store::STATEMENTS],
    retention: &[Retention { sql: fold::store::CLEAN_FACTS, before: |_, now| now }],
    ..Feature::NEW
};
