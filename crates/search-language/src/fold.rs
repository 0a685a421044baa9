//! Folds text for comparison and splits it into tokens, so that words that look the same to people compare equal. Stored
//! text and queries must go through the same functions.
//!
//! Nothing here depends on a language: there are no stems, no stop words, and no dictionary for scripts without spaces.
//! Thai, Lao and Khmer are therefore found by the beginning of a run only.

use std::collections::VecDeque;

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::{canonical_combining_class, compose, is_combining_mark};

/// The longest token kept. Words are shorter; longer runs are encoded data, which would fill an index and are found by
/// their beginning.
pub const TOKEN_BYTES_MAX: usize = 64;

/// A word of a text, and its byte range in the original. Two tokens share a range where one character stands for several
/// words, as `½` does for `1` and `2`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextToken {
    /// Folded, and at most [`TOKEN_BYTES_MAX`] long.
    pub text: String,
    /// The same with its umlauts transcribed (`muenchen` where `text` is `munchen`), if it has any.
    pub transcribed: Option<String>,
    /// `start` and `end` are byte offsets in the original, at character boundaries. They span the whole word even if `text`
    /// is truncated.
    pub start: usize,
    pub end: usize,
}

/// Folds what people leave out or write differently: compatibility forms (NFKC), case, diacritics and invisible characters.
/// Folding is idempotent.
///
/// Each character is folded by itself: a prefix must not depend on what follows it, and every piece must keep its
/// position. So all forms of sigma fold to one. `ß` becomes `ss`, as it does in capitals; letters with a stroke and
/// ligatures, which Unicode does not decompose, become what people without such a key type (`ø` o, `ł` l, `æ` ae, `ı` i).
pub fn fold_text(text: &str) -> String {
    let mut folded = String::with_capacity(text.len());
    for c in text.chars() {
        fold_char(c, |part| {
            if let FoldedPart::Letter(c) = part {
                push_composed(&mut folded, c);
            }
        });
    }
    folded
}

/// Folds a whole value for comparison, with single spaces.
pub fn fold_value(text: &str) -> String {
    let folded = fold_text(text);
    let words: Vec<&str> = folded.split_whitespace().collect();
    words.join(" ")
}

/// The words of a text in order: runs of letters and digits. Han, Hiragana and Katakana have no spaces between words, so
/// each of their characters is a token of its own, and several in a row are found like a phrase.
pub fn tokenize_text(text: &str) -> Vec<TextToken> {
    TextTokens::new(text).collect()
}

/// The lazy form of [`tokenize_text`]: it reads no further than the word after the requested one.
pub struct TextTokens<'a> {
    text: &'a str,
    at: usize,
    cutter: TokenCutter,
}

impl<'a> TextTokens<'a> {
    pub fn new(text: &'a str) -> Self {
        Self { text, at: 0, cutter: TokenCutter::default() }
    }

    /// The fast path for ASCII: the next word, if every byte up to its end is ASCII and so folds to one character.
    fn next_plain(&mut self) -> Option<TextToken> {
        let rest = self.text.as_bytes().get(self.at..)?;
        let start = rest.iter().position(|byte| byte.is_ascii_alphanumeric() || !byte.is_ascii())?;
        let from_start = rest.get(start..)?;
        let len = from_start.iter().position(|byte| !byte.is_ascii_alphanumeric()).unwrap_or(from_start.len());
        if len == 0 || from_start.get(len).is_some_and(|byte| !byte.is_ascii()) {
            return None;
        }
        let (start, end) = (self.at + start, self.at + start + len);
        self.at = end;
        let text = self.text.get(start..end.min(start + TOKEN_BYTES_MAX))?.to_ascii_lowercase();
        Some(TextToken { text, transcribed: None, start, end })
    }
}

impl Iterator for TextTokens<'_> {
    type Item = TextToken;

    fn next(&mut self) -> Option<TextToken> {
        if self.cutter.is_empty()
            && let Some(token) = self.next_plain()
        {
            return Some(token);
        }
        // The last token may still grow.
        while !self.cutter.is_complete() {
            let Some(c) = self.text.get(self.at..).and_then(|rest| rest.chars().next()) else { break };
            let start = self.at;
            self.at += c.len_utf8();
            self.cutter.push_char(c, start, self.at);
        }
        self.cutter.tokens.pop_front()
    }
}

/// What may still be added to the last token.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum LastToken {
    #[default]
    Nothing,
    /// Marks: it is a character that stands alone.
    Marks,
    Letters,
}

