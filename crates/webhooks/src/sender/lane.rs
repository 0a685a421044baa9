//! The work on one endpoint while this node leases its lane.

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use kernel::base::{Result, Timestamp};
use kernel::jobs::dispatch::{self, JobCompletion, JobsInFlight, LaneWork, LoadResult, SaveReport};
use kernel::jobs::lanes::{LeasedLane, POLL_MS};
use kernel::outbound::LaneRequestPermit;
use tokio::time::Instant;

use super::super::WebhookId;
use super::super::deliveries::{DeliveryId, store as deliveries};
use super::attempt;
use super::endpoint::{Endpoint, PauseReason};
use super::order::store::{FillProgress, fill_records};
use super::outcome::{AttemptCounters, DeliveryOutcome, DeliveryVerdict, DueDelivery, FRONT};
use super::pace::Pace;
use super::ready::DueQueue;
use super::settings::SenderContext;
use super::settle::EndpointHealth;
use super::settle::store::save_outcomes;
use super::store::{self, EndpointLookup};

/// How often a recovery step runs while attempts are under way.
const RECOVERY_INTERVAL: Duration = Duration::from_millis(POLL_MS.unsigned_abs());

pub struct EndpointLane {
    sending: SenderContext,
    lane: LeasedLane,
    id: WebhookId,
    endpoint: Option<LoadedEndpoint>,
    queue: DueQueue,
    counters: AttemptCounters,
    /// Whether deliveries that a previous node left as `delivering` have been reset to pending.
    marks_cleared: bool,
    /// Whether deliveries that were held for order have been released, since the endpoint is unordered now.
    holds_released: bool,
    /// Whether a recovery is running.
    recovering: bool,
    last_recovery_step_at: Instant,
    /// The version of the endpoint that answered 410. Saving that creates a new version, so this is never reset.
    gone_version: Option<i64>,
    /// If the write under way disables the endpoint: the version that gave the reason, and the reason.
    pending_disable: Option<(i64, &'static str)>,
}

struct LoadedEndpoint {
    endpoint: Arc<Endpoint>,
    pace: Pace,
}

/// One attempt to make.
pub struct DeliveryJob {
    endpoint: Arc<Endpoint>,
    due: DueDelivery,
    permit: LaneRequestPermit,
}

impl LaneWork for EndpointLane {
    const JOBS: &'static str = "deliveries";
    type Id = DeliveryId;
    type Job = DeliveryJob;
    type Outcome = DeliveryOutcome;

    fn job_id(job: &DeliveryJob) -> DeliveryId {
        job.due.id
    }

    async fn load_lane(&mut self, in_flight: &JobsInFlight<DeliveryId>) -> Result<LoadResult> {
        if !self.marks_cleared {
            self.marks_cleared = store::reset_delivering(&self.lane, self.id).await?;
            if !self.marks_cleared {
                return Ok(LoadResult::Gone);
            }
        }
        let endpoint = loop {
            let Some(endpoint) = self.reload_endpoint().await? else {
                store::remove_lane(&self.lane, self.id).await?;
                return Ok(LoadResult::Gone);
            };
            if endpoint.is_drained() {
                break endpoint;
            }
            // Deliveries that were pending when the endpoint was disabled are skipped once the attempts under way have
            // ended.
            self.queue.clear();
            if !in_flight.is_empty() {
                return Ok(LoadResult::Paused);
            }
            if !self.drain_waiting(&endpoint).await? {
                return Ok(LoadResult::Gone);
            }
        };
        if endpoint.target.is_none() {
            return Ok(LoadResult::Paused);
        }
        if endpoint.ordered && endpoint.state.records_missing {
            // Attempts under way were loaded without their record id, so their end would not release held deliveries.
            self.queue.clear();
            if !in_flight.is_empty() {
                return Ok(LoadResult::Paused);
            }
            return if self.fill_records(endpoint.version).await? {
                Ok(LoadResult::More)
            } else {
                Ok(LoadResult::Gone)
            };
        }
        if !endpoint.ordered && !self.holds_released {
            let Some(more) = store::release_held_step(&self.lane, self.id).await? else { return Ok(LoadResult::Gone) };
            self.holds_released = !more;
            self.queue.reload_if_exhausted();
            if more {
                return Ok(LoadResult::More);
            }
        }
        Ok(LoadResult::Ready)
    }

