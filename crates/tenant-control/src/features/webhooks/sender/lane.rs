//! One endpoint's lane, from its lease to its release.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use kernel::base::{Code, Error, Result, Timestamp};
use kernel::jobs::lanes::{HEARTBEAT_MS, Lane, POLL_MS};
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;

use super::super::WebhookId;
use super::super::deliveries::{DeliveryId, store as deliveries};
use super::attempt;
use super::outcome::{Due, Fate, Outcome, Tally};
use super::pace::Pace;
use super::places::AttemptPlace;
use super::ready::Ready;
use super::settle::{Learnt, SETTLE_MAX, Unsettled, Written};
use super::store::{self, Look};
use super::{Endpoint, Sender};

/// An attempt that takes longer than this is shown as delivering.
const SHOWN_AFTER: Duration = Duration::from_secs(1);
/// How often it is looked at which attempts take long, for that passes over all of them.
const TENDED_EVERY: Duration = Duration::from_millis(100);
/// How long a lane goes on without a look at its endpoint, which another node may have changed.
const PATIENCE: Duration = Duration::from_millis(POLL_MS.unsigned_abs());

/// Works on a lane until nothing is due within `linger_ms`, the lease is lost, or the process stops.
pub async fn run(sender: Sender, lane: Lane, wake: Arc<Notify>, linger_ms: i64, stop: watch::Receiver<bool>) {
    let Ok(id) = lane.key.parse::<WebhookId>() else {
        tracing::error!(lane = lane.key, "a lane is not named after an endpoint");
        return;
    };
    let mut run = Run::new(sender, lane, id, linger_ms);
    if let Err(error) = run.work(&wake, &stop).await {
        // The lease ends by itself, and then the lane is taken up again.
        tracing::warn!(%error, webhook = %id, "the work on an endpoint was interrupted; it will be taken up again");
    }
}

struct Run {
    sender: Sender,
    lane: Lane,
    id: WebhookId,
    linger_ms: i64,
    of_tenant: Arc<Semaphore>,
    endpoint: Option<Loaded>,
    ready: Ready,
    attempts: JoinSet<Outcome>,
    /// Under way or not yet noted, and since when; whether it is shown as delivering.
    flying: HashMap<DeliveryId, Flight>,
    unsettled: Unsettled,
    tally: Tally,
    held_at: Instant,
    tended_at: Instant,
    /// None while it is to be looked at before anything else.
    looked_at: Option<Instant>,
    began_at: Instant,
    recovered_at: Instant,
    /// Whether nothing is held any more for the sake of an order that the endpoint does not ask for.
    unheld: bool,
    /// When the process began to stop.
    stopping_since: Option<Instant>,
    /// Since when the database does not answer.
    away_since: Option<Instant>,
}

struct Loaded {
    endpoint: Arc<Endpoint>,
    pace: Pace,
}

struct Flight {
    since: Instant,
    shown: bool,
}

/// What to do after a look at everything.
enum Next {
    GoOn,
    Wait(Option<Timestamp>),
    Leave,
}

impl Run {
    fn new(sender: Sender, lane: Lane, id: WebhookId, linger_ms: i64) -> Self {
        let of_tenant = sender.places.of(lane.tenant_id);
        Run {
            sender,
            lane,
            id,
            linger_ms,
            of_tenant,
            endpoint: None,
            ready: Ready::default(),
            attempts: JoinSet::new(),
            flying: HashMap::new(),
            unsettled: Unsettled::default(),
            tally: Tally::default(),
            held_at: Instant::now(),
            tended_at: Instant::now(),
            looked_at: None,
            began_at: Instant::now(),
            recovered_at: Instant::now(),
            unheld: false,
            stopping_since: None,
            away_since: None,
        }
    }

    fn now(&self) -> Timestamp {
        self.sender.node.world.now()
    }

    async fn work(&mut self, wake: &Notify, stop: &watch::Receiver<bool>) -> Result<()> {
        if !store::unmark(&self.lane, self.id).await? {
            return Ok(());
        }
        let mut look = true;
        let mut timer = pin!(tokio::time::sleep(PATIENCE));
        loop {
            self.settle();
            let stopping = *stop.borrow();
            let until = match self.look_and_step(look, stopping).await {
                Ok(Next::Leave) => return Ok(()),
                Ok(Next::GoOn) => {
                    look = false;
                    self.collect();
                    continue;
                }
                Ok(Next::Wait(until)) => until,
                Err(error) if self.bears(&error) => None,
                Err(error) => return Err(error),
            };
            let ms = until.map_or(POLL_MS, |until| (until.as_millis() - self.now().as_millis()).clamp(1, POLL_MS));
            timer.as_mut().reset(Instant::now() + Duration::from_millis(ms.unsigned_abs()));
            tokio::select! {
                Some(ended) = self.attempts.join_next() => {
                    self.ended(ended);
                    look = false;
                }
                written = self.unsettled.written() => {
                    look = written.switched_off;
                    if !self.settled(written)? {
                        return Ok(());
                    }
                }
                () = wake.notified() => look = true,
                () = &mut timer => look = true,
            }
            self.collect();
        }
    }

