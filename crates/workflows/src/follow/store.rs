//! SQL that wakes the lane of workflows in the transaction that publishes an event. The engine reads events after their
//! commit, in order.

use feature_kit::subscription::{pattern_values, wake_values};
use kernel::store::{Follower, NewEvent, Value};

use super::super::FOLLOWER;

kernel::statements! {
    /// Whether any trigger matches an event. Three selects, because SQLite builds a table for an `IN` each time.
    MATCHING_TRIGGERS = "SELECT workflow_id FROM workflow_triggers WHERE tenant_id = $1 AND pattern = $2
        UNION ALL SELECT workflow_id FROM workflow_triggers WHERE tenant_id = $1 AND pattern = $3
        UNION ALL SELECT workflow_id FROM workflow_triggers WHERE tenant_id = $1 AND pattern = $4 LIMIT 1";
    /// A separate row per event, so that publishing does not wait for the lock of the lane.
    WAKE = "INSERT INTO lane_wakes (kind, tenant_id, key, sequence) SELECT l.kind, l.tenant_id, l.key, CAST($2 AS BIGINT) FROM lanes l
        WHERE l.kind = 'workflow' AND l.tenant_id = $1 AND l.key = 'all' AND EXISTS (SELECT 1 FROM workflow_triggers t
            WHERE t.tenant_id = $1 AND t.pattern IN ($3, $4, $5))";
    /// Unless the follower is behind already. No event since its last position matched a trigger.
    FALL_BEHIND = "UPDATE followers SET position = $2, behind = TRUE
        WHERE tenant_id = $1 AND name = 'workflows' AND NOT behind AND EXISTS (SELECT 1 FROM workflow_triggers t
            WHERE t.tenant_id = $1 AND t.pattern IN ($3, $4, $5))";
}

/// Follows events for workflows that start on them.
pub const TRIGGERS: Follower = Follower {
    name: FOLLOWER,
    only_if: Some((MATCHING_TRIGGERS, pattern_values)),
    statements: &[(WAKE, wake_values), (FALL_BEHIND, behind_values)],
};

fn behind_values(event: &NewEvent<'_>) -> Vec<Value> {
    [(event.sequence - 1).into()].into_iter().chain(pattern_values(event)).collect()
}
