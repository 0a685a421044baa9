//! Runs one lane, from its lease to its release.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;

use super::super::lanes::{HEARTBEAT_MS, Lane, POLL_MS};
use super::permits::LanePermit;
use super::unnoted::{SETTLE_MAX, Unnoted};
use super::{Dispatcher, Ended, LaneWork, Load, Settled, UnderWay, Work};
use crate::base::{Code, Error, Result, Timestamp};

/// How often slow jobs are searched for, which iterates over all jobs in flight.
const TENDED_EVERY: Duration = Duration::from_millis(100);
/// How often a lane is loaded at least, because another node may have changed its records.
const PATIENCE: Duration = Duration::from_millis(POLL_MS.unsigned_abs());

/// Runs a lane until nothing is due within `linger_ms`, the lease is lost, or the process stops.
pub async fn run<W: Work>(
    dispatcher: Dispatcher<W>,
    (lane, permit): (Lane, Option<LanePermit>),
    wake: Arc<Notify>,
    linger_ms: i64,
    stop: watch::Receiver<bool>,
) {
    let (key, slow) = (lane.key.clone(), lane.slow_mark());
    let Some(work) = dispatcher.work.open(lane) else { return };
    let mut run = Run::new(dispatcher, work, linger_ms);
    (run.permit, run.slow) = (permit, slow);
    if let Err(error) = run.work(&wake, &stop).await {
        // The lease expires, and then the lane is leased again.
        tracing::warn!(%error, kind = W::KIND, lane = key, "lane interrupted; its lease will expire");
    }
}

/// The id of a job, and how it has ended.
type JobEnd<L> = (<L as LaneWork>::Id, Ended<<L as LaneWork>::Outcome>);

struct Run<W: Work> {
    dispatcher: Dispatcher<W>,
    work: W::Lane,
    /// `None` in `run_due` of tests, which does not limit lanes.
    permit: Option<LanePermit>,
    /// Whether the lane only waits for other servers.
    slow: Arc<AtomicBool>,
    linger_ms: i64,
    jobs: JoinSet<JobEnd<W::Lane>>,
    under_way: UnderWay<<W::Lane as LaneWork>::Id>,
    unnoted: Unnoted<<W::Lane as LaneWork>::Id, <W::Lane as LaneWork>::Outcome>,
    /// `None` while the lane must be loaded before anything else.
    loaded: Option<Load>,
    loaded_at: Instant,
    lost: bool,
    began_at: Instant,
    /// When this run last extended the lease.
    held_at: Instant,
    tended_at: Instant,
    /// When an outcome was last saved.
    noted_at: Instant,
    /// When the process began to stop.
    stopping_since: Option<Instant>,
    /// Since when the database is not reachable.
    away_since: Option<Instant>,
}

/// What the loop does next.
enum Next {
    GoOn,
    /// Continue after loading: a job is due that could not be started with the loaded state.
    Look,
    Wait(Option<Timestamp>),
    Leave,
}

impl<W: Work> Run<W> {
    fn new(dispatcher: Dispatcher<W>, work: W::Lane, linger_ms: i64) -> Self {
        let now = Instant::now();
        Run {
            dispatcher,
            work,
            permit: None,
            slow: Arc::default(),
            linger_ms,
            jobs: JoinSet::new(),
            under_way: UnderWay::default(),
            unnoted: Unnoted::default(),
            loaded: None,
            loaded_at: now,
            lost: false,
            began_at: now,
            held_at: now,
            tended_at: now,
            noted_at: now,
            stopping_since: None,
            away_since: None,
        }
    }

    fn now(&self) -> Timestamp {
        self.dispatcher.work.node().world.now()
    }

