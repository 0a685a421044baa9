//! The fingerprint of a report: two reports of an unchanged machine have the same.
//!
//! It leaves out content that changes at every run (the time and duration of the run, the agent's change flags, the uptime)
//! and sections that are never parsed: a list of processes is never the same twice. Free space is included: it changes, and
//! it matters. One pass, no copies. A malformed body gets a fingerprint too; `parse_message` refuses it later.
//!
//! Nearly every report is the same again, and most of what it costs is to inflate it. So the bytes are hashed and not the
//! parsed report: for a report of 250 kB this scan and its digest take 0.3 ms, parsing it and a digest of the result 2.1 ms.

use std::ops::Range;

use super::message::{MessageFormat, detect_format};

/// The elements that are left out with their tags: some are present in one run and missing in the next. The last two are
/// left out only in part.
const XML_STARTS: [&[u8]; 10] = [
    b"<LOGDATE>",
    b"<ETIME>",
    b"<CHECKSUM>",
    b"<ENVS>",
    b"<PROCESSES>",
    b"<LOCAL_USERS>",
    b"<LOCAL_GROUPS>",
    b"<USERS>",
    DESCRIPTION,
    BOOT_TIME,
];
/// Left out if it has the uptime in it, as the OCS agent writes it: `x86_64/00-00-00 22:44:18`.
const DESCRIPTION: &[u8] = b"<DESCRIPTION>";
/// Compared to ten minutes: agents subtract the uptime from the clock, and are a second off now and then.
const BOOT_TIME: &[u8] = b"<BOOT_TIME>";
const JSON_BOOT_TIME: &[u8] = b"\"boot_time\"";

/// The length of `2026-11-15 13:53:06`, and how much is left out at its end.
const BOOT_TIME_LENGTH: usize = 19;
const BOOT_TIME_VOLATILE: usize = 4;

/// The keys whose values are left out.
const JSON_STARTS: [&[u8]; 8] = [
    b"\"logdate\"",
    b"\"etime\"",
    b"\"envs\"",
    b"\"processes\"",
    b"\"local_users\"",
    b"\"local_groups\"",
    b"\"users\"",
    JSON_BOOT_TIME,
];

/// The version of the parser. A change of how reports are parsed must raise it: the same body then has other facts, and a
/// digest stored before must not keep it from being parsed.
const READER_VERSION: &[u8] = b"3\n";

/// The input of the digest: the version of the parser, then the slices of the inflated body without its volatile content.
pub fn fingerprint_parts(inflated: &[u8]) -> impl Iterator<Item = &[u8]> {
    let is_json = detect_format(inflated) == Some(MessageFormat::Json);
    let find_volatile = if is_json { find_in_json } else { find_in_xml };
    let mut rest = inflated;
    let slices = std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let volatile = find_volatile(rest).unwrap_or(rest.len()..rest.len());
        let slice = rest.get(..volatile.start).unwrap_or_default();
        rest = rest.get(volatile.end..).unwrap_or_default();
        Some(slice)
    });
    std::iter::once(READER_VERSION).chain(slices)
}

/// Finds the next of the starts, which all begin with the same byte.
fn find_start(
    bytes: &[u8],
    mut position: usize,
    first: u8,
    starts: &'static [&'static [u8]],
) -> Option<(usize, &'static [u8])> {
    loop {
        position += find_byte(bytes.get(position..)?, first)?;
        let here = bytes.get(position..)?;
        // The second byte rules out nearly everything: comparing with each start is slow.
        let second = here.get(1)?;
        if starts.iter().any(|start| start.get(1) == Some(second))
            && let Some(start) = starts.iter().find(|start| here.starts_with(start))
        {
            return Some((position, start));
        }
        position += 1;
    }
}

/// The range of the next volatile content. A tag without an end tag ends the search: searching from every such tag to the
/// end of the body would take quadratic time for a hostile body.
fn find_in_xml(bytes: &[u8]) -> Option<Range<usize>> {
    let mut position = 0;
    loop {
        let (found, tag) = find_start(bytes, position, b'<', &XML_STARTS)?;
        position = found + tag.len();
        let content = bytes.get(position..)?;
        if tag == DESCRIPTION || tag == BOOT_TIME {
            let length = find_byte(content, b'<')?;
            let end = position + length;
            if tag == BOOT_TIME && length == BOOT_TIME_LENGTH {
                return Some(end - BOOT_TIME_VOLATILE..end);
            }
            if tag == DESCRIPTION && ends_with_running_time(content.get(..length)?) {
                return Some(position..end);
            }
        } else {
            let end = position + find_end_tag(content, tag.get(1..)?)? + tag.len() + 1;
            let indent = bytes.get(..found)?.iter().rev().take_while(|byte| byte.is_ascii_whitespace()).count();
            return Some(found - indent..end);
        }
    }
}

/// Finds the end tag of an element; `name` is the name with its `>`.
fn find_end_tag(content: &[u8], name: &[u8]) -> Option<usize> {
    let mut position = 0;
    loop {
        position += find_byte(content.get(position..)?, b'<')?;
        if content.get(position + 1..)?.strip_prefix(b"/").is_some_and(|end| end.starts_with(name)) {
            return Some(position);
        }
        position += 1;
    }
}

fn ends_with_running_time(text: &[u8]) -> bool {
    let shape = b"/00-00-00 00:00:00";
    text.len() > shape.len()
        && text.iter().rev().zip(shape.iter().rev()).all(|(byte, wanted)| match wanted {
            b'0' => byte.is_ascii_digit(),
            _ => byte == wanted,
        })
}

fn find_in_json(bytes: &[u8]) -> Option<Range<usize>> {
    let mut position = 0;
    loop {
        let (found, key) = find_start(bytes, position, b'"', &JSON_STARTS)?;
        position = found + key.len();
        let space = bytes.get(position..)?.iter().position(|byte| !byte.is_ascii_whitespace())?;
        // The same text may be a value and not a key.
        if bytes.get(position + space) == Some(&b':') {
            let start = position + space + 1;
            let length = value_length(bytes.get(start..)?)?;
            if key != JSON_BOOT_TIME {
                return Some(start..start + length);
            }
            let value = bytes.get(start..start + length)?;
            if let Some(time) = value.trim_ascii().strip_prefix(b"\"").and_then(|time| time.strip_suffix(b"\""))
                && time.len() == BOOT_TIME_LENGTH
            {
                let end = start + value.trim_ascii_end().len() - 1;
                return Some(end - BOOT_TIME_VOLATILE..end);
            }
            position = start + length;
        }
    }
}

/// The length of any JSON value, with the space before it.
fn value_length(bytes: &[u8]) -> Option<usize> {
    let (mut depth, mut in_string, mut is_escaped) = (0_usize, false, false);
    bytes.iter().position(|byte| {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if in_string => is_escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'[' | b'{' => depth += 1,
            b',' | b']' | b'}' if depth == 0 => return true,
            b']' | b'}' => depth -= 1,
            _ => {}
        }
        false
    })
}

fn find_byte(bytes: &[u8], wanted: u8) -> Option<usize> {
    bytes.iter().position(|&byte| byte == wanted)
}
