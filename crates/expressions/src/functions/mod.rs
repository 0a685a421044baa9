//! The built-in functions. Unknown functions are refused when a definition is saved, so that adding one later never
//! changes the meaning of a stored definition.

mod convert;
pub(super) mod span;
mod text;
pub(super) mod time;

use super::value::{CelText, CelValue, SLOT_BYTES};
use super::{CostMeter, ExpressionError};

/// A function, for the documentation and for the check of calls.
#[derive(Debug)]
pub struct FunctionSpec {
    pub name: &'static str,
    pub example: &'static str,
    pub about: &'static str,
    /// The least and the greatest number of arguments, the receiver included.
    pub arguments: (usize, usize),
    /// Whether it is called on a receiver, as a global function, or both.
    pub call_style: CallStyle,
    function: Function,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallStyle {
    Receiver,
    Global,
    Both,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    Size,
    Contains,
    StartsWith,
    EndsWith,
    /// The pattern is compiled when the expression is parsed.
    Matches,
    LowerAscii,
    UpperAscii,
    Trim,
    Split,
    Join,
    Replace,
    Substring,
    IndexOf,
    Int,
    Uint,
    Double,
    String,
    Bool,
    Dyn,
    Type,
    Timestamp,
    Duration,
    Part(TimePart),
}

/// A part of a timestamp or of a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimePart {
    FullYear,
    Month,
    Date,
    DayOfMonth,
    DayOfWeek,
    DayOfYear,
    Hours,
    Minutes,
    Seconds,
    Milliseconds,
}

const fn function_spec(
    name: &'static str,
    called: CallStyle,
    arguments: (usize, usize),
    function: Function,
    example: &'static str,
    about: &'static str,
) -> FunctionSpec {
    FunctionSpec { name, example, about, arguments, call_style: called, function }
}

const fn time_part_spec(
    name: &'static str,
    part: TimePart,
    example: &'static str,
    about: &'static str,
) -> FunctionSpec {
    function_spec(name, CallStyle::Receiver, (1, 2), Function::Part(part), example, about)
}

use CallStyle::{Both, Global, Receiver};

/// Every function. `has`, `all`, `exists`, `exists_one`, `map` and `filter` are not here: they are macros of CEL.
#[rustfmt::skip]
pub const FUNCTIONS: &[FunctionSpec] = &[
    function_spec("size", Both, (1, 1), Function::Size, "event.data.tags.size()", "Characters of a text, elements of a list, entries of a map."),
    function_spec("contains", Receiver, (2, 2), Function::Contains, "input.subject.contains('disk')", "Whether a text has another in it."),
    function_spec("startsWith", Receiver, (2, 2), Function::StartsWith, "input.host.startsWith('db-')", "Whether a text starts with another."),
    function_spec("endsWith", Receiver, (2, 2), Function::EndsWith, "input.host.endsWith('.local')", "Whether a text ends with another."),
    function_spec("matches", Both, (2, 2), Function::Matches, "input.host.matches('^db-[0-9]+$')", "Whether a pattern (RE2) is found in a text; the pattern is a literal."),
    function_spec("lowerAscii", Receiver, (1, 1), Function::LowerAscii, "'Ab'.lowerAscii()", "A to Z in small letters."),
    function_spec("upperAscii", Receiver, (1, 1), Function::UpperAscii, "'Ab'.upperAscii()", "a to z in capitals."),
    function_spec("trim", Receiver, (1, 1), Function::Trim, "' a '.trim()", "Without white space at both ends."),
    function_spec("split", Receiver, (2, 3), Function::Split, "'a,b'.split(',')", "The parts between separators, at most so many."),
    function_spec("join", Receiver, (1, 2), Function::Join, "['a', 'b'].join(', ')", "The texts of a list as one."),
    function_spec("replace", Receiver, (3, 4), Function::Replace, "'a-b'.replace('-', '_')", "Each occurrence replaced, or the first so many."),
    function_spec("substring", Receiver, (2, 3), Function::Substring, "'abcd'.substring(1, 3)", "From a character, up to another that is not included."),
    function_spec("indexOf", Receiver, (2, 3), Function::IndexOf, "'abcd'.indexOf('c')", "At which character a text is found, -1 if nowhere."),
    function_spec("int", Global, (1, 1), Function::Int, "int('12')", "A number or a text as an integer; a time in seconds since 1970."),
    function_spec("uint", Global, (1, 1), Function::Uint, "uint('12')", "The same, not negative."),
    function_spec("double", Global, (1, 1), Function::Double, "double('1.5')", "A number or a text as a floating point number."),
    function_spec("string", Global, (1, 1), Function::String, "string(12)", "A number, bool, time or duration as text."),
    function_spec("bool", Global, (1, 1), Function::Bool, "bool('true')", "A text as true or false."),
    function_spec("dyn", Global, (1, 1), Function::Dyn, "dyn(1)", "The value itself."),
    function_spec("type", Global, (1, 1), Function::Type, "type(input.n) == int", "The type of a value."),
    function_spec("timestamp", Global, (1, 1), Function::Timestamp, "timestamp('2026-01-02T03:04:05Z')", "A time, from RFC 3339 or seconds since 1970."),
    function_spec("duration", Global, (1, 1), Function::Duration, "now + duration('1h30m')", "A length of time, of h, m, s and ms."),
    time_part_spec("getFullYear", TimePart::FullYear, "now.getFullYear()", "The year."),
    time_part_spec("getMonth", TimePart::Month, "now.getMonth()", "The month, from 0."),
    time_part_spec("getDate", TimePart::Date, "now.getDate()", "The day of the month, from 1."),
    time_part_spec("getDayOfMonth", TimePart::DayOfMonth, "now.getDayOfMonth()", "The day of the month, from 0."),
    time_part_spec("getDayOfWeek", TimePart::DayOfWeek, "now.getDayOfWeek('Europe/Berlin')", "The day of the week, from 0, Sunday."),
    time_part_spec("getDayOfYear", TimePart::DayOfYear, "now.getDayOfYear()", "The day of the year, from 0."),
    time_part_spec("getHours", TimePart::Hours, "now.getHours('+02:00')", "The hour of a time; whole hours of a duration."),
    time_part_spec("getMinutes", TimePart::Minutes, "now.getMinutes()", "The minute of a time; whole minutes of a duration."),
    time_part_spec("getSeconds", TimePart::Seconds, "now.getSeconds()", "The second of a time; whole seconds of a duration."),
    time_part_spec("getMilliseconds", TimePart::Milliseconds, "now.getMilliseconds()", "The milliseconds after the second."),
];