    async fn look_and_step(&mut self, look: bool, stop: bool) -> Result<Next> {
        // Other nodes tell nobody of a change, so however busy the lane is, it is looked at now and then.
        if look || self.looked_at.is_none_or(|at| at.elapsed() >= PATIENCE) {
            self.load().await?;
        }
        let next = if stop { self.stop().await? } else { self.step().await? };
        self.away_since = None;
        Ok(next)
    }

    /// Whether something is under way or not yet noted.
    fn is_busy(&self) -> bool {
        !self.attempts.is_empty() || !self.unsettled.is_empty()
    }

    /// Whether to stay although the database is away: leaving forgets the answers that are on their way to it, and what
    /// they were about would be sent again.
    fn bears(&mut self, error: &Error) -> bool {
        let busy = self.is_busy();
        let since = *self.away_since.get_or_insert_with(Instant::now);
        busy && error.code() == Code::Unavailable && since.elapsed() < SETTLE_MAX
    }

    /// Reads the endpoint as it is now.
    async fn load(&mut self) -> Result<()> {
        self.looked_at = None;
        let (secrets, tenant) = (&self.sender.node.secrets, self.lane.tenant_id);
        let known = self.endpoint.as_ref().map(|loaded| loaded.endpoint.as_ref());
        let read = store::endpoint(self.lane.db(), secrets, tenant, self.id, known).await?;
        self.looked_at = Some(Instant::now());
        let read = match read {
            Look::Same if known.is_some_and(|known| known.ordered) => {
                // One that is sent again goes first, and what was looked up behind it has to wait.
                self.ready.clear();
                return Ok(());
            }
            Look::Same => {
                self.ready.start_over();
                return Ok(());
            }
            Look::Gone => {
                self.endpoint = None;
                return Ok(());
            }
            Look::Changed(read) => read,
        };
        self.ready.clear();
        self.unheld = false;
        // What was learnt holds until the endpoint is switched off or moves; enabling it is a new start, and so is another
        // place.
        let goes_on = |known: &Endpoint| {
            known.target.is_some() && known.target == read.target && known.generation == read.generation
        };
        let mut pace = match self.endpoint.take() {
            Some(loaded) if goes_on(&loaded.endpoint) => loaded.pace,
            _ => self.pace(&read),
        };
        pace.limit(read.rate_limit_per_second, self.now());
        self.endpoint = Some(Loaded { endpoint: Arc::from(read), pace });
        Ok(())
    }

    fn pace(&self, endpoint: &Endpoint) -> Pace {
        let probe_wait_ms = self.sender.settings.first_wait_ms();
        Pace::new(endpoint.rate_limit_per_second, &endpoint.state, probe_wait_ms, self.now())
    }

    /// Everything that can be done now, without waiting for an answer.
    async fn step(&mut self) -> Result<Next> {
        if !self.tend().await? {
            return Ok(Next::Leave);
        }
        let Some(endpoint) = self.endpoint.as_ref().map(|loaded| loaded.endpoint.clone()) else {
            return self.leave_gone().await;
        };
        if endpoint.state.drained < endpoint.generation {
            return self.drain(&endpoint).await;
        }
        if endpoint.target.is_none() {
            return self.leave_off(&endpoint).await;
        }
        if !endpoint.ordered && !self.unheld {
            match store::unhold(&self.lane, self.id).await? {
                None => return Ok(Next::Leave),
                Some(more) => {
                    self.unheld = !more;
                    self.ready.look_again();
                }
            }
        }
        // Others wait for their turn, and this lane has had its own.
        if self.sender.is_crowded() && self.began_at.elapsed() >= self.sender.settings.tenure {
            return self.wind_up().await;
        }
        self.fill(&endpoint).await?;
        let busy = self.is_busy();
        if endpoint.recovering && self.ready.is_empty() && (!busy || self.recovered_at.elapsed() >= PATIENCE) {
            self.recovered_at = Instant::now();
            match deliveries::recover_step(&self.lane, self.id, endpoint.events.clone(), endpoint.ordered).await? {
                deliveries::Recovered::Lost => return Ok(Next::Leave),
                deliveries::Recovered::Full => {}
                deliveries::Recovered::More => {
                    self.ready.look_again();
                    return Ok(Next::GoOn);
                }
                deliveries::Recovered::Done => {
                    self.load().await?;
                    return Ok(Next::GoOn);
                }
            }
        }
        if busy {
            let now = self.now();
            let pause = self.endpoint.as_mut().and_then(|loaded| loaded.pace.pause(now));
            return Ok(Next::Wait(pause.filter(|_| !self.ready.is_empty()).map(|(until, _)| until)));
        }
        self.linger_or_leave(&endpoint).await
    }

