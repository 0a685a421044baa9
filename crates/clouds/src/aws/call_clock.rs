//! The time of the calls of a question that takes long.
//!
//! AWS refuses a signature that is some minutes old, and the questions of a verification may take longer than that.

use std::time::Instant;

use kernel::base::Timestamp;

/// Shows the time at which it was started and what has passed since.
pub struct CallClock {
    started_at: Timestamp,
    elapsed_ms: Box<dyn Fn() -> i64 + Send + Sync>,
}

impl CallClock {
    /// A clock that shows this time now.
    pub fn start(now: Timestamp) -> Self {
        let since = Instant::now();
        CallClock::with_elapsed(now, move || i64::try_from(since.elapsed().as_millis()).unwrap_or(i64::MAX))
    }

    pub fn with_elapsed(started_at: Timestamp, elapsed_ms: impl Fn() -> i64 + Send + Sync + 'static) -> Self {
        CallClock { started_at, elapsed_ms: Box::new(elapsed_ms) }
    }

    pub fn now(&self) -> Timestamp {
        self.started_at.plus_ms((self.elapsed_ms)())
    }
}