    async fn load_due_jobs(
        &mut self,
        in_flight: &JobsInFlight<DeliveryId>,
    ) -> Result<Option<dispatch::DueJobs<DeliveryJob>>> {
        let Some(endpoint) = self.endpoint.as_ref().map(|loaded| loaded.endpoint.clone()) else {
            return Ok(Some(dispatch::DueJobs::default()));
        };
        let Some(mut jobs) = self.take_jobs(&endpoint, in_flight).await? else { return Ok(None) };
        let mut next = None;
        if jobs.is_empty() && self.is_recovery_due(in_flight) {
            self.last_recovery_step_at = Instant::now();
            let (events, ordered) = (endpoint.events.clone(), endpoint.ordered);
            let recovered = deliveries::run_recovery_step(&self.lane, self.id, events, ordered).await?;
            let Some(progress) = recovered else { return Ok(None) };
            if progress != deliveries::RecoveryProgress::Full {
                self.recovering = progress == deliveries::RecoveryProgress::More;
                self.queue.reload_if_exhausted();
                next = Some(self.now());
                let Some(filled) = self.take_jobs(&endpoint, in_flight).await? else { return Ok(None) };
                jobs = filled;
            }
        }
        let now = self.now();
        let pause = self.find_pause(now);
        if !jobs.is_empty() || !in_flight.is_empty() {
            next = pause.filter(|_| !self.queue.is_empty()).map(|(until, _)| until);
        } else if next.is_none() {
            next = store::find_next_attempt(self.lane.db(), self.id).await?;
            next = next.map(|next| pause.map_or(next, |(until, _)| next.max(until)));
            if next.is_some_and(|next| next <= now) {
                self.queue.reload_if_exhausted();
            }
        }
        Ok(Some(dispatch::DueJobs { jobs, next }))
    }

    fn start_job(&mut self, job: DeliveryJob) -> BoxFuture<'static, JobCompletion<DeliveryOutcome>> {
        let SenderContext { node, settings } = self.sending.clone();
        let DeliveryJob { endpoint, due, permit } = job;
        let (db, spare, retry_at) =
            (self.lane.db().clone(), due.without_body(), self.now().plus_ms(settings.first_wait_ms()));
        let endpoint_version = endpoint.version;
        let sending = attempt::send_delivery(node.app().clone(), db, settings, endpoint, due);
        Box::pin(async move {
            let _permit = permit;
            let sent = AssertUnwindSafe(sending).catch_unwind().await;
            JobCompletion::Unsaved(sent.unwrap_or_else(|_| {
                tracing::error!(delivery = %spare.id, "delivery attempt panicked");
                DeliveryOutcome::for_unsent(spare, endpoint_version, DeliveryVerdict::Retry(retry_at))
            }))
        })
    }

