//! One word of a query: the tokens of its owners that match it, and the documents that have them.
//!
//! Tantivy's own prefix and fuzzy queries are not used: each knows one kind of match and ranks all matches alike, and the
//! one for prefixes with two typos misses some.

use std::sync::{Arc, OnceLock};

use levenshtein_automata::{DFA, Distance, LevenshteinAutomatonBuilder, SINK_STATE};
use search_language::spellings::split_word;
use search_language::typos::starts_may_have_typos;
use tantivy::postings::{BlockSegmentPostings, TermInfo};
use tantivy::query::{EnableScoring, Explanation, Query, Scorer, Weight};
use tantivy::{DocId, InvertedIndexReader, Score, SegmentReader, TantivyError};
use tantivy_fst::Automaton;

use super::budget::SearchBudget;
use super::matches::SegmentMatches;
use super::phrases::{PhraseEnd, PhraseQuery};
use super::points;
use super::schema::{IndexFields, OWNER_LEN, TermOwner};

/// How a word of the query matches a token, and the loosest match that a query accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MatchMode {
    Exact,
    Prefix,
    /// Tokens at most this many edits away, or, for longer words, tokens that start with such a word.
    Typo(u8),
}

fn match_points(mode: MatchMode, is_name: bool) -> u8 {
    let of = |name, body| if is_name { name } else { body };
    match mode {
        MatchMode::Exact => of(points::EXACT_NAME, points::EXACT_BODY),
        MatchMode::Prefix => of(points::PREFIX_NAME, points::PREFIX_BODY),
        MatchMode::Typo(0 | 1) => of(points::TYPO_NAME[0], points::TYPO_BODY[0]),
        MatchMode::Typo(_) => of(points::TYPO_NAME[1], points::TYPO_BODY[1]),
    }
}

/// The automaton of the words at most `edits` edits away. Its tables take milliseconds to build, once per process.
pub fn typo_automaton(word: &str, edits: u8) -> DFA {
    static BUILDERS: [OnceLock<LevenshteinAutomatonBuilder>; 2] = [OnceLock::new(), OnceLock::new()];
    let (builder, edits) = if edits > 1 { (&BUILDERS[1], 2) } else { (&BUILDERS[0], 1) };
    builder.get_or_init(|| LevenshteinAutomatonBuilder::new(edits, true)).build_dfa(word)
}

/// Accepts the bytes of one of the owners, followed by a token that starts with the word or with anything that its typo
/// automaton accepts. One traversal serves all owners, and enters no branch of the dictionary that belongs to another owner.
///
/// It uses the automaton of the whole word and remembers the best match on the way: the library's prefix automaton forgets a
/// match at two edits if the following characters lead away from it.
struct OwnerAutomaton<'a> {
    owners: &'a [TermOwner],
    word: &'a [u8],
    typos: Option<&'a DFA>,
    /// Whether a token also matches by its beginning with typos.
    is_start_enough: bool,
    /// A bit for each length of the word's beginnings that are accepted as well: the word may be two words in a row.
    first_parts: u64,
    /// Once it is exhausted, nothing more matches.
    budget: &'a SearchBudget,
}

#[derive(Clone, Copy)]
enum AutomatonState {
    /// How many bytes of an owner have matched.
    Owner(usize),
    Word(WordState),
    Dead,
}

#[derive(Clone, Copy)]
struct WordState {
    /// How many bytes of the word have matched exactly; `None` after the first difference.
    prefix_len: Option<usize>,
    /// The state of the typo automaton, and the edits so far, or the fewest of any beginning.
    state: u32,
    best: u8,
}

const NO_MATCH: u8 = u8::MAX;

fn distance_at(word: &DFA, state: u32) -> u8 {
    match word.distance(state) {
        Distance::Exact(edits) => edits,
        Distance::AtLeast(_) => NO_MATCH,
    }
}

/// The edits between the word and the token, or the fewest between the word and any beginning of the token.
pub fn edit_distance(word: &DFA, token: &[u8], is_start_enough: bool) -> Option<u8> {
    let mut state = word.initial_state();
    let mut best = distance_at(word, state);
    for &byte in token {
        state = word.transition(state, byte);
        let edits = distance_at(word, state);
        best = if is_start_enough { best.min(edits) } else { edits };
        if state == SINK_STATE {
            break;
        }
    }
    (best != NO_MATCH).then_some(best)
}

