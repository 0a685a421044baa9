//! Marks the words of a query in the texts of a hit: single words wherever they match, phrases where all their words are
//! adjacent, both in every spelling that is found.

use std::cell::OnceCell;
use std::cmp::Reverse;

use levenshtein_automata::DFA;
use search_language::fold::TextToken;
use search_language::highlight::render_snippet;
use search_language::spellings::{join_words, spell_out, split_word};
use search_language::typos::{allowed_typos, starts_may_have_typos};
use search_language::{Clause, ParsedQuery, Words};

use super::super::Highlight;
use super::words::{edit_distance, typo_automaton};

/// The most highlights of one hit, and about how long each is.
const HIGHLIGHTS_MAX: usize = 3;
const SNIPPET_CHARS_MAX: usize = 160;
/// How much text is scanned for one answer, some ten milliseconds in all. Two hundred hits with a page of text each have
/// less. Beyond it long texts are skipped, so that the names of further hits are still marked.
const TEXT_BYTES_MAX: usize = 1 << 20;
/// The field that is also found by its end, and the shortest end.
const SERIAL_FIELD: &str = "serial_number";
const SERIAL_END_CHARS_MIN: usize = 4;

/// Finds the words of a query in texts.
pub struct Highlighter {
    matchers: Vec<ClauseMatcher>,
    /// How much more text may be scanned.
    remaining_bytes: usize,
}

impl Highlighter {
    pub fn for_query(query: &ParsedQuery) -> Self {
        let texts: Vec<&Clause> = query.must.iter().filter(|clause| clause.is_text()).collect();
        Highlighter {
            matchers: (0..texts.len()).filter_map(|at| ClauseMatcher::from_clause(&texts, at)).collect(),
            remaining_bytes: TEXT_BYTES_MAX,
        }
    }

    /// The highlights in the texts of the next hit. Those that show the most clauses of the query come first.
    pub fn highlight_texts(&mut self, texts: &[(String, String)]) -> Vec<Highlight> {
        let mut ranked: Vec<(usize, Highlight)> = Vec::new();
        let mut with_all = 0;
        for (field, text) in texts {
            // No text can rank before those that show every clause.
            if with_all == HIGHLIGHTS_MAX || self.matchers.is_empty() {
                break;
            }
            let Some(left_bytes) = self.remaining_bytes.checked_sub(text.len()) else { continue };
            self.remaining_bytes = left_bytes;
            self.matchers.iter_mut().for_each(|matcher| matcher.restart(field));
            if let Some(snippet) = render_snippet(text, |token| self.take_token(token), SNIPPET_CHARS_MAX) {
                let rows = self.matchers.iter().filter(|row| row.is_found).count();
                with_all += usize::from(rows == self.matchers.len());
                ranked.push((rows, Highlight { field: field.clone(), snippet }));
            }
        }
        ranked.sort_by_key(|(rows, _)| Reverse(*rows));
        ranked.into_iter().take(HIGHLIGHTS_MAX).map(|(_, highlight)| highlight).collect()
    }

    /// Takes the next token of a text. Returns how many tokens match together and end with it.
    fn take_token(&mut self, token: &TextToken) -> usize {
        self.matchers.iter_mut().map(|row| row.take_token(token)).max().unwrap_or_default()
    }
}

/// The spellings of one clause.
struct ClauseMatcher {
    phrases: Vec<PhraseMatcher>,
    apart: Vec<ApartMatcher>,
    /// The end of a serial number, and whether the text is one.
    serial_end: Option<String>,
    is_serial: bool,
    /// Whether the text has one of the spellings.
    is_found: bool,
}

impl ClauseMatcher {
    fn from_clause(texts: &[&Clause], at: usize) -> Option<Self> {
        match texts.get(at)? {
            Clause::Words(words) => Some(Self::for_words(words, join_neighbours(texts, at))),
            Clause::Phrase(tokens) => {
                let phrases = tokens.spellings().filter_map(|tokens| PhraseMatcher::new(tokens, LastMatch::Whole));
                let phrases = phrases.collect();
                let (apart, serial_end) = (Vec::new(), None);
                Some(ClauseMatcher { phrases, apart, serial_end, is_serial: false, is_found: false })
            }
            Clause::Number(_) | Clause::Field { .. } => None,
        }
    }

