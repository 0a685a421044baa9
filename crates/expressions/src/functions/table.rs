//! The table of all functions.

use super::CallStyle::{Both, Global, Receiver};
use super::convert::{Conversion, convert};
use super::time::{TimePart, part_of};
use super::{
    CallStyle, Callee, FunctionSpec, LiteralCheck, SimpleCall, StrictCall, encode, format, lists, math, network,
    optional, text,
};

/// More arguments than this are a list.
const VARIADIC_MAX: usize = 64;

const fn function(
    name: &'static str,
    call_style: CallStyle,
    arguments: (usize, usize),
    callee: Callee,
    example: &'static str,
    about: &'static str,
) -> FunctionSpec {
    FunctionSpec { name, example, about, arguments, call_style, callee, check: LiteralCheck::Nothing }
}

const fn global(
    name: &'static str,
    arguments: (usize, usize),
    call: StrictCall,
    example: &'static str,
    about: &'static str,
) -> FunctionSpec {
    function(name, Global, arguments, Callee::Strict(call), example, about)
}

/// Called on a receiver, which counts as an argument.
const fn method(
    name: &'static str,
    arguments: (usize, usize),
    call: StrictCall,
    example: &'static str,
    about: &'static str,
) -> FunctionSpec {
    function(name, Receiver, arguments, Callee::Strict(call), example, about)
}

/// A global function of one or more arguments that needs no meter.
const fn simple(
    name: &'static str,
    arguments: (usize, usize),
    call: SimpleCall,
    example: &'static str,
    about: &'static str,
) -> FunctionSpec {
    function(name, Global, arguments, Callee::Simple(call), example, about)
}

/// The same, called on a receiver.
const fn property(name: &'static str, call: SimpleCall, example: &'static str, about: &'static str) -> FunctionSpec {
    function(name, Receiver, (1, 1), Callee::Simple(call), example, about)
}

/// A global function of one text that is tried with a literal when the expression is parsed.
const fn checked(name: &'static str, call: StrictCall, example: &'static str, about: &'static str) -> FunctionSpec {
    FunctionSpec {
        name,
        example,
        about,
        arguments: (1, 1),
        call_style: Global,
        callee: Callee::Strict(call),
        check: LiteralCheck::Text,
    }
}

/// The same as a method, with another check of its literals.
const fn checked_method(
    name: &'static str,
    arguments: (usize, usize),
    check: LiteralCheck,
    call: StrictCall,
    example: &'static str,
    about: &'static str,
) -> FunctionSpec {
    FunctionSpec { name, example, about, arguments, call_style: Receiver, callee: Callee::Strict(call), check }
}

const fn time_part(name: &'static str, call: StrictCall, example: &'static str, about: &'static str) -> FunctionSpec {
    checked_method(name, (1, 2), LiteralCheck::Zone, call, example, about)
}

