//! Splits a query into clauses: where each begins and ends, and what it is. [`super`] combines them.

use std::net::Ipv6Addr;

use super::fields::{QueryField, find_number};
use super::fold::{compact_mac, fold_text, tokenize_text, trim_punctuation};
use super::{Clause, QueryError};

/// How much of a name an error repeats: enough to recognise it, but not a whole pasted text.
const ECHO_CHARACTERS_MAX: usize = 32;

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
        let at = self.at;
        if let Some(text) = self.read_quoted()? {
            let tokens = token_texts(text);
            let clause = (!tokens.is_empty()).then_some(Clause::Phrase(tokens));
            return clause
                .map(Some)
                .ok_or_else(|| QueryError::new(at, "Between these quotes nothing can be searched for."));
        }
        match find_field_name(self.rest) {
            Some(name) => self.read_field(name).map(Some),
            None => Ok(clause_from_word(self.read_enum())),
        }
    }

    fn read_field(&mut self, name: &str) -> Result<Clause, QueryError> {
        let at = self.at;
        let field = QueryField::find_by_name(name).ok_or_else(|| QueryError::new(at, describe_unknown_field(name)))?;
        self.take_bytes(name.len() + 1);
        let value_at = self.at;
        let written = match self.read_quoted()? {
            Some(text) => text,
            None => self.read_enum(),
        };
        // A missing value has no position, so the error points to the name.
        let at = if written.is_empty() { at } else { value_at };
        let value = field.normalize_value(written).map_err(|detail| QueryError::new(at, detail))?;
        Ok(Clause::Field { field, value })
    }

    /// The quoted text, if a quote is next. Any kind of quote closes any other: keyboards and text processors mix them.
    fn read_quoted(&mut self) -> Result<Option<&'a str>, QueryError> {
        let Some(inside) = self.rest.strip_prefix(is_quote) else { return Ok(None) };
        let end = inside.find(is_quote).ok_or_else(|| QueryError::new(self.at, "This quote is not closed."))?;
        self.take_bytes(self.rest.len() - inside.len());
        let text = self.take_bytes(end);
        let closing_bytes = self.rest.chars().next().map_or(0, char::len_utf8);
        self.take_bytes(closing_bytes);
        Ok(Some(text))
    }

    fn read_enum(&mut self) -> &'a str {
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

/// The name of a field, known or unknown: ASCII letters and `_` before a colon. After anything else (`12:30`, `web01:443`)
/// a colon is text; so it is in a URL, after a drive letter, and in an address whose first group happens to be letters.
fn find_field_name(rest: &str) -> Option<&str> {
    let end = rest.find(|c: char| !c.is_ascii_alphabetic() && c != '_')?;
    let (name, after) = rest.split_at(end);
    let value = after.strip_prefix(':').filter(|_| !name.is_empty())?;
    let is_url = value.starts_with("//");
    let is_path = name.len() == 1 && value.starts_with(['\\', '/']);
    // A quoted value may be long and would be scanned again for every field name; no address has a quote.
    let is_text = is_url || is_path || !value.starts_with(is_quote) && is_address(word_at_start(rest));
    (!is_text).then_some(name)
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
    let tokens = token_texts(&folded);
    let number = match tokens.as_slice() {
        [] => return None,
        [token] => find_number(token),
        _ => None,
    };
    let mac = compact_mac(trim_punctuation(&folded));
    Some(Clause::Words { tokens, number, mac })
}

fn token_texts(text: &str) -> Vec<String> {
    tokenize_text(text).into_iter().map(|token| token.text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mac(tokens: &[&str], digits: &str) -> Clause {
        words_or(tokens, Some(digits))
    }

    fn words(tokens: &[&str]) -> Clause {
        words_or(tokens, None)
    }

    fn words_or(tokens: &[&str], mac: Option<&str>) -> Clause {
        let tokens = tokens.iter().map(|&token| token.to_owned()).collect();
        Clause::Words { tokens, number: None, mac: mac.map(str::to_owned) }
    }

    #[test]
    fn a_colon_does_not_always_make_a_field() {
        for (q, expected) in [
            ("ad:be:ef:00:11:22", mac(&["ad", "be", "ef", "00", "11", "22"], "adbeef001122")),
            ("(ADBE.EF00.1122)", mac(&["adbe", "ef00", "1122"], "adbeef001122")),
            ("adbeef001122", mac(&["adbeef001122"], "adbeef001122")),
            ("ad:be:ef", words(&["ad", "be", "ef"])),
            ("dead:beef::1", words(&["dead", "beef", "1"])),
            ("dead:beef::/32,", words(&["dead", "beef", "32"])),
            ("dead::10.0.0.5", words(&["dead", "10", "0", "0", "5"])),
            ("fe80::1%eth0", words(&["fe80", "1", "eth0"])),
            ("12:30", words(&["12", "30"])),
            ("https://host/x", words(&["https", "host", "x"])),
            ("C:\\Temp", words(&["c", "temp"])),
            ("web01:443", words(&["web01", "443"])),
        ] {
            let mut reader = QueryReader { rest: q, at: 0 };
            assert_eq!(reader.read_clause(), Ok(Some(expected)), "{q}");
            assert_eq!((reader.rest, reader.at), ("", q.chars().count()), "{q}");
        }
    }
}