    fn for_words(words: &Words, with_neighbours: Vec<String>) -> Self {
        let (mut spellings, mut apart): (Vec<Vec<String>>, Vec<ApartMatcher>) = (Vec::new(), Vec::new());
        spellings.extend(words.tokens.transcribed.clone());
        for spelling in words.tokens.spellings() {
            let tokens: Vec<&str> = spelling.iter().map(String::as_str).collect();
            spellings.extend(join_words(&tokens).map(|joined| vec![joined]));
            if let [word] = tokens.as_slice() {
                spellings.extend(spell_out(word));
                apart.push(ApartMatcher::new(word));
            }
        }
        spellings.extend(with_neighbours.into_iter().map(|joined| vec![joined]));
        let serial_end = words.tokens.folded.concat();
        // Only the word as it was typed may have typos.
        let typed = PhraseMatcher::new(&words.tokens.folded, LastMatch::Typos);
        let others = spellings.iter().filter_map(|tokens| PhraseMatcher::new(tokens, LastMatch::Prefix));
        ClauseMatcher {
            phrases: typed.into_iter().chain(others).collect(),
            apart,
            serial_end: Some(serial_end).filter(|end| end.len() >= SERIAL_END_CHARS_MIN),
            is_serial: false,
            is_found: false,
        }
    }

    /// Resets the match before another text.
    fn restart(&mut self, field: &str) {
        self.phrases.iter_mut().for_each(|phrase| phrase.matched = 0);
        self.apart.iter_mut().for_each(|apart| apart.reached.clear());
        (self.is_serial, self.is_found) = (field == SERIAL_FIELD, false);
    }

    /// Takes the next token of a text. Returns how many tokens match together and end with it.
    fn take_token(&mut self, token: &TextToken) -> usize {
        let phrases = self.phrases.iter_mut().map(|phrase| phrase.take_token(token));
        let apart = self.apart.iter_mut().map(|apart| apart.take_token(token));
        let serial_end = self.serial_end.as_ref().filter(|_| self.is_serial);
        let is_serial_end = serial_end.is_some_and(|end| token.text.ends_with(end.as_str()));
        let matched = phrases.chain(apart).max().unwrap_or_default().max(usize::from(is_serial_end));
        self.is_found |= matched > 0;
        matched
    }
}

/// The word of a clause joined with the one before it, and with the one after it.
fn join_neighbours(texts: &[&Clause], at: usize) -> Vec<String> {
    let find_word = |at: usize| match texts.get(at)? {
        Clause::Words(words) if words.tokens.folded.len() == 1 => words.tokens.folded.first().map(String::as_str),
        _ => None,
    };
    let join = |first: usize| join_words(&[find_word(first)?, find_word(first + 1)?]);
    at.checked_sub(1).and_then(join).into_iter().chain(join(at)).collect()
}

/// A word that a text may have as several words in a row. The last is whole where the search needs it so.
struct ApartMatcher {
    word: String,
    /// After how many bytes a second word may be a prefix.
    prefix_cuts: Vec<usize>,
    /// How many bytes of the word the last tokens have matched, and how many tokens these are.
    reached: Vec<(usize, usize)>,
}

impl ApartMatcher {
    fn new(word: &str) -> Self {
        let cuts = split_word(word).into_iter().filter(|split| split.is_prefix).map(|split| split.first.len());
        ApartMatcher { word: word.to_owned(), prefix_cuts: cuts.collect(), reached: Vec::new() }
    }

    fn take_token(&mut self, token: &TextToken) -> usize {
        let mut ended = 0;
        let mut reached = Vec::new();
        for (at, tokens) in self.reached.drain(..).chain([(0, 0)]) {
            let Some(rest) = self.word.get(at..) else { continue };
            for text in std::iter::once(&token.text).chain(&token.transcribed) {
                let may_be_prefix = tokens > 1 || self.prefix_cuts.contains(&at);
                if tokens > 0 && (text == rest || may_be_prefix && text.starts_with(rest)) {
                    ended = ended.max(tokens + 1);
                } else if rest.len() > text.len() && rest.starts_with(text.as_str()) {
                    reached.push((at + text.len(), tokens + 1));
                }
            }
        }
        self.reached = reached;
        ended
    }
}

