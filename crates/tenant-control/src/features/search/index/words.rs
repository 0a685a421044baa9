//! One word of a query: the tokens of a tenant that it may mean, and the documents that have them.
//!
//! Tantivy's own queries for words that begin alike or have typos are left out: they know one kind of match each, rank all alike,
//! and that for beginnings with two typos misses some.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use levenshtein_automata::{DFA, Distance, LevenshteinAutomatonBuilder, SINK_STATE};
use tantivy::postings::{BlockSegmentPostings, TermInfo};
use tantivy::query::{EmptyScorer, EnableScoring, Explanation, Query, Scorer, Weight};
use tantivy::schema::{Field, IndexRecordOption};
use tantivy::{DocId, DocSet, InvertedIndexReader, Score, SegmentReader, TERMINATED, TantivyError};
use tantivy_fst::Automaton;

use super::schema::{Fields, TENANT_LEN, Tenant};

/// What one query may cost, over all segments and words: terms of the dictionary, documents, and steps on the way to them.
pub struct Budget {
    terms: AtomicU64,
    documents: AtomicU64,
    steps: AtomicU64,
    exhausted: AtomicBool,
}

/// Some tens of milliseconds of one processor at most. A hundred thousand documents of one tenant are far from it.
const TERMS_MAX: u64 = 50_000;
const DOCUMENTS_MAX: u64 = 5_000_000;
const STEPS_MAX: u64 = 3_000_000;

impl Budget {
    pub fn new() -> Arc<Self> {
        Arc::new(Budget {
            terms: TERMS_MAX.into(),
            documents: DOCUMENTS_MAX.into(),
            steps: STEPS_MAX.into(),
            exhausted: false.into(),
        })
    }

    fn take(&self, from: &AtomicU64, amount: u64) -> bool {
        // One thread runs a query; were it several, the bound would be a little less sharp.
        match from.load(Ordering::Relaxed).checked_sub(amount) {
            Some(left) => from.store(left, Ordering::Relaxed),
            None => self.exhaust(),
        }
        !self.is_exhausted()
    }

    fn take_term(&self, documents: u32) -> bool {
        self.take(&self.terms, 1) && self.take(&self.documents, documents.into())
    }

    /// Documents that are looked at one by one.
    pub fn take_documents(&self, count: u64) -> bool {
        self.take(&self.documents, count)
    }

    pub fn exhaust(&self) {
        self.exhausted.store(true, Ordering::Relaxed);
    }

    /// Whether something was left out.
    pub fn is_exhausted(&self) -> bool {
        self.exhausted.load(Ordering::Relaxed)
    }
}

/// How a word of the query may match a token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    Exact,
    Prefix,
    /// A token that starts with something at most so many edits away; includes the prefix.
    Typo(u8),
}

/// Points for one word: exact before prefix before typo, and within each the name before the body. Small integers: sums stay
/// exact, and are the upper 16 bits of a result's place.
pub mod points {
    pub const EXACT_NAME: u8 = 80;
    pub const EXACT_BODY: u8 = 60;
    pub const PREFIX_NAME: u8 = 50;
    pub const PREFIX_BODY: u8 = 36;
    pub const TYPO_NAME: [u8; 2] = [24, 12];
    pub const TYPO_BODY: [u8; 2] = [16, 6];
}

#[derive(Clone, Copy, PartialEq)]
enum Class {
    Exact,
    Prefix,
    Typo(u8),
}

fn points_of(class: Class, is_name: bool) -> u8 {
    let of = |name, body| if is_name { name } else { body };
    match class {
        Class::Exact => of(points::EXACT_NAME, points::EXACT_BODY),
        Class::Prefix => of(points::PREFIX_NAME, points::PREFIX_BODY),
        Class::Typo(0 | 1) => of(points::TYPO_NAME[0], points::TYPO_BODY[0]),
        Class::Typo(_) => of(points::TYPO_NAME[1], points::TYPO_BODY[1]),
    }
}

/// The words that are so many edits away from one. The tables take milliseconds to make, once per process.
pub fn typos(word: &str, edits: u8) -> DFA {
    static BUILDERS: [OnceLock<LevenshteinAutomatonBuilder>; 2] = [OnceLock::new(), OnceLock::new()];
    let (builder, edits) = if edits > 1 { (&BUILDERS[1], 2) } else { (&BUILDERS[0], 1) };
    builder.get_or_init(|| LevenshteinAutomatonBuilder::new(edits, true)).build_dfa(word)
}

/// Accepts exactly the bytes of the tenant, then all that starts with something the automaton of the word accepts. Walks no branch
/// of the dictionary that belongs to another tenant.
///
/// Over the automaton of the whole word, and remembering what it accepted on the way: that of its beginnings forgets a match at
/// two edits if what follows leads away from it again.
struct TenantAutomaton<'a> {
    prefix: &'a [u8],
    word: &'a DFA,
    /// Steps left; the walk ends as if nothing more matched.
    steps: Cell<u64>,
}