    fn save_outcomes(&mut self, outcomes: Arc<Vec<DeliveryOutcome>>) -> BoxFuture<'static, Result<SaveReport>> {
        let now = self.now();
        let (mut endpoint_health, mut reason) = (None, None);
        if let Some(LoadedEndpoint { pace, endpoint }) = &mut self.endpoint {
            let version = endpoint.version;
            let any = |is: fn(&DeliveryOutcome, i64) -> bool| outcomes.iter().any(|outcome| is(outcome, version));
            endpoint_health = Some(EndpointHealth::new(version, pace, &outcomes, now));
            let failing_ms = pace.failing_since().map_or(0, |since| now.as_millis() - since.as_millis());
            if any(DeliveryOutcome::is_gone) {
                reason = Some((version, "gone"));
            } else if failing_ms >= self.sending.settings.auto_disable_ms && any(DeliveryOutcome::has_failed) {
                reason = Some((version, "failing"));
            }
        }
        self.pending_disable = reason;
        let (lane, id) = (self.lane.clone(), self.id);
        Box::pin(async move {
            let lease_held = save_outcomes(&lane, id, outcomes, endpoint_health).await?;
            if let (true, Some((endpoint_version, reason))) = (lease_held, reason) {
                store::auto_disable_endpoint(&lane, id, endpoint_version, reason).await?;
            }
            Ok(SaveReport { lease_held, must_reload: reason.is_some() })
        })
    }

    /// The pace follows an outcome at once, not when it is on disk: a write takes as long as many attempts. Responses of an
    /// older version of the endpoint are ignored, except for a `Retry-After` of the same URL.
    fn apply_outcome(&mut self, outcome: &DeliveryOutcome) {
        self.counters.count_attempt(outcome);
        let now = self.now();
        let Some(LoadedEndpoint { pace, endpoint }) = &mut self.endpoint else { return };
        pace.hold_until(endpoint.target.as_ref().and_then(|target| outcome.find_retry_after(target.as_str())));
        if outcome.is_gone(endpoint.version) {
            self.gone_version = Some(endpoint.version);
        }
        if outcome.attempt.is_none() || outcome.endpoint_version != endpoint.version {
            return;
        }
        if outcome.verdict == DeliveryVerdict::Succeeded { pace.record_success() } else { pace.record_failure(now) }
    }

    fn on_saved(&mut self) {
        self.pending_disable = None;
        self.queue.reload_if_exhausted();
    }

    async fn send_heartbeat(&mut self, slow: Vec<DeliveryId>) -> Result<bool> {
        store::mark_delivering(&self.lane, slow).await
    }

    async fn release_lane(&mut self) -> Result<()> {
        let now = self.now();
        let Some(LoadedEndpoint { endpoint, pace }) = &mut self.endpoint else { return Ok(()) };
        if endpoint.deleted && endpoint.is_drained() {
            return store::remove_lane(&self.lane, self.id).await;
        }
        let pause = pace.find_pause(now).filter(|_| endpoint.target.is_some());
        store::release_lane(&self.lane, self.id, (endpoint.version, self.recovering), pause).await
    }
}

impl EndpointLane {
    pub fn new(sending: SenderContext, lane: LeasedLane, id: WebhookId) -> Self {
        EndpointLane {
            sending,
            lane,
            id,
            endpoint: None,
            queue: DueQueue::default(),
            counters: AttemptCounters::default(),
            marks_cleared: false,
            holds_released: false,
            recovering: false,
            last_recovery_step_at: Instant::now(),
            gone_version: None,
            pending_disable: None,
        }
    }

    fn now(&self) -> Timestamp {
        self.sending.node.env.now()
    }

    /// Reloads the endpoint if it has changed; `None` when it has been deleted for good.
    async fn reload_endpoint(&mut self) -> Result<Option<Arc<Endpoint>>> {
        let (secrets, tenant) = (&self.sending.node.secrets, self.lane.tenant_id);
        let current = self.endpoint.as_ref().map(|loaded| &loaded.endpoint);
        match store::load_endpoint(self.lane.db(), secrets, tenant, self.id, current.map(AsRef::as_ref)).await? {
            // A resent delivery goes first, and later events of its record that are already in the queue have to wait.
            EndpointLookup::Unchanged if current.is_some_and(|current| current.ordered) => self.queue.clear(),
            EndpointLookup::Unchanged => self.queue.reload_from_front(),
            EndpointLookup::Gone => self.endpoint = None,
            EndpointLookup::Changed(reloaded) => self.replace_endpoint(reloaded),
        }
        let reloaded = self.endpoint.as_ref().map(|loaded| loaded.endpoint.clone());
        self.recovering = reloaded.as_ref().is_some_and(|reloaded| reloaded.recovering);
        Ok(reloaded)
    }

