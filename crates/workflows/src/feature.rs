//! What workflows declare.

use feature_kit::{EventFamily, Feature};
use kernel::auth::Scope;
use kernel::base::RecordId;
use kernel::store::references::Referrer;
use people::organizations::OrganizationId;

use crate::{
    WORKFLOW_APPROVAL_REQUESTED, WORKFLOW_RUN_CANCELLED, WORKFLOW_RUN_FAILED, WORKFLOW_RUN_STARTED,
    WORKFLOW_RUN_SUCCEEDED, engine, follow, repair, retention, routes, runs, store,
};

pub const FEATURE: Feature = Feature {
    name: "workflows",
    operations: routes::mount,
    statements: &[
        engine::schedules::store::STATEMENTS,
        engine::follow::store::STATEMENTS,
        engine::store::STATEMENTS,
        follow::store::STATEMENTS,
        repair::store::STATEMENTS,
        retention::store::STATEMENTS,
        runs::control::store::STATEMENTS,
        runs::list::store::STATEMENTS,
        runs::start::store::STATEMENTS,
        runs::store::STATEMENTS,
        store::STATEMENTS,
    ],
    event_kinds: &[
        || WORKFLOW_RUN_STARTED.describe(),
        || WORKFLOW_RUN_SUCCEEDED.describe(),
        || WORKFLOW_RUN_FAILED.describe(),
        || WORKFLOW_RUN_CANCELLED.describe(),
        || WORKFLOW_APPROVAL_REQUESTED.describe(),
    ],
    event_families: &[EventFamily { name: "workflow", scope: Scope::WorkflowsRead }],
    followers: &[follow::store::TRIGGERS],
    sealed_columns: store::SEALED_COLUMNS,
    // The reference from workflows to organizations.
    referrers: &[Referrer { prefix: OrganizationId::PREFIX, what: "workflows", find: store::OF_ORGANIZATION }],
    ..Feature::NEW
};