/// Collects folded characters into tokens. The last token may still grow.
#[derive(Default)]
struct TokenCutter {
    tokens: VecDeque<TextToken>,
    last: LastToken,
    /// Whether the last token was truncated, so that no short character is appended after a long one was dropped; and the
    /// same of its transcription.
    is_full: bool,
    is_transcription_full: bool,
}

impl TokenCutter {
    fn is_empty(&self) -> bool {
        self.tokens.is_empty() && self.last == LastToken::Nothing
    }

    /// Whether the first token can no longer grow.
    fn is_complete(&self) -> bool {
        match self.tokens.len() {
            0 => false,
            1 => self.last == LastToken::Nothing,
            _ => true,
        }
    }

    /// Adds the next character of the text.
    fn push_char(&mut self, c: char, start: usize, end: usize) {
        let mut is_seen = false;
        fold_char(c, |part| match part {
            FoldedPart::Letter(c) => {
                is_seen = true;
                self.push_folded(c, start, end);
            }
            FoldedPart::Mark(mark) => self.transcribe_last(mark),
        });
        if !is_seen {
            self.extend_last(end);
        }
    }

    fn push_folded(&mut self, c: char, start: usize, end: usize) {
        if !c.is_alphanumeric() {
            self.last = LastToken::Nothing;
            return;
        }
        let stands_alone = stands_alone(c);
        match self.tokens.back_mut() {
            Some(token) if self.last == LastToken::Letters && !stands_alone => {
                token.end = end;
                self.is_full = self.is_full || !push_within(&mut token.text, c);
                if let Some(transcribed) = &mut token.transcribed {
                    self.is_transcription_full = self.is_transcription_full || !push_within(transcribed, c);
                }
            }
            _ => {
                self.tokens.push_back(TextToken { text: c.to_string(), transcribed: None, start, end });
                (self.is_full, self.is_transcription_full) = (false, false);
            }
        }
        self.last = if stands_alone { LastToken::Marks } else { LastToken::Letters };
    }

    /// Adds what a transcription writes for a mark on the last letter: `e` for the dots of `ü`.
    fn transcribe_last(&mut self, mark: char) {
        let Some(token) = self.tokens.back_mut().filter(|_| self.last != LastToken::Nothing && !self.is_full) else {
            return;
        };
        let Some(added) = token.text.chars().next_back().and_then(|letter| transcribe_mark(letter, mark)) else {
            return;
        };
        let transcribed = token.transcribed.get_or_insert_with(|| token.text.clone());
        self.is_transcription_full = self.is_transcription_full || !push_within(transcribed, added);
    }

    /// A dropped mark still belongs to the word before it, or a highlight would end between the two.
    fn extend_last(&mut self, end: usize) {
        if let Some(token) = self.tokens.back_mut().filter(|_| self.last != LastToken::Nothing) {
            token.end = end;
        }
    }
}

/// False if the token is full.
fn push_within(text: &mut String, c: char) -> bool {
    push_composed(text, c);
    let fits = text.len() <= TOKEN_BYTES_MAX;
    if !fits {
        text.pop();
    }
    fits
}

/// Adds a character and composes Hangul syllables: decomposed, each would be three characters and nine bytes.
fn push_composed(text: &mut String, c: char) {
    let is_later_jamo = ('\u{1161}'..='\u{11c2}').contains(&c);
    let before = text.chars().next_back().filter(|_| is_later_jamo);
    match before.and_then(|before| compose(before, c)) {
        Some(syllable) => {
            text.pop();
            text.push(syllable);
        }
        None => text.push(c),
    }
}

/// A part of a folded character.
enum FoldedPart {
    Letter(char),
    /// A mark on the letter before it, which folding drops.
    Mark(char),
}

/// Folds one character to none, one or several letters, and the marks on them.
fn fold_char(c: char, mut each: impl FnMut(FoldedPart)) {
    if c.is_ascii() {
        each(FoldedPart::Letter(c.to_ascii_lowercase()));
        return;
    }
    for part in std::iter::once(c).nfkd() {
        if is_dropped(part) {
            each(FoldedPart::Mark(part));
            continue;
        }
        for c in part.to_lowercase() {
            match plain_letters(c) {
                Some(letters) => letters.chars().map(FoldedPart::Letter).for_each(&mut each),
                None => each(FoldedPart::Letter(c)),
            }
            if c == 'ø' {
                each(FoldedPart::Mark(STROKE));
            }
        }
    }
}

const DIAERESIS: char = '\u{308}';
const RING: char = '\u{30a}';
/// The stroke of `ø`, which Unicode does not treat as a mark.
const STROKE: char = '\u{338}';

