//! The lanes of one kind that this node works on: leased as they come due, woken when something was written for them.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{Notify, watch};
use tokio::task::{JoinError, JoinSet};

use super::super::lanes::{self, POLL_MS};
use super::{Dispatcher, Work, run};
use crate::base::{Result, TenantId};

/// Lanes leased in one step, so that nodes that start together share them.
const LEASES_MAX: usize = 64;
/// How long a lane is kept with nothing to do, so that a busy one is not leased anew for each event.
const LINGER_MS: i64 = 2_000;

pub async fn run_due<W: Work>(dispatcher: &Dispatcher<W>) -> Result<()> {
    let (_go_on, stop) = watch::channel(false);
    loop {
        let leased = lanes::lease_due(dispatcher.work.node(), W::KIND, LEASES_MAX).await?;
        if leased.is_empty() {
            return Ok(());
        }
        let mut running = JoinSet::new();
        for lane in leased {
            running.spawn(run::run(dispatcher.clone(), lane, Arc::new(Notify::new()), 0, stop.clone()));
        }
        running.join_all().await;
    }
}

pub async fn run<W: Work>(dispatcher: Dispatcher<W>, stop: impl Future<Output = ()>) {
    let (tell_stop, stopping) = watch::channel(false);
    let mut lanes = Lanes { dispatcher, running: JoinSet::new(), wakes: HashMap::new(), stopping };
    let mut stop = pin!(stop);
    let mut news = lanes.dispatcher.work.node().store.news();
    loop {
        if let Err(error) = lanes.lease().await {
            tracing::warn!(%error, kind = W::KIND, "lanes were not leased; it will be tried again");
        }
        let poll = tokio::time::sleep(Duration::from_millis(POLL_MS.unsigned_abs()));
        tokio::select! {
            () = &mut stop => break,
            () = poll => {}
            Some(ended) = lanes.running.join_next() => lanes.ended(ended),
            told = news.recv() => match told {
                Ok(tenant) => {
                    lanes.wake(tenant);
                    // One look serves all that has been told meanwhile.
                    while let Ok(tenant) = news.try_recv() {
                        lanes.wake(tenant);
                    }
                }
                Err(RecvError::Lagged(_)) => lanes.wake_all(),
                Err(RecvError::Closed) => {}
            },
        }
    }
    let _ = tell_stop.send(true);
    lanes.wake_all();
    while lanes.running.join_next().await.is_some() {}
}

type LaneName = (TenantId, String, Arc<Notify>);

struct Lanes<W> {
    dispatcher: Dispatcher<W>,
    running: JoinSet<LaneName>,
    wakes: HashMap<TenantId, HashMap<String, Arc<Notify>>>,
    stopping: watch::Receiver<bool>,
}

impl<W: Work> Lanes<W> {
    async fn lease(&mut self) -> Result<()> {
        let lanes_max = self.dispatcher.work.limits().lanes_max;
        loop {
            let room = lanes_max.saturating_sub(self.running.len()).min(LEASES_MAX);
            // Those that work make room sooner then.
            self.dispatcher.crowded.store(room == 0, Ordering::Relaxed);
            if room == 0 {
                return Ok(());
            }
            let leased = lanes::lease_due(self.dispatcher.work.node(), W::KIND, room).await?;
            let all = leased.len() < room;
            for lane in leased {
                let wake: Arc<Notify> = Arc::default();
                self.wakes.entry(lane.tenant_id).or_default().insert(lane.key.clone(), wake.clone());
                let name = (lane.tenant_id, lane.key.clone(), wake.clone());
                let run = run::run(self.dispatcher.clone(), lane, wake, LINGER_MS, self.stopping.clone());
                self.running.spawn(async move {
                    run.await;
                    name
                });
            }
            if all {
                return Ok(());
            }
        }
    }

    fn ended(&mut self, ended: Result<LaneName, JoinError>) {
        match ended {
            Ok((tenant, key, wake)) => {
                if let Some(of_tenant) = self.wakes.get_mut(&tenant) {
                    // The lane may have been leased again by now, with another to wake.
                    of_tenant.retain(|name, known| *name != key || !Arc::ptr_eq(known, &wake));
                    if of_tenant.is_empty() {
                        self.wakes.remove(&tenant);
                    }
                }
            }
            // Its lease ends by itself, and the lane is taken up again.
            Err(error) => tracing::error!(%error, kind = W::KIND, "the work on a lane ended badly"),
        }
    }

    fn wake(&self, tenant: TenantId) {
        self.wakes.get(&tenant).into_iter().flat_map(HashMap::values).for_each(|wake| wake.notify_one());
    }

    fn wake_all(&self) {
        self.wakes.values().flat_map(HashMap::values).for_each(|wake| wake.notify_one());
    }
}
