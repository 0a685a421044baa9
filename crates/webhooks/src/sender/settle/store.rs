//! SQL that saves outcomes, in a transaction that holds the lane's lease.

use std::sync::Arc;

use figures::Fact;
use figures::cells::{DELIVERED, DELIVERIES_FAILED, DELIVERY_LAG_MS};
use kernel::base::{Error, Result, StringEnum, Timestamp};
use kernel::jobs::lanes::LeasedLane;
use kernel::store::{FactRetention, Value, to_json};

use super::super::super::deliveries::store::AttemptColumns;
use super::super::super::{WebhookId, WebhookStatus};
use super::super::endpoint::{PauseReason, pause_columns};
use super::super::outcome::{DeliveryOutcome, DeliveryVerdict, DueDelivery};
use super::EndpointHealth;

kernel::statements! {
    /// What of a delivery tells whether an outcome is counted.
    COUNTED = "SELECT d.attempts, d.resends, d.status, d.created_at FROM deliveries d WHERE d.tenant_id = $1 AND d.id = $2";
    ENDPOINT_NOW = "SELECT version, status, url FROM webhooks WHERE tenant_id = $1 AND id = $2";
    /// A resend that was accepted during the attempt wins: the attempt is saved, and the delivery stays pending.
    SAVE_OUTCOME = "UPDATE deliveries SET attempts = $7, succeeded_at = COALESCE($8, succeeded_at),
            status = CASE WHEN resends = $9 THEN CAST($3 AS TEXT) ELSE 'pending' END,
            skipped_reason = CASE WHEN resends = $9 THEN CAST($4 AS TEXT) END,
            next_attempt_at = CASE WHEN resends = $9 THEN CAST($5 AS BIGINT) ELSE next_attempt_at END,
            tries = CASE WHEN resends = $9 THEN CAST($6 AS BIGINT) ELSE tries END
        WHERE tenant_id = $1 AND id = $2";
    INSERT_ATTEMPT = kernel::sql![
        AttemptColumns::INSERT,
        " ON CONFLICT (tenant_id, delivery_id, number) DO NOTHING"
    ];
    /// Of a record's unfinished events, the first is released; the others stay held.
    RELEASE_NEXT = "UPDATE deliveries /* INDEXED BY deliveries_in_order */ SET next_attempt_at = $4
        WHERE tenant_id = $1 AND webhook_id = $2 AND record_id = $3 AND status = 'pending' AND next_attempt_at IS NULL
            AND status IN ('pending', 'delivering')
            AND event_sequence = (SELECT MIN(d.event_sequence) FROM deliveries d WHERE d.tenant_id = $1
                AND d.webhook_id = $2 AND d.record_id = $3 AND d.status IN ('pending', 'delivering'))";
    /// Holds a delivery if an earlier event of its record is unfinished: that one is due as well, or was resent while this
    /// one was under way.
    HOLD_BEHIND = "UPDATE deliveries SET next_attempt_at = NULL
        WHERE tenant_id = $1 AND id = $2 AND EXISTS (SELECT 1 FROM deliveries e WHERE e.tenant_id = $1
            AND e.webhook_id = deliveries.webhook_id AND e.record_id = deliveries.record_id
            AND e.event_sequence < deliveries.event_sequence AND e.status IN ('pending', 'delivering'))";
    UPDATE_STATE = "UPDATE webhook_states SET last_success_at = COALESCE($3, last_success_at),
            last_failure_at = COALESCE($4, last_failure_at), consecutive_failures = $5, failing_since = $6,
            paused_until = $7, paused_reason = $8
        WHERE tenant_id = $1 AND webhook_id = $2";
    UPDATE_HOLD = "UPDATE webhook_states SET paused_until = $3, paused_reason = $4
        WHERE tenant_id = $1 AND webhook_id = $2 AND (paused_until IS NULL OR paused_until < $3)";
}