/// The letter that people add who have no key for a letter with this mark: `ü` ue, `ø` oe, `å` aa.
fn transcribe_mark(letter: char, mark: char) -> Option<char> {
    match (letter, mark) {
        ('a' | 'o' | 'u', DIAERESIS) | ('o', STROKE) => Some('e'),
        ('a', RING) => Some('a'),
        _ => None,
    }
}

/// What people without such a key type for a letter; `None` if the letter is plain.
fn plain_letters(c: char) -> Option<&'static str> {
    let letters = match c {
        'ß' => "ss",
        'æ' => "ae",
        'œ' => "oe",
        'þ' => "th",
        'ø' => "o",
        'đ' | 'ð' => "d",
        'ħ' => "h",
        'ı' => "i",
        'ł' => "l",
        'ŧ' => "t",
        'ς' => "σ",
        _ => return None,
    };
    Some(letters)
}

/// Diacritics, and invisible characters that are copied along: soft hyphens, joiners, and the direction marks that Windows
/// puts in front of a serial or a thumbprint.
fn is_dropped(c: char) -> bool {
    match c {
        '\u{ad}'
        | '\u{200c}'..='\u{200f}'
        | '\u{202a}'..='\u{202e}'
        | '\u{2060}'
        | '\u{2066}'..='\u{2069}'
        | '\u{feff}' => true,
        _ => is_combining_mark(c) && !is_vowel_sign(c),
    }
}

/// In the scripts of India and its neighbours vowels are marks, and a word without them is another word. These marks have
/// combining class 0 or one specific to their script. The points of Hebrew and Arabic, which people leave out, have lower
/// classes, and accents have higher ones.
fn is_vowel_sign(c: char) -> bool {
    c.is_alphanumeric() && matches!(canonical_combining_class(c), 0 | 84..200)
}

