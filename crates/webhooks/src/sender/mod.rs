//! Sends deliveries. Each endpoint has a lane, which one node at a time works on: see `kernel/jobs/dispatch`.
//!
//! `lane` is the work on one endpoint, `ready` its queue of due deliveries, `pace` decides how fast they are sent, `attempt`
//! is one request, `settle` saves outcomes, `order` holds deliveries that wait for an earlier event, `schedule` computes the
//! backoff. The delivery log and the lanes are the only state: if a node dies, only responses that were not saved are lost.

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
use kernel::jobs::ServerNode;
use kernel::jobs::dispatch::{DispatchLimits, Dispatcher, WorkKind};
use kernel::jobs::lanes::{LeasedLane, POLL_MS};
use kernel::outbound::Target;

use super::WEBHOOK_LANE;
use lane::EndpointLane;
use pace::PauseReason;
pub use schedule::{SCHEDULE_MS, WAIT_MAX_MS};

/// The operator's settings for sending.
#[derive(Clone, Debug)]
pub struct SenderSettings {
    /// The waits between attempts; after the last one a delivery is given up.
    pub schedule_ms: Vec<i64>,
    /// The timeout of one attempt, the response body included.
    pub timeout: Duration,
    /// An endpoint that only fails for this long is disabled.
    pub auto_disable_ms: i64,
    /// See [`DispatchLimits::lanes_max`].
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
    fn first_wait_ms(&self) -> i64 {
        self.schedule_ms.first().copied().unwrap_or(POLL_MS)
    }
}

/// An endpoint as the sender needs it.
pub struct Endpoint {
    version: i64,
    /// `None` when nothing may be sent to the endpoint.
    target: Option<Target>,
    /// The headers that every request has; `None` if a header of the tenant cannot be sent.
    headers: Option<attempt::EndpointHeaders>,
    secrets: Vec<SigningSecret>,
    rate_limit_per_second: Option<i64>,
    ordered: bool,
    generation: i64,
    deleted: bool,
    events: Vec<String>,
    /// Why pending deliveries are skipped, if the endpoint is disabled or deleted.
    skip_reason: &'static str,
    recovering: bool,
    state: EndpointState,
}

impl Endpoint {
    /// Whether all deliveries that were pending when the endpoint was last disabled have been skipped.
    fn is_drained(&self) -> bool {
        self.state.drained >= self.generation
    }
}

/// A signing key, and when it stops signing.
pub struct SigningSecret {
    key: HmacKey,
    valid_until: Option<Timestamp>,
}

/// The saved state of an endpoint, as its lane last left it.
pub struct EndpointState {
    consecutive_failures: i64,
    failing_since: Option<Timestamp>,
    paused: Option<(Timestamp, PauseReason)>,
    drained: i64,
    /// Whether deliveries that were pending when order was enabled still need their record id.
    records_missing: bool,
}

/// Sends due deliveries. Cheap to clone.
#[derive(Clone)]
pub struct WebhookSender(Dispatcher<SenderContext>);

impl WebhookSender {
    pub fn new(node: ServerNode, settings: SenderSettings) -> Self {
        WebhookSender(Dispatcher::new(SenderContext { node, settings: Arc::new(settings) }))
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

/// Shared by the lanes of all endpoints.
#[derive(Clone)]
struct SenderContext {
    node: ServerNode,
    settings: Arc<SenderSettings>,
}

impl WorkKind for SenderContext {
    const KIND: &'static str = WEBHOOK_LANE;
    type Lane = EndpointLane;

    fn node(&self) -> &ServerNode {
        &self.node
    }

    fn limits(&self) -> DispatchLimits {
        let SenderSettings { lanes_max, tenure, stop_max, .. } = *self.settings;
        DispatchLimits { lanes_max, tenure_max: tenure, stop_max }
    }

    fn open_lane(&self, lane: LeasedLane) -> Option<EndpointLane> {
        let Ok(id) = lane.key.parse() else {
            tracing::error!(lane = lane.key, "lane key is not an endpoint id");
            return None;
        };
        Some(EndpointLane::new(self.clone(), lane, id))
    }
}