    async fn work(&mut self, wake: &Notify, stop: &watch::Receiver<bool>) -> Result<()> {
        let mut look = true;
        let mut timer = pin!(tokio::time::sleep(PATIENCE));
        while !self.lost {
            self.settle();
            let stopping = *stop.borrow();
            let until = match self.look_and_step(look, stopping).await {
                Ok(Next::Leave) => return Ok(()),
                Ok(next @ (Next::GoOn | Next::Look)) => {
                    look = matches!(next, Next::Look);
                    self.collect()?;
                    continue;
                }
                Ok(Next::Wait(until)) => until,
                Err(error) if self.bears(&error, stopping) => None,
                Err(error) => return Err(error),
            };
            let ms = match until {
                Some(until) => (until.as_millis() - self.now().as_millis()).clamp(1, POLL_MS),
                None => POLL_MS.max(self.away_ms()),
            };
            timer.as_mut().reset(Instant::now() + Duration::from_millis(ms.unsigned_abs()));
            tokio::select! {
                Some(ended) = self.jobs.join_next() => {
                    self.ended(ended)?;
                    look = false;
                }
                written = self.unnoted.written() => look = self.settled(written)?,
                () = wake.notified() => look = true,
                () = &mut timer => look = true,
            }
            self.collect()?;
        }
        Ok(())
    }

    async fn look_and_step(&mut self, look: bool, stop: bool) -> Result<Next> {
        if self.is_to_load(look, stop) {
            self.loaded = None;
            let loaded = self.work.load(&self.under_way).await?;
            (self.loaded, self.loaded_at) = (Some(loaded), Instant::now());
        }
        let next = match self.loaded {
            Some(Load::Gone) => Next::Leave,
            _ if stop => self.stop().await?,
            _ => self.step().await?,
        };
        self.away_since = None;
        Ok(next)
    }

    fn is_to_load(&self, look: bool, stop: bool) -> bool {
        match self.loaded {
            // A release needs no new state: the next holder of the lease loads it.
            Some(_) if stop => false,
            None | Some(Load::Again) => true,
            Some(Load::Rest) if !self.is_busy() => true,
            // Other nodes do not announce their changes, so even a busy lane is loaded regularly.
            Some(_) => look || self.loaded_at.elapsed() >= PATIENCE,
        }
    }

    /// Whether jobs are in flight.
    fn is_busy(&self) -> bool {
        !self.under_way.is_empty()
    }

    /// Whether to keep the lease during an outage of the database. Leaving would lose the unsaved outcomes, and their jobs
    /// would run again. Also, a lane that is not released rests until its lease expires, which is long compared with a
    /// short outage. A process that stops does not wait for that when no job is in flight.
    fn bears(&mut self, error: &Error, stopping: bool) -> bool {
        let stays = self.is_busy() || !stopping;
        let since = *self.away_since.get_or_insert_with(Instant::now);
        stays && error.code() == Code::Unavailable && since.elapsed() < SETTLE_MAX
    }

    /// How long the outage has lasted, for the backoff of a lane without jobs in flight.
    fn away_ms(&self) -> i64 {
        let away = self.away_since.filter(|_| !self.is_busy()).map_or(0, |since| since.elapsed().as_millis());
        i64::try_from(away).unwrap_or(i64::MAX)
    }

    /// Starts the due jobs, or releases the lane if there is nothing to do.
    async fn step(&mut self) -> Result<Next> {
        if !self.tend().await? {
            return Ok(Next::Leave);
        }
        if self.loaded == Some(Load::Rest) {
            return self.wind_up().await;
        }
        // Other lanes wait for a permit, and this lane's tenure is over.
        if self.is_crowded() && self.began_at.elapsed() >= self.dispatcher.work.limits().tenure {
            return self.wind_up().await;
        }
        let mut next = None;
        if !self.under_way.is_full() {
            let Some(due) = self.work.due(&self.under_way).await? else { return Ok(Next::Leave) };
            due.jobs.into_iter().for_each(|job| self.start(job));
            next = due.next;
        }
        if self.loaded == Some(Load::Again) {
            return Ok(Next::GoOn);
        }
        if self.is_busy() {
            let now = self.now();
            return Ok(Next::Wait(next.filter(|next| *next > now)));
        }
        self.linger_or_leave(next).await
    }

    /// Keeps the lane while a job is due soon, otherwise releases it.
    async fn linger_or_leave(&mut self, due: Option<Timestamp>) -> Result<Next> {
        let now = self.now();
        if due.is_some_and(|due| due <= now) {
            return Ok(Next::Look);
        }
        let linger_ms = if self.is_crowded() { 0 } else { self.linger_ms };
        let soon = |at: Timestamp| at.as_millis() - now.as_millis() <= linger_ms;
        let idle = i64::try_from(self.noted_at.elapsed().as_millis()).unwrap_or(i64::MAX);
        if linger_ms > 0 && (due.is_some_and(soon) || (due.is_none() && idle < linger_ms)) {
            return Ok(Next::Wait(due));
        }
        self.work.release().await?;
        Ok(Next::Leave)
    }

