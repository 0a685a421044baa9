//! Hardware addresses, IP addresses, UUIDs and hosts, which people write and paste in several notations.

use std::net::IpAddr;

const MAC_DIGITS: usize = 12;

/// The twelve digits, in lower case, of a complete hardware address in any notation: `00:11:22:33:44:55`,
/// `00-11-22-33-44-55`, `0011.2233.4455`, `0011-2233-4455`, `001122-334455` or `001122334455`.
pub fn compact_mac(text: &str) -> Option<String> {
    let groups: Vec<&str> = match text.chars().find(|c| !c.is_ascii_hexdigit()) {
        None => vec![text],
        // Text processors write U+2010, which folding keeps.
        Some(separator @ (':' | '-' | '.' | '\u{2010}')) => text.split(separator).take(MAC_DIGITS).collect(),
        Some(_) => return None,
    };
    let is_group = |group: &&str| {
        group.len() * groups.len() == MAC_DIGITS
            && group.len() >= 2
            && group.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    // Four groups of three digits are a telephone number.
    let is_mac = groups.len() != 4 && groups.iter().all(is_group);
    is_mac.then(|| groups.concat().to_ascii_lowercase())
}

/// The least digits of a hardware address that its beginning is recognised by: the part that names its maker.
const MAC_START_DIGITS: usize = 6;

/// The digits of the beginning of a hardware address in any notation: `aabbcc`, `aa-bb-cc`, `aabb.cc`. A whole one is a
/// beginning, too.
pub fn compact_mac_start(text: &str) -> Option<String> {
    let separator = text.chars().find(|c| !c.is_ascii_hexdigit());
    let groups: Vec<&str> = match separator {
        None => vec![text],
        Some(separator) => text.split(separator).collect(),
    };
    let lens: &[usize] = match separator {
        None => &[MAC_DIGITS],
        Some(':') => &[2],
        Some('-' | '\u{2010}') => &[2, 4, 6],
        Some('.') => &[4],
        Some(_) => return None,
    };
    let (last, before) = groups.split_last()?;
    let is_notation = |&len: &usize| before.iter().all(|group| group.len() == len) && last.len() <= len;
    let digits = groups.concat();
    let is_start = lens.iter().any(is_notation)
        && (MAC_START_DIGITS..=MAC_DIGITS).contains(&digits.len())
        && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_start.then(|| digits.to_ascii_lowercase())
}

/// The 32 digits of a UUID, in lower case, with or without hyphens.
pub fn compact_uuid(text: &str) -> Option<String> {
    const GROUPS: [usize; 5] = [8, 4, 4, 4, 12];
    let groups: Vec<&str> = text.split(['-', '\u{2010}']).take(GROUPS.len() + 1).collect();
    let is_grouped = groups.iter().map(|group| group.len()).eq(GROUPS);
    let digits = groups.concat();
    let is_uuid = (is_grouped || groups.len() == 1) && digits.len() == 32;
    (is_uuid && digits.bytes().all(|byte| byte.is_ascii_hexdigit())).then(|| digits.to_ascii_lowercase())
}

/// An IP address in its shortest form. What people copy with it is left out: brackets, a zone, the length of the network,
/// and the port of an IPv4 address.
pub fn find_ip(text: &str) -> Option<String> {
    let text = text.trim_matches(|c: char| !c.is_ascii_hexdigit() && c != ':');
    let address = text.split(['/', '%', ']']).next()?;
    let without_port = address.split_once(':').map(|(address, _)| address).filter(|address| address.contains('.'));
    let address: IpAddr = without_port.unwrap_or(address).parse().ok()?;
    Some(address.to_canonical().to_string())
}

/// The host of a URL, of a Windows share or before a port: `web-01.acme.test` of `https://web-01.acme.test:8443/login`, `srv01`
/// of `\\srv01\share`, `web-01` of `web-01:3389`.
pub fn find_host(word: &str) -> Option<&str> {
    let after = match word.split_once("://") {
        Some((scheme, after)) => Some(after).filter(|_| is_scheme(scheme)),
        None => word.strip_prefix("\\\\").or_else(|| strip_port(word)),
    }?;
    let authority = after.split(['/', '\\', '?', '#']).next()?;
    let host = authority.rsplit('@').next()?;
    let host = host.split(':').next()?;
    Some(host).filter(|host| host.contains(char::is_alphanumeric))
}

/// The name before a port.
fn strip_port(word: &str) -> Option<&str> {
    let (host, port) = word.split_once(':')?;
    let is_host =
        host.contains(char::is_alphabetic) && !host.contains(|c: char| !c.is_alphanumeric() && !"-_.".contains(c));
    let is_port = (1..=5).contains(&port.len()) && port.bytes().all(|byte| byte.is_ascii_digit());
    (is_host && is_port).then_some(host)
}

/// Schemes of URLs without slashes that people copy with an address or a telephone number.
const BARE_SCHEMES: [&str; 5] = ["mailto", "tel", "sip", "sips", "callto"];

/// A URL without its scheme, which says nothing; anything else as it is.
pub fn strip_scheme(word: &str) -> &str {
    let is_bare = |scheme: &str| BARE_SCHEMES.iter().any(|one| one.eq_ignore_ascii_case(scheme));
    let rest = word.split_once("://").filter(|(scheme, _)| is_scheme(scheme));
    let rest = rest.or_else(|| word.split_once(':').filter(|(scheme, _)| is_bare(scheme)));
    rest.map(|(_, rest)| rest).filter(|rest| rest.contains(char::is_alphanumeric)).unwrap_or(word)
}

/// Punctuation may stand before a scheme, as in `(https://…)`.
fn is_scheme(text: &str) -> bool {
    let scheme = text.trim_start_matches(|c: char| !c.is_alphanumeric());
    !scheme.is_empty() && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
}

/// Removes the punctuation around a word: people write addresses in brackets and at the end of a sentence.
pub fn trim_punctuation(word: &str) -> &str {
    word.trim_matches(|c: char| !c.is_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hardware_address_is_the_same_in_every_notation() {
        for text in [
            "02:FC:00:00:00:0a",
            "02-fc-00-00-00-0A",
            "02fc.0000.000a",
            "02fc-0000-000a",
            "02FC00-00000A",
            "02fc0000000a",
        ] {
            assert_eq!(compact_mac(text).as_deref(), Some("02fc0000000a"), "{text}");
        }
        for text in [
            "",
            "02:fc",
            "02:fc:00:00:00:00:01",
            "02:fc-00:00:00:01",
            "02fc0000000g",
            "2fc:0000:0000a",
            "0:2:f:c:0:0:0:0:0:0:0:a",
            "123-456-789-012",
            "02:fc:00:00:00:01:",
            "fe80::1",
            "０２fc00000001",
        ] {
            assert_eq!(compact_mac(text), None, "{text}");
        }
    }

    #[test]
    fn the_beginning_of_a_hardware_address_is_recognised() {
        for text in ["02fc00", "02:FC:00", "02-fc-00", "02fc.00", "02fc-00"] {
            assert_eq!(compact_mac_start(text).as_deref(), Some("02fc00"), "{text}");
        }
        for (text, digits) in [("02:fc:00:1", "02fc001"), ("02:fc:00:", "02fc00"), ("02fc0000000a", "02fc0000000a")] {
            assert_eq!(compact_mac_start(text).as_deref(), Some(digits), "{text}");
        }
        for text in
            ["", "02fc", "02:fc", "10.20.30", "192.168.100", "fe80:0000:1", "02fc0000000a1", "web01", "02:fc-00:1"]
        {
            assert_eq!(compact_mac_start(text), None, "{text}");
        }
    }

    #[test]
    fn a_uuid_has_hyphens_or_none() {
        let digits = "4c4c45440030571080 54b7c04f4d3732".replace(' ', "");
        assert_eq!(compact_uuid("4C4C4544-0030-5710-8054-B7C04F4D3732"), Some(digits.clone()));
        assert_eq!(compact_uuid(&digits), Some(digits.clone()));
        for text in
            ["", "4c4c4544-0030", "4c4c4544-00305710-8054-b7c0-4f4d3732", &digits[1..], &digits.replace('4', "x")]
        {
            assert_eq!(compact_uuid(text), None, "{text}");
        }
    }

    #[test]
    fn an_ip_address_is_found_in_what_surrounds_it() {
        for (text, ip) in [
            ("10.0.0.5", "10.0.0.5"),
            ("10.0.0.5:443", "10.0.0.5"),
            ("(10.0.0.5/24),", "10.0.0.5"),
            ("FE80:0::2A", "fe80::2a"),
            ("fe80::2a%eth0", "fe80::2a"),
            ("[fe80::2a]:443", "fe80::2a"),
            ("::1", "::1"),
        ] {
            assert_eq!(find_ip(text).as_deref(), Some(ip), "{text}");
        }
        for text in ["", "10.0.0", "10.0.0.500", "web01", "12:30", "02:fc:00:00:00:01"] {
            assert_eq!(find_ip(text), None, "{text}");
        }
    }

    #[test]
    fn a_host_is_found_in_a_url_and_in_a_share() {
        for (word, host) in [
            ("https://web-01.acme.test:8443/login?x=1", "web-01.acme.test"),
            ("(ssh://root@web-01", "web-01"),
            ("web-01:3389", "web-01"),
            ("\\\\srv01\\share$", "srv01"),
        ] {
            assert_eq!(find_host(word), Some(host), "{word}");
        }
        for word in ["", "web-01", "12:30", "a:b", "web-01:", "://x", "https://", "file:///tmp/x", "a/b://c", "\\\\"] {
            assert_eq!(find_host(word), None, "{word}");
        }
        for (word, rest) in [("https://web/x", "web/x"), ("Mailto:a@b.test", "a@b.test")] {
            assert_eq!(strip_scheme(word), rest);
        }
        for word in ["https://", "web", "tel:", "web:80"] {
            assert_eq!(strip_scheme(word), word);
        }
    }
}
