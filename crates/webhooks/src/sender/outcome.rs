//! A due delivery, and the outcome of its attempt.

use std::collections::HashMap;

use bytes::Bytes;
use kernel::base::{Code, EventId, Timestamp};
use kernel::outbound::Target;
use metrics::Counter;

use super::super::deliveries::{Attempt, DeliveryId};

/// A delivery that is due.
#[derive(Clone, Debug)]
pub struct Due {
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

impl Due {
    /// A copy without the payload, for recording a failure.
    pub fn without_body(&self) -> Due {
        let Due { id, event_id, event_sequence, tries, attempts, resends, next_attempt_at, is_behind, .. } = *self;
        let record_id = self.record_id.clone();
        Due {
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
pub enum Fate {
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
pub struct Outcome {
    pub due: Due,
    pub attempt: Option<Attempt>,
    pub fate: Fate,
    /// The version of the endpoint that the request was sent to.
    pub asked: i64,
    /// The `Retry-After` that pauses the whole endpoint: until when, and the URL that sent it.
    pub hold: Option<(Timestamp, Target)>,
}

impl Outcome {
    pub fn unsent(due: Due, asked: i64, fate: Fate) -> Self {
        Outcome { due, attempt: None, fate, asked, hold: None }
    }

    /// Whether this version of the endpoint answered 410.
    pub fn is_gone(&self, version: i64) -> bool {
        matches!(self.fate, Fate::Gone(_)) && self.asked == version
    }

    /// Whether a request to this version of the endpoint failed.
    pub fn has_failed(&self, version: i64) -> bool {
        self.attempt.is_some() && self.fate != Fate::Succeeded && self.asked == version
    }

    /// Until when this URL asked for no request at all, if it did.
    pub fn held_by(&self, place: &str) -> Option<Timestamp> {
        self.hold.as_ref().filter(|(_, asked)| asked.as_str() == place).map(|(until, _)| *until)
    }

    /// The verdict, given the endpoint's present version and whether it is enabled.
    pub fn fate_at(&self, version: i64, enabled: bool) -> Fate {
        match self.fate {
            Fate::Gone(retry) if enabled && version != self.asked => retry.map_or(Fate::GivenUp, Fate::Retry),
            fate => fate,
        }
    }

    /// The `outcome` label under which `/metrics` counts the attempt.
    pub fn name(&self) -> &'static str {
        match (&self.attempt, self.fate) {
            (None, _) => "not_sent",
            (Some(_), Fate::Succeeded) => "succeeded",
            (Some(attempt), _) => {
                let error = attempt.error.as_deref().unwrap_or_default();
                let code = error.split(':').next().unwrap_or_default();
                let known = [
                    "http_status",
                    "redirect",
                    "name_not_resolved",
                    "connect_failed",
                    "tls_failed",
                    "timeout",
                    "connection_broken",
                ];
                let refused = Code::TargetNotAllowed.name();
                known.into_iter().chain([refused]).find(|known| *known == code).unwrap_or("other")
            }
        }
    }
}

/// Counters of attempts by outcome. The handles are cached, because finding one by its labels takes longer than counting.
#[derive(Default)]
pub struct Tally(HashMap<&'static str, Counter>);

impl Tally {
    pub fn count(&mut self, outcome: &Outcome) {
        let name = outcome.name();
        let counter = || metrics::counter!("webhook_attempts_total", "outcome" => name);
        self.0.entry(name).or_insert_with(counter).increment(1);
    }
}
