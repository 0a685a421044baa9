//! Expressions of workflows: the Common Expression Language, CEL, on JSON.
//!
//! The crate `cel` reads the text; checking and evaluating are our own, because definitions are written by whoever may save
//! one: its evaluator has no budget, copies what it is given, and can be made to use up stack and memory. Here the text is
//! bounded before it is read, names and functions are checked once, and a `Meter` counts what is done.
//!
//! Left out: bytes, messages of protocol buffers, optional values, and patterns that are not written out. Where CEL gives
//! the choice, it is what `cel-go` does.

mod eval;
mod fault;
mod functions;
mod lower;
mod meter;
mod node;
mod operators;
mod parse;
pub mod pattern;
mod value;

pub use self::fault::Fault;
pub use self::functions::{Documented, FUNCTIONS};
pub use self::meter::Meter;
pub use self::parse::{NESTING_MAX, SOURCE_BYTES_MAX, TOKENS_MAX, end_of_template};

use kernel::base::Timestamp;
use serde_json::Value;

use self::node::{Node, Root};

/// An expression that was read and checked. It is not evaluated against anything but a `Scope`.
#[derive(Debug)]
pub struct Expression {
    node: Node,
    roots: Vec<Root>,
    steps: Vec<String>,
}

/// What expressions see.
#[derive(Clone, Copy, Debug)]
pub struct Scope<'a> {
    pub input: &'a Value,
    /// What a webhook would receive; null where no event started the run.
    pub event: &'a Value,
    /// `{"<id>": {"output": …, "status": "succeeded"}}`
    pub steps: &'a Value,
    pub run: &'a Value,
    pub now: Timestamp,
}

impl Expression {
    /// Checks all that can be known without values: size, syntax, names, functions and how many arguments they take.
    pub fn parse(source: &str) -> Result<Expression, Fault> {
        parse::parse(source)
    }

    /// The steps it refers to: each `x` of a `steps.x`, once.
    pub fn steps(&self) -> impl Iterator<Item = &str> {
        self.steps.iter().map(String::as_str)
    }

    /// Which of `input`, `event`, `steps`, `run` and `now` it looks at, each once.
    pub fn roots(&self) -> impl Iterator<Item = &str> {
        self.roots.iter().map(|root| root.name())
    }

    pub fn eval(&self, scope: &Scope<'_>, meter: &mut Meter) -> Result<Value, Fault> {
        eval::eval(&self.node, scope, meter)?.into_json(meter)
    }

    /// A condition: anything but true or false is a fault.
    pub fn test(&self, scope: &Scope<'_>, meter: &mut Meter) -> Result<bool, Fault> {
        match eval::eval(&self.node, scope, meter)? {
            value::V::Bool(yes) => Ok(yes),
            other => Err(Fault::failed(format!("A condition must be true or false, and this is {}.", other.kind()))),
        }
    }

    /// As a part of a longer text: null is nothing, lists and maps are compact JSON.
    pub fn text(&self, scope: &Scope<'_>, meter: &mut Meter) -> Result<String, Fault> {
        eval::eval(&self.node, scope, meter)?.into_text(meter)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests;
