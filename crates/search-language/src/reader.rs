//! Splits a query into clauses: where each begins and ends, and what it is. [`super`] combines them.

use std::net::Ipv6Addr;

use super::addresses::{
    compact_mac, compact_mac_start, compact_uuid, find_host, find_ip, strip_scheme, trim_punctuation,
};
use super::fields::{QueryField, find_number};
use super::fold::{fold_text, fold_value, tokenize_text};
use super::{Clause, QueryError, Tokens, Words};

/// How much of a name an error repeats: enough to recognise it, but not a whole pasted text.
const ECHO_CHARACTERS_MAX: usize = 32;
/// What mail programs write before the subject of an answer or of a forwarded mail, which says nothing.
const REPLY_MARKS: [&str; 8] = ["re", "fw", "fwd", "aw", "wg", "sv", "antw", "tr"];

/// The unread rest of a query, and how many characters come before it.
pub struct QueryReader<'a> {
    pub rest: &'a str,
    pub at: usize,
}

impl<'a> QueryReader<'a> {
    pub fn skip_spaces(&mut self) {
        let spaces = self.rest.len() - self.rest.trim_start().len();
        self.take_bytes(spaces);
    }

    /// Whether the next clause is excluded. Only the keyboard's `-` excludes: `−` and `–` are typeset, so they come with
    /// copied text, where they are a dash between words or a list bullet.
    pub fn skip_minus(&mut self) -> bool {
        let is_excluded = self.rest.starts_with('-');
        self.take_bytes(usize::from(is_excluded));
        is_excluded
    }

    /// A `-` followed by a space is a dash too.
    pub fn skip_dash(&mut self) -> bool {
        let rest = self.rest.strip_prefix('-');
        let is_dash = rest.is_some_and(|rest| rest.chars().next().is_none_or(char::is_whitespace));
        self.take_bytes(usize::from(is_dash));
        is_dash
    }

    /// The next clause; `None` if it is punctuation alone.
    pub fn read_clause(&mut self) -> Result<Option<Clause>, QueryError> {
        if let Some(text) = self.read_quoted() {
            let tokens = tokens_of(text);
            return Ok((!tokens.folded.is_empty()).then_some(Clause::Phrase(tokens)));
        }
        if let Some(name) = find_field_name(self.rest) {
            return self.read_field(name);
        }
        let word = self.read_word();
        let is_mark = word.strip_suffix(':').is_some_and(is_reply_mark) && !self.rest.trim_start().is_empty();
        Ok(clause_from_word(word).filter(|_| !is_mark))
    }

    fn read_field(&mut self, name: &str) -> Result<Option<Clause>, QueryError> {
        let at = self.at;
        let field = QueryField::find_by_name(name).ok_or_else(|| QueryError::new(at, describe_unknown_field(name)))?;
        self.take_bytes(name.len() + 1);
        let at = self.at;
        let written = match self.read_quoted() {
            Some(text) => text,
            None => self.read_word(),
        };
        if fold_value(written).is_empty() {
            return Ok(clause_from_word(name));
        }
        let value = field.normalize_value(written).map_err(|detail| QueryError::new(at, detail))?;
        Ok(Some(Clause::Field { field, value }))
    }

    /// The quoted text, if a quote is next. Any kind of quote closes any other: keyboards and text processors mix them. A
    /// quote that nothing closes is skipped.
    fn read_quoted(&mut self) -> Option<&'a str> {
        let inside = self.rest.strip_prefix(is_quote)?;
        self.take_bytes(self.rest.len() - inside.len());
        let end = inside.find(is_quote)?;
        let text = self.take_bytes(end);
        let closing_bytes = self.rest.chars().next().map_or(0, char::len_utf8);
        self.take_bytes(closing_bytes);
        Some(text)
    }

    fn read_word(&mut self) -> &'a str {
        self.take_bytes(word_at_start(self.rest).len())
    }

    /// Takes the next bytes, which must end at a character boundary.
    fn take_bytes(&mut self, bytes: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(bytes);
        self.at += taken.chars().count();
        self.rest = rest;
        taken
    }
}

