//! The lane of a tenant's workflows, while this node holds its lease.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use kernel::base::{Result, SECOND_MS, Timestamp};
use kernel::jobs::dispatch::{Due, Ended, LaneWork, Load, Settled, UnderWay};
use kernel::jobs::lanes::Lane;
use kernel::jobs::steps::{self, Seen};

use super::super::RunId;
use super::super::runs::{StoredRun, store as runs};
use super::act::store::{self as act, Job};
use super::job::{self, Outcome};
use super::revisions::Revision;
use super::{Running, fire, follow, store};
use feature_kit::ActionEffect;

/// How long a step waits after the database was unavailable.
const REST_MS: i64 = SECOND_MS;

/// Cached runs; each has an input of up to 64 KiB.
const RUNS_KEPT: usize = 500;
/// How many pages of due steps are read to find steps that can be started.
const PAGES_MAX: i64 = 8;

/// An attempt of a step: the run, the step's index in the definition, the number of the attempt.
pub type StepId = (RunId, usize, i64);

/// The work on one tenant's lane.
pub struct TenantLane {
    engine: Running,
    lane: Lane,
    /// Steps that are not started before this time.
    resting: HashMap<StepId, Timestamp>,
    /// Running steps, and whether each is a request.
    started: HashMap<StepId, (Seen, bool)>,
    /// Cached runs of due steps; only their immutable fields are used.
    runs: HashMap<RunId, Arc<StoredRun>>,
}

impl TenantLane {
    pub fn new(engine: Running, lane: Lane) -> Self {
        let (resting, started, runs) = (HashMap::new(), HashMap::new(), HashMap::new());
        TenantLane { engine, lane, resting, started, runs }
    }

    fn now(&self) -> Timestamp {
        self.engine.node.world.now()
    }

    /// Loads the run and the revision of a due step. None if the run is gone.
    async fn job(&mut self, step: steps::Step) -> Result<Option<Job>> {
        let Ok(id) = step.owner.parse::<RunId>() else { return Ok(None) };
        let run = if let Some(run) = self.runs.get(&id) {
            run.clone()
        } else {
            let Some(run) = runs::find(self.lane.db(), id).await? else { return Ok(None) };
            let run = Arc::new(run);
            self.runs.insert(id, run.clone());
            run
        };
        let Some(revision) = self.revision(&run).await? else { return Ok(None) };
        let steps = &revision.compiled.definition.steps;
        let Some(place) = steps.iter().position(|known| known.id == step.name) else { return Ok(None) };
        Ok(Some(Job { tenant: self.lane.tenant_id, run, revision, place, request: None, step }))
    }

    /// The revision of a run. If it can no longer be run, the run fails; other runs go on.
    async fn revision(&self, run: &StoredRun) -> Result<Option<Arc<Revision>>> {
        let run = &run.run;
        match self.engine.ready(self.lane.db(), run.workflow_id, run.revision).await? {
            Ok(revision) => Ok(Some(revision)),
            Err(error) => store::fail(&self.lane, run.id, error).await.map(|()| None),
        }
    }

    /// Begins queued runs. None when the lease is lost.
    async fn begin(&self) -> Result<store::Upkeep> {
        let mut begun = Vec::new();
        for run in store::queued(self.lane.db(), self.engine.settings.runs_in_flight).await? {
            if let Some(revision) = self.revision(&run).await? {
                begun.push((run.run.id, revision));
            }
        }
        if begun.is_empty() { Ok(Some(0)) } else { store::begin(&self.lane, begun).await }
    }
}

impl LaneWork for TenantLane {
    const JOBS: &'static str = "steps";
    type Id = StepId;
    type Job = Job;
    type Outcome = Outcome;

    fn id(job: &Job) -> StepId {
        (job.run.run.id, job.place, job.step.attempt)
    }

    async fn load(&mut self, _: &UnderWay<StepId>) -> Result<Load> {
        if self.runs.len() > RUNS_KEPT {
            self.runs.clear();
        }
        let settings = self.engine.settings.clone();
        let ended = store::end_some(&self.lane).await?;
        let followed = follow::store::step(&self.engine, &self.lane).await?;
        let fired = fire::store::step(&self.engine, &self.lane, settings.run_max_ms).await?;
        let begun = self.begin().await?;
        let mut more = false;
        for done in [ended, followed, fired, begun] {
            match done {
                None => return Ok(Load::Gone),
                Some(count) => more |= count > 0,
            }
        }
        Ok(if more { Load::Again } else { Load::Go })
    }

