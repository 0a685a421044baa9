//! Runs one lane, from its lease to its release.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;

use super::super::lanes::{HEARTBEAT_MS, LeasedLane, POLL_MS};
use super::dispatcher::Dispatcher;
use super::in_flight::JobsInFlight;
use super::permits::LanePermit;
use super::unsaved_outcomes::{SAVE_RETRY_MAX, UnsavedOutcomes};
use super::work::{JobCompletion, LaneWork, LoadResult, SaveReport, WorkKind};
use crate::base::{Code, Error, Result, Timestamp};

/// How often slow jobs are searched for, which iterates over all jobs in flight.
const SLOW_CHECK_EVERY: Duration = Duration::from_millis(100);
/// How often a lane is loaded at least, because another node may have changed its records.
const RELOAD_EVERY: Duration = Duration::from_millis(POLL_MS.unsigned_abs());

/// Runs a lane until nothing is due within `linger_ms`, the lease is lost, or the process stops.
pub async fn run<W: WorkKind>(
    dispatcher: Dispatcher<W>,
    (lane, permit): (LeasedLane, Option<LanePermit>),
    wake: Arc<Notify>,
    linger_ms: i64,
    stop: watch::Receiver<bool>,
) {
    let (key, slow) = (lane.key.clone(), lane.slow_flag());
    let Some(work) = dispatcher.work.open_lane(lane) else { return };
    let mut run = LaneRun::new(dispatcher, work, linger_ms);
    (run.permit, run.slow) = (permit, slow);
    if let Err(error) = run.run_until_released(&wake, &stop).await {
        // The lease expires, and then the lane is leased again.
        tracing::warn!(%error, kind = W::KIND, lane = key, "lane interrupted; its lease will expire");
    }
}

/// The id of a job, and how it has ended.
type FinishedJob<L> = (<L as LaneWork>::Id, JobCompletion<<L as LaneWork>::Outcome>);

struct LaneRun<W: WorkKind> {
    dispatcher: Dispatcher<W>,
    work: W::Lane,
    /// `None` in `run_due` of tests, which does not limit lanes.
    permit: Option<LanePermit>,
    /// Whether the lane only waits for other servers.
    slow: Arc<AtomicBool>,
    linger_ms: i64,
    jobs: JoinSet<FinishedJob<W::Lane>>,
    in_flight: JobsInFlight<<W::Lane as LaneWork>::Id>,
    unsaved: UnsavedOutcomes<<W::Lane as LaneWork>::Id, <W::Lane as LaneWork>::Outcome>,
    /// `None` while the lane must be loaded before anything else.
    loaded: Option<LoadResult>,
    loaded_at: Instant,
    lost: bool,
    began_at: Instant,
    /// When this run last extended the lease.
    lease_extended_at: Instant,
    slow_checked_at: Instant,
    /// When an outcome was last saved.
    saved_at: Instant,
    /// When the process began to stop.
    stopping_since: Option<Instant>,
    /// Since when the database is not reachable.
    outage_since: Option<Instant>,
}

/// The next action of the loop.
enum NextAction {
    Continue,
    /// Continue after loading: a job is due that could not be started with the loaded state.
    Reload,
    Wait(Option<Timestamp>),
    Leave,
}

impl<W: WorkKind> LaneRun<W> {
    fn new(dispatcher: Dispatcher<W>, work: W::Lane, linger_ms: i64) -> Self {
        let now = Instant::now();
        LaneRun {
            dispatcher,
            work,
            permit: None,
            slow: Arc::default(),
            linger_ms,
            jobs: JoinSet::new(),
            in_flight: JobsInFlight::default(),
            unsaved: UnsavedOutcomes::default(),
            loaded: None,
            loaded_at: now,
            lost: false,
            began_at: now,
            lease_extended_at: now,
            slow_checked_at: now,
            saved_at: now,
            stopping_since: None,
            outage_since: None,
        }
    }

    fn now(&self) -> Timestamp {
        self.dispatcher.work.node().env.now()
    }

