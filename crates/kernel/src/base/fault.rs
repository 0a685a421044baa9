//! Fault points: named points in the code where a test can inject an error or stop the task.
//!
//! Outside of tests, passing a fault point costs one null check.

use std::fmt;
use std::sync::Arc;

use super::{Error, Result};

/// The fault injected at a fault point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InjectedFault {
    None,
    /// The operation fails as if the database were not reachable.
    Error,
    /// The task never goes on, as if the process had been killed there.
    Die,
}

/// Decides the fault at each point. Empty unless a test sets it.
#[derive(Clone, Default)]
pub struct FaultPoints(Option<Arc<dyn Fn(&'static str) -> InjectedFault + Send + Sync>>);

impl FaultPoints {
    pub fn new(decide: impl Fn(&'static str) -> InjectedFault + Send + Sync + 'static) -> Self {
        FaultPoints(Some(Arc::new(decide)))
    }

    fn fault_at(&self, point: &'static str) -> InjectedFault {
        self.0.as_ref().map_or(InjectedFault::None, |decide| decide(point))
    }

    /// A fault point inside a transaction. `Die` is an error here, because both roll the transaction back.
    pub fn check_in_tx(&self, point: &'static str) -> Result<()> {
        match self.fault_at(point) {
            InjectedFault::None => Ok(()),
            InjectedFault::Error | InjectedFault::Die => Err(Error::unavailable(format!("a test lets {point} fail"))),
        }
    }

    /// A fault point outside of transactions.
    pub async fn check_outside_tx(&self, point: &'static str) -> Result<()> {
        match self.fault_at(point) {
            InjectedFault::None => Ok(()),
            InjectedFault::Error => Err(Error::unavailable(format!("a test lets {point} fail"))),
            InjectedFault::Die => std::future::pending().await,
        }
    }
}

impl fmt::Debug for FaultPoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Faults(..)" } else { "Faults" })
    }
}
