//! The work on one endpoint while this node leases its lane.

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use kernel::base::{Result, Timestamp};
use kernel::jobs::dispatch::{self, Ended, LaneWork, Load, Settled, UnderWay};
use kernel::jobs::lanes::{Lane, POLL_MS};
use kernel::outbound::RequestPermit;
use tokio::time::Instant;

use super::super::WebhookId;
use super::super::deliveries::{DeliveryId, store as deliveries};
use super::order::store::{Filled, fill_records};
use super::outcome::{Due, Fate, Outcome, Tally};
use super::pace::{Pace, Pause};
use super::ready::{FRONT, Ready};
use super::settle::Learnt;
use super::settle::store::settle;
use super::store::{self, Look};
use super::{Endpoint, Sending, attempt};

/// How often a recovery step runs while attempts are under way.
const RECOVERED_EVERY: Duration = Duration::from_millis(POLL_MS.unsigned_abs());

pub struct EndpointLane {
    sending: Sending,
    lane: Lane,
    id: WebhookId,
    endpoint: Option<Loaded>,
    ready: Ready,
    tally: Tally,
    /// Whether deliveries that a previous node left as `delivering` have been reset to pending.
    unmarked: bool,
    /// Whether deliveries that were held for order have been released, since the endpoint is unordered now.
    unheld: bool,
    /// Whether a recovery is running.
    recovering: bool,
    recovered_at: Instant,
    /// The version of the endpoint that answered 410. Saving that creates a new version, so this is never reset.
    gone: Option<i64>,
    /// If the write under way disables the endpoint: the version that gave the reason, and the reason.
    switching_off: Option<(i64, &'static str)>,
}

struct Loaded {
    endpoint: Arc<Endpoint>,
    pace: Pace,
}

/// One attempt to make.
pub struct Job {
    endpoint: Arc<Endpoint>,
    due: Due,
    permit: RequestPermit,
}

impl LaneWork for EndpointLane {
    const JOBS: &'static str = "deliveries";
    type Id = DeliveryId;
    type Job = Job;
    type Outcome = Outcome;

    fn id(job: &Job) -> DeliveryId {
        job.due.id
    }

    async fn load(&mut self, under_way: &UnderWay<DeliveryId>) -> Result<Load> {
        if !self.unmarked {
            self.unmarked = store::unmark(&self.lane, self.id).await?;
            if !self.unmarked {
                return Ok(Load::Gone);
            }
        }
        let endpoint = loop {
            let Some(endpoint) = self.read().await? else {
                store::retire(&self.lane, self.id).await?;
                return Ok(Load::Gone);
            };
            if endpoint.is_drained() {
                break endpoint;
            }
            // Deliveries that were pending when the endpoint was disabled are skipped once the attempts under way have
            // ended.
            self.ready.clear();
            if !under_way.is_empty() {
                return Ok(Load::Rest);
            }
            if !self.drain(&endpoint).await? {
                return Ok(Load::Gone);
            }
        };
        if endpoint.target.is_none() {
            return Ok(Load::Rest);
        }
        if endpoint.ordered && endpoint.state.records_missing {
            // Attempts under way were loaded without their record id, so their end would not release held deliveries.
            self.ready.clear();
            if !under_way.is_empty() {
                return Ok(Load::Rest);
            }
            return if self.fill_records(endpoint.version).await? { Ok(Load::Again) } else { Ok(Load::Gone) };
        }
        if !endpoint.ordered && !self.unheld {
            let Some(more) = store::unhold(&self.lane, self.id).await? else { return Ok(Load::Gone) };
            self.unheld = !more;
            self.ready.look_again();
            if more {
                return Ok(Load::Again);
            }
        }
        Ok(Load::Go)
    }

    async fn due(&mut self, under_way: &UnderWay<DeliveryId>) -> Result<Option<dispatch::Due<Job>>> {
        let Some(endpoint) = self.endpoint.as_ref().map(|loaded| loaded.endpoint.clone()) else {
            return Ok(Some(dispatch::Due::default()));
        };
        let Some(mut jobs) = self.fill(&endpoint, under_way).await? else { return Ok(None) };
        let mut next = None;
        if jobs.is_empty() && self.is_to_recover(under_way) {
            self.recovered_at = Instant::now();
            let (events, ordered) = (endpoint.events.clone(), endpoint.ordered);
            let recovered = deliveries::recover_step(&self.lane, self.id, events, ordered).await?;
            match recovered {
                deliveries::Recovered::Lost => return Ok(None),
                deliveries::Recovered::Full => {}
                deliveries::Recovered::More | deliveries::Recovered::Done => {
                    self.recovering = recovered == deliveries::Recovered::More;
                    self.ready.look_again();
                    next = Some(self.now());
                    let Some(filled) = self.fill(&endpoint, under_way).await? else { return Ok(None) };
                    jobs = filled;
                }
            }
        }
        let now = self.now();
        let pause = self.pause(now);
        if !jobs.is_empty() || !under_way.is_empty() {
            next = pause.filter(|_| !self.ready.is_empty()).map(|(until, _)| until);
        } else if next.is_none() {
            next = store::next(self.lane.db(), self.id).await?;
            next = next.map(|next| pause.map_or(next, |(until, _)| next.max(until)));
            if next.is_some_and(|next| next <= now) {
                self.ready.look_again();
            }
        }
        Ok(Some(dispatch::Due { jobs, next }))
    }

