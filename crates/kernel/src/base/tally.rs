//! A counter for tests.
//!
//! Outside of tests nothing is counted, and each call costs one null check.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A counter that a test can enable. Clones share one count.
#[derive(Clone, Debug, Default)]
pub struct TestCounter(Option<Arc<AtomicU64>>);

impl TestCounter {
    pub fn new_counting() -> Self {
        TestCounter(Some(Arc::default()))
    }

    pub fn add_one(&self) {
        if let Some(count) = &self.0 {
            count.fetch_add(1, Ordering::SeqCst);
        }
    }

    pub fn count(&self) -> u64 {
        self.0.as_ref().map_or(0, |count| count.load(Ordering::SeqCst))
    }
}