/// The words of one spelling, and how many of them the text has matched so far.
struct PhraseMatcher {
    /// All words but the last, which match exactly.
    leading: Vec<String>,
    /// The failure table of Knuth, Morris and Pratt: entry `n - 1` says how many of the first words the first `n` leading
    /// words also end with. Matching continues there after a mismatch, so that no word of a text is read twice.
    failures: Vec<usize>,
    /// How many of the leading words the text ends with so far.
    matched: usize,
    last: LastWord,
}

impl PhraseMatcher {
    fn new(tokens: &[String], last_match: LastMatch) -> Option<Self> {
        let (last, leading) = tokens.split_last()?;
        let may_have_typos = leading.is_empty() && last_match == LastMatch::Typos;
        let typos = if may_have_typos { TypoMatcher::for_word(last) } else { None };
        let last = LastWord { word: last.clone(), is_whole: last_match == LastMatch::Whole, typos };
        Some(PhraseMatcher { leading: leading.to_vec(), failures: failure_table(leading), matched: 0, last })
    }

    /// Takes the next token of a text. Returns the length of the phrase if it ends with this token, else 0.
    fn take_token(&mut self, token: &TextToken) -> usize {
        let spellings = || std::iter::once(&token.text).chain(&token.transcribed);
        let is_end = self.matched == self.leading.len() && spellings().any(|text| self.last.matches_token(text));
        let advance = |text: &String| advance_match(&self.leading, &self.failures, self.matched, text);
        self.matched = spellings().map(advance).max().unwrap_or_default();
        if is_end { self.leading.len() + 1 } else { 0 }
    }
}

/// How many of the first words a text ends with after this token, if it ended with `reached` of them before.
fn advance_match(words: &[String], failures: &[usize], mut reached: usize, token: &str) -> usize {
    loop {
        if words.get(reached).is_some_and(|word| word == token) {
            return reached + 1;
        }
        let Some(next) = reached.checked_sub(1).and_then(|at| failures.get(at)) else { return 0 };
        reached = *next;
    }
}

/// Builds [`PhraseMatcher::failures`].
fn failure_table(words: &[String]) -> Vec<usize> {
    let mut failures: Vec<usize> = Vec::with_capacity(words.len());
    for word in words {
        let next = failures.last().map_or(0, |reached| advance_match(words, &failures, *reached, word));
        failures.push(next);
    }
    failures
}

/// How the last word of a phrase matches.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LastMatch {
    Whole,
    Prefix,
    /// As a prefix, or with typos if it is the only word.
    Typos,
}

/// The last or only word of a phrase.
struct LastWord {
    word: String,
    /// Whether it must match a whole token, not a prefix.
    is_whole: bool,
    typos: Option<TypoMatcher>,
}

impl LastWord {
    fn matches_token(&self, token: &str) -> bool {
        if self.is_whole {
            return token == self.word;
        }
        token.starts_with(&self.word) || self.typos.as_ref().is_some_and(|typos| typos.matches_token(&self.word, token))
    }
}

/// Matches a word with typos.
struct TypoMatcher {
    edits: u8,
    is_start_enough: bool,
    /// It is expensive, so it is built when the first token is compared: a page may have no hits.
    automaton: OnceCell<DFA>,
}

impl TypoMatcher {
    fn for_word(word: &str) -> Option<Self> {
        let edits = allowed_typos(word);
        let is_start_enough = starts_may_have_typos(word);
        (edits > 0).then(|| TypoMatcher { edits, is_start_enough, automaton: OnceCell::new() })
    }

