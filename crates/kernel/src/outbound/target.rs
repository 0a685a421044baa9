//! The target of a request: an absolute http or https URL, parsed once and strictly.
//!
//! Nothing is repaired. Two parsers that understand one URL differently let an attacker bypass the guard, so ambiguous URLs
//! are refused: user names, fragments, backslashes, addresses in unusual notation.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use axum::http::Uri;

use super::guard::{AddressGuard, NotAllowed};

/// A length that every server accepts, and more than anyone needs.
const LENGTH_MAX: usize = 2_048;
/// The limits of a name, and of each label (RFC 1035).
const NAME_LENGTH_MAX: usize = 253;
const LABEL_LENGTH_MAX: usize = 63;

/// A URL that can be called if the guard allows it. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target(Arc<TargetParts>);

#[derive(Debug, PartialEq, Eq)]
struct TargetParts {
    text: String,
    uri: Uri,
    host: String,
    https: bool,
}

/// Why a text is not a valid target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadTarget {
    /// Not an accepted URL; the detail says how to write it.
    NotAUrl(String),
    /// A refused address in unusual notation.
    NotAllowed(NotAllowed),
}

impl Target {
    pub fn parse(text: &str) -> Result<Target, BadTarget> {
        check_characters(text)?;
        let (scheme, rest) = text.split_once("://").ok_or_else(not_absolute)?;
        let https = match scheme {
            _ if scheme.eq_ignore_ascii_case("https") => true,
            _ if scheme.eq_ignore_ascii_case("http") => false,
            _ => return Err(not_absolute()),
        };
        let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        if authority.contains('@') {
            return invalid_target("Leave out the user name and password before the @; send them in a header.");
        }
        let (host, port) = split_port(authority)?;
        let port = port.map(parse_port).transpose()?;
        TargetHost::parse(host)?;
        // Built from the checked parts, with the scheme in lower case, as hyper's client compares it.
        let scheme = if https { "https" } else { "http" };
        let uri: Uri = format!("{scheme}://{authority}{path}").parse().or_else(|_| {
            invalid_target("Percent-encode special characters of the path and query, such as %20 for a space.")
        })?;
        // This parser and `Uri` must agree on host and port.
        if uri.host() != Some(host) || uri.port_u16() != port {
            return invalid_target("Write the URL as https://host/path.");
        }
        let host = without_brackets(host).to_owned();
        Ok(Target(Arc::new(TargetParts { text: text.to_owned(), uri, host, https })))
    }

    /// Exactly the text that was parsed.
    pub fn as_str(&self) -> &str {
        &self.0.text
    }

    pub fn is_https(&self) -> bool {
        self.0.https
    }

    /// The name or address as it was written, an IPv6 address without its brackets.
    pub fn host(&self) -> &str {
        &self.0.host
    }

    /// Whether both have the same scheme, host and port, so that secrets for one may be sent to the other.
    pub fn has_same_origin(&self, other: &Target) -> bool {
        let port = |target: &TargetParts| target.uri.port_u16().unwrap_or(if target.https { 443 } else { 80 });
        let (own, other) = (&*self.0, &*other.0);
        own.https == other.https && own.host.eq_ignore_ascii_case(&other.host) && port(own) == port(other)
    }

    pub(super) fn uri(&self) -> &Uri {
        &self.0.uri
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.text)
    }
}

impl fmt::Display for BadTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadTarget::NotAUrl(detail) => f.write_str(detail),
            BadTarget::NotAllowed(refused) => refused.fmt(f),
        }
    }
}

impl std::error::Error for BadTarget {}

/// The host of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TargetHost {
    Address(IpAddr),
    Name(String),
}

impl TargetHost {
    /// Parses a host with or without the brackets of IPv6. The connector parses it again with this, so that every name that
    /// reaches the resolver has passed this check.
    pub fn parse(text: &str) -> Result<TargetHost, BadTarget> {
        if text.contains([':', '[', ']']) {
            let address: Result<Ipv6Addr, _> = without_brackets(text).parse();
            let plain = "Write an IPv6 address as [2606:4700::1111], in brackets and without a zone.";
            return address.map(|address| TargetHost::Address(address.into())).or_else(|_| invalid_target(plain));
        }
        if let Ok(address) = text.parse::<Ipv4Addr>() {
            return Ok(TargetHost::Address(address.into()));
        }
        if ends_in_number(text) {
            return Err(disguised_address(text));
        }
        check_name(text)?;
        Ok(TargetHost::Name(text.to_owned()))
    }
}

fn invalid_target<T>(detail: &str) -> Result<T, BadTarget> {
    Err(BadTarget::NotAUrl(detail.to_owned()))
}

