//! Terms of list filters: the words of `q`, and ids that may be `none`.
//!
//! Lists that have their texts at hand compare them as the search index does ([`QueryWord`]). The words of tickets and devices
//! are rows beside their records, in lower case and with their accents: they are compared with the ways in which a word of `q`
//! may be stored ([`StoredWord`]). Storing every spelling would mean more rows for each record, and writing all of them anew.

use std::collections::BTreeSet;
use std::fmt;

use kernel::base::RecordId;
use search_language::addresses::compact_mac_start;
use search_language::fold::{fold_text, tokenize_text};
use search_language::spellings::{join_words, split_word};
use search_language::text_words::QueryWord;

/// More words than this in `q` are a mistake.
pub const Q_WORDS_MAX: usize = 10;
pub const Q_CHARS_MAX: usize = 200;

/// The words of `q` for texts that are at hand.
pub fn parse_q(text: &str) -> Result<Vec<QueryWord>, String> {
    Ok(split_q(text)?.iter().filter_map(|word| QueryWord::parse(word)).collect())
}

/// The words of `q` for stored words.
pub fn parse_stored_q(text: &str) -> Result<Vec<StoredWord>, String> {
    Ok(split_q(text)?.into_iter().map(StoredWord::new).collect())
}

/// The parts of `q` between spaces. Punctuation that stands alone is ignored.
fn split_q(text: &str) -> Result<Vec<&str>, String> {
    let has_letters = |word: &&str| split_words(word).next().is_some();
    let words: Vec<&str> = text.split_whitespace().filter(has_letters).collect();
    if text.chars().count() > Q_CHARS_MAX || words.is_empty() || words.len() > Q_WORDS_MAX {
        return Err(format!("must be 1 to {Q_WORDS_MAX} words in at most {Q_CHARS_MAX} characters"));
    }
    Ok(words)
}

/// The words of a text in lower case, each once.
pub fn word_set(text: &str) -> BTreeSet<String> {
    split_words(text).collect()
}

/// The words of a text in lower case, in their order.
pub fn split_words(text: &str) -> impl Iterator<Item = String> {
    let parts = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    // Letter by letter: a prefix must not depend on the letters after it, and a sigma is one wherever it stands.
    let lower = |c: char| c.to_lowercase().map(|c| if c == 'ς' { 'σ' } else { c });
    parts.map(move |word| word.chars().flat_map(lower).collect())
}

/// A word of `q`, and the ways in which stored texts may have it: each is a row of words, the last of which is a prefix.
#[derive(Clone, Debug)]
pub struct StoredWord {
    written: String,
    rows: Vec<Vec<String>>,
}

impl StoredWord {
    /// As it is written, without accents, transcribed, with the umlauts of a transcription, each also in one word; and a name
    /// with a number in two (`web01` for `WEB-01`).
    pub fn new(written: &str) -> Self {
        let words: Vec<String> = split_words(written).collect();
        // The digits of a hardware address are no words to be joined.
        let is_address = compact_mac_start(written).is_some();
        let spellings: [fn(&str) -> String; 5] =
            [str::to_owned, fold_word, transcribe_word, restore_umlauts, restore_letters];
        let mut rows: Vec<Vec<String>> = Vec::new();
        for spell in spellings {
            let row: Vec<String> = words.iter().map(|word| spell(word)).collect();
            let joined = join_words(&row.iter().map(String::as_str).collect::<Vec<_>>()).filter(|_| !is_address);
            for row in [Some(row), joined.map(|joined| vec![joined])].into_iter().flatten() {
                if !rows.contains(&row) {
                    rows.push(row);
                }
            }
        }
        if let [word] = words.as_slice() {
            let splits = split_word(word).into_iter().filter(|split| split.is_at_number);
            rows.extend(splits.map(|split| vec![split.first.to_owned(), split.second.to_owned()]));
        }
        StoredWord { written: written.to_owned(), rows }
    }

    pub fn written(&self) -> &str {
        &self.written
    }

    /// The word as it is written comes first.
    pub fn rows(&self) -> &[Vec<String>] {
        &self.rows
    }

    /// Whether one of these texts has one of the rows.
    pub fn is_in_any(&self, texts: &[Vec<String>]) -> bool {
        self.rows.iter().any(|row| has_row(row, texts))
    }
}

/// Whether a text has these words in a row, the last as a prefix, such as `ann@acme` or `192.168.`.
fn has_row(row: &[String], texts: &[Vec<String>]) -> bool {
    let Some((last, before)) = row.split_last() else { return false };
    let is_row = |some: &[String]| {
        some.split_last().is_some_and(|(end, start)| start == before && end.starts_with(last.as_str()))
    };
    texts.iter().any(|text| text.windows(row.len()).any(is_row))
}

/// The word without accents, if it stays one word.
fn fold_word(word: &str) -> String {
    let folded = fold_text(word);
    if folded.chars().all(char::is_alphanumeric) { folded } else { word.to_owned() }
}

fn transcribe_word(word: &str) -> String {
    let transcribed = tokenize_text(word).into_iter().next().and_then(|token| token.transcribed);
    transcribed.unwrap_or_else(|| word.to_owned())
}

/// The umlauts that a transcription stands for.
fn restore_umlauts(word: &str) -> String {
    word.replace("ae", "ä").replace("oe", "ö").replace("ue", "ü")
}

/// The umlauts, and the `ß` that `ss` may stand for.
fn restore_letters(word: &str) -> String {
    restore_umlauts(word).replace("ss", "ß")
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
mod tests {
    use super::*;

    fn rows(word: &str) -> Vec<String> {
        StoredWord::new(word).rows().iter().map(|row| row.join(" ")).collect()
    }

    #[test]
    fn a_word_is_looked_for_in_every_way_that_it_may_be_stored() {
        for (word, expected) in [
            ("printer", &["printer"][..]),
            ("München", &["münchen", "munchen", "muenchen"]),
            ("Muenchen", &["muenchen", "münchen"]),
            ("Groesse", &["groesse", "grösse", "größe"]),
            ("WEB-01", &["web 01", "web01"]),
            ("web01", &["web01", "web 01"]),
            ("192.168.7", &["192 168 7"]),
            ("02:fc:0a", &["02 fc 0a"]),
            ("東京", &["東京"]),
        ] {
            assert_eq!(rows(word), expected, "{word}");
        }
    }

    #[test]
    fn the_last_word_of_a_row_is_a_prefix() {
        let texts = ["Office 365 licence", "srv-dc-01"].map(|text| split_words(text).collect::<Vec<_>>());
        for word in ["office365", "office36", "office-3", "lic", "srv-dc", "dc01", "dc-0"] {
            assert!(StoredWord::new(word).is_in_any(&texts), "{word}");
        }
        for word in ["ffice365", "office366", "365-office", "srv-01"] {
            assert!(!StoredWord::new(word).is_in_any(&texts), "{word}");
        }
    }

    #[test]
    fn punctuation_that_stands_alone_is_no_word() {
        let written =
            |q: &str| parse_stored_q(q).map(|words| words.iter().map(|word| word.written().to_owned()).collect());
        assert_eq!(written(" Smith & Sons - "), Ok(vec!["Smith".to_owned(), "Sons".to_owned()]));
        assert!(
            [" ", "-", &"a ".repeat(11), &"a".repeat(201)]
                .iter()
                .all(|q| parse_stored_q(q).is_err() && parse_q(q).is_err())
        );
    }
}