fn is_quote(c: char) -> bool {
    matches!(c, '"' | '“' | '”' | '„')
}

fn word_at_start(text: &str) -> &str {
    text.split(char::is_whitespace).next().unwrap_or_default()
}

/// The name of a field, known or unknown: ASCII letters and `_`, directly before a colon and a value. Anything else is text:
/// `error: 5` and `C:` without a value, `12:30` and `web01:443` with a digit in the name, URLs, paths (`C:\Temp`, `HKLM:\x`),
/// `std::string`, addresses, and, if there is no field of this name, a port or a line (`localhost:8080`) and what programs write
/// (`jdbc:postgresql://db01`, `error:0x80070005`).
fn find_field_name(rest: &str) -> Option<&str> {
    let end = rest.find(|c: char| !c.is_ascii_alphabetic() && c != '_')?;
    let (name, after) = rest.split_at(end);
    // No field has a name of one letter, but every drive has.
    let value = after.strip_prefix(':').filter(|_| name.len() > 1)?;
    let first = value.chars().next().filter(|c| !c.is_whitespace())?;
    let is_known = QueryField::find_by_name(name).is_some();
    let is_text = match first {
        ':' => true,
        '/' => !is_known || value.starts_with("//"),
        // A quoted value may be long and would be scanned again for every field name; no address has a quote.
        first if is_quote(first) => false,
        _ if is_address(word_at_start(rest)) => true,
        first => {
            let is_prefix =
                || is_reply_mark(name) || strip_scheme(word_at_start(rest)).len() < word_at_start(rest).len();
            let value = word_at_start(value);
            !is_known && (!first.is_alphanumeric() || is_prefix() || is_port(value) || is_technical(value))
        }
    };
    (!is_text).then_some(name)
}

fn is_reply_mark(text: &str) -> bool {
    REPLY_MARKS.iter().any(|mark| mark.eq_ignore_ascii_case(text))
}

/// Whether a value is of a log or a program: `root:boom`, `postgresql://db01/x`, `x=1`, `0x80070005`.
fn is_technical(value: &str) -> bool {
    value.contains([':', '/', '\\', '=']) || value.starts_with("0x")
}

