//! Expressions of workflows: the Common Expression Language, CEL, on JSON.
//!
//! Tenants write the definitions, so everything is bounded: the source before it is parsed, the tree before it is evaluated,
//! and the evaluation by a `CostMeter`. Names and functions are checked once. Crates that do this have no budget, copy their
//! inputs, and can be made to exhaust stack and memory; the tests compare syntax and results with one, `cel`.
//!
//! Besides the core there are the extensions of `cel-go` for optional values, texts, lists, numbers, encodings, bindings,
//! macros of two variables, and network addresses. Left out: protocol buffer messages and enums, and patterns that are not
//! literals. Where CEL leaves a choice, this crate does what `cel-go` does.

mod error;
mod eval;
mod functions;
mod lexer;
mod literal;
mod meter;
mod node;
mod operators;
mod parse;
mod paths;
pub mod pattern;
mod value;

pub use self::error::ExpressionError;
pub use self::functions::{FUNCTIONS, FunctionSpec};
pub use self::lexer::{SOURCE_BYTES_MAX, end_of_template};
pub use self::meter::CostMeter;
pub use self::paths::ReferencedPath;

use kernel::base::Timestamp;
use serde_json::Value;

use self::node::{ExpressionNode, Root};

/// A parsed and checked expression. It can only be evaluated in an `ExpressionScope`.
#[derive(Debug)]
pub struct Expression {
    node: ExpressionNode,
    roots: Vec<Root>,
    steps: Vec<String>,
    paths: Vec<ReferencedPath>,
}

/// The values that expressions can read.
#[derive(Clone, Copy, Debug)]
pub struct ExpressionScope<'a> {
    pub input: &'a Value,
    /// The event as a webhook receives it; null if no event started the run.
    pub event: &'a Value,
    /// `{"<id>": {"output": …, "status": "succeeded"}}`
    pub steps: &'a Value,
    pub run: &'a Value,
    pub now: Timestamp,
    /// The item of a `foreach` and its index, within one.
    pub item: Option<(&'a Value, i64)>,
}

impl Expression {
    /// Checks everything that does not depend on values: size, syntax, names, functions and their number of arguments.
    pub fn parse(source: &str) -> Result<Expression, ExpressionError> {
        parse::parse_expression(source)
    }

    /// The ids of the steps that the expression reads: each `x` of a `steps.x`, once.
    pub fn referenced_steps(&self) -> impl Iterator<Item = &str> {
        self.steps.iter().map(String::as_str)
    }

    /// Those of `input`, `event`, `steps`, `run`, `now`, `item` and `index` that the expression reads, each once.
    pub fn referenced_roots(&self) -> impl Iterator<Item = &str> {
        self.roots.iter().map(|root| root.name())
    }

    /// The paths below the roots that the expression reads, such as `event.data.subject`, each once.
    pub fn referenced_paths(&self) -> &[ReferencedPath] {
        &self.paths
    }

    /// About how many bytes the expression holds, its compiled patterns included.
    pub fn heap_bytes(&self) -> usize {
        let of_paths: usize = self.paths.iter().map(ReferencedPath::heap_bytes).sum();
        let of_steps: usize = self.steps.iter().map(|step| size_of::<String>() + step.len()).sum();
        self.node.heap_bytes() + of_paths + of_steps + self.roots.len()
    }

    pub fn eval_to_json(&self, scope: &ExpressionScope<'_>, meter: &mut CostMeter) -> Result<Value, ExpressionError> {
        eval::eval_in_scope(&self.node, scope, meter)?.into_json(meter)
    }

    /// Evaluates a condition: any value but true or false is an error.
    pub fn eval_condition(&self, scope: &ExpressionScope<'_>, meter: &mut CostMeter) -> Result<bool, ExpressionError> {
        match eval::eval_in_scope(&self.node, scope, meter)? {
            value::CelValue::Bool(yes) => Ok(yes),
            other => Err(ExpressionError::failed(format!(
                "A condition must be true or false, and this is {}.",
                other.kind_name()
            ))),
        }
    }

    /// Evaluates a part of a longer text: null becomes the empty text, lists and maps become compact JSON.
    pub fn eval_to_text(&self, scope: &ExpressionScope<'_>, meter: &mut CostMeter) -> Result<String, ExpressionError> {
        eval::eval_in_scope(&self.node, scope, meter)?.into_text(meter)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests;
