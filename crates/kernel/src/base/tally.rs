//! How often something is done, for a test that wants to know.
//!
//! Outside of tests nobody counts, and doing it costs a look at a pointer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts, if a test has asked for it. Copies count together.
#[derive(Clone, Debug, Default)]
pub struct Tally(Option<Arc<AtomicU64>>);

impl Tally {
    pub fn counting() -> Self {
        Tally(Some(Arc::default()))
    }

    pub fn note(&self) {
        if let Some(count) = &self.0 {
            count.fetch_add(1, Ordering::SeqCst);
        }
    }

    pub fn count(&self) -> u64 {
        self.0.as_ref().map_or(0, |count| count.load(Ordering::SeqCst))
    }
}
