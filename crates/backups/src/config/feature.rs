//! What the policy declares.

use feature_kit::{EventFamily, Feature};
use kernel::auth::Scope;

use super::{BACKUP_CONFIG_UPDATED, routes, store};
use crate::{actions, policy};

pub const FEATURE: Feature = Feature {
    name: "backup config",
    operations: routes::mount,
    statements: &[policy::store::STATEMENTS, store::STATEMENTS],
    event_kinds: &[|| BACKUP_CONFIG_UPDATED.describe()],
    event_families: &[EventFamily { name: "backup", scope: Scope::BackupRead }],
    actions: actions::store::ACTIONS,
    ..Feature::NEW
};