fn not_absolute() -> BadTarget {
    BadTarget::NotAUrl("Write an absolute URL that starts with https:// or http://.".to_owned())
}

fn check_characters(text: &str) -> Result<(), BadTarget> {
    if text.len() > LENGTH_MAX {
        return invalid_target(&format!("A URL has at most {LENGTH_MAX} bytes."));
    }
    if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return invalid_target("Write the URL in ASCII without spaces: names in Punycode, other characters as %XX.");
    }
    if text.contains('\\') {
        return invalid_target("Write / instead of \\.");
    }
    if text.contains('#') {
        return invalid_target("Leave out the # and what follows; it is never sent.");
    }
    Ok(())
}

/// The host, with its brackets if it has some, and the text after the colon.
fn split_port(authority: &str) -> Result<(&str, Option<&str>), BadTarget> {
    let end = if authority.starts_with('[') {
        authority.find(']').map_or(authority.len(), |bracket| bracket + 1)
    } else {
        authority.find(':').unwrap_or(authority.len())
    };
    let (host, rest) = authority.split_at(end);
    // An IPv6 address needs its brackets here; without them its end could not be told from a port.
    match rest.strip_prefix(':') {
        Some(port) => Ok((host, Some(port))),
        None if rest.is_empty() => Ok((host, None)),
        None => invalid_target("Write the host as a name, as an address, or as an IPv6 address in brackets."),
    }
}

fn parse_port(text: &str) -> Result<u16, BadTarget> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    match text.parse() {
        Ok(port) if plain => Ok(port),
        _ => invalid_target("Write the port as a number from 1 to 65535, or leave it out with its colon."),
    }
}

fn without_brackets(host: &str) -> &str {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

fn without_dot(host: &str) -> &str {
    host.strip_suffix('.').unwrap_or(host)
}

fn check_name(name: &str) -> Result<(), BadTarget> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let label = |label: &str| (1..=LABEL_LENGTH_MAX).contains(&label.len()) && label.bytes().all(plain);
    let name = without_dot(name);
    if name.len() <= NAME_LENGTH_MAX && name.split('.').all(label) {
        return Ok(());
    }
    invalid_target("Write the host as a name of letters, digits, - and _, in parts of 1 to 63 between dots.")
}

/// Whether the WHATWG URL standard would parse this as an IPv4 address ("ends in a number").
fn ends_in_number(host: &str) -> bool {
    let last = without_dot(host).rsplit('.').next().unwrap_or_default();
    let hexadecimal = last.strip_prefix("0x").or_else(|| last.strip_prefix("0X"));
    match hexadecimal {
        Some(digits) => digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
        None => !last.is_empty() && last.bytes().all(|byte| byte.is_ascii_digit()),
    }
}

/// The refusal of an address that is not written as four decimal numbers. The address only decides which refusal it is;
/// networks that the operator allows do not matter, because even an allowed address must be written plainly.
fn disguised_address(host: &str) -> BadTarget {
    match parse_number_address(host).map(|address| AddressGuard::default().check_address(address.into())) {
        Some(Err(refused)) => BadTarget::NotAllowed(refused),
        _ => BadTarget::NotAUrl("Write the address as four decimal numbers, such as 192.0.2.1.".to_owned()),
    }
}

/// Parses an address as the C library does: one to four numbers in base 8, 10 or 16, of which the last fills the remaining
/// bytes.
fn parse_number_address(host: &str) -> Option<Ipv4Addr> {
    let numbers: Vec<u32> = without_dot(host).split('.').map(parse_number).collect::<Option<_>>()?;
    let (last, first) = numbers.split_last()?;
    let left_bits = 32_u32.checked_sub(8 * u32::try_from(first.len()).ok()?).filter(|bits| *bits > 0)?;
    if first.iter().any(|number| *number > 255) || u64::from(*last) >= 1 << left_bits {
        return None;
    }
    let high = first.iter().fold(0_u64, |bits, number| bits << 8 | u64::from(*number)) << left_bits;
    u32::try_from(high | u64::from(*last)).ok().map(Ipv4Addr::from_bits)
}

fn parse_number(text: &str) -> Option<u32> {
    let (digits, base) = match text.as_bytes() {
        [b'0', b'x' | b'X', ..] => (text.get(2..)?, 16),
        [b'0', _, ..] => (text.get(1..)?, 8),
        _ => (text, 10),
    };
    // `0x` without digits is zero to the parsers that accept it.
    match digits {
        "" if base == 16 => Some(0),
        _ if digits.starts_with('+') => None,
        _ => u32::from_str_radix(digits, base).ok(),
    }
}