    fn matches_token(&self, word: &str, token: &str) -> bool {
        let automaton = self.automaton.get_or_init(|| typo_automaton(word, self.edits));
        edit_distance(automaton, token.as_bytes(), self.is_start_enough).is_some()
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use search_language::parse;

    fn highlighter_for(q: &str) -> Highlighter {
        Highlighter::for_query(&parse(q).unwrap())
    }

    fn highlight_snippets(highlighter: &mut Highlighter, texts: &[&str]) -> Vec<String> {
        let texts: Vec<(String, String)> = texts.iter().map(|&text| ("name".to_owned(), text.to_owned())).collect();
        highlighter.highlight_texts(&texts).into_iter().map(|highlight| highlight.snippet).collect()
    }

    #[test]
    fn words_are_marked_as_they_are_found() {
        for (q, text, snippet) in [
            ("print", "the printer", "the <em>printer</em>"),
            ("pirnter", "the printers", "the <em>printers</em>"),
            ("dsik", "disks, disk", "disks, <em>disk</em>"),
            ("\"print\"", "print printer", "<em>print</em> printer"),
            ("web-0", "web 01, website", "<em>web</em> <em>01</em>, website"),
            ("web-01.example", "web 02, web-01.examples", "web 02, <em>web</em>-<em>01</em>.<em>examples</em>"),
            ("\"web 01\"", "web 012, 01, web 01", "web 012, 01, <em>web</em> <em>01</em>"),
            ("10.0.0.5", "10.0.0.0.5, 10.0.0.50", "10.0.0.0.5, <em>10</em>.<em>0</em>.<em>0</em>.<em>50</em>"),
            ("floor -printer", "printer floor", "printer <em>floor</em>"),
            ("\"the vpn\" gate", "the gate, the vpn", "the <em>gate</em>, <em>the</em> <em>vpn</em>"),
            ("web01", "on WEB-01", "on <em>WEB</em>-<em>01</em>"),
            ("srvdc01", "SRV-DC-01 SRV", "<em>SRV</em>-<em>DC</em>-<em>01</em> SRV"),
            ("web-01", "web01, 01", "<em>web01</em>, 01"),
            ("blue screen", "a bluescreen", "a <em>bluescreen</em>"),
            ("bluescreen", "a blue screens", "a <em>blue</em> <em>screens</em>"),
            ("teatime", "tea for time, tea times", "tea for time, <em>tea</em> <em>times</em>"),
            ("ad", "a domain of AD", "a domain of <em>AD</em>"),
            ("email", "an E-Mail", "an <em>E</em>-<em>Mail</em>"),
            ("win11", "Windows 11", "<em>Windows</em> <em>11</em>"),
            ("muenchen", "in München", "in <em>München</em>"),
            ("\"münchen\"", "in Muenchen", "in <em>Muenchen</em>"),
        ] {
            assert_eq!(highlight_snippets(&mut highlighter_for(q), &[text]), [snippet], "{q}");
        }
    }

    /// All texts of this many words.
    fn all_texts(words: usize) -> impl Iterator<Item = Vec<&'static str>> {
        let word = |bits: usize, at: usize| if (bits >> at) & 1 == 0 { "a" } else { "ab" };
        (0..1 << words).map(move |bits| (0..words).map(|at| word(bits, at)).collect())
    }

    /// The marked text, by comparing the whole phrase at every position.
    fn mark_naively(row: &[&str], text: &[&str], is_whole: bool) -> Vec<String> {
        let (last, leading) = row.split_last().unwrap();
        let mut is_marked = vec![false; text.len()];
        for (at, window) in text.windows(row.len()).enumerate() {
            let (end, before) = window.split_last().unwrap();
            if before == leading && (end == last || !is_whole && end.starts_with(last)) {
                is_marked[at..at + row.len()].fill(true);
            }
        }
        let html =
            |(word, is_marked): (&&str, &bool)| if *is_marked { format!("<em>{word}</em>") } else { (*word).into() };
        let words: Vec<String> = text.iter().zip(&is_marked).map(html).collect();
        if is_marked.contains(&true) { vec![words.join(" ")] } else { Vec::new() }
    }

    #[test]
    fn a_row_is_found_wherever_it_stands() {
        for row in (2..=5).flat_map(all_texts) {
            let mut words = highlighter_for(&row.join("-"));
            let mut phrase = highlighter_for(&format!("\"{}\"", row.join(" ")));
            for text in all_texts(7) {
                let written = text.join(" ");
                assert_eq!(
                    highlight_snippets(&mut words, &[&written]),
                    mark_naively(&row, &text, false),
                    "{row:?} {text:?}"
                );
                assert_eq!(
                    highlight_snippets(&mut phrase, &[&written]),
                    mark_naively(&row, &text, true),
                    "{row:?} {text:?}"
                );
            }
        }
    }

