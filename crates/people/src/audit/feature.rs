//! What the audit trail declares.

use feature_kit::Feature;

use super::{routes, store};

pub const FEATURE: Feature =
    Feature { name: "audit", more_operations: routes::mount, statements: &[store::STATEMENTS], ..Feature::NEW };