#[derive(Clone, Copy)]
enum Walk {
    Tenant(usize),
    /// The state of the word's automaton, and the fewest edits of a beginning so far.
    Word(u32, u8),
    Dead,
}

const NO_MATCH: u8 = u8::MAX;

fn edits_at(word: &DFA, state: u32) -> u8 {
    match word.distance(state) {
        Distance::Exact(edits) => edits,
        Distance::AtLeast(_) => NO_MATCH,
    }
}

/// The fewest edits between the word and a beginning of the token.
pub fn fewest_edits(word: &DFA, token: &[u8]) -> Option<u8> {
    let mut state = word.initial_state();
    let mut best = edits_at(word, state);
    for &byte in token {
        state = word.transition(state, byte);
        if state == SINK_STATE {
            break;
        }
        best = best.min(edits_at(word, state));
    }
    (best != NO_MATCH).then_some(best)
}

impl Automaton for TenantAutomaton<'_> {
    type State = Walk;

    fn start(&self) -> Walk {
        Walk::Tenant(0)
    }

    fn is_match(&self, state: &Walk) -> bool {
        matches!(state, Walk::Word(_, best) if *best != NO_MATCH)
    }

    fn can_match(&self, state: &Walk) -> bool {
        match state {
            Walk::Tenant(_) => true,
            Walk::Word(at, best) => *at != SINK_STATE || *best != NO_MATCH,
            Walk::Dead => false,
        }
    }

    fn accept(&self, state: &Walk, byte: u8) -> Walk {
        match *state {
            Walk::Tenant(at) if self.prefix.get(at) == Some(&byte) => {
                if at + 1 == TENANT_LEN {
                    let state = self.word.initial_state();
                    Walk::Word(state, edits_at(self.word, state))
                } else {
                    Walk::Tenant(at + 1)
                }
            }
            Walk::Word(at, best) => {
                let Some(left) = self.steps.get().checked_sub(1) else { return Walk::Dead };
                self.steps.set(left);
                let next = self.word.transition(at, byte);
                Walk::Word(next, best.min(edits_at(self.word, next)))
            }
            Walk::Tenant(_) | Walk::Dead => Walk::Dead,
        }
    }
}

/// The first bytes behind all that start with these. They are UTF-8, of which no byte is the largest.
pub fn behind(start: &[u8]) -> Vec<u8> {
    let mut end = start.to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

/// One word: its matching tokens are looked up in each segment, and the best one counts.
#[derive(Clone)]
pub struct WordQuery {
    name: Field,
    body: Field,
    tenant: Tenant,
    word: Arc<str>,
    reach: Reach,
    typo: Option<Arc<DFA>>,
    budget: Arc<Budget>,
}

impl std::fmt::Debug for WordQuery {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "{:?} {:?}", self.word, self.reach)
    }
}

impl WordQuery {
    pub fn new(fields: &Fields, tenant: &Tenant, word: &str, reach: Reach, budget: &Arc<Budget>) -> Self {
        let typo = match reach {
            Reach::Typo(edits) => Some(Arc::new(typos(word, edits))),
            Reach::Exact | Reach::Prefix => None,
        };
        WordQuery {
            name: fields.name,
            body: fields.body,
            tenant: tenant.clone(),
            word: word.into(),
            reach,
            typo,
            budget: budget.clone(),
        }
    }

    /// Reads the documents of the tokens of one field that match.
    fn read(&self, reader: &SegmentReader, field: Field, into: &mut Found) -> tantivy::Result<()> {
        let is_name = field == self.name;
        let index = reader.inverted_index(field)?;
        let start = [self.tenant.as_bytes(), self.word.as_bytes()].concat();
        if self.reach == Reach::Exact {
            if let Some(info) = index.terms().get(&start)? {
                self.take(&index, &info, points_of(Class::Exact, is_name), into)?;
            }
            return Ok(());
        }
        let mut stream = index.terms().range().ge(&start).lt(behind(&start)).into_stream()?;
        while let Some((key, info)) = stream.next() {
            let class = if key.len() == start.len() { Class::Exact } else { Class::Prefix };
            if !self.take(&index, info, points_of(class, is_name), into)? {
                return Ok(());
            }
        }
        let Some(word) = &self.typo else { return Ok(()) };
        let left = self.budget.steps.load(Ordering::Relaxed);
        let automaton = TenantAutomaton { prefix: self.tenant.as_bytes(), word, steps: Cell::new(left) };
        let mut stream = index.terms().search(&automaton).into_stream()?;
        while let Some((key, info)) = stream.next() {
            let token = key.get(TENANT_LEN..).unwrap_or_default();
            if key.starts_with(&start) {
                continue;
            }
            let Some(edits) = fewest_edits(word, token) else { continue };
            if !self.take(&index, info, points_of(Class::Typo(edits), is_name), into)? {
                break;
            }
        }
        drop(stream);
        let left_now = automaton.steps.get();
        self.budget.steps.store(left_now, Ordering::Relaxed);
        if left_now == 0 {
            self.budget.exhaust();
        }
        Ok(())
    }

