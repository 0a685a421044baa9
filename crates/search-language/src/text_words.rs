//! Compares words of a query with a text that is at hand, as lists do with their `q`. The rules are those of the search
//! index, without typos.

use super::addresses::compact_mac_start;
use super::fold::tokenize_text;
use super::spellings::{SpannedWord, join_words, spanned_words, spell_out, split_word};

/// The words of a text, in every spelling, by the position of their first part.
#[derive(Clone, Debug)]
pub struct TextWords {
    places: Vec<Vec<SpannedWord>>,
}

impl TextWords {
    pub fn new(text: &str) -> Self {
        let mut places: Vec<Vec<SpannedWord>> = Vec::new();
        for word in spanned_words(text) {
            places.resize_with(places.len().max(word.first + 1), Vec::new);
            if let Some(place) = places.get_mut(word.first) {
                place.push(word);
            }
        }
        TextWords { places }
    }

    /// Every spelling of every word.
    pub fn words(&self) -> impl Iterator<Item = &String> {
        self.places.iter().flatten().map(|word| &word.text)
    }

    /// Whether a word of the text begins so.
    pub fn has_start(&self, start: &str) -> bool {
        self.words().any(|word| word.starts_with(start))
    }

    /// Whether the text has these words in a row, the last as a prefix.
    fn has_row(&self, row: &[String]) -> bool {
        (0..self.places.len()).any(|at| self.has_row_at(at, row))
    }

    fn has_row_at(&self, at: usize, row: &[String]) -> bool {
        let (Some(place), Some((word, rest))) = (self.places.get(at), row.split_first()) else { return false };
        place.iter().any(|own| match rest {
            [] => own.text.starts_with(word.as_str()),
            rest => own.text == *word && self.has_row_at(own.last + 1, rest),
        })
    }
}

/// A word of a query, which may have several parts such as `ann@acme` or `192.168.`, in every way that it may be written.
#[derive(Clone, Debug)]
pub struct QueryWord {
    rows: Vec<Vec<String>>,
    /// The words of each part between signs.
    parts: Vec<Vec<String>>,
}

impl QueryWord {
    /// `None` if the word has neither letters nor digits.
    pub fn parse(word: &str) -> Option<Self> {
        let tokens = tokenize_text(word);
        let folded: Vec<String> = tokens.iter().map(|token| token.text.clone()).collect();
        let transcribed = tokens.iter().map(|token| token.transcribed.clone().unwrap_or_else(|| token.text.clone()));
        let transcribed: Vec<String> = transcribed.collect();
        // The digits of a hardware address are no words to be joined.
        let is_address = compact_mac_start(word).is_some();
        let mut rows: Vec<Vec<String>> = Vec::new();
        for words in [folded, transcribed] {
            add_rows(words, is_address, &mut rows);
        }
        let words_of = |part: &str| tokenize_text(part).into_iter().map(|token| token.text).collect::<Vec<_>>();
        let parts = word.split(|c: char| !c.is_alphanumeric()).map(words_of).filter(|part| !part.is_empty());
        (!tokens.is_empty()).then(|| QueryWord { rows, parts: parts.collect() })
    }

    /// Words in a row, the last of which is a prefix. The word as it is written comes first.
    pub fn rows(&self) -> &[Vec<String>] {
        &self.rows
    }

    /// Whether one of the texts has the word, or a word that begins with it.
    pub fn is_in_any(&self, texts: &[TextWords]) -> bool {
        self.rows.iter().any(|row| texts.iter().any(|text| text.has_row(row)))
    }

    /// Whether every part of the word begins a word of the text, wherever it is. Chinese and Japanese characters stand in a
    /// row.
    pub fn has_parts_in(&self, text: &TextWords) -> bool {
        self.parts.iter().all(|part| text.has_row(part))
    }
}

/// The words as they are, in one word, and a name with a number in two (`web01` for `WEB 01`). Other words that may be two
/// (`bluescreen`) are left to the search index: a list would look up every half of every word.
fn add_rows(words: Vec<String>, is_address: bool, rows: &mut Vec<Vec<String>>) {
    let mut added = Vec::new();
    let parts: Vec<&str> = words.iter().map(String::as_str).collect();
    added.extend(join_words(&parts).filter(|_| !is_address).map(|joined| vec![joined]));
    if let [word] = parts.as_slice() {
        let splits: Vec<_> = split_word(word).into_iter().filter(|split| split.is_at_number).collect();
        let outer = [splits.first(), splits.last()].into_iter().flatten();
        added.extend(outer.map(|split| vec![split.first.to_owned(), split.second.to_owned()]));
        added.extend(spell_out(word));
    }
    for row in std::iter::once(words).chain(added) {
        if !rows.contains(&row) {
            rows.push(row);
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn is_found(word: &str, text: &str) -> bool {
        QueryWord::parse(word).unwrap().is_in_any(&[TextWords::new("other"), TextWords::new(text)])
    }

    #[test]
    fn a_word_is_found_however_it_is_written() {
        for (word, text) in [
            ("prin", "The Printer"),
            ("web01", "WEB-01"),
            ("web-01", "WEB01"),
            ("web-0", "web 01"),
            ("srvdc", "SRV-DC-01"),
            ("office365", "Office 365"),
            ("win11", "Windows 11 Pro"),
            ("muenchen", "München"),
            ("münchen", "Muenchen"),
            ("munchen", "München"),
            ("strasse", "Straße"),
            ("oneill", "Ann O'Neill"),
            ("ann@acme", "ann@acme.test"),
            ("192.168.", "192.168.7.10"),
            ("東京", "東京オフィス"),
        ] {
            assert!(is_found(word, text), "{word} in {text}");
        }
        for (word, text) in [
            ("rinter", "Printer"),
            ("01-web", "WEB-01"),
            ("web02", "WEB-01"),
            ("19.168", "192.168.7.10"),
            ("10005", "10.0.0.5"),
            ("acme.web01", "web01.acme.test"),
            ("blues", "blue screen"),
        ] {
            assert!(!is_found(word, text), "{word} in {text}");
        }
        assert!(QueryWord::parse("-").is_none());
        let has_parts = |word: &str, text: &str| QueryWord::parse(word).unwrap().has_parts_in(&TextWords::new(text));
        assert!(has_parts("screen-blue", "a blue screen") && has_parts("東京", "株式会社東京商事"));
        assert!(!has_parts("大京", "大阪 東京") && !has_parts("東東", "東京"));
    }
}