/// Every function. Macros are not here: `has`, those that iterate, `cel.bind`, `optMap` and `optFlatMap`.
#[rustfmt::skip]
pub static FUNCTIONS: &[FunctionSpec] = &[
    function("size", Both, (1, 1), Callee::Strict(lists::size), "event.data.tags.size()", "Characters of a text, elements of a list, entries of a map, or bytes."),

    // Texts
    method("contains", (2, 2), text::contains, "input.subject.contains('disk')", "Whether a text has another in it."),
    method("startsWith", (2, 2), text::starts_with, "input.host.startsWith('db-')", "Whether a text starts with another."),
    method("endsWith", (2, 2), text::ends_with, "input.host.endsWith('.local')", "Whether a text ends with another."),
    function("matches", Both, (2, 2), Callee::Matches, "input.host.matches('^db-[0-9]+$')", "Whether a pattern (RE2) is found in a text; the pattern is a literal."),
    method("lowerAscii", (1, 1), text::lower_ascii, "'Ab'.lowerAscii()", "A to Z in small letters."),
    method("upperAscii", (1, 1), text::upper_ascii, "'Ab'.upperAscii()", "a to z in capitals."),
    method("trim", (1, 1), text::trim, "' a '.trim()", "Without white space at both ends."),
    method("split", (2, 3), text::split, "'a,b'.split(',')", "The parts between separators, at most so many."),
    method("join", (1, 2), text::join, "['a', 'b'].join(', ')", "The texts of a list as one."),
    method("replace", (3, 4), text::replace, "'a-b'.replace('-', '_')", "Each occurrence replaced, or the first so many."),
    method("substring", (2, 3), text::substring, "'abcd'.substring(1, 3)", "From a character, up to another that is not included."),
    method("charAt", (2, 2), text::char_at, "'abcd'.charAt(1)", "A character as a text; just after the last one, the empty text."),
    method("indexOf", (2, 3), text::index_of, "'abcd'.indexOf('c')", "At which character a text is found, -1 if nowhere."),
    method("lastIndexOf", (2, 3), text::last_index_of, "'abab'.lastIndexOf('b')", "The same from the end."),
    method("reverse", (1, 1), lists::reverse, "'abc'.reverse()", "The characters of a text, or the elements of a list, from the last to the first."),
    checked_method("format", (2, 2), LiteralCheck::Format, format::format, "'%s has %d'.format([input.host, 3])", "A text with values in it: %s %d %f %.2f %e %b %o %x %X, and %% for a percent sign."),
    method("urlEncode", (1, 1), encode::url_encode, "'a b&c'.urlEncode()", "As a part of an address: all but letters, digits and - . _ ~ is percent-encoded."),
    global("strings.quote", (1, 1), text::quote, "strings.quote('a\"b')", "Between double quotes, with escapes."),
    global("base64.encode", (1, 1), encode::base64_encode, "base64.encode(bytes('a'))", "Bytes as base64."),
    checked("base64.decode", encode::base64_decode, "string(base64.decode('YQ=='))", "Base64 as bytes."),

    // Types
    global("int", (1, 1), |values, meter| convert(Conversion::Int, values, meter), "int('12')", "A number or a text as an integer; of a time the seconds since 1970."),
    global("uint", (1, 1), |values, meter| convert(Conversion::Uint, values, meter), "uint('12')", "The same, not negative."),
    global("double", (1, 1), |values, meter| convert(Conversion::Double, values, meter), "double('1.5')", "A number or a text as a floating point number."),
    global("string", (1, 1), |values, meter| convert(Conversion::Text, values, meter), "string(12)", "A number, bool, time, duration, address or UTF-8 as text."),
    global("bytes", (1, 1), |values, meter| convert(Conversion::Bytes, values, meter), "bytes('é')", "A text as UTF-8."),
    global("bool", (1, 1), |values, meter| convert(Conversion::Bool, values, meter), "bool('true')", "A text as true or false."),
    simple("dyn", (1, 1), |values| values.first().cloned(), "dyn(1)", "The value itself."),
    simple("type", (1, 1), |values| values.first().map(|value| super::CelValue::Type(value.type_name())), "type(input.n) == int", "The type of a value."),

    // Times
    checked("timestamp", |values, meter| convert(Conversion::Timestamp, values, meter), "timestamp('2026-01-02T03:04:05Z')", "A time, from RFC 3339 or seconds since 1970."),
    checked("duration", |values, meter| convert(Conversion::Duration, values, meter), "now + duration('1h30m')", "A length of time, of h, m, s, ms, us and ns."),
    time_part("getFullYear", |values, meter| part_of(TimePart::FullYear, values, meter), "now.getFullYear()", "The year."),
    time_part("getMonth", |values, meter| part_of(TimePart::Month, values, meter), "now.getMonth()", "The month, from 0."),
    time_part("getDate", |values, meter| part_of(TimePart::Date, values, meter), "now.getDate()", "The day of the month, from 1."),
    time_part("getDayOfMonth", |values, meter| part_of(TimePart::DayOfMonth, values, meter), "now.getDayOfMonth()", "The day of the month, from 0."),
    time_part("getDayOfWeek", |values, meter| part_of(TimePart::DayOfWeek, values, meter), "now.getDayOfWeek('Europe/Berlin')", "The day of the week, from 0, Sunday."),
    time_part("getDayOfYear", |values, meter| part_of(TimePart::DayOfYear, values, meter), "now.getDayOfYear()", "The day of the year, from 0."),
    time_part("getHours", |values, meter| part_of(TimePart::Hours, values, meter), "now.getHours('+02:00')", "The hour of a time; whole hours of a duration."),
    time_part("getMinutes", |values, meter| part_of(TimePart::Minutes, values, meter), "now.getMinutes()", "The minute of a time; whole minutes of a duration."),
    time_part("getSeconds", |values, meter| part_of(TimePart::Seconds, values, meter), "now.getSeconds()", "The second of a time; whole seconds of a duration."),
    time_part("getMilliseconds", |values, meter| part_of(TimePart::Milliseconds, values, meter), "now.getMilliseconds()", "The milliseconds after the second."),

    // Lists
    method("sort", (1, 1), lists::sort, "input.names.sort()", "From the least to the greatest; all numbers, or all of one type."),
    method("distinct", (1, 1), lists::distinct, "event.data.tags.distinct()", "Each value once."),
    method("flatten", (1, 2), lists::flatten, "[[1], [2, 3]].flatten()", "The elements of lists within a list, or of so many levels."),
    method("slice", (3, 3), lists::slice, "input.list.slice(0, 2)", "From an element, up to another that is not included."),
    method("first", (1, 1), lists::first, "input.list.first().orValue(0)", "The first element as an optional value."),
    method("last", (1, 1), lists::last, "input.list.last().orValue(0)", "The last element as an optional value."),
    global("lists.range", (1, 1), lists::range, "lists.range(3)", "The integers from 0, so many."),

    // Optional values
    global("optional.of", (1, 1), optional::of, "optional.of(input.n)", "An optional value that has this one."),
    global("optional.ofNonZeroValue", (1, 1), optional::of_non_zero_value, "optional.ofNonZeroValue(input.text)", "The same, and none if the value is empty, zero, false or null."),
    simple("optional.none", (0, 0), |_| Some(super::CelValue::Optional(None)), "optional.none()", "An optional value that has none."),
    global("optional.unwrap", (1, 1), optional::unwrap, "optional.unwrap([input.?a, input.?b])", "The values that the optional values of a list have."),
    method("unwrapOpt", (1, 1), optional::unwrap, "[input.?a, input.?b].unwrapOpt()", "The same."),
    property("hasValue", optional::has_value, "input.?a.hasValue()", "Whether an optional value has one."),
    method("value", (1, 1), optional::value, "input.?n.value()", "The value of an optional value, which must have one."),
    function("or", Receiver, (2, 2), Callee::Or, "input.?a.or(input.?b)", "The first optional value that has one."),
    function("orValue", Receiver, (2, 2), Callee::OrValue, "input.?a.orValue('none')", "The value of an optional value, or else another."),

    // Numbers
    global("math.greatest", (1, VARIADIC_MAX), math::greatest, "math.greatest(1, input.n)", "The greatest of numbers, or of a list."),
    global("math.least", (1, VARIADIC_MAX), math::least, "math.least(1, input.n)", "The least of numbers, or of a list."),
    global("math.abs", (1, 1), math::abs, "math.abs(-2)", "Without its sign."),
    simple("math.sign", (1, 1), math::sign, "math.sign(-2)", "-1, 0 or 1."),
    simple("math.round", (1, 1), math::round, "math.round(1.5)", "The nearest whole number; a half goes away from zero."),
    simple("math.ceil", (1, 1), math::ceil, "math.ceil(1.2)", "The next greater whole number."),
    simple("math.floor", (1, 1), math::floor, "math.floor(1.8)", "The next smaller whole number."),
    simple("math.trunc", (1, 1), math::trunc, "math.trunc(-1.8)", "Without the fraction."),
    simple("math.sqrt", (1, 1), math::sqrt, "math.sqrt(2)", "The square root."),
    simple("math.isNaN", (1, 1), math::is_nan, "math.isNaN(input.half)", "Whether it is not a number."),
    simple("math.isInf", (1, 1), math::is_inf, "math.isInf(input.half)", "Whether it is infinite."),
    simple("math.isFinite", (1, 1), math::is_finite, "math.isFinite(input.half)", "Whether it is neither."),
    simple("math.bitAnd", (2, 2), math::bit_and, "math.bitAnd(6, 3)", "Bits that both have."),
    simple("math.bitOr", (2, 2), math::bit_or, "math.bitOr(4, 1)", "Bits that either has."),
    simple("math.bitXor", (2, 2), math::bit_xor, "math.bitXor(6, 3)", "Bits that one alone has."),
    simple("math.bitNot", (1, 1), math::bit_not, "math.bitNot(1)", "The other bits."),
    global("math.bitShiftLeft", (2, 2), math::bit_shift_left, "math.bitShiftLeft(1, 4)", "Bits moved to the left."),
    global("math.bitShiftRight", (2, 2), math::bit_shift_right, "math.bitShiftRight(16, 2)", "Bits moved to the right, with zeros before them."),

    // Addresses
    checked("ip", network::ip, "ip('10.0.0.1')", "An IPv4 or IPv6 address."),
    checked("cidr", network::cidr, "cidr('10.0.0.0/8')", "A range of addresses."),
    method("ip", (1, 1), network::address_of, "cidr('10.0.0.0/8').ip()", "The address of a range."),
    global("isIP", (1, 1), network::is_ip, "isIP(input.text)", "Whether a text is an address."),
    global("isCIDR", (1, 1), network::is_cidr, "isCIDR(input.text)", "Whether a text is a range."),
    checked("ip.isCanonical", network::is_canonical, "ip.isCanonical('::1')", "Whether an address is written the usual way."),
    property("family", network::family, "ip('::1').family()", "4 or 6."),
    property("isLoopback", network::is_loopback, "ip('127.0.0.1').isLoopback()", "Whether it is of the machine itself."),
    property("isUnspecified", network::is_unspecified, "ip('0.0.0.0').isUnspecified()", "Whether it is 0.0.0.0 or ::."),
    property("isGlobalUnicast", network::is_global_unicast, "ip('10.0.0.1').isGlobalUnicast()", "Whether it is of one machine and not local to a link; private addresses are."),
    property("isLinkLocalUnicast", network::is_link_local_unicast, "ip('fe80::1').isLinkLocalUnicast()", "Whether it is local to a link."),
    property("isLinkLocalMulticast", network::is_link_local_multicast, "ip('224.0.0.1').isLinkLocalMulticast()", "Whether it is of a group on a link."),
    checked_method("containsIP", (2, 2), LiteralCheck::Address, network::contains_ip, "cidr('10.0.0.0/8').containsIP(input.text)", "Whether a range has an address."),
    checked_method("containsCIDR", (2, 2), LiteralCheck::Address, network::contains_cidr, "cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16')", "Whether a range has another."),
    method("masked", (1, 1), network::masked, "cidr('10.1.2.3/8').masked()", "A range with its first address."),
    property("prefixLength", network::prefix_length, "cidr('10.0.0.0/8').prefixLength()", "How many bits all addresses share."),
];
