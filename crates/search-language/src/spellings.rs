//! Words that people write together or apart, with umlauts or transcribed, in full or abbreviated.
//!
//! Stored texts have the words of a run without spaces joined beside them (`web01` beside `WEB` and `01`), queries are joined
//! and split as they are looked up. Numbers are never joined: `10.0.0.5` is not `10005`.

use super::fold::{TOKEN_BYTES_MAX, TextToken, stands_alone, tokenize_text};

/// The most words that are joined. Names have fewer; paths and lists in a log have more, and would fill an index.
const JOINED_WORDS_MAX: usize = 6;
/// The least characters of each part of a word that may be two words of letters.
const PART_CHARS_MIN: usize = 2;
/// Longer words are no two words that somebody has joined.
const SPLIT_BYTES_MAX: usize = 32;
/// The second part of a word may be the beginning of a word if it has as many characters, or digits. Shorter ones begin too
/// many words.
const PREFIX_CHARS_MIN: usize = 3;
const PREFIX_DIGITS_MIN: usize = 2;

/// A word of a text as it is looked up, and its position. Several words share a position if they are spellings of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedWord {
    pub position: usize,
    pub text: String,
}

/// A word of a text, or several in one word: the positions of its first and of its last part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpannedWord {
    pub first: usize,
    pub last: usize,
    pub text: String,
}

/// The words of a text in every spelling that they are found by, in the order of their positions. A joined word has the
/// positions of its first and of its last part, so that both neighbours are beside it.
pub fn placed_words(text: &str) -> Vec<PlacedWord> {
    let mut words = Vec::new();
    for SpannedWord { first, last, text } in spanned_words(text) {
        if first != last {
            words.push(PlacedWord { position: last, text: text.clone() });
        }
        words.push(PlacedWord { position: first, text });
    }
    words.sort_by_key(|word| word.position);
    words
}

/// The words of a text in every spelling that they are found by: folded, transcribed, and joined with their neighbours.
pub fn spanned_words(text: &str) -> Vec<SpannedWord> {
    let tokens = tokenize_text(text);
    let (mut joined, mut start) = (Vec::new(), 0);
    for (at, pair) in tokens.windows(2).enumerate() {
        if let [before, after] = pair
            && !is_one_run(text, before, after)
        {
            add_joined(tokens.get(start..=at).unwrap_or_default(), start, &mut joined);
            start = at + 1;
        }
    }
    add_joined(tokens.get(start..).unwrap_or_default(), start, &mut joined);
    let spans = place_tokens(tokens).into_iter();
    let spans = spans.map(|PlacedWord { position, text }| SpannedWord { first: position, last: position, text });
    spans.chain(joined).collect()
}

/// The words of an address, whose parts nobody writes together without the rest.
pub fn placed_parts(text: &str) -> Vec<PlacedWord> {
    place_tokens(tokenize_text(text))
}

fn place_tokens(tokens: Vec<TextToken>) -> Vec<PlacedWord> {
    let mut words = Vec::with_capacity(tokens.len());
    for (position, token) in tokens.into_iter().enumerate() {
        words.push(PlacedWord { position, text: token.text });
        words.extend(token.transcribed.map(|text| PlacedWord { position, text }));
    }
    words
}

/// Signs within a name. Others, as in paths and lists, separate names.
const JOINING_SIGNS: [&str; 7] = ["-", "\u{2010}", "\u{2011}", "'", "\u{2019}", "_", "."];

/// Whether two words in a row are parts of one name: one such sign stands between them, and they are not two numbers.
fn is_one_run(text: &str, before: &TextToken, after: &TextToken) -> bool {
    let between = text.get(before.end..after.start).unwrap_or_default();
    JOINING_SIGNS.contains(&between) && is_joinable(&before.text, &after.text)
}

/// Chinese and Japanese characters are found in a row anyway.
fn is_joinable(before: &str, after: &str) -> bool {
    let is_word = |word: &str| !word.chars().any(stands_alone);
    !are_numbers(before, after) && is_word(before) && is_word(after)
}

/// Whether two numbers would become another number if they were joined.
fn are_numbers(before: &str, after: &str) -> bool {
    before.ends_with(char::is_numeric) && after.starts_with(char::is_numeric)
}

fn add_joined(run: &[TextToken], start: usize, words: &mut Vec<SpannedWord>) {
    if run.len() < 2 {
        return;
    }
    let folded: Vec<&str> = run.iter().map(|token| token.text.as_str()).collect();
    let Some(joined) = join_words(&folded) else { return };
    let end = start + run.len() - 1;
    let transcribed = || join_words(&run.iter().map(transcribed_or_folded).collect::<Vec<_>>());
    let transcribed = if run.iter().any(|token| token.transcribed.is_some()) { transcribed() } else { None };
    for text in [Some(joined), transcribed].into_iter().flatten() {
        words.push(SpannedWord { first: start, last: end, text });
    }
}

