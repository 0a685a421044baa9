//! The formats of texts that are validated.

use std::net::{Ipv4Addr, Ipv6Addr};

use jiff::civil::Date;

/// Any other would be accepted and have no effect.
pub const FORMATS: [&str; 10] =
    ["date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uri", "uuid"];

const LOCAL_PART_BYTES_MAX: usize = 64;
const HOSTNAME_BYTES_MAX: usize = 253;
const LABEL_BYTES_MAX: usize = 63;
const DAY_MINUTES: i32 = 24 * 60;

pub fn is_of_format(text: &str, format: &str) -> bool {
    match format {
        "date" => parse_date(text).is_some(),
        "date-time" => {
            text.split_once(['T', 't']).is_some_and(|(date, time)| parse_date(date).is_some() && is_time(time))
        }
        "duration" => is_duration(text),
        "email" => is_email(text),
        "hostname" => is_hostname(text),
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "time" => is_time(text),
        "uri" => is_uri(text),
        "uuid" => is_uuid(text),
        _ => true,
    }
}

fn parse_digits<N: std::str::FromStr>(text: &str, count: usize) -> Option<N> {
    (text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok())?
}

fn parse_date(text: &str) -> Option<Date> {
    let (year, rest) = text.split_once('-')?;
    let (month, day) = rest.split_once('-')?;
    Date::new(parse_digits(year, 4)?, parse_digits(month, 2)?, parse_digits(day, 2)?).ok()
}

fn is_time(text: &str) -> bool {
    let parse = || {
        let (clock, rest) = text.split_at_checked(8)?;
        let minutes = parse_minutes(clock.get(..5)?)?;
        let second: i32 = parse_digits(clock.get(5..)?.strip_prefix(':')?, 2)?;
        let offset = parse_offset(skip_fraction(rest)?)?;
        // A leap second is the last of a day of UTC.
        let is_last_minute = (minutes - offset).rem_euclid(DAY_MINUTES) == DAY_MINUTES - 1;
        Some(second < 60 || second == 60 && is_last_minute)
    };
    parse().unwrap_or(false)
}

fn skip_fraction(text: &str) -> Option<&str> {
    let Some(fraction) = text.strip_prefix('.') else { return Some(text) };
    let rest = fraction.trim_start_matches(|letter: char| letter.is_ascii_digit());
    (rest.len() < fraction.len()).then_some(rest)
}

fn parse_offset(text: &str) -> Option<i32> {
    match text.split_at_checked(1)? {
        ("Z" | "z", "") => Some(0),
        ("+", offset) => parse_minutes(offset),
        ("-", offset) => parse_minutes(offset).map(|offset| -offset),
        _ => None,
    }
}

/// Hours and minutes, as minutes.
fn parse_minutes(text: &str) -> Option<i32> {
    let (hour, minute) = text.split_once(':')?;
    let (hour, minute): (i32, i32) = (parse_digits(hour, 2)?, parse_digits(minute, 2)?);
    (hour < 24 && minute < 60).then_some(hour * 60 + minute)
}

fn is_duration(text: &str) -> bool {
    let Some(text) = text.strip_prefix('P') else { return false };
    let (date, time) = text.split_once('T').map_or((text, None), |(date, time)| (date, Some(time)));
    let (Some(date), time) = (collect_units(date), time.map(collect_units)) else { return false };
    match time {
        None => !date.is_empty() && ("YMD".contains(&date) || date == "W"),
        Some(time) => "YMD".contains(&date) && time.is_some_and(|time| !time.is_empty() && "HMS".contains(&time)),
    }
}

/// The letters after the numbers of a duration, if there is a number before each.
fn collect_units(text: &str) -> Option<String> {
    let mut units = String::new();
    let mut digits = 0;
    for letter in text.chars() {
        match letter {
            '0'..='9' => digits += 1,
            _ if digits == 0 => return None,
            _ => {
                units.push(letter);
                digits = 0;
            }
        }
    }
    (digits == 0).then_some(units)
}