/// Han, Hiragana and Katakana, each character of which is a token.
pub fn stands_alone(c: char) -> bool {
    matches!(c, '\u{2e80}'..='\u{2fdf}' | '\u{3005}'..='\u{3007}' | '\u{3021}'..='\u{30ff}' | '\u{31f0}'..='\u{31ff}'
        | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{1aff0}'..='\u{1b16f}'
        | '\u{20000}'..='\u{3ffff}')
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::super::random::TestRandom;
    use super::*;

    const PIECES: [&str; 24] = [
        "a",
        "Z",
        "9",
        " ",
        "-",
        "ß",
        "É",
        "e\u{301}",
        "\u{301}",
        "ﬁ",
        "½",
        "İ",
        "Σς",
        "東",
        "カ\u{3099}",
        "한",
        "\u{1112}",
        "\u{1161}",
        "\u{11ab}",
        "कि",
        "\u{200e}",
        "😀\u{fe0f}",
        "㍻",
        "㈱",
    ];

    fn token_texts(text: &str) -> Vec<String> {
        tokenize_text(text).into_iter().map(|token| token.text).collect()
    }

    #[test]
    fn what_looks_the_same_folds_to_the_same() {
        for (text, folded) in [
            ("Zürich", "zurich"),
            ("ZU\u{308}RICH", "zurich"),
            ("Straße STRASSE STRAẞE", "strasse strasse strasse"),
            ("ＳＲＶ－０１", "srv-01"),
            ("ﬁle №², ㎏", "file no2, kg"),
            ("İstanbul ISPARTA ısparta", "istanbul isparta isparta"),
            ("Søren Łódź Þór Æsir", "soren lodz thor aesir"),
            ("ΟΔΟΣ οδός", "οδοσ οδοσ"),
            ("\u{200e}7Q\u{ad}X", "7qx"),
            ("ﾊﾞ バ", "ハ ハ"),
            ("שָׁלוֹם", "שלום"),
            ("हिन्दी", "हिनदी"),
            ("한국 \u{1112}\u{1161}\u{11ab}\u{1100}\u{116e}\u{11a8}", "한국 한국"),
        ] {
            assert_eq!(fold_text(text), folded, "{text}");
        }
    }

    #[test]
    fn every_character_folds_once_and_for_all() {
        // Unicode assigns nothing between the third plane and the fourteenth.
        for c in (0..0x4_0000).chain(0xe_0000..0xe_1000).filter_map(char::from_u32) {
            let folded = fold_text(&c.to_string());
            assert_eq!(fold_text(&folded), folded, "{c:?}");
        }
    }

    #[test]
    fn a_text_is_cut_into_words() {
        for (text, expected) in [
            ("", vec![]),
            (" -- ", vec![]),
            ("Anna@Acme.test", vec!["anna", "acme", "test"]),
            ("web_01 (old)", vec!["web", "01", "old"]),
            ("東京サ2号", vec!["東", "京", "サ", "2", "号"]),
            ("서버 이름", vec!["서버", "이름"]),
            ("5½", vec!["51", "2"]),
        ] {
            assert_eq!(token_texts(text), expected, "{text}");
        }
    }

    #[test]
    fn a_token_is_cut_when_it_is_asked_for() {
        let text = "one, two\u{301} three".repeat(1_000);
        let mut tokens = TextTokens::new(&text);
        assert_eq!(tokens.next().unwrap().text, "one");
        assert_eq!(tokens.at, "one".len());
        assert_eq!(&text[5..tokens.next().unwrap().end], "two\u{301}");
        let mut no_tokens = TextTokens::new(" - ");
        assert_eq!((no_tokens.next(), no_tokens.next()), (None, None));
    }

    /// The fast path for ASCII must give the same tokens.
    #[test]
    fn plain_text_is_cut_as_all_else() {
        let mut random = TestRandom::new(5);
        for _ in 0..10_000 {
            let text = random
                .random_text(&["a", "B", "9", " ", "-", "é", "e\u{301}", "½", "東", "\u{ad}", "x\u{200d}", "ß"], 12);
            let mut cutter = TokenCutter::default();
            for (start, c) in text.char_indices() {
                cutter.push_char(c, start, start + c.len_utf8());
            }
            assert_eq!(tokenize_text(&text), Vec::from(cutter.tokens), "{text:?}");
        }
        let long = "Ab9".repeat(TOKEN_BYTES_MAX);
        assert_eq!(tokenize_text(&long)[0].text.len(), TOKEN_BYTES_MAX);
    }

    #[test]
    fn a_token_knows_where_it_stood() {
        let text = "«Cafe\u{301}» ﬁn";
        let slices: Vec<&str> = tokenize_text(text).iter().map(|token| &text[token.start..token.end]).collect();
        assert_eq!(slices, ["Cafe\u{301}", "ﬁn"]);
    }

    #[test]
    fn a_long_token_is_cut_at_a_character() {
        let text = format!("{}é{} next", "a".repeat(TOKEN_BYTES_MAX - 1), "я".repeat(50));
        let found = tokenize_text(&text);
        assert_eq!(found[0].text, format!("{}e", "a".repeat(TOKEN_BYTES_MAX - 1)));
        assert_eq!(&text[found[0].end..], " next");
        assert_eq!(token_texts(&format!("{}яa", "a".repeat(TOKEN_BYTES_MAX - 1))), ["a".repeat(TOKEN_BYTES_MAX - 1)]);
        assert_eq!(token_texts(&"각".repeat(40)), ["각".repeat(21)]);
    }

    #[test]
    fn umlauts_are_transcribed_too() {
        for (text, transcribed) in [
            ("München", Some("muenchen")),
            ("MU\u{308}NCHEN", Some("muenchen")),
            ("Größenänderung", Some("groessenaenderung")),
            ("Søren", Some("soeren")),
            ("Ångström", Some("aangstroem")),
            ("naïve Noël Łódź Straße Muenchen", None),
            ("ё", None),
        ] {
            let tokens = tokenize_text(text);
            assert_eq!(tokens[0].transcribed.as_deref(), transcribed, "{text}");
            assert!(tokens[1..].iter().all(|token| token.transcribed.is_none()), "{text}");
        }
        let long = format!("{}ü{}", "a".repeat(TOKEN_BYTES_MAX - 2), "яb".repeat(9));
        let transcribed = tokenize_text(&long)[0].transcribed.clone().unwrap();
        assert_eq!(transcribed, format!("{}ue", "a".repeat(TOKEN_BYTES_MAX - 2)));
        assert_eq!(tokenize_text(&format!("{}ü", "a".repeat(TOKEN_BYTES_MAX)))[0].transcribed, None);
    }

    #[test]
    fn any_text_folds_once_and_its_tokens_lie_within_it() {
        let mut random = TestRandom::new(1);
        for _ in 0..5_000 {
            let text = random.random_text(&PIECES, 30);
            let folded = fold_text(&text);
            assert_eq!(fold_text(&folded), folded, "{text:?}");
            assert_eq!(token_texts(&folded), token_texts(&text), "{text:?}");
            for token in tokenize_text(&text) {
                let slice = &text[token.start..token.end];
                let (first, folded) = (slice.chars().next().unwrap(), fold_text(slice));
                // A character that stands for several words folds to the first of them, or to a bracket before it.
                let is_several = fold_text(&first.to_string()).chars().count() > 1;
                assert!(folded.starts_with(&token.text) || is_several && folded.contains(&token.text), "{text:?}");
                assert!(!token.text.is_empty() && token.text.len() <= TOKEN_BYTES_MAX, "{text:?}");
            }
        }
    }
}
