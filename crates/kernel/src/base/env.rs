//! The environment: what a process takes from outside, and tests replace.

use super::{FaultPoints, OperatorName, RandomSource, TestCounter, Timestamp, WallClock};

/// The environment of a process: the time, randomness, and the operator's name. Tests replace them, inject faults, and count
/// SQL statements.
#[derive(Clone, Debug, Default)]
pub struct Env {
    pub clock: WallClock,
    pub random: RandomSource,
    pub faults: FaultPoints,
    /// How many SQL statements were run.
    pub statements: TestCounter,
    /// The operator who runs a command. A server acts for its callers and does not use it.
    pub operator: OperatorName,
}

impl Env {
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }
}