/// The cost of looking up a time zone, beside the step.
const ZONE_BYTES: usize = 64;

/// The function of this name, or why it cannot be called with these arguments.
pub fn get_function(name: &str, on_something: bool, arguments: usize) -> Result<Function, String> {
    let row = FUNCTIONS.iter().find(|row| row.name == name);
    let Some(row) = row else {
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
    Ok(row.function)
}

pub fn function_name(function: Function) -> &'static str {
    FUNCTIONS.iter().find(|row| row.function == function).map_or("", |row| row.name)
}

pub fn call_function<'a>(
    function: Function,
    arguments: &[CelValue<'a>],
    meter: &mut CostMeter,
) -> Result<CelValue<'a>, ExpressionError> {
    let result = match (function, arguments) {
        (Function::Size, [CelValue::Text(text)]) => {
            meter.charge_bytes(text.len())?;
            Some(count_value(text.chars().count()))
        }
        (Function::Size, [CelValue::List(items)]) => Some(count_value(items.len())),
        (Function::Size, [CelValue::Map(entries)]) => Some(count_value(entries.len())),
        (Function::Size, [CelValue::Json(value)]) => Some(count_value(
            value.as_array().map(Vec::len).or(value.as_object().map(|map| map.len())).unwrap_or_default(),
        )),
        (Function::Dyn, [value]) => Some(value.clone()),
        (Function::Type, [value]) => Some(CelValue::Type(value.type_name())),
        (Function::Part(part), [CelValue::Time(time)]) => time::time_part(part, *time, None)?,
        (Function::Part(part), [CelValue::Time(time), CelValue::Text(zone)]) => {
            meter.charge_bytes(ZONE_BYTES)?;
            time::time_part(part, *time, Some(zone))?
        }
        (Function::Part(part), [CelValue::Span(ms)]) => span::span_part(part, *ms),
        (
            Function::Int
            | Function::Uint
            | Function::Double
            | Function::String
            | Function::Bool
            | Function::Timestamp
            | Function::Duration,
            [value],
        ) => convert::convert_value(function, value, meter)?,
        (Function::Join, [list, rest @ ..]) => text::join_list(list, rest, meter)?,
        (_, [CelValue::Text(text), rest @ ..]) => text::call_text_function(function, text, rest, meter)?,
        _ => None,
    };
    result.ok_or_else(|| {
        let kinds: Vec<&str> = arguments.iter().map(CelValue::kind_name).collect();
        ExpressionError::failed(format!("{} cannot take ({}).", function_name(function), kinds.join(", ")))
    })
}

fn count_value<'a>(count: usize) -> CelValue<'a> {
    CelValue::Int(i64::try_from(count).unwrap_or(i64::MAX))
}
