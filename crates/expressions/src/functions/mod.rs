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
use super::parse::macro_names;
use super::value::{CelText, CelTime, CelValue};
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
    check: LiteralCheck,
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

/// Which literals of a call are checked when the expression is parsed: what fails with them would always fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LiteralCheck {
    Nothing,
    /// The only argument, a text.
    Text,
    /// A time zone, after a time.
    Zone,
    /// An address or a range of them, after a range.
    Address,
    Format,
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
        let hint = suggest_name(name).map(|near| format!(" Did you mean {near}?"));
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

/// A function or macro whose name, or the part after its namespace, is almost this one.
fn suggest_name(name: &str) -> Option<&'static str> {
    let known = FUNCTIONS.iter().map(|row| row.name).chain(macro_names());
    let near = known.filter_map(|known| {
        let last_part = known.rsplit('.').next().unwrap_or(known);
        let fitting = [known, last_part].into_iter().filter(|part| part.len().abs_diff(name.len()) <= 2);
        Some((fitting.map(|part| strsim::damerau_levenshtein(part, name)).min()?, known))
    });
    near.min().filter(|(distance, _)| *distance <= 2).map(|(_, known)| known)
}

/// Whether there are functions `name.…`.
pub fn is_namespace(name: &str) -> bool {
    let of_functions = FUNCTIONS.iter().filter_map(|row| row.name.split_once('.'));
    name == "cel" || of_functions.into_iter().any(|(namespace, _)| namespace == name)
}

/// What is wrong with the literals among the arguments.
pub fn check_literals(function: &'static FunctionSpec, arguments: &[ExpressionNode]) -> Result<(), String> {
    let literal = |at: usize| match arguments.get(at) {
        Some(ExpressionNode::Literal(Literal::Text(text))) => Some(CelValue::Text(CelText::Borrowed(text))),
        _ => None,
    };
    let tried = match function.check {
        LiteralCheck::Nothing => None,
        LiteralCheck::Format => return format::check_format(arguments),
        LiteralCheck::Text => literal(0).map(|text| vec![text]),
        LiteralCheck::Zone => literal(1).map(|zone| vec![CelValue::Time(CelTime::EPOCH), zone]),
        LiteralCheck::Address => literal(1).map(|text| vec![network::any_range(), text]),
    };
    let mut meter = CostMeter::new(CHECK_STEPS, CHECK_BYTES);
    match tried {
        Some(arguments) => call_function(function, &arguments, &mut meter).map(drop).map_err(|error| error.to_string()),
        None => Ok(()),
    }
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