fn transcribed_or_folded(token: &TextToken) -> &str {
    token.transcribed.as_deref().unwrap_or(&token.text)
}

/// Several words as one: `web01` of `web` and `01`. `None` if nobody would write them together.
pub fn join_words(words: &[&str]) -> Option<String> {
    let is_joinable = words.windows(2).all(|pair| matches!(pair, [before, after] if is_joinable(before, after)));
    if !(2..=JOINED_WORDS_MAX).contains(&words.len()) || !is_joinable {
        return None;
    }
    let mut joined = words.concat();
    joined.truncate(joined.floor_char_boundary(TOKEN_BYTES_MAX));
    Some(joined)
}

/// A word as two words in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WordSplit<'a> {
    pub first: &'a str,
    pub second: &'a str,
    /// Whether the second part may be the beginning of a word.
    pub is_prefix: bool,
    /// Whether a letter and a digit meet here, as in `office365`, where people leave the space out without a thought.
    pub is_at_number: bool,
}

/// The two words that a word may consist of: wherever a letter and a digit meet, or both parts are long enough. A number is
/// never split.
pub fn split_word(word: &str) -> Vec<WordSplit<'_>> {
    if word.len() > SPLIT_BYTES_MAX {
        return Vec::new();
    }
    let chars = word.chars().count();
    let mut splits = Vec::new();
    let mut before: Option<char> = None;
    for (index, (at, c)) in word.char_indices().enumerate() {
        let is_numeric = before.replace(c).is_some_and(char::is_numeric);
        let is_at_number = index > 0 && is_numeric != c.is_numeric();
        let is_long = index >= PART_CHARS_MIN && chars - index >= PART_CHARS_MIN;
        if is_at_number || is_long && !is_numeric {
            let (first, second) = word.split_at(at);
            let is_number = second.chars().all(char::is_numeric);
            let is_prefix = chars - index >= if is_number { PREFIX_DIGITS_MIN } else { PREFIX_CHARS_MIN };
            splits.push(WordSplit { first, second, is_prefix, is_at_number });
        }
    }
    splits
}

/// What an abbreviation stands for, as words in a row: `win11` is Windows 11, `o365` Office 365.
pub fn spell_out(word: &str) -> Vec<Vec<String>> {
    let digits_at = word.find(|c: char| c.is_ascii_digit()).unwrap_or(word.len());
    let (name, number) = word.split_at(digits_at);
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let names: &[&[&str]] = match name {
        "win" if number.len() == 4 => &[&["windows"], &["windows", "server"]],
        "win" => &[&["windows"]],
        "w" if ["7", "8", "10", "11"].contains(&number) => &[&["windows"]],
        "o" if number == "365" => &[&["office"]],
        "m" if number == "365" => &[&["microsoft"]],
        _ => &[],
    };
    let spelled = |name: &&[&str]| name.iter().chain(&[number]).map(|&word| word.to_owned()).collect();
    names.iter().filter(|_| is_number).map(spelled).collect()
}

