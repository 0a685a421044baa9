//! The tick of a tenant's clock.

use crate::base::Timestamp;

/// The time and the sequence of a tenant's write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tick {
    pub at: Timestamp,
    pub sequence: i64,
}
