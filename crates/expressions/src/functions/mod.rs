//! The built-in functions. Unknown functions are refused when a definition is saved, so that adding one later never
//! changes the meaning of a stored definition.

mod convert;
pub(super) mod span;
mod text;
pub(super) mod time;

use super::value::{SLOT_BYTES, Text, V};
use super::{Fault, Meter};

/// A function, for the documentation and for the check of calls.
#[derive(Debug)]
pub struct Documented {
    pub name: &'static str,
    pub example: &'static str,
    pub about: &'static str,
    /// The least and the greatest number of arguments, the receiver included.
    pub arguments: (usize, usize),
    /// Whether it is called on a receiver, as a global function, or both.
    pub called: Called,
    function: Function,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Called {
    On,
    Plain,
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
    Part(Part),
}

/// A part of a timestamp or of a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
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

const fn row(
    name: &'static str,
    called: Called,
    arguments: (usize, usize),
    function: Function,
    example: &'static str,
    about: &'static str,
) -> Documented {
    Documented { name, example, about, arguments, called, function }
}

const fn part(name: &'static str, part: Part, example: &'static str, about: &'static str) -> Documented {
    row(name, Called::On, (1, 2), Function::Part(part), example, about)
}

use Called::{Both, On, Plain};

/// Every function. `has`, `all`, `exists`, `exists_one`, `map` and `filter` are not here: they are macros of CEL.
#[rustfmt::skip]
pub const FUNCTIONS: &[Documented] = &[
    row("size", Both, (1, 1), Function::Size, "event.data.tags.size()", "Characters of a text, elements of a list, entries of a map."),
    row("contains", On, (2, 2), Function::Contains, "input.subject.contains('disk')", "Whether a text has another in it."),
    row("startsWith", On, (2, 2), Function::StartsWith, "input.host.startsWith('db-')", "Whether a text starts with another."),
    row("endsWith", On, (2, 2), Function::EndsWith, "input.host.endsWith('.local')", "Whether a text ends with another."),
    row("matches", Both, (2, 2), Function::Matches, "input.host.matches('^db-[0-9]+$')", "Whether a pattern (RE2) is found in a text; the pattern is a literal."),
    row("lowerAscii", On, (1, 1), Function::LowerAscii, "'Ab'.lowerAscii()", "A to Z in small letters."),
    row("upperAscii", On, (1, 1), Function::UpperAscii, "'Ab'.upperAscii()", "a to z in capitals."),
    row("trim", On, (1, 1), Function::Trim, "' a '.trim()", "Without white space at both ends."),
    row("split", On, (2, 3), Function::Split, "'a,b'.split(',')", "The parts between separators, at most so many."),
    row("join", On, (1, 2), Function::Join, "['a', 'b'].join(', ')", "The texts of a list as one."),
    row("replace", On, (3, 4), Function::Replace, "'a-b'.replace('-', '_')", "Each occurrence replaced, or the first so many."),
    row("substring", On, (2, 3), Function::Substring, "'abcd'.substring(1, 3)", "From a character, up to another that is not included."),
    row("indexOf", On, (2, 3), Function::IndexOf, "'abcd'.indexOf('c')", "At which character a text is found, -1 if nowhere."),
    row("int", Plain, (1, 1), Function::Int, "int('12')", "A number or a text as an integer; a time in seconds since 1970."),
    row("uint", Plain, (1, 1), Function::Uint, "uint('12')", "The same, not negative."),
    row("double", Plain, (1, 1), Function::Double, "double('1.5')", "A number or a text as a floating point number."),
    row("string", Plain, (1, 1), Function::String, "string(12)", "A number, bool, time or duration as text."),
    row("bool", Plain, (1, 1), Function::Bool, "bool('true')", "A text as true or false."),
    row("dyn", Plain, (1, 1), Function::Dyn, "dyn(1)", "The value itself."),
    row("type", Plain, (1, 1), Function::Type, "type(input.n) == int", "The type of a value."),
    row("timestamp", Plain, (1, 1), Function::Timestamp, "timestamp('2026-01-02T03:04:05Z')", "A time, from RFC 3339 or seconds since 1970."),
    row("duration", Plain, (1, 1), Function::Duration, "now + duration('1h30m')", "A length of time, of h, m, s and ms."),
    part("getFullYear", Part::FullYear, "now.getFullYear()", "The year."),
    part("getMonth", Part::Month, "now.getMonth()", "The month, from 0."),
    part("getDate", Part::Date, "now.getDate()", "The day of the month, from 1."),
    part("getDayOfMonth", Part::DayOfMonth, "now.getDayOfMonth()", "The day of the month, from 0."),
    part("getDayOfWeek", Part::DayOfWeek, "now.getDayOfWeek('Europe/Berlin')", "The day of the week, from 0, Sunday."),
    part("getDayOfYear", Part::DayOfYear, "now.getDayOfYear()", "The day of the year, from 0."),
    part("getHours", Part::Hours, "now.getHours('+02:00')", "The hour of a time; whole hours of a duration."),
    part("getMinutes", Part::Minutes, "now.getMinutes()", "The minute of a time; whole minutes of a duration."),
    part("getSeconds", Part::Seconds, "now.getSeconds()", "The second of a time; whole seconds of a duration."),
    part("getMilliseconds", Part::Milliseconds, "now.getMilliseconds()", "The milliseconds after the second."),
];

/// The cost of looking up a time zone, beside the step.
const ZONE_BYTES: usize = 64;

/// The function of this name, or why it cannot be called with these arguments.
pub fn find(name: &str, on_something: bool, arguments: usize) -> Result<Function, String> {
    let known = FUNCTIONS.iter().find(|row| row.name == name);
    let Some(row) = known else {
        let near = FUNCTIONS.iter().map(|row| (strsim::damerau_levenshtein(row.name, name), row.name)).min();
        let hint = near.filter(|(distance, _)| *distance <= 2).map(|(_, near)| format!(" Did you mean {near}?"));
        return Err(format!("There is no function {name}.{}", hint.unwrap_or_default()));
    };
    match (row.called, on_something) {
        (Called::On, false) => return Err(format!("{name} is called on something: {}.", row.example)),
        (Called::Plain, true) => return Err(format!("{name} is not called on anything: {}.", row.example)),
        _ => {}
    }
    if !(row.arguments.0..=row.arguments.1).contains(&arguments) {
        return Err(format!("{name} takes another number of arguments: {}.", row.example));
    }
    Ok(row.function)
}

pub fn name(function: Function) -> &'static str {
    FUNCTIONS.iter().find(|row| row.function == function).map_or("", |row| row.name)
}

