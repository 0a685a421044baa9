//! What a feature implements for its work on lanes.

use std::collections::VecDeque;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

use super::super::ServerNode;
use super::super::lanes::LeasedLane;
use super::in_flight::JobsInFlight;
use crate::base::{Result, Timestamp};

/// A kind of work on lanes. Cheap to clone.
pub trait WorkKind: Clone + Send + Sync + 'static {
    const KIND: &'static str;
    type Lane: LaneWork;

    fn node(&self) -> &ServerNode;

    fn limits(&self) -> DispatchLimits;

    /// Opens a lane that this node has leased. Logs a malformed key and returns `None`; the lease then expires.
    fn open_lane(&self, lane: LeasedLane) -> Option<Self::Lane>;
}

/// Limits of the dispatcher of one kind.
#[derive(Clone, Copy, Debug)]
pub struct DispatchLimits {
    /// Lanes that one node works on at once; the others wait, and tenants take turns. Half as many more may be slow lanes,
    /// which only wait for other servers.
    pub lanes_max: usize,
    /// How long a lane keeps its permit while other lanes wait for one.
    pub tenure_max: Duration,
    /// How long the process waits for running jobs when it stops.
    pub stop_max: Duration,
}

/// The work on one lane while this node has its lease.
///
/// A lane is loaded at first, when something was written for its tenant, and at least every
/// [`POLL_MS`](super::super::lanes::POLL_MS). Its due jobs are loaded after that, and whenever a job has ended or was saved.
pub trait LaneWork: Sized + Send + 'static {
    /// The name of its jobs in the log, such as "deliveries".
    const JOBS: &'static str;
    type Id: Copy + Eq + Hash + Send + Sync + 'static;
    type Job: Send + 'static;
    type Outcome: Send + Sync + 'static;

    fn job_id(job: &Self::Job) -> Self::Id;

    /// Reads what others may have changed, and does one step of maintenance.
    fn load_lane(&mut self, in_flight: &JobsInFlight<Self::Id>) -> impl Future<Output = Result<LoadResult>> + Send;

    /// Returns the jobs that can be started now, without those in flight, and when to load again. `None` when the lease is
    /// lost.
    fn load_due_jobs(
        &mut self,
        in_flight: &JobsInFlight<Self::Id>,
    ) -> impl Future<Output = Result<Option<DueJobs<Self::Job>>>> + Send;

    /// Runs a job as a task of its own. The implementation catches the panics that it can handle; a panic that escapes ends
    /// the work on the lane until its lease expires.
    fn start_job(&mut self, job: Self::Job) -> BoxFuture<'static, JobCompletion<Self::Outcome>>;

    /// Saves many outcomes in one transaction that extends the lease. During an outage of the database it is called again
    /// with the same outcomes, because a lost outcome means that the job runs again. So it must be idempotent.
    fn save_outcomes(&mut self, outcomes: Arc<Vec<Self::Outcome>>) -> BoxFuture<'static, Result<SaveReport>>;

    /// Applies an outcome to the lane's state in memory, before it is saved.
    fn apply_outcome(&mut self, _outcome: &Self::Outcome) {}

    /// Called after outcomes were saved, because more jobs may be due then.
    fn on_saved(&mut self) {}

    /// Extends the lease and marks slow jobs as running, each of them once. Returns false when the lease is lost.
    fn send_heartbeat(&mut self, slow: Vec<Self::Id>) -> impl Future<Output = Result<bool>> + Send;

    /// Releases the lane. The next due time is read while the lease is held, so that nothing written meanwhile is missed.
    /// It is not earlier than now, so that a lane that has run comes after those that wait.
    fn release_lane(&mut self) -> impl Future<Output = Result<()>> + Send;
}

/// The result of loading a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadResult {
    Ready,
    /// There is more to load. Due jobs are started and ended ones reaped, and then the lane is loaded again at once.
    More,
    /// Nothing may be started. When no job is in flight any more, the lane is loaded again, and released if it is still
    /// paused.
    Paused,
    /// The lane was deleted, or another node has leased it. There is nothing to release.
    Gone,
}

/// The jobs that can be started now.
pub struct DueJobs<J> {
    pub jobs: VecDeque<J>,
    /// When to load again. Idle lane: reload if past, keep if near, else release. Busy lane: past times are ignored.
    pub next: Option<Timestamp>,
}

impl<J> Default for DueJobs<J> {
    fn default() -> Self {
        DueJobs { jobs: VecDeque::new(), next: None }
    }
}

/// How a job has ended.
pub enum JobCompletion<O> {
    /// The job has committed its effect and its outcome together.
    Saved,
    /// The outcome is not saved yet.
    Unsaved(O),
    /// Another node has leased the lane.
    Lost,
}

/// The result of saving outcomes.
#[derive(Clone, Copy, Debug)]
pub struct SaveReport {
    /// False when another node has leased the lane; then nothing was saved.
    pub lease_held: bool,
    /// Whether the lane must be loaded before another job is started.
    pub must_reload: bool,
}
