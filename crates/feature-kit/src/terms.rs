//! Terms of list filters: the words of `q`, and ids that may be `none`.
//!
//! Lists compare texts as the search index does ([`QueryWord`], [`TextWords`]). The words of tickets and devices are also rows
//! beside their records ([`stored_words`]), by which candidates are found ([`StoredWord`]).

use std::collections::BTreeSet;
use std::fmt;

use kernel::base::RecordId;
use search_language::text_words::{QueryWord, TextWords};

/// More words than this in `q` are a mistake.
pub const Q_WORDS_MAX: usize = 10;
pub const Q_CHARS_MAX: usize = 200;

/// The words of `q` for texts that are at hand.
pub fn parse_q(text: &str) -> Result<Vec<QueryWord>, String> {
    Ok(split_q(text)?.iter().filter_map(|word| QueryWord::parse(word)).collect())
}

/// The words of `q` for stored words.
pub fn parse_stored_q(text: &str) -> Result<Vec<StoredWord>, String> {
    Ok(split_q(text)?.iter().filter_map(|word| StoredWord::parse(word)).collect())
}

/// The parts of `q` between spaces. Punctuation that stands alone is ignored.
fn split_q(text: &str) -> Result<Vec<&str>, String> {
    let has_letters = |word: &&str| split_words(word).next().is_some();
    let words: Vec<&str> = text.split_whitespace().filter(has_letters).collect();
    if text.chars().count() > Q_CHARS_MAX || words.is_empty() || split_words(text).count() > Q_WORDS_MAX {
        return Err(format!("must be 1 to {Q_WORDS_MAX} words in at most {Q_CHARS_MAX} characters"));
    }
    Ok(words)
}

/// The words of a text in lower case, in their order.
pub fn split_words(text: &str) -> impl Iterator<Item = String> {
    let parts = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    // Letter by letter: a prefix must not depend on the letters after it, and a sigma is one wherever it stands.
    let lower = |c: char| c.to_lowercase().map(|c| if c == 'ς' { 'σ' } else { c });
    parts.map(move |word| word.chars().flat_map(lower).collect())
}

/// The words under which a text is stored: in every spelling that it is found by, and as it is written, which is all that
/// older records have.
pub fn stored_words(text: &str) -> BTreeSet<String> {
    TextWords::new(text).words().cloned().chain(split_words(text)).collect()
}

/// A word of `q`, and the ways in which it may be stored.
#[derive(Clone, Debug)]
pub struct StoredWord {
    written: String,
    word: QueryWord,
    rows: Vec<Vec<String>>,
}

impl StoredWord {
    /// `None` if the word has neither letters nor digits.
    pub fn parse(written: &str) -> Option<Self> {
        let word = QueryWord::parse(written)?;
        let mut rows = word.rows().to_vec();
        let as_written: Vec<String> = split_words(written).collect();
        if !as_written.is_empty() && !rows.contains(&as_written) {
            rows.push(as_written);
        }
        Some(StoredWord { written: written.to_owned(), word, rows })
    }

    pub fn written(&self) -> &str {
        &self.written
    }

    /// Words in a row, the last of which is a prefix: a text that has the word is stored under all words of one row.
    pub fn rows(&self) -> &[Vec<String>] {
        &self.rows
    }

    /// Whether one of these texts has the word.
    pub fn is_in_any(&self, texts: &[TextWords]) -> bool {
        self.word.is_in_any(texts)
    }

    /// Whether the text has the word, or all its parts, wherever they are.
    pub fn has_parts_in(&self, text: &TextWords) -> bool {
        self.word.has_parts_in(text) || self.word.is_in_any(std::slice::from_ref(text))
    }
}

/// An id, or `none`: tickets that are assigned to nobody can be listed, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdOrNone<I>(pub Option<I>);

/// The filter value for records without such a reference.
pub const NO_ID: &str = "none";

impl<I: RecordId> IdOrNone<I> {
    pub fn parse(text: &str) -> Option<Self> {
        if text == NO_ID { Some(IdOrNone(None)) } else { text.parse().ok().map(|id| IdOrNone(Some(id))) }
    }
}

impl<I: RecordId> fmt::Display for IdOrNone<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(id) => id.fmt(f),
            None => f.write_str(NO_ID),
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn rows(word: &str) -> Vec<String> {
        StoredWord::parse(word).unwrap().rows().iter().map(|row| row.join(" ")).collect()
    }

    #[test]
    fn a_word_is_looked_for_in_every_way_that_it_may_be_stored() {
        for (word, expected) in [
            ("printer", &["printer"][..]),
            ("München", &["munchen", "muenchen", "münchen"]),
            ("Muenchen", &["muenchen"]),
            ("WEB-01", &["web 01", "web01"]),
            ("web01", &["web01", "web 01"]),
            ("192.168.7", &["192 168 7"]),
            ("02:fc:0a", &["02 fc 0a"]),
            ("東京", &["東 京", "東京"]),
        ] {
            assert_eq!(rows(word), expected, "{word}");
        }
    }

    #[test]
    fn the_last_word_of_a_row_is_a_prefix() {
        let texts = ["Office 365 licence", "srv-dc-01"].map(TextWords::new);
        for word in ["office365", "office36", "office-3", "lic", "srv-dc", "dc01", "dc-0"] {
            assert!(StoredWord::parse(word).unwrap().is_in_any(&texts), "{word}");
        }
        for word in ["ffice365", "office366", "365-office", "srv-01"] {
            assert!(!StoredWord::parse(word).unwrap().is_in_any(&texts), "{word}");
        }
    }

    #[test]
    fn a_text_is_stored_under_every_word_that_a_query_may_ask_for() {
        let texts = ["Wi-Fi in Zürich", "O'Neill <x@acme.test>", "WEB-01", "東京オフィス", "Straße 7"];
        let queries =
            ["wifi", "wi-fi", "zur", "zuerich", "zürich", "oneill", "acme.te", "web0", "web-01", "京オ", "strasse7"];
        for (text, word) in texts.iter().flat_map(|text| queries.map(|word| (text, word))) {
            let (stored, word) = (stored_words(text), StoredWord::parse(word).unwrap());
            let is_stored = |row: &Vec<String>| row.iter().all(|part| stored.iter().any(|own| own.starts_with(part)));
            let is_found = word.is_in_any(&[TextWords::new(text)]);
            assert!(!is_found || word.rows().iter().any(is_stored), "{word:?} in {text}");
        }
        let found = |word: &str| {
            texts.iter().filter(|text| StoredWord::parse(word).unwrap().is_in_any(&[TextWords::new(text)])).count()
        };
        assert!(queries.iter().all(|word| found(word) == 1));
    }

    #[test]
    fn punctuation_that_stands_alone_is_no_word() {
        let written =
            |q: &str| parse_stored_q(q).map(|words| words.iter().map(|word| word.written().to_owned()).collect());
        assert_eq!(written(" Smith & Sons - "), Ok(vec!["Smith".to_owned(), "Sons".to_owned()]));
        assert!(
            [" ", "-", &"a ".repeat(11), &"a.".repeat(11), &"a".repeat(201)]
                .iter()
                .all(|q| parse_stored_q(q).is_err() && parse_q(q).is_err())
        );
    }
}