impl OwnerAutomaton<'_> {
    fn start_word(&self) -> AutomatonState {
        let (state, best) = match self.typos {
            Some(typos) => (typos.initial_state(), distance_at(typos, typos.initial_state())),
            None => (SINK_STATE, NO_MATCH),
        };
        AutomatonState::Word(WordState { prefix_len: Some(0), state, best })
    }

    fn has_prefix(&self, walk: &WordState) -> bool {
        walk.prefix_len == Some(self.word.len())
    }

    fn is_first_part(&self, walk: &WordState) -> bool {
        walk.prefix_len.is_some_and(|len| has_bit(self.first_parts, len))
    }
}

fn has_bit(bits: u64, at: usize) -> bool {
    at < 64 && bits >> at & 1 == 1
}

impl Automaton for OwnerAutomaton<'_> {
    type State = AutomatonState;

    fn start(&self) -> AutomatonState {
        if self.owners.is_empty() { AutomatonState::Dead } else { AutomatonState::Owner(0) }
    }

    fn is_match(&self, state: &AutomatonState) -> bool {
        let AutomatonState::Word(walk) = state else { return false };
        self.has_prefix(walk) || walk.best != NO_MATCH || self.is_first_part(walk)
    }

    fn can_match(&self, state: &AutomatonState) -> bool {
        match state {
            AutomatonState::Owner(_) => true,
            AutomatonState::Word(walk) => {
                walk.prefix_len.is_some() || walk.state != SINK_STATE || walk.best != NO_MATCH
            }
            AutomatonState::Dead => false,
        }
    }

    fn accept(&self, state: &AutomatonState, byte: u8) -> AutomatonState {
        match *state {
            // All owners are of one tenant and differ only in their last letter.
            AutomatonState::Owner(at) if self.owners.iter().any(|owner| owner.as_bytes().get(at) == Some(&byte)) => {
                if at + 1 == OWNER_LEN {
                    self.start_word()
                } else {
                    AutomatonState::Owner(at + 1)
                }
            }
            AutomatonState::Word(walk) if self.has_prefix(&walk) => AutomatonState::Word(walk),
            AutomatonState::Word(walk) => {
                let prefix_len = walk.prefix_len.filter(|at| self.word.get(*at) == Some(&byte)).map(|at| at + 1);
                let Some(typos) = self.typos else {
                    return AutomatonState::Word(WordState { prefix_len, ..walk });
                };
                if !self.budget.take_step() {
                    return AutomatonState::Dead;
                }
                let state = typos.transition(walk.state, byte);
                let edits = distance_at(typos, state);
                let best = if self.is_start_enough { walk.best.min(edits) } else { edits };
                AutomatonState::Word(WordState { prefix_len, state, best })
            }
            AutomatonState::Owner(_) | AutomatonState::Dead => AutomatonState::Dead,
        }
    }
}

/// A query for one word: its matching tokens are looked up in each segment, and the best one counts.
#[derive(Clone)]
pub struct WordQuery {
    fields: IndexFields,
    owners: Arc<[TermOwner]>,
    word: Arc<str>,
    mode: MatchMode,
    typo: Option<Arc<DFA>>,
    /// See [`OwnerAutomaton::first_parts`].
    first_parts: u64,
    /// How many words of the query it stands for.
    words: u8,
    budget: Arc<SearchBudget>,
}

impl std::fmt::Debug for WordQuery {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "{:?} {:?}", self.word, self.mode)
    }
}

impl WordQuery {
    pub fn new(
        fields: &IndexFields,
        owners: &Arc<[TermOwner]>,
        word: &str,
        mode: MatchMode,
        budget: &Arc<SearchBudget>,
    ) -> Self {
        let typo = match mode {
            MatchMode::Typo(edits) => Some(Arc::new(typo_automaton(word, edits))),
            MatchMode::Exact | MatchMode::Prefix => None,
        };
        WordQuery {
            fields: *fields,
            owners: owners.clone(),
            word: word.into(),
            mode,
            typo,
            first_parts: 0,
            words: 1,
            budget: budget.clone(),
        }
    }

