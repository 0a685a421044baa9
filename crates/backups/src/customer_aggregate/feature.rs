//! What the aggregate declares.

use feature_kit::Feature;

use super::{routes, store};
use crate::posture::shown::BACKUP_POSTURE_CHANGED;
use crate::posture::{self, pending};
use crate::repair;

pub const FEATURE: Feature = Feature {
    name: "backup customer aggregate",
    operations: routes::mount,
    statements: &[
        store::STATEMENTS,
        posture::store::STATEMENTS,
        posture::shown::store::STATEMENTS,
        posture::missed::store::STATEMENTS,
        posture::clock::store::STATEMENTS,
        pending::store::STATEMENTS,
        posture::queue::store::STATEMENTS,
        repair::store::STATEMENTS,
    ],
    event_kinds: &[|| BACKUP_POSTURE_CHANGED.describe()],
    followers: &[pending::store::CHANGED_RECORDS],
    ..Feature::NEW
};