    fn take(
        &self,
        index: &InvertedIndexReader,
        info: &TermInfo,
        points: u8,
        into: &mut Found,
    ) -> tantivy::Result<bool> {
        if !self.budget.take_term(info.doc_freq) {
            return Ok(false);
        }
        // One reader for all terms: it holds two blocks of 128 numbers.
        match &mut into.postings {
            Some(postings) => index.reset_block_postings_from_terminfo(info, postings)?,
            None => into.postings = Some(index.read_block_postings_from_terminfo(info, IndexRecordOption::Basic)?),
        }
        into.add_all(points);
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
        let mut found = Found { postings: None, list: Vec::new(), table: None, max_doc: reader.max_doc() };
        for field in [self.name, self.body] {
            self.read(reader, field, &mut found)?;
            // The other field has its own postings.
            found.postings = None;
        }
        let matches = found.finish();
        if matches.is_empty() {
            return Ok(Box::new(EmptyScorer));
        }
        Ok(Box::new(WordScorer { matches, at: 0 }))
    }

    fn explain(&self, _: &SegmentReader, _: DocId) -> tantivy::Result<Explanation> {
        Err(TantivyError::InvalidArgument("not explained".into()))
    }
}

/// Documents of a segment with the best points of each: as a list, and from a sixteenth of the segment as a table.
struct Found {
    postings: Option<BlockSegmentPostings>,
    list: Vec<(DocId, u8)>,
    table: Option<Vec<u8>>,
    max_doc: u32,
}

const LIST_MIN: usize = 4_096;

impl Found {
    fn add_all(&mut self, points: u8) {
        let Some(mut postings) = self.postings.take() else { return };
        loop {
            let docs = postings.docs();
            if docs.is_empty() {
                break;
            }
            match &mut self.table {
                Some(table) => docs.iter().for_each(|&doc| improve(table, doc, points)),
                None => self.list.extend(docs.iter().map(|&doc| (doc, points))),
            }
            if self.list.len() > LIST_MIN && self.list.len() > self.max_doc as usize / 16 {
                let mut table = vec![0_u8; self.max_doc as usize];
                self.list.drain(..).for_each(|(doc, points)| improve(&mut table, doc, points));
                self.table = Some(table);
            }
            postings.advance();
        }
        self.postings = Some(postings);
    }

    fn finish(self) -> Vec<(DocId, u8)> {
        if let Some(table) = self.table {
            return (0..).zip(table).filter(|&(_, points)| points > 0).collect();
        }
        let mut list = self.list;
        list.sort_unstable_by_key(|&(doc, points)| (doc, u8::MAX - points));
        list.dedup_by_key(|&mut (doc, _)| doc);
        list
    }
}

fn improve(table: &mut [u8], doc: DocId, points: u8) {
    if let Some(best) = table.get_mut(doc as usize) {
        *best = points.max(*best);
    }
}

struct WordScorer {
    matches: Vec<(DocId, u8)>,
    at: usize,
}

impl DocSet for WordScorer {
    fn advance(&mut self) -> DocId {
        self.at = (self.at + 1).min(self.matches.len());
        self.doc()
    }

    fn seek(&mut self, target: DocId) -> DocId {
        // Doubling steps: targets are mostly near.
        let is_before = |at: usize| self.matches.get(at).is_some_and(|&(doc, _)| doc < target);
        let mut step = 1;
        while is_before(self.at + step) {
            step *= 2;
        }
        let to = (self.at + step + 1).min(self.matches.len());
        let from = (self.at + step / 2).min(to);
        let between = self.matches.get(from..to).unwrap_or_default();
        self.at = from + between.partition_point(|&(doc, _)| doc < target);
        self.doc()
    }

    fn doc(&self) -> DocId {
        self.matches.get(self.at).map_or(TERMINATED, |&(doc, _)| doc)
    }

    fn size_hint(&self) -> u32 {
        u32::try_from(self.matches.len()).unwrap_or(u32::MAX)
    }
}

impl Scorer for WordScorer {
    fn score(&mut self) -> Score {
        self.matches.get(self.at).map_or(0.0, |&(_, points)| points.into())
    }
}
