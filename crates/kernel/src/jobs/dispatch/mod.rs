//! Dispatches work on lanes: leases lanes as they come due, and runs each on one node at a time.
//!
//! A feature with work on lanes implements [`WorkKind`], which opens the lanes of one kind, and [`LaneWork`], which loads
//! the due jobs of one lane, starts them and saves their outcomes. The rest is here: `lanes` leases, wakes and stops lanes,
//! `permits` limits how many run and shares them among tenants, `run` is one lane from its lease to its release,
//! `in_flight` has the jobs it has started, and `unsaved_outcomes` the outcomes that are not on disk yet.

mod dispatcher;
mod in_flight;
mod lanes;
mod permits;
mod run;
mod unsaved_outcomes;
mod work;

pub use dispatcher::Dispatcher;
pub use in_flight::JobsInFlight;
pub use work::{DispatchLimits, DueJobs, JobCompletion, LaneWork, LoadResult, SaveReport, WorkKind};
