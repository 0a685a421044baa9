//! What sessions declare.

use feature_kit::Feature;

use super::routes;

pub const FEATURE: Feature = Feature { name: "session", more_operations: routes::mount, ..Feature::NEW };
