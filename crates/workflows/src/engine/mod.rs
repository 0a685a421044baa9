//! The engine that runs workflows: the runs of a tenant are one lane, which one node works on at a time.
//!
//! `lane` loads the due steps, `evaluate` computes the input of a step, `job` runs it and `step_results` saves the result.
//! `follow` creates runs for events, `schedules` for schedules. Rows are the only state: when a node dies, only the
//! responses to requests in flight are lost.

mod context;
pub mod evaluate;
pub mod follow {
    pub mod store;
}
mod http;
mod job;
mod lane;
pub mod revisions;
pub mod schedules {
    pub mod store;
}
pub mod step_results {
    pub mod store;
}
pub mod store;

use std::future::Future;
use std::sync::Arc;

use kernel::base::Result;
use kernel::jobs::ServerNode;
use kernel::jobs::dispatch::{DispatchLimits, Dispatcher, WorkKind};
use kernel::jobs::lanes::LeasedLane;

use super::{WORKFLOW_LANE, WorkflowSettings};
use context::EngineContext;
use lane::TenantLane;

/// Runs workflows. Cheap to clone.
#[derive(Clone)]
pub struct WorkflowEngine(Dispatcher<EngineContext>);

impl WorkflowEngine {
    pub fn new(node: ServerNode, settings: WorkflowSettings) -> Self {
        WorkflowEngine(Dispatcher::new(EngineContext { node, settings: Arc::new(settings), revisions: Arc::default() }))
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

impl WorkKind for EngineContext {
    const KIND: &'static str = WORKFLOW_LANE;
    type Lane = TenantLane;

    fn node(&self) -> &ServerNode {
        &self.node
    }

    fn limits(&self) -> DispatchLimits {
        let WorkflowSettings { lanes_max, tenure, stop_max, .. } = *self.settings;
        DispatchLimits { lanes_max, tenure_max: tenure, stop_max }
    }

    fn open_lane(&self, lane: LeasedLane) -> Option<TenantLane> {
        Some(TenantLane::new(self.clone(), lane))
    }
}
