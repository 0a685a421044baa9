//! The engine that runs workflows: the runs of a tenant are one lane, which one node works on at a time.
//!
//! `lane` loads the due steps, `evaluate` computes the input of a step, `job` runs it and `act` saves the result. `follow`
//! creates runs for events, `fire` for schedules. Rows are the only state: when a node dies, only the responses to requests
//! in flight are lost.

pub mod act {
    pub mod store;
}
pub mod evaluate;
pub mod fire {
    pub mod store;
}
pub mod follow {
    pub mod store;
}
mod http;
mod job;
mod lane;
pub mod revisions;
pub mod store;

use std::future::Future;
use std::sync::Arc;

use kernel::base::{Actor, Chain, Result};
use kernel::jobs::Node;
use kernel::jobs::dispatch::{Dispatcher, Limits, Work};
use kernel::jobs::lanes::Lane;

use super::runs::StoredRun;
use super::{Settings, WORKFLOW_LANE};
use lane::TenantLane;
use revisions::Revisions;

/// Runs workflows. Cheap to clone.
#[derive(Clone)]
pub struct Engine(Dispatcher<Running>);

impl Engine {
    pub fn new(node: Node, settings: Settings) -> Self {
        Engine(Dispatcher::new(Running { node, settings: Arc::new(settings), revisions: Arc::default() }))
    }

    /// Does everything that is due now, and nothing that becomes due later. For tests, which move the clock themselves.
    pub async fn run_due(&self) -> Result<()> {
        self.0.run_due().await
    }

    /// Works until `stop`, then waits for running steps and releases the lanes.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        self.0.run(stop).await;
    }
}

/// The state that all lanes share.
#[derive(Clone)]
pub struct Running {
    node: Node,
    settings: Arc<Settings>,
    revisions: Arc<Revisions>,
}

impl Work for Running {
    const KIND: &'static str = WORKFLOW_LANE;
    type Lane = TenantLane;

    fn node(&self) -> &Node {
        &self.node
    }

    fn limits(&self) -> Limits {
        let Settings { lanes_max, tenure, stop_max, .. } = *self.settings;
        Limits { lanes_max, tenure, stop_max }
    }

    fn open(&self, lane: Lane) -> Option<TenantLane> {
        Some(TenantLane::new(self.clone(), lane))
    }
}

/// The actor of a run's changes.
pub fn actor(run: &StoredRun) -> Actor {
    let (root, run) = (run.root, &run.run);
    Actor::workflow(run.workflow_id, &run.workflow_name, run.id, Chain { depth: run.depth, root })
}
