//! Compares words of a query with a text that is at hand, as lists do with their `q`. The rules are those of the search
//! index, without typos.

use super::fold::tokenize_text;
use super::spellings::{join_words, placed_words, spell_out, split_word};

/// The words of a text, in every spelling, by position.
#[derive(Clone, Debug)]
pub struct TextWords {
    places: Vec<Vec<String>>,
}

impl TextWords {
    pub fn new(text: &str) -> Self {
        let mut places: Vec<Vec<String>> = Vec::new();
        for word in placed_words(text) {
            places.resize_with(places.len().max(word.position + 1), Vec::new);
            if let Some(place) = places.get_mut(word.position) {
                place.push(word.text);
            }
        }
        TextWords { places }
    }

    /// Whether the text has these words in a row.
    fn has_row(&self, row: &WordRow) -> bool {
        let Some((last, before)) = row.words.split_last() else { return false };
        let is_row = |places: &[Vec<String>]| {
            let Some((end, leading)) = places.split_last() else { return false };
            let is_end = |word: &String| if row.is_prefix { word.starts_with(last.as_str()) } else { word == last };
            leading.iter().zip(before).all(|(place, word)| place.contains(word)) && end.iter().any(is_end)
        };
        self.places.windows(row.words.len()).any(is_row)
    }
}

/// Words in a row, the last whole or as a prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
struct WordRow {
    words: Vec<String>,
    is_prefix: bool,
}

/// A word of a query, which may have several parts such as `ann@acme` or `192.168.`, in every way that it may be written.
#[derive(Clone, Debug)]
pub struct QueryWord {
    rows: Vec<WordRow>,
}

impl QueryWord {
    /// `None` if the word has neither letters nor digits.
    pub fn parse(word: &str) -> Option<Self> {
        let tokens = tokenize_text(word);
        let folded: Vec<String> = tokens.iter().map(|token| token.text.clone()).collect();
        let transcribed = tokens.iter().map(|token| token.transcribed.clone().unwrap_or_else(|| token.text.clone()));
        let transcribed: Vec<String> = transcribed.collect();
        let mut rows: Vec<WordRow> = Vec::new();
        for words in [folded, transcribed] {
            add_rows(&words, &mut rows);
        }
        (!tokens.is_empty()).then_some(QueryWord { rows })
    }

    /// Whether one of the texts has the word, or a word that begins with it.
    pub fn is_in_any(&self, texts: &[TextWords]) -> bool {
        self.rows.iter().any(|row| texts.iter().any(|text| text.has_row(row)))
    }
}

fn add_rows(words: &[String], rows: &mut Vec<WordRow>) {
    let row = |words: &[&str], is_prefix: bool| WordRow {
        words: words.iter().map(|&word| word.to_owned()).collect(),
        is_prefix,
    };
    let parts: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut added = vec![row(&parts, true)];
    added.extend(join_words(&parts).map(|joined| row(&[&joined], true)));
    if let [word] = parts.as_slice() {
        added.extend(split_word(word).iter().map(|split| row(&[split.first, split.second], split.is_prefix)));
        added.extend(spell_out(word).into_iter().map(|words| WordRow { words, is_prefix: true }));
    }
    added.retain(|row| !rows.contains(row));
    rows.extend(added);
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
            ("blues", "blue screen"),
        ] {
            assert!(!is_found(word, text), "{word} in {text}");
        }
        assert!(QueryWord::parse("-").is_none());
    }
}
