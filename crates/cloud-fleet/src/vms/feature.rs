//! What machines declare.

use feature_kit::{EventFamily, Feature};
use kernel::auth::Scope;
use kernel::base::{DAY_MS, RecordId};
use kernel::jobs::Retention;
use kernel::store::references::{Referable, Referrer};
use people::organizations::OrganizationId;

use super::{
    VM_FAILED, VM_PROVISIONED, VM_STATE_CHANGED, actions, ended, find, forget, known_accounts, machine_changes,
    provision, routes, settle, store, summary,
};
use crate::providers::{self, ProviderId};
use crate::{repair, worker};

/// How long a machine that has left the list stays in the list of changes.
const TOMBSTONE_MS: i64 = 90 * DAY_MS;

pub const FEATURE: Feature = Feature {
    name: "machines",
    operations: routes::mount,
    statements: &[
        store::STATEMENTS,
        ended::store::STATEMENTS,
        find::store::STATEMENTS,
        forget::store::STATEMENTS,
        known_accounts::store::STATEMENTS,
        machine_changes::store::STATEMENTS,
        provision::store::STATEMENTS,
        settle::store::STATEMENTS,
        summary::store::STATEMENTS,
        worker::store::STATEMENTS,
        repair::store::STATEMENTS,
    ],
    event_kinds: &[|| VM_PROVISIONED.describe(), || VM_FAILED.describe(), || VM_STATE_CHANGED.describe()],
    event_families: &[EventFamily { name: "vm", scope: Scope::CloudRead }],
    actions: actions::store::ACTIONS,
    sealed_columns: provision::store::SEALED_COLUMNS,
    referable: &[Referable { prefix: ProviderId::PREFIX, table: "cloud_providers", only: Some("deleted_at IS NULL") }],
    referrers: &[Referrer { prefix: OrganizationId::PREFIX, what: "machines", find: store::OF_ORGANIZATION }],
    retention: &[
        Retention { sql: store::CLEAN_OPERATIONS, before: |_, now| now.plus_ms(-TOMBSTONE_MS) },
        Retention { sql: store::CLEAN_DELETED, before: |_, now| now.plus_ms(-TOMBSTONE_MS) },
        Retention { sql: providers::store::CLEAN_DELETED, before: |_, now| now.plus_ms(-TOMBSTONE_MS) },
    ],
    ..Feature::NEW
};