    fn start(&mut self, job: Job) -> BoxFuture<'static, Ended<Outcome>> {
        let Sending { node, settings } = self.sending.clone();
        let Job { endpoint, due, permit } = job;
        let (db, spare, again) =
            (self.lane.db().clone(), due.without_body(), self.now().plus(settings.first_wait_ms()));
        let asked = endpoint.version;
        let sending = attempt::send(node.app().clone(), db, settings, endpoint, due);
        Box::pin(async move {
            let _permit = permit;
            let sent = AssertUnwindSafe(sending).catch_unwind().await;
            Ended::ToNote(sent.unwrap_or_else(|_| {
                tracing::error!(delivery = %spare.id, "delivery attempt panicked");
                Outcome::unsent(spare, asked, Fate::Retry(again))
            }))
        })
    }

    fn settle(&mut self, outcomes: Arc<Vec<Outcome>>) -> BoxFuture<'static, Result<Settled>> {
        let now = self.now();
        let (mut learnt, mut reason) = (None, None);
        if let Some(Loaded { pace, endpoint }) = &mut self.endpoint {
            let version = endpoint.version;
            let any = |is: fn(&Outcome, i64) -> bool| outcomes.iter().any(|outcome| is(outcome, version));
            learnt = Some(Learnt::new(version, pace, &outcomes, now));
            let failing_ms = pace.failing_since().map_or(0, |since| now.as_millis() - since.as_millis());
            if any(Outcome::is_gone) {
                reason = Some((version, "gone"));
            } else if failing_ms >= self.sending.settings.auto_disable_ms && any(Outcome::has_failed) {
                reason = Some((version, "failing"));
            }
        }
        self.switching_off = reason;
        let (lane, id) = (self.lane.clone(), self.id);
        Box::pin(async move {
            let held = settle(&lane, id, outcomes, learnt).await?;
            if let (true, Some((asked, reason))) = (held, reason) {
                store::switch_off(&lane, id, asked, reason).await?;
            }
            Ok(Settled { held, look: reason.is_some() })
        })
    }

    /// The pace follows an outcome at once, not when it is on disk: a write takes as long as many attempts. Responses of an
    /// older version of the endpoint are ignored, except for a `Retry-After` of the same URL.
    fn learn(&mut self, outcome: &Outcome) {
        self.tally.count(outcome);
        let now = self.now();
        let Some(Loaded { pace, endpoint }) = &mut self.endpoint else { return };
        pace.hold(endpoint.target.as_ref().and_then(|place| outcome.held_by(place.as_str())));
        if outcome.is_gone(endpoint.version) {
            self.gone = Some(endpoint.version);
        }
        if outcome.attempt.is_none() || outcome.asked != endpoint.version {
            return;
        }
        if outcome.fate == Fate::Succeeded { pace.succeeded() } else { pace.failed(now) }
    }

    fn noted(&mut self) {
        self.switching_off = None;
        self.ready.look_again();
    }

    async fn tend(&mut self, slow: Vec<DeliveryId>) -> Result<bool> {
        store::tend(&self.lane, slow).await
    }

    async fn release(&mut self) -> Result<()> {
        let now = self.now();
        let Some(Loaded { endpoint, pace }) = &mut self.endpoint else { return Ok(()) };
        if endpoint.deleted && endpoint.is_drained() {
            return store::retire(&self.lane, self.id).await;
        }
        let pause = pace.pause(now).filter(|_| endpoint.target.is_some());
        store::release(&self.lane, self.id, (endpoint.version, self.recovering), pause).await
    }
}

impl EndpointLane {
    pub fn new(sending: Sending, lane: Lane, id: WebhookId) -> Self {
        EndpointLane {
            sending,
            lane,
            id,
            endpoint: None,
            ready: Ready::default(),
            tally: Tally::default(),
            unmarked: false,
            unheld: false,
            recovering: false,
            recovered_at: Instant::now(),
            gone: None,
            switching_off: None,
        }
    }