/// An address, or one in angle brackets after a name.
fn is_email(text: &str) -> bool {
    let address = match text.rsplit_once(" <") {
        None => Some(text),
        Some((_, address)) => address.trim().strip_suffix('>'),
    };
    let Some((local, domain)) = address.and_then(|address| address.rsplit_once('@')) else { return false };
    let literal = domain.strip_prefix('[').and_then(|domain| domain.strip_suffix(']'));
    let is_domain = match literal.map(|literal| (literal, literal.split_at_checked(5))) {
        None => is_hostname(domain),
        Some((_, Some((tag, address)))) if tag.eq_ignore_ascii_case("IPv6:") => address.parse::<Ipv6Addr>().is_ok(),
        Some((address, _)) => address.parse::<Ipv4Addr>().is_ok(),
    };
    let quoted = local.strip_prefix('"').and_then(|local| local.strip_suffix('"'));
    let is_local = match quoted {
        Some(quoted) => is_quotable(quoted),
        None => local.split('.').all(|atom| !atom.is_empty() && atom.chars().all(is_atom_letter)),
    };
    is_domain && is_local && local.len() <= LOCAL_PART_BYTES_MAX
}

fn is_atom_letter(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(letter)
}

fn is_quotable(text: &str) -> bool {
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        let is_allowed = match letter {
            '\\' => letters.next().is_some_and(|letter| letter.is_ascii_graphic()),
            '"' => false,
            _ => letter == '\t' || letter == ' ' || letter.is_ascii_graphic(),
        };
        if !is_allowed {
            return false;
        }
    }
    true
}

/// The letters behind `xn--` are not decoded.
fn is_hostname(text: &str) -> bool {
    let is_label = |label: &str| {
        let is_encoded = label.get(2..4) == Some("--");
        let is_bordered = label.starts_with('-') || label.ends_with('-');
        let has_letters = label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        !label.is_empty()
            && label.len() <= LABEL_BYTES_MAX
            && has_letters
            && !is_bordered
            && (!is_encoded || label.starts_with("xn"))
    };
    text.len() <= HOSTNAME_BYTES_MAX && text.split('.').all(is_label)
}

/// A URI of RFC 3986, with its scheme.
fn is_uri(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once(':') else { return false };
    let is_scheme = scheme.starts_with(|letter: char| letter.is_ascii_alphabetic())
        && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = match rest.strip_prefix("//") {
        None => (None, rest),
        Some(rest) => {
            let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            (Some(authority), path)
        }
    };
    is_scheme
        && authority.is_none_or(is_authority)
        && has_uri_letters(path, b":@/")
        && has_uri_letters(query, b":@/?")
        && has_uri_letters(fragment, b":@/?")
}

fn is_authority(text: &str) -> bool {
    let (user, host) = text.split_once('@').unwrap_or(("", text));
    let (is_host, port) = match host.strip_prefix('[').map(|host| host.split_once(']')) {
        Some(Some((literal, port))) => (is_address_literal(literal), port),
        Some(None) => return false,
        None => {
            let (name, port) = host.split_at(host.find(':').unwrap_or(host.len()));
            (has_uri_letters(name, b""), port)
        }
    };
    let is_port =
        port.is_empty() || port.strip_prefix(':').is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()));
    has_uri_letters(user, b":") && is_host && is_port
}

/// An address of IPv6, or of a version to come, such as `v7.x`.
fn is_address_literal(text: &str) -> bool {
    let future = text.strip_prefix(['v', 'V']).and_then(|text| text.split_once('.'));
    let is_future = future.is_some_and(|(version, address)| {
        let is_version = !version.is_empty() && version.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_version && !address.is_empty() && !address.contains('%') && has_uri_letters(address, b":")
    });
    is_future || text.parse::<Ipv6Addr>().is_ok()
}

/// Whether there are only letters that stand everywhere in a URI, these, and encoded ones.
fn has_uri_letters(text: &str, more: &[u8]) -> bool {
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        let is_allowed = match byte {
            b'%' => [bytes.next(), bytes.next()].iter().all(|byte| byte.is_some_and(|byte| byte.is_ascii_hexdigit())),
            _ => byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=".contains(&byte) || more.contains(&byte),
        };
        if !is_allowed {
            return false;
        }
    }
    true
}

fn is_uuid(text: &str) -> bool {
    let parts = text.split('-').map(|part| part.bytes().all(|byte| byte.is_ascii_hexdigit()).then_some(part.len()));
    parts.eq([8, 4, 4, 4, 12].map(Some))
}