    async fn due(&mut self, under_way: &UnderWay<StepId>) -> Result<Option<Due<Job>>> {
        let now = self.now();
        self.resting.retain(|_, until| *until > now);
        self.started.retain(|id, _| under_way.contains(id));
        let most = self.engine.settings.steps_under_way;
        let room = most.saturating_sub(under_way.len());
        let mut jobs = VecDeque::new();
        // Running steps are due as well, because they are not saved yet. Requests may wait for a permit; further pages are
        // read so that other steps do not wait behind them.
        let page = i64::try_from(most * 4 + self.resting.len()).unwrap_or(i64::MAX);
        for number in 0..PAGES_MAX {
            if jobs.len() >= room || !self.page(under_way, &mut jobs, room, page, number * page).await? {
                break;
            }
        }
        let next = if jobs.is_empty() { self.next().await? } else { None };
        Ok(Some(Due { jobs, next }))
    }

    fn start(&mut self, job: Job) -> BoxFuture<'static, Ended<Outcome>> {
        self.started.insert(Self::id(&job), (job.seen(), job.request.is_some()));
        job::run(self.engine.clone(), self.lane.clone(), job).boxed()
    }

    fn settle(&mut self, outcomes: Arc<Vec<Outcome>>) -> BoxFuture<'static, Result<Settled>> {
        let lane = self.lane.clone();
        async move {
            let (mut attempted, mut away) = (Vec::new(), Vec::new());
            for outcome in outcomes.iter() {
                match outcome {
                    Outcome::Attempted(outcome) => attempted.push(outcome.as_ref().clone()),
                    Outcome::Away(job) => away.push(job.as_ref().clone()),
                    Outcome::Later(_) => {}
                }
            }
            let held = attempted.is_empty() || act::settle(&lane, Arc::new(attempted)).await?;
            let held = held && (away.is_empty() || act::rest(&lane, away).await?);
            Ok(Settled { held, look: false })
        }
        .boxed()
    }

    fn learn(&mut self, outcome: &Outcome) {
        if let Outcome::Later(job) = outcome {
            self.resting.insert(Self::id(job), self.now().plus(REST_MS));
        }
    }

    async fn tend(&mut self, slow: Vec<StepId>) -> Result<bool> {
        let seen = slow.iter().filter_map(|id| self.started.get(id)).map(|(seen, _)| seen.clone()).collect();
        store::tend(&self.lane, seen).await
    }

    async fn release(&mut self) -> Result<()> {
        let resting = self.resting.values().min().copied();
        store::release(&self.lane, self.engine.settings.clone(), resting).await
    }
}

impl TenantLane {
    /// Adds the steps of one page that can be started. Returns whether there may be more pages.
    async fn page(
        &mut self,
        under_way: &UnderWay<StepId>,
        jobs: &mut VecDeque<Job>,
        room: usize,
        limit: i64,
        behind: i64,
    ) -> Result<bool> {
        let due = steps::due(self.lane.db(), &self.lane, self.now(), limit, behind).await?;
        let more = due.len() >= usize::try_from(limit).unwrap_or(usize::MAX);
        let is_request = |job: &&Job| job.request.is_some();
        let mut requests = self.started.values().filter(|(_, is_request)| *is_request).count();
        requests += jobs.iter().filter(is_request).count();
        for step in due {
            let is_under_way = |(seen, _): &(Seen, bool)| {
                seen.attempt == step.attempt && seen.name == step.name && seen.owner == step.owner
            };
            if jobs.len() >= room || self.started.values().any(is_under_way) {
                continue;
            }
            let Some(mut job) = self.job(step).await? else { continue };
            let id = Self::id(&job);
            if under_way.contains(&id) || self.resting.contains_key(&id) {
                continue;
            }
            if matches!(job.action().effect, ActionEffect::Http) {
                // A request without a permit waits until a running one ends.
                if requests >= self.engine.settings.requests_under_way() {
                    continue;
                }
                let permits = self.engine.node.outbound.request_permits();
                let Some(permit) = permits.try_acquire(self.lane.tenant_id, requests) else { continue };
                job.request = Some(Arc::new(permit));
                requests += 1;
            }
            jobs.push_back(job);
        }
        Ok(more)
    }

    /// When the lane has work next, if nothing can be started now.
    async fn next(&self) -> Result<Option<Timestamp>> {
        // Resting steps are due in the database, but wait until this time.
        match self.resting.values().min() {
            Some(rest) => Ok(Some(*rest)),
            None => store::next(&self.lane, &self.engine.settings).await,
        }
    }
}