    fn now(&self) -> Timestamp {
        self.sending.node.world.now()
    }

    /// Reloads the endpoint if it has changed; `None` when it has been deleted for good.
    async fn read(&mut self) -> Result<Option<Arc<Endpoint>>> {
        let (secrets, tenant) = (&self.sending.node.secrets, self.lane.tenant_id);
        let known = self.endpoint.as_ref().map(|loaded| &loaded.endpoint);
        match store::endpoint(self.lane.db(), secrets, tenant, self.id, known.map(AsRef::as_ref)).await? {
            // A resent delivery goes first, and later events of its record that are already in the queue have to wait.
            Look::Same if known.is_some_and(|known| known.ordered) => self.ready.clear(),
            Look::Same => self.ready.start_over(),
            Look::Gone => self.endpoint = None,
            Look::Changed(read) => self.change(read),
        }
        let read = self.endpoint.as_ref().map(|loaded| loaded.endpoint.clone());
        self.recovering = read.as_ref().is_some_and(|read| read.recovering);
        Ok(read)
    }

    fn change(&mut self, read: Box<Endpoint>) {
        self.ready.clear();
        self.unheld = false;
        // The pace is kept until the endpoint is disabled or its URL changes; enabling it or a new URL starts over.
        let goes_on = |known: &Endpoint| {
            known.target.is_some() && known.target == read.target && known.generation == read.generation
        };
        let mut pace = match self.endpoint.take() {
            Some(loaded) if goes_on(&loaded.endpoint) => loaded.pace,
            _ => self.pace(&read),
        };
        pace.limit(read.rate_limit_per_second, self.now());
        self.endpoint = Some(Loaded { endpoint: Arc::from(read), pace });
    }

    fn pace(&self, endpoint: &Endpoint) -> Pace {
        let probe_wait_ms = self.sending.settings.first_wait_ms();
        Pace::new(endpoint.rate_limit_per_second, &endpoint.state, probe_wait_ms, self.now())
    }

    fn pause(&mut self, now: Timestamp) -> Option<(Timestamp, Pause)> {
        self.endpoint.as_mut().and_then(|loaded| loaded.pace.pause(now))
    }

    /// Skips the deliveries that were pending when the endpoint was disabled. False when the lease is lost.
    async fn drain(&self, endpoint: &Endpoint) -> Result<bool> {
        loop {
            match store::drain(&self.lane, self.id, endpoint.generation, endpoint.skip_reason).await? {
                None => return Ok(false),
                Some(true) => {}
                Some(false) => return Ok(true),
            }
        }
    }

    /// Sets the record id of deliveries that were pending when order was enabled. False when the lease is lost.
    async fn fill_records(&self, version: i64) -> Result<bool> {
        let mut place = FRONT;
        loop {
            match fill_records(&self.lane, (self.id, version), place).await? {
                Filled::Lost => return Ok(false),
                Filled::UpTo(reached) => place = reached,
                Filled::All => return Ok(true),
            }
        }
    }

    /// As many jobs as the pace and the request permits allow. `None` when the lease is lost.
    async fn fill(
        &mut self,
        endpoint: &Arc<Endpoint>,
        under_way: &UnderWay<DeliveryId>,
    ) -> Result<Option<VecDeque<Job>>> {
        let mut jobs = VecDeque::new();
        let (now, running) = (self.now(), under_way.running());
        let ends = self.switching_off.is_some() || self.gone == Some(endpoint.version);
        let Some(loaded) = self.endpoint.as_mut().filter(|_| !ends) else { return Ok(Some(jobs)) };
        let room = loaded.pace.room(running, now);
        if room == 0 {
            return Ok(Some(jobs));
        }
        if !self.ready.look(&self.lane, self.id, endpoint.ordered, now, under_way).await? {
            return Ok(None);
        }
        let permits = self.sending.node.outbound.request_permits();
        while jobs.len() < room && !self.ready.is_empty() {
            let Some(permit) = permits.try_acquire(self.lane.tenant_id, running + jobs.len()) else { break };
            let Some(due) = self.ready.next() else { break };
            loaded.pace.started();
            jobs.push_back(Job { endpoint: endpoint.clone(), due, permit });
        }
        Ok(Some(jobs))
    }

    /// Whether a recovery step is due: only when no other delivery is left to start.
    fn is_to_recover(&self, under_way: &UnderWay<DeliveryId>) -> bool {
        let is_time = under_way.is_empty() || self.recovered_at.elapsed() >= RECOVERED_EVERY;
        self.recovering && self.ready.is_empty() && is_time
    }
}
