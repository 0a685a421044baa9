//! What tickets declare.

use feature_kit::{EventFamily, Feature};
use kernel::auth::Scope;
use kernel::base::RecordId;
use kernel::store::references::Referrer;
use people::organizations::OrganizationId;

use super::{TICKET_COMMENTED, TICKET_CREATED, TICKET_UPDATED, actions, find, routes, sla, store};

pub const FEATURE: Feature = Feature {
    name: "tickets",
    operations: routes::mount,
    statements: &[find::store::STATEMENTS, sla::store::STATEMENTS, store::STATEMENTS],
    event_kinds: &[|| TICKET_CREATED.describe(), || TICKET_UPDATED.describe(), || TICKET_COMMENTED.describe()],
    event_families: &[EventFamily { name: "ticket", scope: Scope::TicketsRead }],
    actions: actions::store::ACTIONS,
    // Tickets keep their organization from being deleted, also when they are done.
    referrers: &[Referrer { prefix: OrganizationId::PREFIX, what: "tickets", find: store::OF_ORGANIZATION }],
    ..Feature::NEW
};
