//! What a query names as a whole: the machine, person or customer whose name, number or address it is.

use super::addresses::{compact_mac, compact_mac_start, compact_uuid, find_host, find_ip, trim_punctuation};
use super::fields::find_number;
use super::fold::fold_value;
use super::spellings::name_keys;
use super::{Clause, ParsedQuery, QueryField};

/// What a record is named by that a query stands for. Nothing of it is known if the query has no text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// The keys of the name, from [`name_keys`].
    pub keys: Vec<String>,
    /// The digits of a hardware address, or of its beginning.
    pub mac: Option<String>,
    pub ip: Option<String>,
    /// What an IP address begins with, such as `10.0.`.
    pub ip_start: Option<String>,
    pub number: Option<i64>,
}

/// What people write before the number of a ticket.
const TICKET: &str = "ticket";

impl ParsedQuery {
    /// What the words and phrases of the query name together.
    pub fn identity(&self) -> Identity {
        let folded = fold_value(&self.text);
        let written = trim_punctuation(&folded);
        let mut keys = match find_host(&folded) {
            Some(host) => name_keys(host),
            // `#42` is a ticket, and not whatever else is called so.
            None if self.must.iter().any(|clause| matches!(clause, Clause::Number(_))) => Vec::new(),
            None => name_keys(&self.text),
        };
        keys.extend(compact_uuid(written).filter(|digits| !keys.contains(digits)));
        let spaced = written.replace(' ', ":");
        Identity {
            keys,
            mac: [written, &spaced].into_iter().find_map(|text| compact_mac(text).or_else(|| compact_mac_start(text))),
            ip: find_ip(&folded).or_else(|| find_host(&folded).and_then(find_ip)),
            ip_start: is_ip_start(&folded).then(|| folded.clone()),
            number: find_ticket_number(&folded),
        }
    }
}

/// `42`, `#42` and `ticket 42`.
fn find_ticket_number(text: &str) -> Option<i64> {
    let text = text.strip_prefix(TICKET).map_or(text, str::trim_start);
    let number = text.trim_matches(|c: char| !c.is_alphanumeric() && c != '#');
    QueryField::Number.normalize_value(number).ok().and_then(|number| find_number(&number))
}

/// Digits and dots, or hexadecimal digits and colons. A number alone begins too many addresses to mean one.
fn is_ip_start(text: &str) -> bool {
    let is_v4 = text.contains('.') && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let is_v6 = text.contains(':') && text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b':');
    (is_v4 || is_v6) && text.starts_with(|c: char| c.is_ascii_hexdigit())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::super::parse;
    use super::*;

    fn identity(q: &str) -> Identity {
        parse(q).unwrap().identity()
    }

    #[test]
    fn a_query_names_what_its_words_name_together() {
        for (q, keys) in [
            ("WEB-01", &["web01"][..]),
            ("web 01 type:device -old", &["web01"]),
            ("\"Anna Keller\"", &["annakeller"]),
            ("New York, New York", &["newyorknewyork"]),
            ("Bäckerei Müller", &["backereimuller", "baeckereimueller"]),
            (
                "{4C4C4544-0030-5710-8054-B7C04F4D3732}",
                &["4c4c4544.0030.5710.8054b7c04f4d3732", "4c4c45440030571080 54b7c04f4d3732"],
            ),
            ("https://web-01.acme.test/login", &["web01acmetest"]),
            ("status:open", &[]),
            ("#42", &[]),
        ] {
            let keys: Vec<String> = keys.iter().map(|key| key.replace(' ', "")).collect();
            assert_eq!(identity(q).keys, keys, "{q}");
        }
    }

    #[test]
    fn numbers_and_addresses_are_recognised_in_any_notation() {
        for q in ["42", "#42", "Ticket 42", "ticket #42", "(#042)"] {
            assert_eq!(identity(q).number, Some(42), "{q}");
        }
        for q in ["tickets 42", "42 43", "web 42", "0", "10.0.0.5"] {
            assert_eq!(identity(q).number, None, "{q}");
        }
        for q in ["02:fc:00:00:00:0a", "02-FC-00-00-00-0A", "02 fc 00 00 00 0a", "02fc0000000a"] {
            assert_eq!(identity(q).mac.as_deref(), Some("02fc0000000a"), "{q}");
        }
        assert_eq!(identity("02fc.00").mac.as_deref(), Some("02fc00"));
        for q in ["10.0.0.5", "10.0.0.5:443", "http://10.0.0.5/admin", "\\\\10.0.0.5\\c$", "rdp://10.0.0.5:3389"] {
            assert_eq!(identity(q).ip.as_deref(), Some("10.0.0.5"), "{q}");
        }
        assert_eq!(identity("web-01:3389").keys, ["web01"]);
        assert_eq!(identity("FE80:0::2A").ip.as_deref(), Some("fe80::2a"));
        for (q, start) in [("10.0.", Some("10.0.")), ("fe80:", Some("fe80:")), ("10", None), ("web.", None)] {
            assert_eq!(identity(q).ip_start.as_deref(), start, "{q}");
        }
    }
}
