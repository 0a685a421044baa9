//! SQL that creates the deliveries of an event, in the transaction that publishes it.
//!
//! One `INSERT … SELECT` over the subscriptions creates one delivery for every endpoint whose patterns match the event.

use feature_kit::subscription::{pattern_values, wake_values};
use kernel::store::{Follower, NewEvent, Value};

/// The endpoints that an event's three patterns match; the arguments are the numbers of the three parameters.
macro_rules! subscribers {
    ($first:literal, $second:literal, $third:literal) => {
        concat!(
            "(SELECT s.webhook_id FROM webhook_subscriptions s WHERE s.tenant_id = $1 AND s.pattern IN ($",
            $first,
            ", $",
            $second,
            ", $",
            $third,
            "))"
        )
    };
}

/// Wakes lanes by inserting rows beside them: the publishing transaction holds the tenant's clock and must not wait for a
/// lane's lock.
macro_rules! wake {
    ($which:expr) => {
        concat!(
            "INSERT INTO lane_wakes (kind, tenant_id, key, sequence)
            SELECT 'webhook', w.tenant_id, w.id, CAST($2 AS BIGINT) FROM webhooks w
            WHERE w.tenant_id = $1 AND w.status = 'enabled' AND w.id IN ",
            $which
        )
    };
}

/// A delivery's id is its event's id with the endpoint's four-digit code at the end. Every delivery is due at once, even on
/// ordered endpoints: only the sender knows whether an earlier event of the record is unfinished, and it holds later ones
/// back.
macro_rules! deliver {
    ($which:expr) => {
        concat!(
            "INSERT INTO deliveries (tenant_id, id, webhook_id, event_sequence, event_id, event_type, record_id, status,
                skipped_reason, generation, next_attempt_at, tries, attempts, created_at)
            SELECT w.tenant_id, 'dlv_' || substr($2, 5, 22) || w.code, w.id, $3, $2, $4,
                CASE WHEN w.ordered THEN CAST($5 AS TEXT) END,
                CASE WHEN w.status = 'enabled' THEN 'pending' ELSE 'skipped' END,
                CASE WHEN w.status <> 'enabled' THEN w.status END,
                w.generation,
                CASE WHEN w.status = 'enabled' THEN CAST($6 AS BIGINT) END,
                0, 0, $7
            FROM webhooks w WHERE w.tenant_id = $1 AND w.id IN ",
            $which
        )
    };
}

kernel::statements! {
    /// Whether any endpoint subscribes to an event. Three lookups, because SQLite builds a temporary table for each `IN`.
    SUBSCRIBED = "SELECT webhook_id FROM webhook_subscriptions WHERE tenant_id = $1 AND pattern = $2
        UNION ALL SELECT webhook_id FROM webhook_subscriptions WHERE tenant_id = $1 AND pattern = $3
        UNION ALL SELECT webhook_id FROM webhook_subscriptions WHERE tenant_id = $1 AND pattern = $4 LIMIT 1";
    WAKE = wake!(subscribers!("3", "4", "5"));
    WAKE_ONE = wake!("($3)");
    DELIVER = deliver!(subscribers!("8", "9", "10"));
    DELIVER_ONE = deliver!("($8)");
}

/// Delivers an event to every endpoint that subscribes to it.
pub const SUBSCRIBERS: Follower = Follower {
    name: "webhooks",
    only_if: Some((SUBSCRIBED, pattern_values)),
    statements: &[(WAKE, wake_values), (DELIVER, deliver_values)],
};
/// Delivers an event only to the endpoint it is about, whatever the subscriptions are. Test events use it.
pub const SINGLE_ENDPOINT: Follower = Follower {
    name: "webhooks",
    only_if: None,
    statements: &[(WAKE_ONE, wake_one_values), (DELIVER_ONE, deliver_one_values)],
};

fn deliver_values(event: &NewEvent<'_>) -> Vec<Value> {
    event_values(event).into_iter().chain(pattern_values(event)).collect()
}

fn wake_one_values(event: &NewEvent<'_>) -> Vec<Value> {
    vec![event.sequence.into(), event.record.into()]
}

fn deliver_one_values(event: &NewEvent<'_>) -> Vec<Value> {
    event_values(event).into_iter().chain([event.record.into()]).collect()
}

fn event_values(event: &NewEvent<'_>) -> [Value; 6] {
    let NewEvent { id, sequence, kind, record, at, now } = *event;
    [id.into(), sequence.into(), kind.into(), record.into(), now.into(), at.into()]
}
