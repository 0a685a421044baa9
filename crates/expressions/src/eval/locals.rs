//! The variables of macros.

use super::super::ExpressionError;
use super::super::node::{Bind, ExpressionNode};
use super::super::value::{CelValue, SLOT_BYTES};
use super::Evaluator;

#[derive(Clone, Debug)]
pub enum Local<'a> {
    Value(CelValue<'a>),
    /// Bound by `cel.bind`, and not read yet: it is evaluated once, when it is read.
    Unread(&'a ExpressionNode),
    Failed(ExpressionError),
}

impl<'a> Evaluator<'a, '_> {
    pub fn eval_local(&mut self, at: usize) -> Result<CelValue<'a>, ExpressionError> {
        match self.locals.get(at) {
            Some(Local::Value(value)) => Ok(value.clone()),
            Some(Local::Failed(error)) => Err(error.clone()),
            Some(Local::Unread(node)) => self.eval_bound(at, node),
            None => Ok(CelValue::Null),
        }
    }

    /// The bound node knows the variables before its own alone. Those after it are put aside meanwhile.
    fn eval_bound(&mut self, at: usize, node: &'a ExpressionNode) -> Result<CelValue<'a>, ExpressionError> {
        let later = self.locals.split_off(at);
        self.meter.charge_bytes(later.len() * SLOT_BYTES)?;
        let result = self.eval_node(node);
        self.locals.truncate(at);
        self.locals.extend(later);
        if let Some(local) = self.locals.get_mut(at) {
            *local = match &result {
                Ok(value) => Local::Value(value.clone()),
                Err(error) => Local::Failed(error.clone()),
            };
        }
        result
    }

    pub fn eval_bind(&mut self, bind: &'a Bind) -> Result<CelValue<'a>, ExpressionError> {
        // An error absorbed by `||` may have left locals of an inner macro.
        self.locals.truncate(bind.local_index);
        self.locals.push(Local::Unread(&bind.value));
        let result = self.eval_node(&bind.body);
        self.locals.truncate(bind.local_index);
        result
    }
}