/// What a name is compared by as a whole: its letters and digits, so that `WEB-01`, `web 01` and `Web01` are one name. A dot
/// stays between numbers. The second key is the transcribed one, if it differs.
pub fn name_keys(text: &str) -> Vec<String> {
    let tokens = tokenize_text(text);
    let join = |spelling: fn(&TextToken) -> &str| {
        let mut key = String::with_capacity(text.len());
        for word in tokens.iter().map(spelling) {
            if are_numbers(&key, word) {
                key.push('.');
            }
            key.push_str(word);
        }
        key
    };
    let transcribed = tokens.iter().any(|token| token.transcribed.is_some()).then(|| join(transcribed_or_folded));
    let folded = join(|token| token.text.as_str());
    [Some(folded).filter(|key| !key.is_empty()), transcribed].into_iter().flatten().collect()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::super::random::TestRandom;
    use super::*;

    fn place(text: &str) -> Vec<(usize, String)> {
        placed_words(text).into_iter().map(|word| (word.position, word.text)).collect()
    }

    fn joined_of(text: &str) -> Vec<String> {
        let own: Vec<String> = tokenize_text(text).into_iter().map(|token| token.text).collect();
        let mut joined: Vec<String> = place(text).into_iter().map(|(_, word)| word).collect();
        joined.retain(|word| !own.contains(word));
        joined.dedup();
        joined
    }

    #[test]
    fn the_words_of_a_run_are_there_together_and_apart() {
        let expected = [(0, "the"), (1, "web"), (1, "web01"), (2, "01"), (2, "web01"), (3, "is")];
        assert_eq!(place("The WEB-01 is"), expected.map(|(position, word)| (position, word.to_owned())));
        for (text, joined) in [
            ("SRV-DC-01", &["srvdc01"][..]),
            ("Wi-Fi, e-mail", &["wifi", "email"]),
            ("O'Neill's", &["oneills"]),
            ("7-Zip", &["7zip"]),
            ("Anna.Keller@acme.test", &["annakeller", "acmetest"]),
            ("10.0.0.5", &[]),
            ("2026-11-18", &[]),
            ("web-01.10-x", &["web01", "10x"]),
            ("blue screen", &[]),
            ("a - b, c", &[]),
            ("a...b", &[]),
            ("東京-大阪", &[]),
            ("Outlook/E-Mail", &["email"]),
            ("a.b.c.d.e.f.g", &[]),
        ] {
            let found = joined_of(text);
            assert_eq!(found.iter().map(String::as_str).collect::<Vec<_>>(), joined, "{text}");
        }
        let expected = ["munchen", "muenchen", "munchenost", "muenchenost", "ost", "munchenost", "muenchenost"];
        let words: Vec<String> = place("München-Ost").into_iter().map(|(_, word)| word).collect();
        assert_eq!(words, expected);
    }

    #[test]
    fn a_word_is_split_where_two_words_may_meet() {
        let splits = |word: &'static str| -> Vec<(&str, &str, bool)> {
            split_word(word).into_iter().map(|split| (split.first, split.second, split.is_prefix)).collect()
        };
        assert!(splits("office365").contains(&("office", "365", true)));
        assert_eq!(splits("7zip"), [("7", "zip", true), ("7z", "ip", false)]);
        assert_eq!(splits("web0"), [("we", "b0", false), ("web", "0", false)]);
        assert!(splits("web01").contains(&("web", "01", true)));
        assert_eq!(splits("x11"), [("x", "11", true)]);
        assert!(splits("thinkpadx1").contains(&("thinkpad", "x1", false)));
        assert_eq!(splits("wifi"), [("wi", "fi", false)]);
        assert_eq!(splits("login"), [("lo", "gin", true), ("log", "in", false)]);
        assert!(splits("bluescreen").contains(&("blue", "screen", true)));
        for word in ["", "a", "lan", "123456", "東"] {
            assert!(split_word(word).is_empty(), "{word}");
        }
        assert!(split_word(&"a".repeat(SPLIT_BYTES_MAX + 1)).is_empty());
    }

    #[test]
    fn abbreviations_are_spelt_out() {
        for (word, expected) in [
            ("win11", &["windows 11"][..]),
            ("win2022", &["windows 2022", "windows server 2022"]),
            ("w10", &["windows 10"]),
            ("o365", &["office 365"]),
            ("m365", &["microsoft 365"]),
            ("win", &[]),
            ("w1", &[]),
            ("win11a", &[]),
            ("web01", &[]),
        ] {
            let found: Vec<String> = spell_out(word).iter().map(|words| words.join(" ")).collect();
            assert_eq!(found, expected, "{word}");
        }
    }

    #[test]
    fn a_name_has_the_same_key_however_it_is_written() {
        for (text, keys) in [
            ("WEB-01", &["web01"][..]),
            ("web 01", &["web01"]),
            ("Web01", &["web01"]),
            ("10.0.0.5", &["10.0.0.5"]),
            ("Bäckerei Müller", &["backereimuller", "baeckereimueller"]),
            ("Baeckerei Mueller", &["baeckereimueller"]),
            (" & ", &[]),
        ] {
            assert_eq!(name_keys(text), keys, "{text}");
        }
    }

    #[test]
    fn any_text_has_its_words_in_order_and_none_is_too_long() {
        let mut random = TestRandom::new(7);
        for _ in 0..5_000 {
            let text = random.random_text(&["a", "B1", "9", "-", ".", " ", "ü", "東", "½", "e\u{301}", "_"], 30);
            let (words, tokens) = (placed_words(&text), tokenize_text(&text));
            assert!(words.is_sorted_by_key(|word| word.position), "{text:?}");
            for (position, token) in tokens.iter().enumerate() {
                assert!(words.contains(&PlacedWord { position, text: token.text.clone() }), "{text:?}");
            }
            assert_eq!(words.last().map(|word| word.position), tokens.len().checked_sub(1), "{text:?}");
            assert!(words.iter().all(|word| word.text.len() <= TOKEN_BYTES_MAX), "{text:?}");
            for split in split_word(&text.chars().filter(|c| c.is_alphanumeric()).collect::<String>()) {
                assert!(!split.first.is_empty() && !split.second.is_empty(), "{text:?}");
            }
        }
        assert_eq!(placed_words("").len(), 0);
        assert_eq!(join_words(&["a".repeat(60).as_str(), "é".repeat(60).as_str()]).unwrap().len(), TOKEN_BYTES_MAX);
    }
}