    /// Stays while something is due soon, else gives the lane back.
    async fn linger_or_leave(&mut self, endpoint: &Endpoint) -> Result<Next> {
        let now = self.now();
        let next = store::next(self.lane.db(), self.id).await?;
        let pause = self.endpoint.as_mut().and_then(|loaded| loaded.pace.pause(now));
        let due = match (next, pause) {
            (Some(next), Some((until, _))) => Some(next.max(until)),
            (next, _) => next,
        };
        if due.is_some_and(|due| due <= now) {
            self.ready.look_again();
            return Ok(Next::GoOn);
        }
        let linger_ms = if self.sender.is_crowded() { 0 } else { self.linger_ms };
        let soon = |at: Timestamp| at.as_millis() - now.as_millis() <= linger_ms;
        let idle = i64::try_from(self.held_at.elapsed().as_millis()).unwrap_or(i64::MAX);
        if linger_ms > 0 && (due.is_some_and(soon) || (due.is_none() && idle < linger_ms)) {
            return Ok(Next::Wait(due));
        }
        store::release(&self.lane, self.id, endpoint, pause).await?;
        Ok(Next::Leave)
    }

    /// Starts as many attempts as the pace allows.
    async fn fill(&mut self, endpoint: &Arc<Endpoint>) -> Result<()> {
        if self.unsettled.is_full() || self.unsettled.ends(endpoint.version) {
            return Ok(());
        }
        let now = self.now();
        let under_way = self.attempts.len();
        let Some(room) = self.endpoint.as_mut().map(|loaded| loaded.pace.room(under_way, now)) else { return Ok(()) };
        if room == 0 {
            return Ok(());
        }
        self.ready.look(self.lane.db(), self.id, endpoint.ordered, now, &self.flying).await?;
        for _ in 0..room {
            if self.ready.is_empty() {
                break;
            }
            let Some(place) = self.sender.places.take(&self.of_tenant, self.attempts.len()) else { break };
            let Some(due) = self.ready.next() else { break };
            self.flying.insert(due.id, Flight { since: Instant::now(), shown: false });
            if let Some(loaded) = &mut self.endpoint {
                loaded.pace.started();
            }
            self.start(endpoint.clone(), due, place);
        }
        Ok(())
    }

    fn start(&mut self, endpoint: Arc<Endpoint>, due: Due, place: AttemptPlace) {
        let Sender { node, settings, .. } = self.sender.clone();
        let (db, spare, again) =
            (self.lane.db().clone(), due.without_body(), self.now().plus(settings.first_wait_ms()));
        let asked = endpoint.version;
        // Boxed: a task is moved several times.
        let sending = Box::pin(attempt::send(node.app().clone(), db, settings, endpoint, due));
        self.attempts.spawn(async move {
            let _place = place;
            let sent = AssertUnwindSafe(sending).catch_unwind().await;
            sent.unwrap_or_else(|_| {
                tracing::error!(delivery = %spare.id, "an attempt panicked");
                Outcome::unsent(spare, asked, Fate::Retry(again))
            })
        });
    }

    fn ended(&mut self, ended: Result<Outcome, tokio::task::JoinError>) {
        match ended {
            Ok(outcome) => {
                self.learn(&outcome);
                self.unsettled.push(outcome);
            }
            Err(error) => tracing::error!(%error, "an attempt ended badly"),
        }
    }

    /// The pace follows an outcome at once, not when it is on disk: a write takes as long as many attempts. What another
    /// version of the endpoint has answered says nothing about this one, but for the time the same place asks for.
    fn learn(&mut self, outcome: &Outcome) {
        self.tally.count(outcome);
        let now = self.now();
        let Some(Loaded { pace, endpoint }) = &mut self.endpoint else { return };
        pace.hold(endpoint.target.as_ref().and_then(|place| outcome.held_by(place.as_str())));
        if outcome.attempt.is_none() || outcome.asked != endpoint.version {
            return;
        }
        if outcome.fate == Fate::Succeeded { pace.succeeded() } else { pace.failed(now) }
    }

