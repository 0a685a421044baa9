//! What sends deliveries: lanes are leased as they come due, and each endpoint's lane is run by one node at a time.
//!
//! `lane` runs one endpoint, `ready` is what it sends next, `pace` says how fast, `attempt` is one request, `settle` notes
//! what became of it, `schedule` says when it is tried again. The log and the lanes are the only state; a node that dies
//! leaves nothing behind but requests whose answers nobody noted.

mod attempt;
mod lane;
mod outcome;
mod pace;
mod places;
mod ready;
mod schedule;
pub mod settle;
mod sign;
pub mod store;

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kernel::base::{DAY_MS, HmacKey, Result, TenantId, Timestamp};
use kernel::jobs::Node;
use kernel::jobs::lanes::{self, POLL_MS};
use kernel::outbound::Target;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use super::WEBHOOK_LANE;
use pace::Pause;
use places::AttemptPlaces;
pub use schedule::{SCHEDULE_MS, WAIT_MAX_MS};

/// Lanes leased in one step, so that nodes that start together share them.
const LEASES_MAX: usize = 64;
/// How long a lane is kept with nothing to do, so that a busy endpoint is not leased anew for each event.
const LINGER_MS: i64 = 2_000;

/// What the operator decides about sending.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The waits between attempts; after the last a delivery is given up.
    pub schedule_ms: Vec<i64>,
    /// For one attempt, the answer's body included.
    pub timeout: Duration,
    /// An endpoint that only fails for this long is switched off.
    pub auto_disable_ms: i64,
    /// Lanes that one node works on at once; the others wait for their turn, the longest waiting first.
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
}

/// Sends what is due. Cheap to clone.
#[derive(Clone)]
pub struct Sender {
    node: Node,
    settings: Arc<Settings>,
    places: Arc<AttemptPlaces>,
    /// Whether lanes wait for a turn because all places for lanes are taken.
    crowded: Arc<AtomicBool>,
}

impl Sender {
    fn is_crowded(&self) -> bool {
        self.crowded.load(Ordering::Relaxed)
    }

    pub fn new(node: Node, settings: Settings) -> Self {
        Sender { node, settings: Arc::new(settings), places: Arc::default(), crowded: Arc::default() }
    }

    /// Does everything that is due at this moment of the clock, and nothing that is due later. For tests, which move
    /// the clock themselves.
    pub async fn run_due(&self) -> Result<()> {
        let (_go_on, stop) = watch::channel(false);
        loop {
            let leased = lanes::lease_due(&self.node, WEBHOOK_LANE, LEASES_MAX).await?;
            if leased.is_empty() {
                return Ok(());
            }
            let mut running = JoinSet::new();
            for lane in leased {
                running.spawn(lane::run(self.clone(), lane, Arc::new(Notify::new()), 0, stop.clone()));
            }
            running.join_all().await;
        }
    }

    /// Sends until `stop`, then lets what is under way come to its end and gives the lanes back.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let (tell_stop, stopping) = watch::channel(false);
        let mut work = Work { sender: self, running: JoinSet::new(), wakes: HashMap::new(), stopping };
        let mut stop = std::pin::pin!(stop);
        let mut news = work.sender.node.store.news();
        loop {
            if let Err(error) = work.lease().await {
                tracing::warn!(%error, "lanes were not leased; it will be tried again");
            }
            let poll = tokio::time::sleep(Duration::from_millis(POLL_MS.unsigned_abs()));
            tokio::select! {
                () = &mut stop => break,
                () = poll => {}
                Some(ended) = work.running.join_next() => work.ended(ended),
                told = news.recv() => match told {
                    Ok(tenant) => {
                        work.wake(tenant);
                        // One look serves all that has been told meanwhile.
                        while let Ok(tenant) = news.try_recv() {
                            work.wake(tenant);
                        }
                    }
                    Err(RecvError::Lagged(_)) => work.wake_all(),
                    Err(RecvError::Closed) => {}
                },
            }
        }
        let _ = tell_stop.send(true);
        work.wake_all();
        while work.running.join_next().await.is_some() {}
    }
}

type LaneName = (TenantId, String, Arc<Notify>);

/// The lanes that this node works on.
struct Work {
    sender: Sender,
    running: JoinSet<LaneName>,
    wakes: HashMap<TenantId, HashMap<String, Arc<Notify>>>,
    stopping: watch::Receiver<bool>,
}

impl Work {
    async fn lease(&mut self) -> Result<()> {
        loop {
            let room = self.sender.settings.lanes_max.saturating_sub(self.running.len()).min(LEASES_MAX);
            // Those that work make room sooner then.
            self.sender.crowded.store(room == 0, Ordering::Relaxed);
            if room == 0 {
                return Ok(());
            }
            let leased = lanes::lease_due(&self.sender.node, WEBHOOK_LANE, room).await?;
            let all = leased.len() < room;
            for lane in leased {
                let wake: Arc<Notify> = Arc::default();
                self.wakes.entry(lane.tenant_id).or_default().insert(lane.key.clone(), wake.clone());
                let name = (lane.tenant_id, lane.key.clone(), wake.clone());
                let run = lane::run(self.sender.clone(), lane, wake, LINGER_MS, self.stopping.clone());
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

    fn ended(&mut self, ended: Result<LaneName, tokio::task::JoinError>) {
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
            Err(error) => tracing::error!(%error, "the work on a lane ended badly"),
        }
    }

    fn wake(&self, tenant: TenantId) {
        self.wakes.get(&tenant).into_iter().flat_map(HashMap::values).for_each(|wake| wake.notify_one());
    }

    fn wake_all(&self) {
        self.wakes.values().flat_map(HashMap::values).for_each(|wake| wake.notify_one());
    }
}
