//! Terms of list filters: the words of `q`, and ids that may be `none`.
//!
//! The search index folds more than `split_words`: accents, compatibility forms, Han by character. Words of lists are rows
//! beside their records, so folding them in the same way would mean writing all of them anew.

use std::collections::BTreeSet;
use std::fmt;

use kernel::base::RecordId;

/// More words than this in `q` are a mistake.
pub const Q_WORDS_MAX: usize = 10;
pub const Q_CHARS_MAX: usize = 200;

/// The words of `q`, as they were written.
pub fn parse_q(text: &str) -> Result<Vec<String>, String> {
    let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
    let have_letters = words.iter().all(|word| split_words(word).next().is_some());
    if text.chars().count() > Q_CHARS_MAX || words.is_empty() || words.len() > Q_WORDS_MAX || !have_letters {
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

/// Whether a word of `q` is a prefix of a word in any of these texts, or of consecutive words such as `ann@acme` or
/// `192.168.`.
pub fn is_word_prefix(word: &str, texts: &[Vec<String>]) -> bool {
    let parts: Vec<String> = split_words(word).collect();
    let Some((last, before)) = parts.split_last() else { return false };
    let in_a_row = |some: &[String]| {
        some.split_last().is_some_and(|(end, start)| start == before && end.starts_with(last.as_str()))
    };
    texts.iter().any(|text| text.windows(parts.len()).any(in_a_row))
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
