//! The built-in functions. Unknown functions are refused when a definition is saved, so that adding one later never
//! changes the meaning of a stored definition.

mod convert;
mod encode;
pub(super) mod format;
mod lists;
mod math;
mod network;
mod optional;
mod span;
mod table;
mod text;
mod time;

use std::fmt;

pub use self::lists::sort_by_keys;
pub use self::table::FUNCTIONS;

use super::node::{ExpressionNode, Literal};
use super::value::{CelText, CelValue};
use super::{CostMeter, ExpressionError};

/// A function, for the documentation and for the check of calls.
pub struct FunctionSpec {
    /// With its namespace, as in `math.abs`.
    pub name: &'static str,
    pub example: &'static str,
    pub about: &'static str,
    /// The least and the greatest number of arguments, the receiver included.
    pub arguments: (usize, usize),
    /// Whether it is called on a receiver, as a global function, or both.
    pub call_style: CallStyle,
    pub(super) callee: Callee,
    /// Whether a call with a literal is tried when the expression is parsed, and refused if it fails.
    checked: bool,
}

impl fmt::Debug for FunctionSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallStyle {
    Receiver,
    Global,
    Both,
}

/// The result of a call; `None` if the function does not take arguments of these types.
pub(super) type CallResult<'a> = Result<Option<CelValue<'a>>, ExpressionError>;

pub(super) type StrictCall = for<'a> fn(&[CelValue<'a>], &mut CostMeter) -> CallResult<'a>;

/// Of functions whose work is one step, and which cannot fail.
pub(super) type SimpleCall = for<'a> fn(&[CelValue<'a>]) -> Option<CelValue<'a>>;

/// What a call runs.
#[derive(Clone, Copy)]
pub(super) enum Callee {
    /// All arguments are evaluated first.
    Strict(StrictCall),
    Simple(SimpleCall),
    /// The pattern is compiled when the expression is parsed.
    Matches,
    /// The second argument is evaluated if the first, an optional value, has none.
    Or,
    /// The same, with a result that is not optional.
    OrValue,
}

/// The budget of a call that is tried when the expression is parsed.
const CHECK_STEPS: u32 = 100;
const CHECK_BYTES: usize = 16 << 10;

/// The function of this name, or why it cannot be called with these arguments.
pub fn get_function(name: &str, on_something: bool, arguments: usize) -> Result<&'static FunctionSpec, String> {
    let mut rows = FUNCTIONS.iter().filter(|row| row.name == name);
    let fits = |row: &&FunctionSpec| match row.call_style {
        CallStyle::Receiver => on_something,
        CallStyle::Global => !on_something,
        CallStyle::Both => true,
    };
    // Only `ip` has two rows, one for each style.
    let Some(row) = rows.clone().find(fits).or_else(|| rows.next()) else {
        let near = FUNCTIONS.iter().map(|row| (strsim::damerau_levenshtein(row.name, name), row.name)).min();
        let hint = near.filter(|(distance, _)| *distance <= 2).map(|(_, near)| format!(" Did you mean {near}?"));
        return Err(format!("There is no function {name}.{}", hint.unwrap_or_default()));
    };
    match (row.call_style, on_something) {
        (CallStyle::Receiver, false) => return Err(format!("{name} is called on something: {}.", row.example)),
        (CallStyle::Global, true) => return Err(format!("{name} is not called on anything: {}.", row.example)),
        _ => {}
    }
    if !(row.arguments.0..=row.arguments.1).contains(&arguments) {
        return Err(format!("{name} takes another number of arguments: {}.", row.example));
    }
    Ok(row)
}

/// Whether there are functions `name.…`.
pub fn is_namespace(name: &str) -> bool {
    let of_functions = FUNCTIONS.iter().filter_map(|row| row.name.split_once('.'));
    name == "cel" || of_functions.into_iter().any(|(namespace, _)| namespace == name)
}

/// What is wrong with the literals among the arguments.
pub fn check_literals(function: &'static FunctionSpec, arguments: &[ExpressionNode]) -> Result<(), String> {
    if function.name == "format" {
        return format::check_format(arguments);
    }
    let (true, [ExpressionNode::Literal(Literal::Text(text))]) = (function.checked, arguments) else { return Ok(()) };
    let mut meter = CostMeter::new(CHECK_STEPS, CHECK_BYTES);
    let argument = CelValue::Text(CelText::Borrowed(text));
    call_function(function, &[argument], &mut meter).map(|_| ()).map_err(|error| error.to_string())
}

pub fn call_function<'a>(
    function: &'static FunctionSpec,
    arguments: &[CelValue<'a>],
    meter: &mut CostMeter,
) -> Result<CelValue<'a>, ExpressionError> {
    let result = match function.callee {
        Callee::Strict(call) => call(arguments, meter)?,
        Callee::Simple(call) => call(arguments),
        Callee::Matches | Callee::Or | Callee::OrValue => None,
    };
    result.ok_or_else(|| cannot_take(function, arguments))
}

pub fn cannot_take(function: &'static FunctionSpec, arguments: &[CelValue<'_>]) -> ExpressionError {
    let kinds: Vec<&str> = arguments.iter().map(CelValue::kind_name).collect();
    ExpressionError::failed(format!("{} cannot take ({}).", function.name, kinds.join(", ")))
}