    /// Several words of the query that are written together.
    pub fn for_words(self, words: usize) -> Self {
        WordQuery { words: u8::try_from(words).unwrap_or(u8::MAX).min(points::WORDS_MAX), ..self }
    }

    /// Also as two words in a row that were typed without the space.
    pub fn or_split(self) -> Self {
        let first_parts = split_word(&self.word).iter().fold(0, |bits, split| bits | 1 << split.first.len());
        WordQuery { first_parts, ..self }
    }

    /// Adds the documents of the owners' matching tokens in one column.
    fn collect_matches(
        &self,
        index: &InvertedIndexReader,
        is_name: bool,
        into: &mut SegmentMatches,
    ) -> tantivy::Result<()> {
        let mut postings = None;
        let mut take = |info: &TermInfo, mode, into: &mut SegmentMatches| {
            self.add_token_documents(index, info, match_points(mode, is_name), into, &mut postings)
        };
        if self.mode == MatchMode::Exact {
            for owner in self.owners.iter() {
                if let Some(info) = index.terms().get(owner.token_key(&self.word))?
                    && !take(&info, MatchMode::Exact, into)?
                {
                    break;
                }
            }
            return Ok(());
        }
        let (word, is_start_enough) = (self.word.as_bytes(), starts_may_have_typos(&self.word));
        let (owners, typos, first_parts) = (&*self.owners, self.typo.as_deref(), self.first_parts);
        let automaton = OwnerAutomaton { owners, word, typos, is_start_enough, first_parts, budget: &self.budget };
        let mut stream = index.terms().search(&automaton).into_stream()?;
        let mut parts: Vec<(Vec<u8>, usize)> = Vec::new();
        while let Some((key, info)) = stream.next() {
            let (owner, token) = key.split_at_checked(OWNER_LEN).unwrap_or_default();
            if has_bit(first_parts, token.len()) && word.starts_with(token) {
                parts.push((owner.to_vec(), token.len()));
            }
            let mode = match token.strip_prefix(word) {
                Some(b"") => MatchMode::Exact,
                Some(_) => MatchMode::Prefix,
                None => match typos.and_then(|typos| edit_distance(typos, token, is_start_enough)) {
                    Some(edits) => MatchMode::Typo(edits),
                    None => continue,
                },
            };
            if !take(info, mode, into)? {
                return Ok(());
            }
        }
        for (owner, first_len) in parts {
            self.add_split_documents(index, &owner, first_len, is_name, into)?;
        }
        Ok(())
    }

    /// Adds the documents of an owner that have the word as two words, the first of this length.
    fn add_split_documents(
        &self,
        index: &InvertedIndexReader,
        owner: &[u8],
        first_len: usize,
        is_name: bool,
        into: &mut SegmentMatches,
    ) -> tantivy::Result<()> {
        let Some(owner) = self.owners.iter().find(|one| one.as_bytes() == owner) else { return Ok(()) };
        let splits = split_word(&self.word);
        let Some(split) = splits.iter().find(|split| split.first.len() == first_len) else { return Ok(()) };
        let last = if split.is_prefix { PhraseEnd::Prefix } else { PhraseEnd::Whole };
        let tokens = [split.first, split.second].map(str::to_owned);
        let phrase = PhraseQuery::new(&self.fields, &self.owners, &tokens, last, &self.budget);
        // Two words of letters may be in a row by chance.
        let modes = if split.is_at_number {
            [MatchMode::Exact, MatchMode::Prefix]
        } else {
            [MatchMode::Prefix, MatchMode::Typo(1)]
        };
        phrase.add_matches(index, owner, modes.map(|mode| match_points(mode, is_name)), into.max_doc(), into)
    }

    /// Adds the documents of one token. False if that exceeds the budget.
    fn add_token_documents(
        &self,
        index: &InvertedIndexReader,
        info: &TermInfo,
        points: u8,
        into: &mut SegmentMatches,
        postings: &mut Option<BlockSegmentPostings>,
    ) -> tantivy::Result<bool> {
        if !self.budget.take_term(info.doc_freq.into()) {
            return Ok(false);
        }
        into.add_term_documents(index, info, points, postings)?;
        Ok(true)
    }
}