    async fn run_until_released(&mut self, wake: &Notify, stop: &watch::Receiver<bool>) -> Result<()> {
        let mut must_reload = true;
        let mut timer = pin!(tokio::time::sleep(RELOAD_EVERY));
        while !self.lost {
            self.save_finished();
            let stopping = *stop.borrow();
            let until = match self.reload_and_step(must_reload, stopping).await {
                Ok(NextAction::Leave) => return Ok(()),
                Ok(next @ (NextAction::Continue | NextAction::Reload)) => {
                    must_reload = matches!(next, NextAction::Reload);
                    self.reap_finished()?;
                    continue;
                }
                Ok(NextAction::Wait(until)) => until,
                Err(error) if self.keeps_lease_during_outage(&error, stopping) => None,
                Err(error) => return Err(error),
            };
            let ms = match until {
                Some(until) => (until.as_millis() - self.now().as_millis()).clamp(1, POLL_MS),
                None => POLL_MS.max(self.outage_ms()),
            };
            timer.as_mut().reset(Instant::now() + Duration::from_millis(ms.unsigned_abs()));
            tokio::select! {
                Some(ended) = self.jobs.join_next() => {
                    self.handle_finished(ended)?;
                    must_reload = false;
                }
                written = self.unsaved.wait_saved() => must_reload = self.handle_saved(written)?,
                () = wake.notified() => must_reload = true,
                () = &mut timer => must_reload = true,
            }
            self.reap_finished()?;
        }
        Ok(())
    }

    async fn reload_and_step(&mut self, must_reload: bool, stop: bool) -> Result<NextAction> {
        if self.must_load(must_reload, stop) {
            self.loaded = None;
            let loaded = self.work.load_lane(&self.in_flight).await?;
            (self.loaded, self.loaded_at) = (Some(loaded), Instant::now());
        }
        let next = match self.loaded {
            Some(LoadResult::Gone) => NextAction::Leave,
            _ if stop => self.stop_lane().await?,
            _ => self.start_due_jobs().await?,
        };
        self.outage_since = None;
        Ok(next)
    }

    fn must_load(&self, must_reload: bool, stop: bool) -> bool {
        match self.loaded {
            // A release needs no new state: the next holder of the lease loads it.
            Some(_) if stop => false,
            None | Some(LoadResult::More) => true,
            Some(LoadResult::Paused) if !self.is_busy() => true,
            // Other nodes do not announce their changes, so even a busy lane is loaded regularly.
            Some(_) => must_reload || self.loaded_at.elapsed() >= RELOAD_EVERY,
        }
    }

    /// Whether jobs are in flight.
    fn is_busy(&self) -> bool {
        !self.in_flight.is_empty()
    }

    /// Whether to keep the lease during an outage of the database. Leaving would lose the unsaved outcomes, and their jobs
    /// would run again. Also, a lane that is not released rests until its lease expires, which is long compared with a
    /// short outage. A process that stops does not wait for that when no job is in flight.
    fn keeps_lease_during_outage(&mut self, error: &Error, stopping: bool) -> bool {
        let stays = self.is_busy() || !stopping;
        let since = *self.outage_since.get_or_insert_with(Instant::now);
        stays && error.code() == Code::Unavailable && since.elapsed() < SAVE_RETRY_MAX
    }

    /// How long the outage has lasted, for the backoff of a lane without jobs in flight.
    fn outage_ms(&self) -> i64 {
        let outage = self.outage_since.filter(|_| !self.is_busy()).map_or(0, |since| since.elapsed().as_millis());
        i64::try_from(outage).unwrap_or(i64::MAX)
    }

    /// Starts the due jobs, or releases the lane if there is nothing to do.
    async fn start_due_jobs(&mut self) -> Result<NextAction> {
        if !self.check_slow_jobs().await? {
            return Ok(NextAction::Leave);
        }
        if self.loaded == Some(LoadResult::Paused) {
            return self.drain_and_release().await;
        }
        // Other lanes wait for a permit, and this lane's tenure is over.
        if self.is_crowded() && self.began_at.elapsed() >= self.dispatcher.work.limits().tenure_max {
            return self.drain_and_release().await;
        }
        let mut next = None;
        if !self.in_flight.is_full() {
            let Some(due) = self.work.load_due_jobs(&self.in_flight).await? else { return Ok(NextAction::Leave) };
            due.jobs.into_iter().for_each(|job| self.spawn_job(job));
            next = due.next;
        }
        if self.loaded == Some(LoadResult::More) {
            return Ok(NextAction::Continue);
        }
        if self.is_busy() {
            let now = self.now();
            return Ok(NextAction::Wait(next.filter(|next| *next > now)));
        }
        self.linger_or_release(next).await
    }

