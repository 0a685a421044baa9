//! What webhooks declare.

use feature_kit::{EventFamily, Feature};
use kernel::auth::Scope;

use super::{WEBHOOK_AUTO_DISABLED, WEBHOOK_TEST, deliveries, events, follow, repair, routes, sender, store};

pub const FEATURE: Feature = Feature {
    name: "webhooks",
    operations: routes::mount,
    more_operations: routes::mount_more,
    statements: &[
        store::STATEMENTS,
        deliveries::store::STATEMENTS,
        deliveries::log::store::STATEMENTS,
        events::store::STATEMENTS,
        follow::store::STATEMENTS,
        repair::store::STATEMENTS,
        sender::order::store::STATEMENTS,
        sender::settle::store::STATEMENTS,
        sender::store::STATEMENTS,
    ],
    event_kinds: &[|| WEBHOOK_AUTO_DISABLED.describe(), || WEBHOOK_TEST.describe()],
    event_families: &[EventFamily { name: "webhook", scope: Scope::WebhooksRead }],
    followers: &[follow::store::SUBSCRIBERS],
    sealed_columns: store::SEALED_COLUMNS,
    ..Feature::NEW
};
