//! Work on lanes: they are leased as they come due, and each is run by one node at a time.
//!
//! Whoever has something to do on lanes implements [`Work`], which opens the lanes of one kind, and [`LaneWork`], which
//! knows what is due on one lane, starts it and notes what became of it. What all of them share is here: `lanes` leases,
//! wakes and stops, `permits` says how many and whose, `run` is one lane from its lease to its release, `under_way` is what it has started, and `unnoted` what
//! of that is not on disk yet.

mod lanes;
mod permits;
mod run;
mod under_way;
mod unnoted;

use std::collections::VecDeque;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

use super::Node;
use super::lanes::Lane;
use crate::base::{Result, Timestamp};

use permits::LanePermits;
pub use under_way::UnderWay;

/// Work on lanes of one kind. Cheap to clone.
pub trait Work: Clone + Send + Sync + 'static {
    const KIND: &'static str;
    type Lane: LaneWork;

    fn node(&self) -> &Node;

    fn limits(&self) -> Limits;

    /// A lane that this node has leased. None when its key is not one, which is logged here; its lease ends by itself.
    fn open(&self, lane: Lane) -> Option<Self::Lane>;
}

/// How much a node works on at once, and how long.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Lanes that one node works on at once; the others wait, tenants in turn. Half as many more may do nothing but wait
    /// for others' servers.
    pub lanes_max: usize,
    /// How long a lane is worked on while others wait for a permit.
    pub tenure: Duration,
    /// How long what is under way is waited for when the process stops.
    pub stop_max: Duration,
}

/// The work on one lane, while this node has it.
///
/// A lane is loaded at first, when something was written for its tenant, and at least every
/// [`POLL_MS`](super::lanes::POLL_MS); what is due is asked for after that, and whenever a job has ended or was noted.
pub trait LaneWork: Sized + Send + 'static {
    /// What its jobs are called in the log, as "deliveries".
    const JOBS: &'static str;
    type Id: Copy + Eq + Hash + Send + Sync + 'static;
    type Job: Send + 'static;
    type Outcome: Send + Sync + 'static;

    fn id(job: &Self::Job) -> Self::Id;

    /// Reads what others may have changed, and does a step of upkeep.
    fn load(&mut self, under_way: &UnderWay<Self::Id>) -> impl Future<Output = Result<Load>> + Send;

    /// What can be started now, without what is under way, and when to ask again. None when the lane is lost.
    fn due(&mut self, under_way: &UnderWay<Self::Id>) -> impl Future<Output = Result<Option<Due<Self::Job>>>> + Send;

    /// Does a job, as a task of its own. What may panic is caught by whoever knows what that means for the job: a panic that
    /// gets out of here ends the work on the lane, which is taken up again when its lease has ended.
    fn start(&mut self, job: Self::Job) -> BoxFuture<'static, Ended<Self::Outcome>>;

    /// Notes many outcomes in one transaction that holds the lane. While the database is away it is called again with the
    /// same, because forgetting an outcome means doing the job again: so noting the same twice must change nothing.
    fn settle(&mut self, outcomes: Arc<Vec<Self::Outcome>>) -> BoxFuture<'static, Result<Settled>>;

    /// Follows an outcome at once, before it is on disk.
    fn learn(&mut self, _outcome: &Self::Outcome) {}

    /// Something was noted, and more may be due by that.
    fn noted(&mut self) {}

    /// Shows that this node lives, by holding the lane, and what takes long: each of those once. False when the lane is lost.
    fn tend(&mut self, slow: Vec<Self::Id>) -> impl Future<Output = Result<bool>> + Send;

    /// Gives the lane back. When it is due again is looked up while it is held, so that nothing written meanwhile is
    /// overlooked; and not earlier than now, so that whoever has had a turn stands behind those that wait for theirs.
    fn release(&mut self) -> impl Future<Output = Result<()>> + Send;
}

/// What a look at a lane has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    Go,
    /// There is more to load. What is due is started and what has ended is taken in, and then it is loaded again at once.
    Again,
    /// Nothing may be started. When nothing is under way any more it is loaded again, and released if it still rests.
    Rest,
    /// There is nothing to release: the lane has been removed, or is another node's.
    Gone,
}

/// What can be started now.
pub struct Due<J> {
    pub jobs: VecDeque<J>,
    /// When more can be started, if nothing else happens before. A lane with nothing under way is asked again at once if
    /// that moment has come, kept while it is near, and else given back. With something under way only a later moment
    /// counts: what is due then and cannot be started waits for what is under way.
    pub next: Option<Timestamp>,
}

impl<J> Default for Due<J> {
    fn default() -> Self {
        Due { jobs: VecDeque::new(), next: None }
    }
}

/// How a job has ended.
pub enum Ended<O> {
    /// What it did and that it is done were committed together, by the job itself.
    Noted,
    /// It is yet to be settled.
    ToNote(O),
    /// The lane is another node's by now.
    Lost,
}

/// What has come of settling.
#[derive(Clone, Copy, Debug)]
pub struct Settled {
    /// False when the lane is another node's by now, and nothing was noted.
    pub held: bool,
    /// Whether the lane is to be loaded before anything else is started.
    pub look: bool,
}

/// Works on all lanes of one kind. Several kinds run beside each other. Cheap to clone.
#[derive(Clone)]
pub struct Dispatcher<W> {
    work: W,
    permits: Arc<LanePermits>,
}

impl<W: Work> Dispatcher<W> {
    pub fn new(work: W) -> Self {
        let permits = LanePermits::new(work.limits().lanes_max);
        Dispatcher { work, permits }
    }

    /// Does everything that is due at this moment of the clock, and nothing that is due later. For tests, which move
    /// the clock themselves.
    pub async fn run_due(&self) -> Result<()> {
        lanes::run_due(self).await
    }

    /// Works until `stop`, then lets what is under way come to its end and gives the lanes back.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        lanes::run(self, stop).await;
    }
}
