//! What single sign-on declares.

use feature_kit::Feature;
use kernel::jobs::Retention;

use super::{CLEAN_FLOWS, CLEAN_USED_STATES, FLOW_MS, SEALED_COLUMNS, SSO_NOT_AVAILABLE, STATEMENTS, routes, update};
use crate::identity_providers;

pub const FEATURE: Feature = Feature {
    name: "sso",
    operations: routes::mount,
    statements: &[identity_providers::STATEMENTS, STATEMENTS, update::store::STATEMENTS],
    error_codes: &[SSO_NOT_AVAILABLE],
    retention: &[
        // A sign-on that was finished, until it would have expired by the clock of any node.
        Retention { sql: CLEAN_USED_STATES, before: |_, now| now.plus_ms(-FLOW_MS) },
        // A sign-on begun by a node of an earlier release, as long as its table exists.
        Retention { sql: CLEAN_FLOWS, before: |_, now| now },
    ],
    sealed_columns: SEALED_COLUMNS,
    ..Feature::NEW
};
