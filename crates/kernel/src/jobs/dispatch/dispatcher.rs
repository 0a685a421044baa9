//! The dispatcher of one kind of lanes.

use std::sync::Arc;

use super::permits::LanePermits;
use super::work::WorkKind;

/// Runs all lanes of one kind. Each kind has its own dispatcher. Cheap to clone.
#[derive(Clone)]
pub struct Dispatcher<W> {
    pub(super) work: W,
    pub(super) permits: Arc<LanePermits>,
}

impl<W: WorkKind> Dispatcher<W> {
    pub fn new(work: W) -> Self {
        let permits = LanePermits::new(work.limits().lanes_max);
        Dispatcher { work, permits }
    }
}
