//! Sends deliveries. Each endpoint has a lane, which one node at a time works on: see `kernel/jobs/dispatch`.
//!
//! `lane` is the work on one endpoint, `ready` its queue of due deliveries, `pace` decides how fast they are sent, `attempt`
//! is one request, `settle` saves outcomes, `order` holds deliveries that wait for an earlier event, `schedule` computes the
//! backoff. The delivery log and the lanes are the only state: if a node dies, only responses that were not saved are lost.

mod attempt;
mod endpoint;
mod lane;
pub mod order {
    pub mod store;
}
mod outcome;
mod pace;
mod ready;
mod schedule;
mod settings;
pub mod settle;
mod sign;
pub mod store;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use kernel::base::Result;
use kernel::jobs::ServerNode;
use kernel::jobs::dispatch::{DispatchLimits, Dispatcher, WorkKind};
use kernel::jobs::lanes::{self, LeasedLane, POLL_MS};

use super::WEBHOOK_LANE;
use lane::EndpointLane;
pub use schedule::{SCHEDULE_MS, WAIT_MAX_MS};
use settings::SenderContext;
pub use settings::SenderSettings;

/// Sends due deliveries. While the operator holds outgoing traffic it leases no lane: deliveries stay as they are. Cheap to
/// clone.
#[derive(Clone)]
pub struct WebhookSender {
    node: ServerNode,
    dispatcher: Dispatcher<SenderContext>,
}

impl WebhookSender {
    pub fn new(node: ServerNode, settings: SenderSettings) -> Self {
        let context = SenderContext { node: node.clone(), settings: Arc::new(settings) };
        WebhookSender { node, dispatcher: Dispatcher::new(context) }
    }

    /// See [`Dispatcher::run_due`].
    pub async fn run_due(&self) -> Result<()> {
        if self.is_holding() { self.apply_wakes().await } else { self.dispatcher.run_due().await }
    }

    /// See [`Dispatcher::run`].
    pub async fn run(self, stop: impl Future<Output = ()>) {
        if self.is_holding() { self.hold_deliveries(stop).await } else { self.dispatcher.run(stop).await }
    }

    fn is_holding(&self) -> bool {
        self.node.outbound.is_holding()
    }

    /// Sends nothing until `stop`.
    async fn hold_deliveries(&self, stop: impl Future<Output = ()>) {
        let mut stop = pin!(stop);
        loop {
            if let Err(error) = self.apply_wakes().await {
                tracing::warn!(%error, kind = WEBHOOK_LANE, "failed to wake lanes; will retry");
            }
            tokio::select! {
                () = &mut stop => return,
                () = tokio::time::sleep(Duration::from_millis(POLL_MS.unsigned_abs())) => {}
            }
        }
    }

    /// Makes woken lanes due. Every event adds a wake, so they would accumulate as long as deliveries are held.
    async fn apply_wakes(&self) -> Result<()> {
        lanes::apply_wakes(&self.node, WEBHOOK_LANE).await
    }
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
