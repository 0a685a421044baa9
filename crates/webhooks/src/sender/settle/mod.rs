//! Saves the outcomes of attempts: the state of the deliveries, and the health of the endpoint version they were sent to.

pub mod store;

use kernel::base::Timestamp;

use super::endpoint::PauseReason;
use super::outcome::{DeliveryOutcome, DeliveryVerdict};
use super::pace::Pace;

/// The health of an endpoint as its attempts showed it.
#[derive(Clone, Debug)]
pub struct EndpointHealth {
    /// The version of the endpoint; its health says nothing about another version.
    pub version: i64,
    last_success_at: Option<Timestamp>,
    last_failure_at: Option<Timestamp>,
    consecutive_failures: i64,
    failing_since: Option<Timestamp>,
    pause: Option<(Timestamp, PauseReason)>,
}

impl EndpointHealth {
    pub fn new(version: i64, pace: &mut Pace, outcomes: &[DeliveryOutcome], now: Timestamp) -> Self {
        let attempts = outcomes.iter().filter(|outcome| outcome.endpoint_version == version);
        let attempts = attempts
            .filter_map(|outcome| Some((outcome.verdict == DeliveryVerdict::Succeeded, outcome.attempt.as_ref()?.at)));
        let last = |success: bool| {
            attempts.clone().filter(|(succeeded, _)| *succeeded == success).map(|(_, at)| at).next_back()
        };
        EndpointHealth {
            version,
            last_success_at: last(true),
            last_failure_at: last(false),
            consecutive_failures: pace.consecutive_failures(),
            failing_since: pace.failing_since(),
            pause: pace.find_pause(now),
        }
    }
}
