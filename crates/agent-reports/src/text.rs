//! Parses single values: texts, numbers, sizes and times as agents write them.
//!
//! Lenient on purpose: an unusable value becomes `None` and never invalidates the rest of the report.

use std::net::IpAddr;

use jiff::civil::{Date, DateTime};
use jiff::tz::Offset;

/// No name, version or serial number of a real machine is longer, and rows stay small.
pub const LABEL_CHARS_MAX: usize = 500;
/// At four bytes per character.
pub const LABEL_BYTES_MAX: usize = 4 * LABEL_CHARS_MAX;

/// The rest of a longer field is ignored.
pub const FIELD_BYTES_MAX: usize = 64 * 1024;

pub const MIB_BYTES: i64 = 1_048_576;
pub const DECIMAL_MB_BYTES: i64 = 1_000_000;

/// Decimal places that are parsed: finer than one byte of a decimal megabyte.
const FRACTION_DIGITS_MAX: usize = 9;

/// Earlier dates are implausible: they come from machines whose clock lost its battery.
const YEAR_MIN: i16 = 1980;

/// The bytes after a UTF-8 byte order mark, if there is one.
pub fn without_byte_order_mark(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes)
}

/// The first byte that is not white space.
pub fn first_byte(bytes: &[u8]) -> Option<u8> {
    bytes.iter().copied().find(|byte| !byte.is_ascii_whitespace())
}

/// A text trimmed, without control characters and cut to the limit; `None` if nothing is left.
pub fn clean_label(value: &str) -> Option<String> {
    let value = value.trim();
    // Nearly every value is short and clean. 0xC2 starts the other control characters, and some letters.
    let is_clean = value.bytes().all(|byte| byte >= 0x20 && byte != 0x7f && byte != 0xc2);
    if is_clean && value.len() <= LABEL_CHARS_MAX {
        return (!value.is_empty()).then(|| value.to_owned());
    }
    let cleaned: String = value
        .chars()
        .map(|character| if matches!(character, '\t' | '\n' | '\r') { ' ' } else { character })
        .filter(|character| !character.is_control())
        .take(LABEL_CHARS_MAX)
        .collect();
    let trimmed = cleaned.trim();
    (!trimmed.is_empty()).then(|| trimmed.to_owned())
}

/// The integer at the start of a value.
pub fn parse_number(value: &str) -> Option<i64> {
    parse_size(value, 1)
}

/// A size in units of so many bytes, including decimal places.
pub fn parse_size(value: &str, unit_bytes: i64) -> Option<i64> {
    let value = value.trim();
    let (whole, rest) = split_digits(value);
    let bytes = whole.parse::<i64>().ok()?.checked_mul(unit_bytes)?;
    let Some(fraction) = rest.strip_prefix('.') else { return Some(bytes) };
    let (digits, _) = split_digits(fraction);
    let digits = digits.get(..FRACTION_DIGITS_MAX).unwrap_or(digits);
    let (mut part, mut scale) = (0_i64, 1_i64);
    for digit in digits.bytes() {
        part = part * 10 + i64::from(digit - b'0');
        scale *= 10;
    }
    bytes.checked_add(part.checked_mul(unit_bytes)? / scale)
}

/// An integer without a sign, and nothing else.
pub fn parse_whole_number(value: &str) -> Option<i64> {
    let value = value.trim();
    value.bytes().all(|byte| byte.is_ascii_digit()).then(|| value.parse().ok())?
}

fn split_digits(value: &str) -> (&str, &str) {
    let end = value.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(value.len());
    value.split_at_checked(end).unwrap_or((value, ""))
}

/// A boolean as agents write it.
pub fn parse_flag(value: &str) -> Option<bool> {
    match value.trim().to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Some(true),
        "0" | "false" | "no" | "off" => Some(false),
        _ => None,
    }
}

/// The day of an installation, as milliseconds at midnight UTC: `dd/mm/yyyy`, `yyyy/mm/dd`, `yyyy-mm-dd`, `yyyymmdd`, with
/// or without a time of day. `yyyy/mm/dd hh:mm:ss` is rejected: the OCS agent writes it for Debian packages, and counts
/// months from zero.
pub fn parse_day_ms(value: &str) -> Option<i64> {
    let value = value.trim();
    let day = value.split([' ', 'T']).next()?;
    if day.len() < value.len() && day.as_bytes().get(4) == Some(&b'/') {
        return None;
    }
    let mut pieces = day.split(['/', '-', '.']);
    let (year, month, day) = match (pieces.next()?, pieces.next(), pieces.next(), pieces.next()) {
        (all, None, None, None) if all.len() == 8 || all.len() == 14 => (all.get(..4)?, all.get(4..6)?, all.get(6..8)?),
        (year, Some(month), Some(day), None) if year.len() == 4 => (year, month, day),
        (day, Some(month), Some(year), None) if year.len() == 4 => (year, month, day),
        _ => return None,
    };
    let date = Date::new(year.parse().ok()?, month.parse().ok()?, day.parse().ok()?).ok()?;
    plausible_ms(date.to_datetime(jiff::civil::Time::midnight()), Offset::UTC)
}

/// A local time `yyyy-mm-dd hh:mm:ss` with the offset of its zone, `+0200`; without an offset it is read as UTC.
pub fn parse_local_time_ms(value: &str, offset: Option<&str>) -> Option<i64> {
    let time: DateTime = value.trim().parse().ok()?;
    let offset = match offset {
        Some(offset) => parse_offset(offset)?,
        None => Offset::UTC,
    };
    plausible_ms(time, offset)
}

fn parse_offset(value: &str) -> Option<Offset> {
    let value = value.trim();
    let sign = match value.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let digits: String = value.chars().filter(char::is_ascii_digit).collect();
    if digits.len() != 4 {
        return None;
    }
    let hours: i32 = digits.get(..2)?.parse().ok()?;
    let minutes: i32 = digits.get(2..)?.parse().ok()?;
    Offset::from_seconds(sign * (hours * 3600 + minutes * 60)).ok()
}

fn plausible_ms(time: DateTime, offset: Offset) -> Option<i64> {
    if time.year() < YEAR_MIN {
        return None;
    }
    offset.to_timestamp(time).ok().map(|timestamp| timestamp.as_millisecond())
}

/// The addresses in a value: some agents send several, with prefix length or scope.
pub fn parse_addresses(value: &str) -> impl Iterator<Item = String> {
    value.split([',', ';', ' ']).filter_map(|piece| {
        let address = piece.split(['/', '%']).next().unwrap_or_default();
        address
            .trim()
            .parse::<IpAddr>()
            .ok()
            .filter(|address| !address.is_unspecified())
            .map(|address| address.to_string())
    })
}
