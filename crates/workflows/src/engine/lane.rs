//! The lane of a tenant's workflows, while this node holds its lease.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use feature_kit::ActionEffect;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use kernel::base::{Result, SECOND_MS, Timestamp};
use kernel::jobs::dispatch::{DueJobs, JobCompletion, JobsInFlight, LaneWork, LoadResult, SaveReport};
use kernel::jobs::lanes::LeasedLane;
use kernel::jobs::steps::{self, StepVersion};

use super::super::RunId;
use super::super::runs::{StoredRun, store as runs};
use super::context::EngineContext;
use super::job::{self, StepOutcome};
use super::revisions::CompiledRevision;
use super::step_results::store::{self as step_results, StepJob};
use super::{follow, schedules, store};

/// How long a step waits after the database was unavailable.
const REST_MS: i64 = SECOND_MS;

/// Cached runs; each has an input of up to 64 KiB.
const RUNS_KEPT_MAX: usize = 500;
/// How many pages of due steps are read to find steps that can be started.
const PAGES_MAX: i64 = 8;

/// An attempt of a step: the run, the step's index in the definition, the number of the attempt.
pub type StepAttemptId = (RunId, usize, i64);

/// The work on one tenant's lane.
pub struct TenantLane {
    engine: EngineContext,
    lane: LeasedLane,
    /// Steps that are not started before this time.
    resting: HashMap<StepAttemptId, Timestamp>,
    /// Running steps, and whether each is a request.
    started: HashMap<StepAttemptId, (StepVersion, bool)>,
    /// Cached runs of due steps; only their immutable fields are used.
    runs: HashMap<RunId, Arc<StoredRun>>,
}

impl TenantLane {
    pub fn new(engine: EngineContext, lane: LeasedLane) -> Self {
        let (resting, started, runs) = (HashMap::new(), HashMap::new(), HashMap::new());
        TenantLane { engine, lane, resting, started, runs }
    }

    fn now(&self) -> Timestamp {
        self.engine.node.env.now()
    }

    /// Loads the run and the revision of a due step. None if the run is gone.
    async fn prepare_job(&mut self, step: steps::StepRecord) -> Result<Option<StepJob>> {
        let Ok(id) = step.owner.parse::<RunId>() else { return Ok(None) };
        let run = if let Some(run) = self.runs.get(&id) {
            run.clone()
        } else {
            let Some(run) = runs::find_run(self.lane.db(), id).await? else { return Ok(None) };
            let run = Arc::new(run);
            self.runs.insert(id, run.clone());
            run
        };
        let Some(revision) = self.find_revision(&run).await? else { return Ok(None) };
        let steps = &revision.compiled.definition.steps;
        let Some(step_index) = steps.iter().position(|definition| definition.id == step.name) else { return Ok(None) };
        let mut job = StepJob { tenant: self.lane.tenant_id, run, revision, step_index, request_permit: None, step };
        // A request that was held has lost its deadline (`postpone_steps`): its whole time counts from when it is first
        // started after that. The new deadline is saved with the outcome of this attempt, and counts for the retries after
        // it. Without an outcome, because no permit was free or the node died, the whole time counts from the next start;
        // the time of the run limits that.
        if matches!(job.step_action().effect, ActionEffect::Http) && !self.engine.is_holding_requests() {
            let timeout = job.step_definition().timeout_seconds.map(|seconds| self.now().plus_ms(seconds * 1_000));
            job.step.deadline_at = job.step.deadline_at.or(timeout);
        }
        Ok(Some(job))
    }

    /// The revision of a run. If it can no longer be run, the run fails; other runs go on.
    async fn find_revision(&self, run: &StoredRun) -> Result<Option<Arc<CompiledRevision>>> {
        let run = &run.run;
        match self.engine.get_revision(self.lane.db(), run.workflow_id, run.revision).await? {
            Ok(revision) => Ok(Some(revision)),
            Err(error) => store::fail_run(&self.lane, run.id, error).await.map(|()| None),
        }
    }

    /// Begins queued runs. None when the lease is lost.
    async fn begin_queued_runs(&self) -> Result<store::Upkeep> {
        let mut begun = Vec::new();
        for run in store::load_startable_runs(self.lane.db(), self.engine.settings.runs_in_flight).await? {
            if let Some(revision) = self.find_revision(&run).await? {
                begun.push((run.run.id, revision));
            }
        }
        if begun.is_empty() { Ok(Some(0)) } else { store::begin_runs(&self.lane, begun).await }
    }
}

impl LaneWork for TenantLane {
    const JOBS: &'static str = "steps";
    type Id = StepAttemptId;
    type Job = StepJob;
    type Outcome = StepOutcome;

    fn job_id(job: &StepJob) -> StepAttemptId {
        (job.run.run.id, job.step_index, job.step.attempt)
    }

    async fn load_lane(&mut self, _: &JobsInFlight<StepAttemptId>) -> Result<LoadResult> {
        if self.runs.len() > RUNS_KEPT_MAX {
            self.runs.clear();
        }
        let settings = self.engine.settings.clone();
        let ended = store::end_overdue_runs(&self.lane).await?;
        let followed = follow::store::follow_events(&self.engine, &self.lane).await?;
        let fired = schedules::store::fire_due_schedules(&self.engine, &self.lane, settings.run_max_ms).await?;
        let begun = self.begin_queued_runs().await?;
        let mut more = false;
        for done in [ended, followed, fired, begun] {
            match done {
                None => return Ok(LoadResult::Gone),
                Some(count) => more |= count > 0,
            }
        }
        Ok(if more { LoadResult::More } else { LoadResult::Ready })
    }

