//! The budget of an evaluation. Work is charged before it is done, so that the budget bounds time and memory.

use super::ExpressionError;

/// A budget for one expression, or for several evaluated one after the other.
#[derive(Clone, Debug)]
pub struct CostMeter {
    steps_left: u32,
    bytes_left: usize,
}

impl CostMeter {
    /// `steps` limits the nodes visited, counted once for each iteration of a loop; `bytes` limits the bytes that are
    /// created, copied, searched or compared.
    pub fn new(steps_left: u32, bytes_left: usize) -> Self {
        CostMeter { steps_left, bytes_left }
    }

    pub(super) fn charge_step(&mut self) -> Result<(), ExpressionError> {
        self.steps_left = self.steps_left.checked_sub(1).ok_or(ExpressionError::BudgetExceeded)?;
        Ok(())
    }

    pub fn charge_bytes(&mut self, count: usize) -> Result<(), ExpressionError> {
        self.bytes_left = self.bytes_left.checked_sub(count).ok_or(ExpressionError::BudgetExceeded)?;
        Ok(())
    }
}
