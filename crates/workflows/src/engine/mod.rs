//! What runs workflows: a tenant's runs are one lane, worked on by one node at a time.
//!
//! `lane` finds what is to be done, `evaluate` says what a step is to be given, `job` does it and `act` notes it. `follow`
//! makes runs of events, `fire` of schedules. Rows are the only state: a node that dies leaves nothing behind but requests
//! whose answers nobody noted.

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

    /// Does everything that is due at this moment of the clock, and nothing that is due later. For tests, which move
    /// the clock themselves.
    pub async fn run_due(&self) -> Result<()> {
        self.0.run_due().await
    }

    /// Works until `stop`, then lets what is under way come to its end and gives the lanes back.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        self.0.run(stop).await;
    }
}

/// What all lanes share.
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

/// Who acts in a run.
pub fn actor(run: &StoredRun) -> Actor {
    let (root, run) = (run.root, &run.run);
    Actor::workflow(run.workflow_id, &run.workflow_name, run.id, Chain { depth: run.depth, root })
}