/// Saves the outcomes of attempts. False when another node has the lease by now, and nothing was saved. Saving the same
/// outcomes twice changes nothing.
pub async fn save_outcomes(
    lane: &LeasedLane,
    id: WebhookId,
    outcomes: Arc<Vec<DeliveryOutcome>>,
    endpoint_health: Option<EndpointHealth>,
) -> Result<bool> {
    let held = lane.clone();
    lane.db()
        .write(async move |tx| {
            let holding = held.defer_lease_extension(tx).await?;
            let endpoint = tx.defer_query::<(i64, String, String)>(ENDPOINT_NOW, vec![id.into()]).await?;
            let mut counted = Vec::with_capacity(outcomes.len());
            for outcome in outcomes.iter() {
                counted.push(tx.defer_query(COUNTED, vec![outcome.due.id.into()]).await?);
            }
            if !holding.is_held(tx).await? {
                return Ok(false);
            }
            let now = tx.env().now();
            let mut fact = Fact::new(now.as_millis());
            // Every change of an endpoint locks its lane before it commits, so this state holds until our commit.
            let endpoint = tx.await_rows(endpoint).await?.pop();
            let (version, status, url) = endpoint.ok_or_else(Error::not_found)?;
            let enabled = status == WebhookStatus::Enabled.as_str();
            let (mut updates, mut attempts) = (Vec::new(), Vec::new());
            let (mut done, mut retried) = (Vec::new(), Vec::new());
            for (outcome, counted) in outcomes.iter().zip(counted) {
                let verdict = outcome.verdict_at_version(version, enabled);
                if let Some(delivery) = tx.await_rows::<CountedDelivery>(counted).await?.pop() {
                    add_to_fact(&mut fact, outcome, verdict, delivery, now);
                }
                updates.push(outcome_args(outcome, verdict, now));
                attempts.extend(attempt_args(outcome)?);
                match (&outcome.due.record_id, verdict) {
                    (None, _) => {}
                    (Some(_), DeliveryVerdict::Retry(_)) => retried.push(vec![outcome.due.id.into()]),
                    (Some(record), _) => done.push(vec![id.into(), record.as_str().into(), now.into()]),
                }
            }
            // From here on no statement is awaited: all of them are sent together with the commit.
            tx.record_fact(&fact, FactRetention::Long).await?;
            tx.defer_exec_each(SAVE_OUTCOME, updates).await?;
            tx.defer_exec_each(INSERT_ATTEMPT, attempts).await?;
            tx.defer_exec_each(HOLD_BEHIND, retried).await?;
            tx.defer_exec_each(RELEASE_NEXT, done).await?;
            let hold = outcomes.iter().filter_map(|outcome| outcome.find_retry_after(&url)).max().filter(|_| enabled);
            if let Some(health) = endpoint_health.filter(|health| health.version == version) {
                let (paused_until, paused_reason) = pause_columns(health.pause);
                let state = vec![
                    id.into(),
                    health.last_success_at.into(),
                    health.last_failure_at.into(),
                    health.consecutive_failures.into(),
                    health.failing_since.into(),
                    paused_until.into(),
                    paused_reason.into(),
                ];
                tx.defer_exec(UPDATE_STATE, state).await?;
            } else if let Some(until) = hold {
                // The endpoint has changed, but the URL that sent `Retry-After` is the same.
                let hold = vec![id.into(), until.into(), PauseReason::RetryAfter.as_str().into()];
                tx.defer_exec(UPDATE_HOLD, hold).await?;
            }
            Ok(true)
        })
        .await
}

/// Attempts, resends, status and creation, as they are stored.
type CountedDelivery = (i64, i64, String, Timestamp);

/// What an outcome contributes to figures. One that was saved before, by a commit whose answer was lost, is counted already;
/// one during which the delivery was sent again is not its end. How long a resend took since its event says nothing.
fn add_to_fact(
    fact: &mut Fact,
    outcome: &DeliveryOutcome,
    verdict: DeliveryVerdict,
    (attempts, resends, status, created_at): CountedDelivery,
    now: Timestamp,
) {
    let DueDelivery { attempts: known_attempts, resends: known_resends, .. } = outcome.due;
    if attempts != known_attempts || resends != known_resends || !UNFINISHED.contains(&status.as_str()) {
        return;
    }
    match verdict {
        DeliveryVerdict::Succeeded => {
            fact.add_count(DELIVERED, 1);
            if resends == 0 {
                fact.add_sample(DELIVERY_LAG_MS, now.as_millis() - created_at.as_millis());
            }
        }
        DeliveryVerdict::GivenUp | DeliveryVerdict::Gone(_) => fact.add_count(DELIVERIES_FAILED, 1),
        DeliveryVerdict::Retry(_) | DeliveryVerdict::Expired => {}
    }
}

const UNFINISHED: [&str; 2] = ["pending", "delivering"];

/// The arguments of [`SAVE_OUTCOME`].
fn outcome_args(outcome: &DeliveryOutcome, verdict: DeliveryVerdict, now: Timestamp) -> Vec<Value> {
    let DeliveryOutcome { due, attempt, .. } = outcome;
    let (status, reason, next, succeeded_at) = match verdict {
        DeliveryVerdict::Succeeded => ("succeeded", None, None, Some(now)),
        DeliveryVerdict::Retry(at) => ("pending", None, Some(at), None),
        DeliveryVerdict::GivenUp | DeliveryVerdict::Gone(_) => ("failed", None, None, None),
        DeliveryVerdict::Expired => ("skipped", Some("expired"), None, None),
    };
    let attempt_count = i64::from(attempt.is_some());
    vec![
        due.id.into(),
        status.into(),
        reason.into(),
        next.into(),
        (due.tries + attempt_count).into(),
        (due.attempts + attempt_count).into(),
        succeeded_at.into(),
        due.resends.into(),
    ]
}

/// The arguments of [`INSERT_ATTEMPT`]; `None` when nothing was sent.
fn attempt_args(outcome: &DeliveryOutcome) -> Result<Option<Vec<Value>>> {
    let Some(attempt) = &outcome.attempt else { return Ok(None) };
    let timings = to_json(&attempt.timings)?;
    let row = AttemptColumns {
        delivery_id: outcome.due.id.into(),
        number: (outcome.due.attempts + 1).into(),
        at: attempt.at.into(),
        status_code: attempt.status_code.into(),
        error: attempt.error.as_deref().into(),
        response_body: attempt.response_body.as_deref().into(),
        address: attempt.address.as_deref().into(),
        duration_ms: attempt.duration_ms.into(),
        timings: timings.into(),
    };
    Ok(Some(row.into_vec()))
}