    async fn load_due_jobs(&mut self, in_flight: &JobsInFlight<StepAttemptId>) -> Result<Option<DueJobs<StepJob>>> {
        let now = self.now();
        self.resting.retain(|_, until| *until > now);
        self.started.retain(|id, _| in_flight.contains_job(id));
        let steps_max = self.engine.settings.steps_under_way;
        let free_slots = steps_max.saturating_sub(in_flight.len());
        let mut jobs = VecDeque::new();
        // Running steps are due as well, because they are not saved yet. Requests may wait for a permit; further pages are
        // read so that other steps do not wait behind them.
        let page = i64::try_from(steps_max * 4 + self.resting.len()).unwrap_or(i64::MAX);
        for number in 0..PAGES_MAX {
            if jobs.len() >= free_slots
                || !self.load_due_page(in_flight, &mut jobs, free_slots, page, number * page).await?
            {
                break;
            }
        }
        let next = if jobs.is_empty() { self.find_next_due().await? } else { None };
        Ok(Some(DueJobs { jobs, next }))
    }

    fn start_job(&mut self, job: StepJob) -> BoxFuture<'static, JobCompletion<StepOutcome>> {
        self.started.insert(Self::job_id(&job), (job.seen_attempt(), job.request_permit.is_some()));
        job::run_job(self.engine.clone(), self.lane.clone(), job).boxed()
    }

    fn save_outcomes(&mut self, outcomes: Arc<Vec<StepOutcome>>) -> BoxFuture<'static, Result<SaveReport>> {
        let lane = self.lane.clone();
        async move {
            let (mut attempted, mut postponed) = (Vec::new(), Vec::new());
            for outcome in outcomes.iter() {
                match outcome {
                    StepOutcome::Attempted(outcome) => attempted.push(outcome.as_ref().clone()),
                    StepOutcome::Postponed(job) => postponed.push(job.as_ref().clone()),
                    StepOutcome::Deferred(_) => {}
                }
            }
            let lease_held = attempted.is_empty() || step_results::save_results(&lane, Arc::new(attempted)).await?;
            let lease_held =
                lease_held && (postponed.is_empty() || step_results::postpone_steps(&lane, postponed).await?);
            Ok(SaveReport { lease_held, must_reload: false })
        }
        .boxed()
    }

    fn apply_outcome(&mut self, outcome: &StepOutcome) {
        if let StepOutcome::Deferred(job) = outcome {
            self.resting.insert(Self::job_id(job), self.now().plus_ms(REST_MS));
        }
    }

    async fn send_heartbeat(&mut self, slow: Vec<StepAttemptId>) -> Result<bool> {
        let versions = slow.iter().filter_map(|id| self.started.get(id)).map(|(version, _)| version.clone()).collect();
        store::extend_lease(&self.lane, versions).await
    }

    async fn release_lane(&mut self) -> Result<()> {
        let resting = self.resting.values().min().copied();
        store::release_lane(&self.lane, self.engine.settings.clone(), resting).await
    }
}

impl TenantLane {
    /// Adds the steps of one page that can be started. Returns whether there may be more pages.
    async fn load_due_page(
        &mut self,
        in_flight: &JobsInFlight<StepAttemptId>,
        jobs: &mut VecDeque<StepJob>,
        free_slots: usize,
        limit: i64,
        offset: i64,
    ) -> Result<bool> {
        let due = steps::list_due_steps(self.lane.db(), &self.lane, self.now(), limit, offset).await?;
        let more = due.len() >= usize::try_from(limit).unwrap_or(usize::MAX);
        let is_request = |job: &&StepJob| job.request_permit.is_some();
        let mut requests = self.started.values().filter(|(_, is_request)| *is_request).count();
        requests += jobs.iter().filter(is_request).count();
        for step in due {
            let is_started = |(version, _): &(StepVersion, bool)| {
                version.attempt == step.attempt && version.name == step.name && version.owner == step.owner
            };
            if jobs.len() >= free_slots || self.started.values().any(is_started) {
                continue;
            }
            let Some(mut job) = self.prepare_job(step).await? else { continue };
            let id = Self::job_id(&job);
            if in_flight.contains_job(&id) || self.resting.contains_key(&id) {
                continue;
            }
            if matches!(job.step_action().effect, ActionEffect::Http) && !self.engine.is_holding_requests() {
                // A request without a permit waits until a running one ends.
                if requests >= self.engine.settings.requests_under_way() {
                    continue;
                }
                let permits = self.engine.node.outbound.request_permits();
                let Some(permit) = permits.try_acquire(self.lane.tenant_id, requests) else { continue };
                job.request_permit = Some(Arc::new(permit));
                requests += 1;
            }
            jobs.push_back(job);
        }
        Ok(more)
    }

    /// When the lane has work next, if nothing can be started now.
    async fn find_next_due(&self) -> Result<Option<Timestamp>> {
        // Resting steps are due in the database, but wait until this time.
        match self.resting.values().min() {
            Some(rest) => Ok(Some(*rest)),
            None => store::find_next_due(&self.lane, &self.engine.settings).await,
        }
    }
}