pub fn call<'a>(function: Function, arguments: &[V<'a>], meter: &mut Meter) -> Result<V<'a>, Fault> {
    let found = match (function, arguments) {
        (Function::Size, [V::Text(text)]) => {
            meter.bytes(text.len())?;
            Some(length(text.chars().count()))
        }
        (Function::Size, [V::List(items)]) => Some(length(items.len())),
        (Function::Size, [V::Map(entries)]) => Some(length(entries.len())),
        (Function::Size, [V::Json(value)]) => {
            Some(length(value.as_array().map(Vec::len).or(value.as_object().map(|map| map.len())).unwrap_or_default()))
        }
        (Function::Dyn, [value]) => Some(value.clone()),
        (Function::Type, [value]) => Some(V::Type(value.type_name())),
        (Function::Part(part), [V::Time(time)]) => time::part(part, *time, None)?,
        (Function::Part(part), [V::Time(time), V::Text(zone)]) => {
            meter.bytes(ZONE_BYTES)?;
            time::part(part, *time, Some(zone))?
        }
        (Function::Part(part), [V::Span(ms)]) => span::part(part, *ms),
        (
            Function::Int
            | Function::Uint
            | Function::Double
            | Function::String
            | Function::Bool
            | Function::Timestamp
            | Function::Duration,
            [value],
        ) => convert::call(function, value, meter)?,
        (Function::Join, [list, rest @ ..]) => text::join(list, rest, meter)?,
        (_, [V::Text(text), rest @ ..]) => text::call(function, text, rest, meter)?,
        _ => None,
    };
    found.ok_or_else(|| {
        let kinds: Vec<&str> = arguments.iter().map(V::kind).collect();
        Fault::failed(format!("{} cannot take ({}).", name(function), kinds.join(", ")))
    })
}

fn length<'a>(count: usize) -> V<'a> {
    V::Int(i64::try_from(count).unwrap_or(i64::MAX))
}