    /// Keeps the lane while a job is due soon, otherwise releases it.
    async fn linger_or_release(&mut self, due: Option<Timestamp>) -> Result<NextAction> {
        let now = self.now();
        if due.is_some_and(|due| due <= now) {
            return Ok(NextAction::Reload);
        }
        let linger_ms = if self.is_crowded() { 0 } else { self.linger_ms };
        let soon = |at: Timestamp| at.as_millis() - now.as_millis() <= linger_ms;
        let idle = i64::try_from(self.saved_at.elapsed().as_millis()).unwrap_or(i64::MAX);
        if linger_ms > 0 && (due.is_some_and(soon) || (due.is_none() && idle < linger_ms)) {
            return Ok(NextAction::Wait(due));
        }
        self.work.release_lane().await?;
        Ok(NextAction::Leave)
    }

    fn spawn_job(&mut self, job: <W::Lane as LaneWork>::Job) {
        let id = W::Lane::job_id(&job);
        if self.in_flight.begin_job(id) {
            let work = self.work.start_job(job);
            self.jobs.spawn(async move { (id, work.await) });
        }
    }

    fn handle_finished(&mut self, ended: Result<FinishedJob<W::Lane>, JoinError>) -> Result<()> {
        let (id, ended) = ended.map_err(Error::internal)?;
        if self.in_flight.is_quick(&id, Instant::now()) {
            self.set_slow(false);
        }
        match ended {
            JobCompletion::Saved => {
                self.in_flight.mark_saved(&id);
                self.saved_at = Instant::now();
                self.work.on_saved();
            }
            JobCompletion::Unsaved(outcome) => {
                self.in_flight.mark_ended(&id);
                self.work.apply_outcome(&outcome);
                self.unsaved.push_outcome(id, outcome);
            }
            JobCompletion::Lost => self.lost = true,
        }
        Ok(())
    }

    /// Handles all jobs that have ended meanwhile.
    fn reap_finished(&mut self) -> Result<()> {
        while let Some(ended) = self.jobs.try_join_next() {
            self.handle_finished(ended)?;
        }
        Ok(())
    }

    /// Starts to save the outcomes of finished jobs.
    fn save_finished(&mut self) {
        self.unsaved.begin_save(|outcomes| self.work.save_outcomes(outcomes));
    }

    /// Handles the result of a write. Returns whether the lane must be loaded now.
    fn handle_saved(&mut self, written: Result<SaveReport>) -> Result<bool> {
        let Some(ids) = self.unsaved.finish_save(&written, |outcomes| self.work.save_outcomes(outcomes)) else {
            let jobs = W::Lane::JOBS;
            if let Err(error) = written {
                tracing::warn!(%error, kind = W::KIND, "what became of {jobs} could not be noted; it is tried again");
            }
            return Ok(false);
        };
        for id in &ids {
            self.in_flight.mark_saved(id);
        }
        let SaveReport { lease_held, must_reload } = written?;
        (self.lease_extended_at, self.saved_at, self.lost) = (Instant::now(), Instant::now(), !lease_held);
        self.work.on_saved();
        Ok(must_reload)
    }

    /// Reports slow jobs, and sends a heartbeat when one is due. Returns false when the lease is lost.
    async fn check_slow_jobs(&mut self) -> Result<bool> {
        let now = Instant::now();
        if now - self.slow_checked_at < SLOW_CHECK_EVERY {
            return Ok(true);
        }
        self.slow_checked_at = now;
        if self.in_flight.is_only_waiting(now) {
            self.set_slow(true);
        }
        let slow = self.in_flight.take_slow(now);
        let heartbeat_due = self.lease_extended_at.elapsed() >= Duration::from_millis(HEARTBEAT_MS.unsigned_abs());
        if slow.is_empty() && !heartbeat_due {
            return Ok(true);
        }
        self.lease_extended_at = Instant::now();
        self.work.send_heartbeat(slow).await
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
    async fn stop_lane(&mut self) -> Result<NextAction> {
        let since = *self.stopping_since.get_or_insert_with(Instant::now);
        if since.elapsed() >= self.dispatcher.work.limits().stop_max {
            self.jobs.abort_all();
            while let Some(ended) = self.jobs.join_next().await {
                if !ended.as_ref().is_err_and(JoinError::is_cancelled) {
                    self.handle_finished(ended)?;
                }
            }
            self.in_flight.drop_running();
        }
        if self.lost { Ok(NextAction::Leave) } else { self.drain_and_release().await }
    }

    /// Starts nothing new, saves the outcomes, and then releases the lane.
    async fn drain_and_release(&mut self) -> Result<NextAction> {
        self.save_finished();
        if self.is_busy() {
            return Ok(NextAction::Wait(None));
        }
        self.work.release_lane().await?;
        Ok(NextAction::Leave)
    }
}
