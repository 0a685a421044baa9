//! A due delivery, and the outcome of its attempt.

use std::collections::HashMap;

use bytes::Bytes;
use kernel::base::{Code, EventId, Timestamp};
use kernel::outbound::Target;
use metrics::Counter;

use super::super::deliveries::{DeliveryAttempt, DeliveryId};

/// A position in the sending order: when a delivery is due, and the sequence of its event.
pub type DeliveryPosition = (Timestamp, i64);

/// Before every due delivery.
pub const FRONT: DeliveryPosition = (Timestamp::from_millis(i64::MIN), 0);

/// A delivery that is due.
#[derive(Clone, Debug)]
pub struct DueDelivery {
    pub id: DeliveryId,
    pub event_id: EventId,
    pub event_sequence: i64,
    pub record_id: Option<String>,
    pub tries: i64,
    pub attempts: i64,
    /// How often it was resent; if this has risen by the end of an attempt, the delivery is sent once more.
    pub resends: i64,
    pub next_attempt_at: Timestamp,
    /// The payload, if it was loaded with the row.
    pub body: Option<Bytes>,
    /// Whether an earlier event of its record is unfinished.
    pub is_behind: bool,
}

impl DueDelivery {
    /// A copy without the payload, for recording a failure.
    pub fn without_body(&self) -> DueDelivery {
        let DueDelivery { id, event_id, event_sequence, tries, attempts, resends, next_attempt_at, is_behind, .. } =
            *self;
        let record_id = self.record_id.clone();
        DueDelivery {
            id,
            event_id,
            event_sequence,
            record_id,
            tries,
            attempts,
            resends,
            next_attempt_at,
            body: None,
            is_behind,
        }
    }
}

/// HTTP 410: the endpoint wants no more deliveries, for good.
pub const GONE: i64 = 410;

/// What an attempt means for its delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryVerdict {
    Succeeded,
    Retry(Timestamp),
    GivenUp,
    /// The endpoint answered 410. The time is that of the retry if the endpoint has changed meanwhile, so that 410 no longer
    /// applies.
    Gone(Option<Timestamp>),
    /// The payload is no longer kept.
    Expired,
}

/// A finished attempt. Without `attempt`, nothing was sent.
#[derive(Clone, Debug)]
pub struct DeliveryOutcome {
    pub due: DueDelivery,
    pub attempt: Option<DeliveryAttempt>,
    pub verdict: DeliveryVerdict,
    /// The version of the endpoint that the request was sent to.
    pub endpoint_version: i64,
    /// The `Retry-After` that pauses the whole endpoint: until when, and the URL that sent it.
    pub retry_after: Option<(Timestamp, Target)>,
}

impl DeliveryOutcome {
    pub fn for_unsent(due: DueDelivery, endpoint_version: i64, verdict: DeliveryVerdict) -> Self {
        DeliveryOutcome { due, attempt: None, verdict, endpoint_version, retry_after: None }
    }

    /// Whether this version of the endpoint answered 410.
    pub fn is_gone(&self, version: i64) -> bool {
        matches!(self.verdict, DeliveryVerdict::Gone(_)) && self.endpoint_version == version
    }

    /// Whether a request to this version of the endpoint failed.
    pub fn has_failed(&self, version: i64) -> bool {
        self.attempt.is_some() && self.verdict != DeliveryVerdict::Succeeded && self.endpoint_version == version
    }

    /// Until when this URL asked for no request at all, if it did.
    pub fn find_retry_after(&self, url: &str) -> Option<Timestamp> {
        self.retry_after.as_ref().filter(|(_, target)| target.as_str() == url).map(|(until, _)| *until)
    }

    /// The verdict, given the endpoint's present version and whether it is enabled.
    pub fn verdict_at_version(&self, version: i64, enabled: bool) -> DeliveryVerdict {
        match self.verdict {
            DeliveryVerdict::Gone(retry) if enabled && version != self.endpoint_version => {
                retry.map_or(DeliveryVerdict::GivenUp, DeliveryVerdict::Retry)
            }
            verdict => verdict,
        }
    }

    /// The `outcome` label under which `/metrics` counts the attempt.
    pub fn metric_label(&self) -> &'static str {
        match (&self.attempt, self.verdict) {
            (None, _) => "not_sent",
            (Some(_), DeliveryVerdict::Succeeded) => "succeeded",
            (Some(attempt), _) => {
                let error = attempt.error.as_deref().unwrap_or_default();
                let code = error.split(':').next().unwrap_or_default();
                let labels = [
                    "http_status",
                    "redirect",
                    "name_not_resolved",
                    "connect_failed",
                    "tls_failed",
                    "timeout",
                    "connection_broken",
                ];
                let refused = Code::TargetNotAllowed.name();
                labels.into_iter().chain([refused]).find(|label| *label == code).unwrap_or("other")
            }
        }
    }
}

/// Counters of attempts by outcome. The handles are cached, because finding one by its labels takes longer than counting.
#[derive(Default)]
pub struct AttemptCounters(HashMap<&'static str, Counter>);

impl AttemptCounters {
    pub fn count_attempt(&mut self, outcome: &DeliveryOutcome) {
        let name = outcome.metric_label();
        let counter = || metrics::counter!("webhook_attempts_total", "outcome" => name);
        self.0.entry(name).or_insert_with(counter).increment(1);
    }
}
