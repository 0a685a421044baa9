//! What is to be sent, and what became of it.

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
    /// How often it was asked for again; more by the end of an attempt means that it is to be sent once more.
    pub resends: i64,
    pub next_attempt_at: Timestamp,
    /// What is sent, if it was looked up already.
    pub body: Option<Bytes>,
    /// Whether it has to wait for an earlier event of its record.
    pub is_behind: bool,
}

impl Due {
    /// The same, for whoever does not send it.
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

/// The receiver wants no more, for good.
pub const GONE: i64 = 410;

/// What became of a delivery by an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Succeeded,
    Retry(Timestamp),
    GivenUp,
    /// The endpoint wants no more. When to try again if it is another by now, to which that does not apply.
    Gone(Option<Timestamp>),
    /// There is nothing left to send.
    Expired,
}

/// An attempt that has come to its end. Without `attempt` nothing was sent.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub due: Due,
    pub attempt: Option<Attempt>,
    pub fate: Fate,
    /// The version of the endpoint that was asked, and that its answer is about.
    pub asked: i64,
    /// This place asked for no request at all before then.
    pub hold: Option<(Timestamp, Target)>,
}

impl Outcome {
    /// Nothing was sent.
    pub fn unsent(due: Due, asked: i64, fate: Fate) -> Self {
        Outcome { due, attempt: None, fate, asked, hold: None }
    }

    /// Whether the endpoint of this version wants no more.
    pub fn is_gone(&self, version: i64) -> bool {
        matches!(self.fate, Fate::Gone(_)) && self.asked == version
    }

    /// Whether the endpoint of this version was asked, and did not take what was sent.
    pub fn has_failed(&self, version: i64) -> bool {
        self.attempt.is_some() && self.fate != Fate::Succeeded && self.asked == version
    }

    /// The moment before which this place wants no request at all, if it said so.
    pub fn held_by(&self, place: &str) -> Option<Timestamp> {
        self.hold.as_ref().filter(|(_, asked)| asked.as_str() == place).map(|(until, _)| *until)
    }

    /// What becomes of the delivery when its endpoint has this version and is sent to, or is not.
    pub fn fate_at(&self, version: i64, enabled: bool) -> Fate {
        match self.fate {
            Fate::Gone(retry) if enabled && version != self.asked => retry.map_or(Fate::GivenUp, Fate::Retry),
            fate => fate,
        }
    }

    /// What `/metrics` counts an attempt as.
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

/// Attempts in figures, by outcome. What counts one is kept: finding it by its labels takes longer than counting.
#[derive(Default)]
pub struct Tally(HashMap<&'static str, Counter>);

impl Tally {
    pub fn count(&mut self, outcome: &Outcome) {
        let name = outcome.name();
        let counter = || metrics::counter!("webhook_attempts_total", "outcome" => name);
        self.0.entry(name).or_insert_with(counter).increment(1);
    }
}
