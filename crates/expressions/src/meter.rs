//! The budget of an evaluation. Work is charged before it is done, so that the budget bounds time and memory.

use super::Fault;

/// A budget for one expression, or for several evaluated one after the other.
#[derive(Clone, Debug)]
pub struct Meter {
    steps: u32,
    bytes: usize,
}

impl Meter {
    /// `steps` limits the nodes visited, counted once for each iteration of a loop; `bytes` limits the bytes that are
    /// created, copied, searched or compared.
    pub fn new(steps: u32, bytes: usize) -> Self {
        Meter { steps, bytes }
    }

    pub(super) fn step(&mut self) -> Result<(), Fault> {
        self.steps = self.steps.checked_sub(1).ok_or(Fault::Spent)?;
        Ok(())
    }

    pub fn bytes(&mut self, count: usize) -> Result<(), Fault> {
        self.bytes = self.bytes.checked_sub(count).ok_or(Fault::Spent)?;
        Ok(())
    }
}
