//! Places where a test can make the process fail: an error, or an end in the middle of things.
//!
//! Outside of tests there is nobody to ask, and passing a place costs a look at a pointer.

use std::fmt;
use std::sync::Arc;

use super::{Error, Result};

/// What happens at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    None,
    /// What is done there fails as if the database had gone away.
    Error,
    /// Nothing comes after it, as if the process had ended there.
    Die,
}

/// Who says what happens at which place; nobody, unless a test does.
#[derive(Clone, Default)]
pub struct Faults(Option<Arc<dyn Fn(&'static str) -> Fault + Send + Sync>>);

impl Faults {
    pub fn new(decide: impl Fn(&'static str) -> Fault + Send + Sync + 'static) -> Self {
        Faults(Some(Arc::new(decide)))
    }

    fn at(&self, place: &'static str) -> Fault {
        self.0.as_ref().map_or(Fault::None, |decide| decide(place))
    }

    /// Inside a transaction, where an end is what an error is: all of it is undone.
    pub fn check(&self, place: &'static str) -> Result<()> {
        match self.at(place) {
            Fault::None => Ok(()),
            Fault::Error | Fault::Die => Err(Error::unavailable(format!("a test lets {place} fail"))),
        }
    }

    /// Outside of transactions.
    pub async fn pass(&self, place: &'static str) -> Result<()> {
        match self.at(place) {
            Fault::None => Ok(()),
            Fault::Error => Err(Error::unavailable(format!("a test lets {place} fail"))),
            Fault::Die => std::future::pending().await,
        }
    }
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Faults(..)" } else { "Faults" })
    }
}
