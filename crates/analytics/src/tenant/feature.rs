//! What the figures of a tenant declare.

use feature_kit::Feature;
use kernel::jobs::Retention;

use super::routes;
use crate::{backfill, fold, rebuild, recount, rollups};

pub const FEATURE: Feature = Feature {
    name: "tenant analytics",
    operations: routes::mount,
    statements: &[
        backfill::store::STATEMENTS,
        fold::store::STATEMENTS,
        rebuild::store::STATEMENTS,
        recount::store::STATEMENTS,
        rollups::store::STATEMENTS,
    ],
    retention: &[
        Retention { sql: fold::store::CLEAN_FACTS, before: |_, now| now },
        Retention { sql: fold::store::CLEAN_HOURS, before: |_, now| now.plus_ms(-fold::store::MEMBER_HOURS_MS) },
    ],
    ..Feature::NEW
};
