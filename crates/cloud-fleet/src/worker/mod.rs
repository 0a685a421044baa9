//! Works on clouds in the background: verifies credentials, syncs machines and makes those that were ordered.
//!
//! Each provider has a lane, on which it is verified, and one for each of its regions, on which its machines are synced and
//! made: see `kernel/jobs/dispatch`. `lane` is the work on one lane, `job` what its jobs share, `sync` one sync of a region, `operation` one step of an
//! order, `store` the SQL. A job saves what it does by itself, with the lane's lease; so a node that died or froze is followed
//! by another, and cannot overwrite what that one saves.

mod job;
mod lane;
mod operation;
/// What becomes of orders.
mod operation_end {
    pub mod store;
}
pub mod store;
mod sync;
mod tagged_machines;

use std::future::Future;
use std::time::Duration;

use kernel::base::Result;
use kernel::jobs::ServerNode;
use kernel::jobs::dispatch::{DispatchLimits, Dispatcher, WorkKind};
use kernel::jobs::lanes::LeasedLane;

use crate::CLOUD_LANE;
use lane::CloudLane;

/// Lanes that one node works on at once: most of them wait for a cloud.
const LANES_MAX: usize = 256;
const TENURE_MAX: Duration = Duration::from_mins(1);
/// A request to a cloud that takes longer when the process stops is repeated by the next node, or looked up.
const STOP_MAX: Duration = Duration::from_secs(5);

/// Works on due lanes. While the operator holds outgoing traffic it leases none. Cheap to clone.
#[derive(Clone)]
pub struct CloudWorker {
    node: ServerNode,
    dispatcher: Dispatcher<CloudContext>,
}

/// What all lanes of a node share.
#[derive(Clone)]
struct CloudContext {
    node: ServerNode,
}

impl CloudWorker {
    pub fn new(node: ServerNode) -> Self {
        CloudWorker { dispatcher: Dispatcher::new(CloudContext { node: node.clone() }), node }
    }

    /// See [`Dispatcher::run_due`].
    pub async fn run_due(&self) -> Result<()> {
        if self.node.outbound.is_holding() { Ok(()) } else { self.dispatcher.run_due().await }
    }

    /// See [`Dispatcher::run`].
    pub async fn run(self, stop: impl Future<Output = ()>) {
        if self.node.outbound.is_holding() { stop.await } else { self.dispatcher.run(stop).await }
    }
}

impl WorkKind for CloudContext {
    const KIND: &'static str = CLOUD_LANE;
    type Lane = CloudLane;

    fn node(&self) -> &ServerNode {
        &self.node
    }

    fn limits(&self) -> DispatchLimits {
        DispatchLimits { lanes_max: LANES_MAX, tenure_max: TENURE_MAX, stop_max: STOP_MAX }
    }

    fn open_lane(&self, lane: LeasedLane) -> Option<CloudLane> {
        let (provider, region) = match lane.key.split_once('/') {
            Some((provider, region)) => (provider.to_owned(), Some(region.to_owned())),
            None => (lane.key.clone(), None),
        };
        let Ok(provider) = provider.parse() else {
            tracing::error!(lane = lane.key, "lane key is not of a provider");
            return None;
        };
        Some(CloudLane::new(self.node.clone(), lane, provider, region))
    }
}
