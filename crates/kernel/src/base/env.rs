//! The environment: what a process takes from outside, and tests replace.

use std::sync::Arc;

use super::{FaultPoints, Label, RandomSource, TestCounter, Timestamp, WallClock};

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

/// The name of the operator at the command line.
#[derive(Clone, Debug)]
pub struct OperatorName(Arc<str>);

impl OperatorName {
    /// Returns `None` if the text is not a valid label, since the audit trail shows it.
    pub fn parse(text: &str) -> Option<Self> {
        Label::parse(text).ok().map(|name| OperatorName(name.as_str().into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for OperatorName {
    fn default() -> Self {
        OperatorName("operator".into())
    }
}