fn is_port(value: &str) -> bool {
    trim_punctuation(value).bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether a word is an IPv6 address, or a hardware address, or the beginning of either: two or more colons with at most
/// four hexadecimal digits between them. No field has such a name.
fn is_address(word: &str) -> bool {
    let word = word.trim_end_matches([',', ';', '.', ')', ']']);
    let address = word.split(['/', '%']).next().unwrap_or_default();
    let is_group = |group: &str| group.len() <= 4 && group.bytes().all(|byte| byte.is_ascii_hexdigit());
    address.parse::<Ipv6Addr>().is_ok() || address.matches(':').count() >= 2 && address.split(':').all(is_group)
}

fn describe_unknown_field(name: &str) -> String {
    let mut echo: String = name.chars().take(ECHO_CHARACTERS_MAX).collect();
    if echo.len() < name.len() {
        echo.push('…');
    }
    format!(
        "There is no field `{echo}`. The fields are {}. To find this as text, put it in quotes: \"{echo}:…\".",
        QueryField::joined_names()
    )
}

/// The clause of one word; `None` if it is punctuation alone.
fn clause_from_word(word: &str) -> Option<Clause> {
    let folded = fold_text(word);
    let bare = folded.trim_matches(|c: char| !c.is_alphanumeric() && c != '#');
    if let Some(number) = bare.strip_prefix('#').and_then(find_number) {
        return Some(Clause::Number(number));
    }
    let tokens = tokens_of(strip_scheme(strip_reply_mark(word)));
    let number = match tokens.folded.as_slice() {
        [] => return None,
        [token] => find_number(token),
        _ => None,
    };
    let address = trim_punctuation(&folded);
    Some(Clause::Words(Words {
        tokens,
        number,
        mac: compact_mac(address).or_else(|| compact_mac_start(address)),
        ip: find_ip(&folded).or_else(|| find_host(&folded).and_then(find_ip)),
        uuid: compact_uuid(address),
        host: find_host(&folded).map(str::to_owned),
    }))
}

fn strip_reply_mark(word: &str) -> &str {
    let marked = word.split_once(':').filter(|(mark, rest)| is_reply_mark(mark) && !rest.is_empty());
    marked.map_or(word, |(_, rest)| rest)
}

fn tokens_of(text: &str) -> Tokens {
    let tokens = tokenize_text(text);
    let has_umlauts = tokens.iter().any(|token| token.transcribed.is_some());
    let transcribed = has_umlauts.then(|| {
        let spelling = |token: &super::fold::TextToken| token.transcribed.clone().unwrap_or_else(|| token.text.clone());
        tokens.iter().map(spelling).collect()
    });
    Tokens { folded: tokens.into_iter().map(|token| token.text).collect(), transcribed }
}

#[cfg(test)]
#[expect(clippy::panic, reason = "tests")]
mod tests {
    use super::*;

    fn read_words(q: &str) -> Words {
        let mut reader = QueryReader { rest: q, at: 0 };
        let Ok(Some(Clause::Words(words))) = reader.read_clause() else { panic!("{q} is not words") };
        assert_eq!((reader.rest, reader.at), ("", q.chars().count()), "{q}");
        words
    }

    #[test]
    fn a_colon_does_not_always_make_a_field() {
        for (q, expected) in [
            ("ad:be:ef:00:11:22", "ad be ef 00 11 22"),
            ("(ADBE.EF00.1122)", "adbe ef00 1122"),
            ("adbeef001122", "adbeef001122"),
            ("ad:be:ef", "ad be ef"),
            ("dead:beef::1", "dead beef 1"),
            ("dead:beef::/32,", "dead beef 32"),
            ("dead::10.0.0.5", "dead 10 0 0 5"),
            ("fe80::1%eth0", "fe80 1 eth0"),
            ("12:30", "12 30"),
            ("https://host/x", "host x"),
            ("(ftp://host", "host"),
            ("file://", "file"),
            ("C:\\Temp", "c temp"),
            ("C:", "c"),
            ("C:drive", "c drive"),
            ("error:", "error"),
            ("os:", "os"),
            ("os:\"\"", "os"),
            ("HKLM:\\Software", "hklm software"),
            ("std::string", "std string"),
            ("web01:443", "web01 443"),
            ("localhost:8080,", "localhost 8080"),
            ("mailto:anna@acme.test", "anna acme test"),
            ("AW:Rechnung", "rechnung"),
            ("RE:", "re"),
            ("x:(null)", "x null"),
            ("exception:[null]", "exception null"),
            ("jdbc:postgresql://db01/x", "jdbc postgresql db01 x"),
            ("ERROR:root:boom", "error root boom"),
            ("arn:aws:s3:::b", "arn aws s3 b"),
            ("data:image/png", "data image png"),
            ("Error:0x80070005", "error 0x80070005"),
        ] {
            assert_eq!(read_words(q).tokens.folded.join(" "), expected, "{q}");
        }
    }

    #[test]
    fn a_word_knows_what_else_it_may_be() {
        for (q, mac) in [
            ("ad:be:ef:00:11:22", Some("adbeef001122")),
            ("(ADBE.EF00.1122)", Some("adbeef001122")),
            ("ad-be-ef", Some("adbeef")),
            ("adbe.ef", Some("adbeef")),
            ("printer", None),
        ] {
            assert_eq!(read_words(q).mac.as_deref(), mac, "{q}");
        }
        assert_eq!(read_words("10.0.0.5:443").ip.as_deref(), Some("10.0.0.5"));
        assert_eq!(read_words("https://Web-01.acme.test/x").host.as_deref(), Some("web-01.acme.test"));
        assert!(read_words("{4c4c4544-0030-5710-8054-b7c04f4d3732}").uuid.is_some());
        let transcribed = read_words("Müller-Lüdenscheidt").tokens.transcribed;
        assert_eq!(transcribed, Some(vec!["mueller".to_owned(), "luedenscheidt".to_owned()]));
        assert_eq!(read_words("Muller").tokens.transcribed, None);
    }
}
