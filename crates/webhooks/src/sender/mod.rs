//! What sends deliveries. Each endpoint is a lane, which one node at a time works on: see `kernel/jobs/dispatch`.
//!
//! `lane` is the work on one endpoint, `ready` is what it sends next, `pace` says how fast, `attempt` is one request, `settle`
//! notes what became of it, `order` holds back what has to wait for an earlier event, `schedule` says when it is tried again. The log and the lanes are the only state; a node that
//! dies leaves nothing behind but requests whose answers nobody noted.

mod attempt;
mod lane;
pub mod order {
    pub mod store;
}
mod outcome;
mod pace;
mod ready;
mod schedule;
pub mod settle;
mod sign;
pub mod store;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use kernel::base::{DAY_MS, HmacKey, Result, Timestamp};
use kernel::jobs::Node;
use kernel::jobs::dispatch::{Dispatcher, Limits, Work};
use kernel::jobs::lanes::{Lane, POLL_MS};
use kernel::outbound::Target;

use super::WEBHOOK_LANE;
use lane::EndpointLane;
use pace::Pause;
pub use schedule::{SCHEDULE_MS, WAIT_MAX_MS};

/// What the operator decides about sending.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The waits between attempts; after the last a delivery is given up.
    pub schedule_ms: Vec<i64>,
    /// For one attempt, the answer's body included.
    pub timeout: Duration,
    /// An endpoint that only fails for this long is switched off.
    pub auto_disable_ms: i64,
    /// See [`Limits::lanes_max`].
    pub lanes_max: usize,
    /// How long a lane is worked on while others wait for a turn.
    pub tenure: Duration,
    /// How long attempts under way are waited for when the process stops.
    pub stop_max: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            schedule_ms: SCHEDULE_MS.to_vec(),
            timeout: Duration::from_secs(15),
            auto_disable_ms: 5 * DAY_MS,
            lanes_max: 512,
            tenure: Duration::from_secs(5),
            stop_max: Duration::from_secs(5),
        }
    }
}

impl Settings {
    /// The first wait of the schedule.
    fn first_wait_ms(&self) -> i64 {
        self.schedule_ms.first().copied().unwrap_or(POLL_MS)
    }
}

/// An endpoint as the sender needs it.
pub struct Endpoint {
    version: i64,
    /// None when nothing may be sent to it.
    target: Option<Target>,
    /// What every request to it starts with; none if its owner's cannot be sent.
    headers: Option<attempt::Headers>,
    secrets: Vec<SigningSecret>,
    rate_limit_per_second: Option<i64>,
    ordered: bool,
    generation: i64,
    deleted: bool,
    events: Vec<String>,
    /// Why what waits is not sent, if the endpoint is off.
    skip_reason: &'static str,
    recovering: bool,
    state: State,
}

impl Endpoint {
    /// Whether nothing is left of what waited when it was last switched off.
    fn is_drained(&self) -> bool {
        self.state.drained >= self.generation
    }
}

/// A key that signs, until it does no more.
pub struct SigningSecret {
    key: HmacKey,
    valid_until: Option<Timestamp>,
}

/// What was noted of an endpoint when its lane was last worked on.
pub struct State {
    consecutive_failures: i64,
    failing_since: Option<Timestamp>,
    paused: Option<(Timestamp, Pause)>,
    drained: i64,
    /// Whether deliveries that waited when order was switched on have yet to be told their record.
    records_missing: bool,
}

/// Sends what is due. Cheap to clone.
#[derive(Clone)]
pub struct Sender(Dispatcher<Sending>);

impl Sender {
    pub fn new(node: Node, settings: Settings) -> Self {
        Sender(Dispatcher::new(Sending { node, settings: Arc::new(settings) }))
    }

    /// See [`Dispatcher::run_due`].
    pub async fn run_due(&self) -> Result<()> {
        self.0.run_due().await
    }

    /// See [`Dispatcher::run`].
    pub async fn run(self, stop: impl Future<Output = ()>) {
        self.0.run(stop).await;
    }
}

/// What the lanes of all endpoints share.
#[derive(Clone)]
struct Sending {
    node: Node,
    settings: Arc<Settings>,
}

impl Work for Sending {
    const KIND: &'static str = WEBHOOK_LANE;
    type Lane = EndpointLane;

    fn node(&self) -> &Node {
        &self.node
    }

    fn limits(&self) -> Limits {
        let Settings { lanes_max, tenure, stop_max, .. } = *self.settings;
        Limits { lanes_max, tenure, stop_max }
    }

    fn open(&self, lane: Lane) -> Option<EndpointLane> {
        let Ok(id) = lane.key.parse() else {
            tracing::error!(lane = lane.key, "a lane is not named after an endpoint");
            return None;
        };
        Some(EndpointLane::new(self.clone(), lane, id))
    }
}
