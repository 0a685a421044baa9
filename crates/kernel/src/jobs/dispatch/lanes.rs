//! The lanes of one kind that run on this node: leased as they come due, woken when something was written for them.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{Notify, watch};
use tokio::task::{JoinError, JoinSet};

use super::super::lanes::{self, LeasedLane, POLL_MS};
use super::dispatcher::Dispatcher;
use super::permits::LanePermit;
use super::run;
use super::work::WorkKind;
use crate::base::{Result, TenantId};

/// Lanes leased in one transaction, so that nodes that start together share them.
const LEASES_MAX: usize = 64;
/// Due lanes from which those are chosen. There is room for one lane of each tenant of a busy node, because some get no
/// permit.
const CANDIDATES_MAX: usize = 1_024;
/// How long an idle lane is kept, so that a busy lane is not leased again for each event.
const LINGER_MS: i64 = 2_000;

impl<W: WorkKind> Dispatcher<W> {
    /// Runs all jobs that are due by the clock, and none that are due later. For tests, which move the clock themselves.
    pub async fn run_due(&self) -> Result<()> {
        let (_stop_sender, stop) = watch::channel(false);
        loop {
            let leased = lanes::lease_due_lanes(self.work.node(), W::KIND, LEASES_MAX).await?;
            if leased.is_empty() {
                return Ok(());
            }
            let mut running = JoinSet::new();
            for lane in leased {
                running.spawn(run::run(self.clone(), (lane, None), Arc::new(Notify::new()), 0, stop.clone()));
            }
            running.join_all().await;
        }
    }

    /// Runs until `stop`, then waits for running jobs and releases the lanes.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let (stop_sender, stopping) = watch::channel(false);
        let mut lanes = RunningLanes { dispatcher: self, running: JoinSet::new(), wakes: HashMap::new(), stopping };
        let mut stop = pin!(stop);
        let mut commits = lanes.dispatcher.work.node().store.subscribe_commits();
        let permits = lanes.dispatcher.permits.clone();
        loop {
            if let Err(error) = lanes.lease_due_lanes().await {
                tracing::warn!(%error, kind = W::KIND, "failed to lease lanes; will retry");
            }
            let poll = tokio::time::sleep(Duration::from_millis(POLL_MS.unsigned_abs()));
            tokio::select! {
                () = &mut stop => break,
                () = poll => {}
                () = permits.wait_for_release(), if permits.is_crowded() => {}
                Some(ended) = lanes.running.join_next() => lanes.remove_finished(ended),
                received = commits.recv() => match received {
                    Ok(tenant) => {
                        lanes.wake_tenant(tenant);
                        // One pass serves all pending notifications.
                        while let Ok(tenant) = commits.try_recv() {
                            lanes.wake_tenant(tenant);
                        }
                    }
                    Err(RecvError::Lagged(_)) => lanes.wake_all(),
                    Err(RecvError::Closed) => {}
                },
            }
        }
        let _ = stop_sender.send(true);
        lanes.wake_all();
        while lanes.running.join_next().await.is_some() {}
    }
}

type LaneName = (TenantId, String, Arc<Notify>);

struct RunningLanes<W> {
    dispatcher: Dispatcher<W>,
    running: JoinSet<LaneName>,
    wakes: HashMap<TenantId, HashMap<String, Arc<Notify>>>,
    stopping: watch::Receiver<bool>,
}

impl<W: WorkKind> RunningLanes<W> {
    async fn lease_due_lanes(&mut self) -> Result<()> {
        lanes::apply_wakes(self.dispatcher.work.node(), W::KIND).await?;
        loop {
            let node = self.dispatcher.work.node();
            let due = lanes::list_due_lanes(node, W::KIND, CANDIDATES_MAX).await?;
            let (chosen, permits) = self.dispatcher.permits.choose_lanes(due, LEASES_MAX);
            let is_last = chosen.len() < LEASES_MAX;
            let leased = if chosen.is_empty() { Vec::new() } else { lanes::lease_lanes(node, W::KIND, chosen).await? };
            let before = self.running.len();
            for (lane, permit) in leased.into_iter().zip(permits) {
                if let Some(lane) = lane {
                    self.start_lane(lane, permit);
                }
            }
            // If none of many could be leased, other nodes are leasing them.
            if is_last || self.running.len() == before {
                return Ok(());
            }
        }
    }

    fn start_lane(&mut self, lane: LeasedLane, permit: LanePermit) {
        let wake: Arc<Notify> = Arc::default();
        self.wakes.entry(lane.tenant_id).or_default().insert(lane.key.clone(), wake.clone());
        let name = (lane.tenant_id, lane.key.clone(), wake.clone());
        let run = run::run(self.dispatcher.clone(), (lane, Some(permit)), wake, LINGER_MS, self.stopping.clone());
        self.running.spawn(async move {
            run.await;
            name
        });
    }

    fn remove_finished(&mut self, ended: Result<LaneName, JoinError>) {
        match ended {
            Ok((tenant, key, wake)) => {
                if let Some(tenant_wakes) = self.wakes.get_mut(&tenant) {
                    // The lane may have been leased again meanwhile, with another `Notify`.
                    tenant_wakes.retain(|name, stored| *name != key || !Arc::ptr_eq(stored, &wake));
                    if tenant_wakes.is_empty() {
                        self.wakes.remove(&tenant);
                    }
                }
            }
            // The lease expires, and then the lane is leased again.
            Err(error) => tracing::error!(%error, kind = W::KIND, "lane task failed"),
        }
    }

    fn wake_tenant(&self, tenant: TenantId) {
        self.wakes.get(&tenant).into_iter().flat_map(HashMap::values).for_each(|wake| wake.notify_one());
    }

    fn wake_all(&self) {
        self.wakes.values().flat_map(HashMap::values).for_each(|wake| wake.notify_one());
    }
}