    fn start(&mut self, job: <W::Lane as LaneWork>::Job) {
        let id = W::Lane::id(&job);
        if self.under_way.begin(id) {
            let work = self.work.start(job);
            self.jobs.spawn(async move { (id, work.await) });
        }
    }

    fn ended(&mut self, ended: Result<JobEnd<W::Lane>, JoinError>) -> Result<()> {
        let (id, ended) = ended.map_err(Error::internal)?;
        if self.under_way.is_quick(&id, Instant::now()) {
            self.set_slow(false);
        }
        match ended {
            Ended::Noted => {
                self.under_way.noted(&id);
                self.noted_at = Instant::now();
                self.work.noted();
            }
            Ended::ToNote(outcome) => {
                self.under_way.ended(&id);
                self.work.learn(&outcome);
                self.unnoted.push(id, outcome);
            }
            Ended::Lost => self.lost = true,
        }
        Ok(())
    }

    /// Handles all jobs that have ended meanwhile.
    fn collect(&mut self) -> Result<()> {
        while let Some(ended) = self.jobs.try_join_next() {
            self.ended(ended)?;
        }
        Ok(())
    }

    /// Starts to save the outcomes of finished jobs.
    fn settle(&mut self) {
        self.unnoted.write(|outcomes| self.work.settle(outcomes));
    }

    /// Handles the result of a write. Returns whether the lane must be loaded now.
    fn settled(&mut self, written: Result<Settled>) -> Result<bool> {
        let Some(about) = self.unnoted.ended(&written, |outcomes| self.work.settle(outcomes)) else {
            let jobs = W::Lane::JOBS;
            if let Err(error) = written {
                tracing::warn!(%error, kind = W::KIND, "what became of {jobs} could not be noted; it is tried again");
            }
            return Ok(false);
        };
        for id in &about {
            self.under_way.noted(id);
        }
        let Settled { held, look } = written?;
        (self.held_at, self.noted_at, self.lost) = (Instant::now(), Instant::now(), !held);
        self.work.noted();
        Ok(look)
    }

    /// Reports slow jobs, and sends a heartbeat when one is due. Returns false when the lease is lost.
    async fn tend(&mut self) -> Result<bool> {
        let now = Instant::now();
        if now - self.tended_at < TENDED_EVERY {
            return Ok(true);
        }
        self.tended_at = now;
        if self.under_way.only_waits(now) {
            self.set_slow(true);
        }
        let slow = self.under_way.show(now);
        let quiet = self.held_at.elapsed() >= Duration::from_millis(HEARTBEAT_MS.unsigned_abs());
        if slow.is_empty() && !quiet {
            return Ok(true);
        }
        self.held_at = Instant::now();
        self.work.tend(slow).await
    }

    /// A lane that only waits takes a slow permit, and takes a working permit again when a job has ended quickly.
    fn set_slow(&mut self, slow: bool) {
        self.slow.store(slow, Ordering::Relaxed);
        if let Some(permit) = &mut self.permit {
            permit.change_pace(slow);
        }
    }

    /// Whether other lanes wait for a permit of the same pool.
    fn is_crowded(&self) -> bool {
        self.permit.as_ref().is_some_and(LanePermit::is_crowded)
    }

    /// Stops the lane because the process stops. Jobs that take longer than `stop_max` are aborted; the next holder of the
    /// lease runs them again.
    async fn stop(&mut self) -> Result<Next> {
        let since = *self.stopping_since.get_or_insert_with(Instant::now);
        if since.elapsed() >= self.dispatcher.work.limits().stop_max {
            self.jobs.abort_all();
            while let Some(ended) = self.jobs.join_next().await {
                if !ended.as_ref().is_err_and(JoinError::is_cancelled) {
                    self.ended(ended)?;
                }
            }
            self.under_way.give_up();
        }
        if self.lost { Ok(Next::Leave) } else { self.wind_up().await }
    }

    /// Starts nothing new, saves the outcomes, and then releases the lane.
    async fn wind_up(&mut self) -> Result<Next> {
        self.settle();
        if self.is_busy() {
            return Ok(Next::Wait(None));
        }
        self.work.release().await?;
        Ok(Next::Leave)
    }
}
