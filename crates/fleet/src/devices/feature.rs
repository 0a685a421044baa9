//! What devices declare.

use feature_kit::{EventFamily, Feature};
use kernel::auth::Scope;
use kernel::base::RecordId;
use kernel::store::references::Referrer;
use people::organizations::OrganizationId;

use super::{
    DEVICE_CREATED, DEVICE_DELETED, DEVICE_OFFLINE, DEVICE_UPDATED, DEVICES, actions, clock, index, software, store,
};

pub const FEATURE: Feature = Feature {
    name: "devices",
    statements: &[store::STATEMENTS, index::store::STATEMENTS, software::store::STATEMENTS, clock::store::STATEMENTS],
    event_kinds: &[
        || DEVICE_CREATED.describe(),
        || DEVICE_UPDATED.describe(),
        || DEVICE_OFFLINE.describe(),
        || DEVICE_DELETED.describe(),
    ],
    event_families: &[EventFamily { name: "device", scope: Scope::InventoryRead }],
    actions: actions::store::ACTIONS,
    referable: &[DEVICES],
    // Live devices as referrers of organizations.
    referrers: &[Referrer { prefix: OrganizationId::PREFIX, what: "devices", find: store::OF_ORGANIZATION }],
    ..Feature::NEW
};
