//! What is to be sent, and what became of it.

use kernel::base::{Code, DeliveryId, EventId, Timestamp};

use super::super::deliveries::Attempt;

/// A delivery that is due.
#[derive(Clone, Debug)]
pub struct Due {
    pub id: DeliveryId,
    pub event_id: EventId,
    pub event_sequence: i64,
    pub record_id: Option<String>,
    pub tries: i64,
    pub attempts: i64,
}

/// The receiver wants no more, for good.
pub const GONE: i64 = 410;

/// What became of a delivery by an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Succeeded,
    Retry(Timestamp),
    GivenUp,
    /// There is nothing left to send.
    Expired,
}

/// An attempt that has come to its end. Without `attempt` nothing was sent.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub due: Due,
    pub attempt: Option<Attempt>,
    pub fate: Fate,
}

impl Outcome {
    pub fn is_gone(&self) -> bool {
        self.attempt.as_ref().is_some_and(|attempt| attempt.status_code == Some(GONE))
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
