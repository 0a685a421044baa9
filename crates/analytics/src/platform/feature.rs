//! What the figures of the platform declare.

use feature_kit::Feature;

use super::{routes, store};

pub const FEATURE: Feature =
    Feature { name: "platform analytics", operations: routes::mount, statements: &[store::STATEMENTS], ..Feature::NEW };