    /// Takes in all attempts that have come to their end meanwhile.
    fn collect(&mut self) {
        while let Some(ended) = self.attempts.try_join_next() {
            self.ended(ended);
        }
    }

    /// Begins to write down what is known, unless a write is under way: then the next one takes more.
    fn settle(&mut self) {
        let Some(outcomes) = self.unsettled.take() else { return };
        let now = self.now();
        let (mut learnt, mut reason) = (None, None);
        if let Some(Loaded { pace, endpoint }) = &mut self.endpoint {
            let version = endpoint.version;
            let any = |is: fn(&Outcome, i64) -> bool| outcomes.iter().any(|outcome| is(outcome, version));
            learnt = Some(Learnt::new(version, pace, &outcomes, now));
            let failing_ms = pace.failing_since().map_or(0, |since| now.as_millis() - since.as_millis());
            if any(Outcome::is_gone) {
                reason = Some((version, "gone"));
            } else if failing_ms >= self.sender.settings.auto_disable_ms && any(Outcome::has_failed) {
                reason = Some((version, "failing"));
            }
        }
        self.unsettled.begin(self.lane.clone(), self.id, outcomes, learnt, reason);
    }

    /// The write has ended; false when the lane is lost.
    fn settled(&mut self, written: Written) -> Result<bool> {
        for id in &written.about {
            self.flying.remove(id);
        }
        self.held_at = Instant::now();
        self.ready.look_again();
        written.held
    }

    /// Now and then shows that this node lives, and what takes long. False when the lane is lost.
    async fn tend(&mut self) -> Result<bool> {
        let now = Instant::now();
        if now - self.tended_at < TENDED_EVERY {
            return Ok(true);
        }
        self.tended_at = now;
        let slow = |flight: &Flight| !flight.shown && now - flight.since >= SHOWN_AFTER;
        let shown: Vec<DeliveryId> = self.flying.iter().filter(|(_, flight)| slow(flight)).map(|(id, _)| *id).collect();
        // Outcomes on their way to the disk are not under way any more.
        let shown: Vec<DeliveryId> = shown.into_iter().filter(|id| !self.unsettled.contains(*id)).collect();
        let quiet = self.held_at.elapsed() >= Duration::from_millis(HEARTBEAT_MS.unsigned_abs());
        if shown.is_empty() && !quiet {
            return Ok(true);
        }
        for id in &shown {
            if let Some(flight) = self.flying.get_mut(id) {
                flight.shown = true;
            }
        }
        self.held_at = Instant::now();
        store::tend(&self.lane, shown).await
    }

    /// What waited when the endpoint was switched off is noted as skipped, after what is under way has ended.
    async fn drain(&mut self, endpoint: &Endpoint) -> Result<Next> {
        self.ready.clear();
        if !self.flying.is_empty() {
            return Ok(Next::Wait(None));
        }
        loop {
            match store::drain(&self.lane, self.id, endpoint.generation, endpoint.skip_reason).await? {
                None => return Ok(Next::Leave),
                Some(true) => {}
                Some(false) => break,
            }
        }
        self.load().await?;
        Ok(Next::GoOn)
    }

    async fn leave_off(&mut self, endpoint: &Endpoint) -> Result<Next> {
        if !self.flying.is_empty() {
            return Ok(Next::Wait(None));
        }
        if endpoint.deleted {
            store::retire(&self.lane, self.id).await?;
        } else {
            store::release(&self.lane, self.id, endpoint, None).await?;
        }
        Ok(Next::Leave)
    }

    async fn leave_gone(&mut self) -> Result<Next> {
        store::retire(&self.lane, self.id).await?;
        Ok(Next::Leave)
    }

    /// The process stops. What takes longer than a moment is given up, and sent again by whoever comes next.
    async fn stop(&mut self) -> Result<Next> {
        let since = *self.stopping_since.get_or_insert_with(Instant::now);
        if since.elapsed() >= self.sender.settings.stop_max {
            self.attempts.abort_all();
            while let Some(ended) = self.attempts.join_next().await {
                if !ended.as_ref().is_err_and(JoinError::is_cancelled) {
                    self.ended(ended);
                }
            }
        }
        self.wind_up().await
    }

    /// Nothing new is started, and what is known is written down.
    async fn wind_up(&mut self) -> Result<Next> {
        self.settle();
        if self.is_busy() {
            return Ok(Next::Wait(None));
        }
        if let Some(loaded) = &self.endpoint {
            store::release(&self.lane, self.id, &loaded.endpoint, None).await?;
        }
        Ok(Next::Leave)
    }
}