impl Query for WordQuery {
    fn weight(&self, _: EnableScoring<'_>) -> tantivy::Result<Box<dyn Weight>> {
        Ok(Box::new(self.clone()))
    }
}

impl Weight for WordQuery {
    fn scorer(&self, reader: &SegmentReader, _: Score) -> tantivy::Result<Box<dyn Scorer>> {
        let mut matches = SegmentMatches::new(reader.max_doc());
        for field in [self.fields.name, self.fields.body] {
            self.collect_matches(&*reader.inverted_index(field)?, field == self.fields.name, &mut matches)?;
        }
        Ok(matches.into_scorer(self.words))
    }

    fn explain(&self, _: &SegmentReader, _: DocId) -> tantivy::Result<Explanation> {
        Err(TantivyError::InvalidArgument("not explained".into()))
    }
}

#[cfg(test)]
mod tests {
    use kernel::base::{RecordId, TenantId};

    use super::super::super::documents::DocumentKind;
    use super::*;
    use search_language::WORDS_MAX;

    #[test]
    fn the_points_of_all_parts_fit_their_bits() {
        let words = u32::from(points::WORDS_MAX) * u32::try_from(WORDS_MAX).unwrap_or(u32::MAX);
        let most =
            u32::from(points::EXACT_NAME) * words + u32::from(points::BESIDE_NAME) * u32::from(points::WORDS_MAX);
        assert!(most < points::NAME_START, "{most}");
        assert!(most + points::NAME_START < points::IDENTITY);
        assert!(most + points::NAME_START + points::IDENTITY < 1 << 20);
    }

    #[test]
    fn a_word_in_a_name_as_it_is_written_has_the_most_points() {
        for mode in [MatchMode::Exact, MatchMode::Prefix, MatchMode::Typo(1), MatchMode::Typo(2)] {
            for is_name in [true, false] {
                assert!(match_points(mode, is_name) <= points::EXACT_NAME);
            }
        }
    }

    #[test]
    fn a_short_word_with_a_typo_is_a_whole_one() {
        for (word, token, is_start_enough, edits) in [
            ("disk", "dusk", false, Some(1)),
            ("disk", "display", false, None),
            ("disk", "display", true, Some(1)),
            ("pirnter", "printers", true, Some(1)),
            ("pirnter", "printers", false, None),
        ] {
            assert_eq!(
                edit_distance(&typo_automaton(word, 1), token.as_bytes(), is_start_enough),
                edits,
                "{word} {token}"
            );
        }
    }

    #[test]
    fn a_walk_ends_with_what_it_may_cost() {
        let owners = [DocumentKind::Ticket, DocumentKind::User].map(|kind| TermOwner::for_kind(TenantId::NONE, kind));
        let (typos, budget) = (typo_automaton("printer", 1), SearchBudget::new());
        let automaton = OwnerAutomaton {
            owners: &owners,
            word: b"printer",
            typos: Some(&typos),
            is_start_enough: true,
            first_parts: 1 << 5,
            budget: &budget,
        };
        let walk =
            |from: AutomatonState, bytes: &[u8]| bytes.iter().fold(from, |state, byte| automaton.accept(&state, *byte));
        for owner in &owners {
            let start = walk(automaton.start(), owner.as_bytes());
            for (token, is_found) in [
                ("prinetr", true),
                ("printers", true),
                ("prunters", true),
                ("paper", false),
                ("print", true),
                ("prin", false),
            ] {
                assert_eq!(automaton.is_match(&walk(start, token.as_bytes())), is_found, "{token}");
            }
        }
        let other = TermOwner::for_kind(TenantId::NONE, DocumentKind::Device);
        assert!(!automaton.can_match(&walk(automaton.start(), other.as_bytes())));
        let start = walk(automaton.start(), owners[0].as_bytes());
        budget.mark_exhausted();
        assert!(!automaton.can_match(&walk(start, b"p")));
    }
}
