//! What reports of jobs declare.

use feature_kit::Feature;
use kernel::jobs::Retention;

use super::{BACKUP_JOB_FAILED, ReportSettings, routes, store};
use crate::runs;

pub const FEATURE: Feature = Feature {
    name: "backup reports",
    operations: routes::mount,
    statements: &[store::STATEMENTS, runs::store::STATEMENTS],
    event_kinds: &[|| BACKUP_JOB_FAILED.describe()],
    retention: &[Retention {
        sql: store::CLEAN,
        before: |settings, now| now.plus_ms(-settings.feature_settings::<ReportSettings>().kept_ms),
    }],
    ..Feature::NEW
};
