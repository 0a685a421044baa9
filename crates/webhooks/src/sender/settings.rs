//! The settings of the sender, and what its lanes share.

use std::sync::Arc;
use std::time::Duration;

use kernel::base::DAY_MS;
use kernel::jobs::ServerNode;
use kernel::jobs::lanes::POLL_MS;

use super::schedule::SCHEDULE_MS;

/// The operator's settings for sending.
#[derive(Clone, Debug)]
pub struct SenderSettings {
    /// The waits between attempts; after the last one a delivery is given up.
    pub schedule_ms: Vec<i64>,
    /// The timeout of one attempt, the response body included.
    pub timeout: Duration,
    /// An endpoint that only fails for this long is disabled.
    pub auto_disable_ms: i64,
    /// See `lanes_max` of `DispatchLimits`.
    pub lanes_max: usize,
    /// How long a node works on a lane while other lanes wait.
    pub tenure: Duration,
    /// How long a stopping process waits for attempts under way.
    pub stop_max: Duration,
}

impl Default for SenderSettings {
    fn default() -> Self {
        SenderSettings {
            schedule_ms: SCHEDULE_MS.to_vec(),
            timeout: Duration::from_secs(15),
            auto_disable_ms: 5 * DAY_MS,
            lanes_max: 512,
            tenure: Duration::from_secs(5),
            stop_max: Duration::from_secs(5),
        }
    }
}

impl SenderSettings {
    /// The first wait of the schedule.
    pub fn first_wait_ms(&self) -> i64 {
        self.schedule_ms.first().copied().unwrap_or(POLL_MS)
    }
}

/// Shared by the lanes of all endpoints.
#[derive(Clone)]
pub struct SenderContext {
    pub node: ServerNode,
    pub settings: Arc<SenderSettings>,
}