    fn replace_endpoint(&mut self, reloaded: Box<Endpoint>) {
        self.queue.clear();
        self.holds_released = false;
        // The pace is kept until the endpoint is disabled or its URL changes; enabling it or a new URL starts over.
        let keeps_pace = |current: &Endpoint| {
            current.target.is_some() && current.target == reloaded.target && current.generation == reloaded.generation
        };
        let mut pace = match self.endpoint.take() {
            Some(loaded) if keeps_pace(&loaded.endpoint) => loaded.pace,
            _ => self.build_pace(&reloaded),
        };
        pace.set_rate_limit(reloaded.rate_limit_per_second, self.now());
        self.endpoint = Some(LoadedEndpoint { endpoint: Arc::from(reloaded), pace });
    }

    fn build_pace(&self, endpoint: &Endpoint) -> Pace {
        let probe_wait_ms = self.sending.settings.first_wait_ms();
        Pace::new(endpoint.rate_limit_per_second, &endpoint.state, probe_wait_ms, self.now())
    }

    fn find_pause(&mut self, now: Timestamp) -> Option<(Timestamp, PauseReason)> {
        self.endpoint.as_mut().and_then(|loaded| loaded.pace.find_pause(now))
    }

    /// Skips the deliveries that were pending when the endpoint was disabled. False when the lease is lost.
    async fn drain_waiting(&self, endpoint: &Endpoint) -> Result<bool> {
        loop {
            match store::drain_step(&self.lane, self.id, endpoint.generation, endpoint.skip_reason).await? {
                None => return Ok(false),
                Some(true) => {}
                Some(false) => return Ok(true),
            }
        }
    }

    /// Sets the record id of deliveries that were pending when order was enabled. False when the lease is lost.
    async fn fill_records(&self, version: i64) -> Result<bool> {
        let mut position = FRONT;
        loop {
            match fill_records(&self.lane, (self.id, version), position).await? {
                FillProgress::Lost => return Ok(false),
                FillProgress::UpTo(reached) => position = reached,
                FillProgress::All => return Ok(true),
            }
        }
    }

    /// As many jobs as the pace and the request permits allow. `None` when the lease is lost.
    async fn take_jobs(
        &mut self,
        endpoint: &Arc<Endpoint>,
        in_flight: &JobsInFlight<DeliveryId>,
    ) -> Result<Option<VecDeque<DeliveryJob>>> {
        let mut jobs = VecDeque::new();
        let (now, running) = (self.now(), in_flight.running_count());
        let is_ending = self.pending_disable.is_some() || self.gone_version == Some(endpoint.version);
        let Some(loaded) = self.endpoint.as_mut().filter(|_| !is_ending) else { return Ok(Some(jobs)) };
        let free_slots = loaded.pace.free_slots(running, now);
        if free_slots == 0 {
            return Ok(Some(jobs));
        }
        if !self.queue.load_due(&self.lane, self.id, endpoint.ordered, now, in_flight).await? {
            return Ok(None);
        }
        let permits = self.sending.node.outbound.request_permits();
        while jobs.len() < free_slots && !self.queue.is_empty() {
            let Some(permit) = permits.try_acquire(self.lane.tenant_id, running + jobs.len()) else { break };
            let Some(due) = self.queue.pop_delivery() else { break };
            loaded.pace.record_start();
            jobs.push_back(DeliveryJob { endpoint: endpoint.clone(), due, permit });
        }
        Ok(Some(jobs))
    }

    /// Whether a recovery step is due: only when no other delivery is left to start.
    fn is_recovery_due(&self, in_flight: &JobsInFlight<DeliveryId>) -> bool {
        let is_time = in_flight.is_empty() || self.last_recovery_step_at.elapsed() >= RECOVERY_INTERVAL;
        self.recovering && self.queue.is_empty() && is_time
    }
}