    #[test]
    fn a_phrase_is_shown_where_it_stands_and_not_where_its_words_do() {
        let mut highlighter = highlighter_for("\"the vpn gateway\"");
        let texts = ["The mail is down", "The Boss", "The desk", "Since noon the VPN gateway is away"];
        let phrase = "Since noon <em>the</em> <em>VPN</em> <em>gateway</em> is away";
        assert_eq!(highlight_snippets(&mut highlighter, &texts), [phrase]);
        let long = format!("The mail. {}the vpn gateway", "Lorem ipsum. ".repeat(50));
        let [snippet] = highlight_snippets(&mut highlighter, &[&long]).try_into().unwrap();
        assert!(snippet.starts_with('…'), "{snippet}");
        assert!(snippet.ends_with("<em>the</em> <em>vpn</em> <em>gateway</em>"), "{snippet}");
        // No phrase continues in the next text.
        assert!(highlight_snippets(&mut highlighter, &["the vpn", "gateway", "the gateway vpn"]).is_empty());
    }

    #[test]
    fn texts_with_more_of_what_was_looked_for_come_first() {
        let mut highlighter = highlighter_for("vpn gateway");
        let found =
            highlight_snippets(&mut highlighter, &["vpn 1", "gateway", "vpn 2", "none", "the gateways of a VPN"]);
        let both = "the <em>gateways</em> of a <em>VPN</em>";
        assert_eq!(found, [both, "<em>vpn</em> 1", "<em>gateway</em>"]);
        let left_bytes = highlighter.remaining_bytes;
        assert_eq!(highlight_snippets(&mut highlighter, &["vpn gateway"; 5]).len(), HIGHLIGHTS_MAX);
        assert_eq!(
            left_bytes - highlighter.remaining_bytes,
            HIGHLIGHTS_MAX * "vpn gateway".len(),
            "no more than that is read"
        );
    }

    #[test]
    fn a_serial_number_is_marked_by_its_end() {
        let mut highlighter = highlighter_for("bc9z");
        let texts = [("hostname", "xbc9z"), ("serial_number", "PF3ABC9Z")];
        let found = highlighter.highlight_texts(&texts.map(|(field, text)| (field.to_owned(), text.to_owned())));
        let snippets: Vec<&str> = found.iter().map(|one| one.snippet.as_str()).collect();
        assert_eq!(snippets, ["<em>PF3ABC9Z</em>"]);
    }

    #[test]
    fn what_finds_typos_is_made_for_the_first_text() {
        let is_made = |highlighter: &Highlighter| {
            highlighter.matchers[0].phrases[0].last.typos.as_ref().unwrap().automaton.get().is_some()
        };
        let mut highlighter = highlighter_for("pirnter");
        assert!(!is_made(&highlighter));
        highlight_snippets(&mut highlighter, &["printer"]);
        assert!(is_made(&highlighter));
    }

    #[test]
    fn a_hit_shows_the_first_places_and_none_of_what_fields_compare() {
        let mut some = highlighter_for("a type:ticket");
        assert_eq!(highlight_snippets(&mut some, &["a 1", "b", "a 2", "a 3", "a 4"]).len(), HIGHLIGHTS_MAX);
        let mut none = highlighter_for("type:ticket #7");
        assert!(highlight_snippets(&mut none, &["ticket 7"]).is_empty());
        assert_eq!(none.remaining_bytes, TEXT_BYTES_MAX);
    }

    #[test]
    fn no_more_text_is_looked_at_than_one_answer_may() {
        let mut highlighter = highlighter_for("needle");
        let long = format!("needle {}", "x ".repeat(TEXT_BYTES_MAX / 4));
        assert_eq!(highlight_snippets(&mut highlighter, &[long.as_str(), "needle 1"]).len(), 2);
        assert_eq!(highlight_snippets(&mut highlighter, &[long.as_str(), "needle 2"]), ["<em>needle</em> 2"]);
    }
}
