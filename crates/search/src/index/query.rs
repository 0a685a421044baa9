//! Builds tantivy queries from parsed ones. Every query is built here, for one tenant and the kinds that its caller may see.

use std::sync::Arc;

use kernel::base::{Error, Result};
use search_language::spellings::{join_words, name_keys, spell_out};
use search_language::typos::allowed_typos;
use search_language::{Clause, Identity, ParsedQuery, QueryField, Words};
use tantivy::Searcher;
use tantivy::query::{BooleanQuery, ConstScoreQuery, DisjunctionMaxQuery, EmptyQuery, Occur, Query, TermQuery};
use tantivy::schema::IndexRecordOption;

use super::super::documents::{DocumentKind, KindSet, NAMED_KINDS, kinds_with_field};
use super::budget::SearchBudget;
use super::names::{ExactStartQuery, NAMED_MAX, NameStartQuery};
use super::phrases::{PhraseEnd, PhraseQuery};
use super::points;
use super::schema::{CODE, IDENTITY, IndexFields, NAME, ORGANIZATION_ID, SERIAL_END, TermOwner};
use super::words::{MatchMode, WordQuery};

/// How many words of a query may have two typos: the first words of a pasted sentence say what is meant.
const TYPOS_OF_FIRST: usize = 3;
/// The characters of a serial number's end that people read from a label.
const SERIAL_END_CHARS_MIN: usize = 4;
/// The least characters of a name's beginning that mean it.
const NAME_START_CHARS_MIN: usize = 2;
/// The digits of a whole hardware address.
const MAC_DIGITS: usize = 12;
/// The least characters of a serial number's beginning that mean it: the first ones are the maker's.
const CODE_START_CHARS_MIN: usize = 4;
/// Words of at most this many characters begin so many others that a query with several of them may be too expensive.
const SHORT_WORD_CHARS: usize = 2;
/// How many words of a query may be two words each that were typed without the space.
const SPLITS_OF_FIRST: usize = 4;

/// In how many ways the words of a query match.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Breadth {
    /// In all.
    Wide,
    /// For queries that are too expensive otherwise: short words match whole words only, and none is split.
    Narrow,
}

/// Whether names that begin with the query come first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NameStarts {
    /// Unless there are many.
    FirstIfFew,
    First,
    Ignored,
}

/// Builds queries. Every term begins with one of these owners, and all reads are counted in the budget.
pub struct QueryBuilder<'a> {
    pub fields: &'a IndexFields,
    pub searcher: &'a Searcher,
    /// The tenant with each of the kinds that are searched.
    pub owners: Arc<[TermOwner]>,
    pub breadth: Breadth,
    pub name_starts: NameStarts,
    pub budget: Arc<SearchBudget>,
}

/// Whether a query has several words.
pub fn has_several_texts(query: &ParsedQuery) -> bool {
    query.must.iter().filter(|clause| clause.is_text()).count() > 1
}

fn find_short_word(words: &Words) -> Option<&str> {
    let [word] = words.tokens.folded.as_slice() else { return None };
    Some(word.as_str()).filter(|word| word.chars().count() <= SHORT_WORD_CHARS)
}

impl QueryBuilder<'_> {
    /// The query, and whether names that begin with it come first. `resolve_names` resolves the name in a clause to ids.
    pub fn build_query(
        &self,
        query: &ParsedQuery,
        resolve_names: impl Fn(&Clause) -> Result<Vec<String>>,
    ) -> Result<(Box<dyn Query>, bool)> {
        let mut clauses: Vec<(Occur, Box<dyn Query>)> = Vec::new();
        let identity = query.identity();
        let name_start = self.name_start_query(&identity).map_err(Error::internal)?;
        let has_name_starts = name_start.is_some();
        if let Some(text) = self.text_query(query, &identity, name_start).map_err(Error::internal)? {
            clauses.push((Occur::Must, text));
        }
        for clause in query.must.iter().filter(|clause| !clause.is_text()) {
            let ids = resolve_names(clause)?;
            clauses.push((Occur::Must, self.strict_query(clause, &ids).map_err(Error::internal)?));
        }
        for clause in &query.must_not {
            let ids = resolve_names(clause)?;
            clauses.push((Occur::MustNot, self.strict_query(clause, &ids).map_err(Error::internal)?));
        }
        Ok((Box::new(BooleanQuery::new(clauses)), has_name_starts))
    }

    /// An owner's documents with an exact value, to resolve names.
    pub fn name_query(&self, owner: &TermOwner, field: QueryField, value: &str) -> tantivy::Result<Box<dyn Query>> {
        Ok(self.owner_exact_query(owner, field.name(), value, 0)?.unwrap_or_else(|| Box::new(EmptyQuery)))
    }

    /// The documents that have all words and phrases, or that the query names as a whole. Phrases must be there in any case.
    fn text_query(
        &self,
        query: &ParsedQuery,
        identity: &Identity,
        name_start: Option<Box<dyn Query>>,
    ) -> tantivy::Result<Option<Box<dyn Query>>> {
        let texts: Vec<&Clause> = query.must.iter().filter(|clause| clause.is_text()).collect();
        if texts.is_empty() {
            return Ok(None);
        }
        let mut all: Vec<(Occur, Box<dyn Query>)> = Vec::new();
        for at in 0..texts.len() {
            all.push((Occur::Must, self.must_query(&texts, at)?));
        }
        all.extend(self.adjacency_query(&texts).map(|adjacency| (Occur::Should, adjacency)));
        all.extend(name_start.map(|start| (Occur::Should, start)));
        let named = self.identity_query(identity)?;
        if texts.iter().any(|clause| matches!(clause, Clause::Phrase(_))) {
            all.extend(named.map(|named| (Occur::Should, named)));
            return Ok(Some(Box::new(BooleanQuery::new(all))));
        }
        let all: Box<dyn Query> = Box::new(BooleanQuery::new(all));
        Ok(Some(best_of([all].into_iter().chain(named).collect())))
    }

    /// Words that were typed in a row get extra points where a document has them in a row.
    fn adjacency_query(&self, texts: &[&Clause]) -> Option<Box<dyn Query>> {
        let words = texts.iter().filter_map(|clause| match clause {
            Clause::Words(words) => Some(&words.tokens.folded),
            _ => None,
        });
        let tokens: Vec<String> = words.flatten().cloned().collect();
        // The order has a budget of its own, so that it cannot make the search too expensive.
        let adjacency = || PhraseQuery::for_adjacency(self.fields, &self.owners, &tokens, &SearchBudget::for_order());
        (texts.len() > 1 && tokens.len() > 1).then(|| -> Box<dyn Query> { Box::new(adjacency()) })
    }

    /// The records that the query is the whole name, number or address of.
    fn identity_query(&self, identity: &Identity) -> tantivy::Result<Option<Box<dyn Query>>> {
        let number = identity.number.map(|number| number.to_string());
        let mac = identity.mac.as_ref().filter(|mac| mac.len() == MAC_DIGITS);
        let fields =
            [(QueryField::Number, number.as_ref()), (QueryField::Mac, mac), (QueryField::Ip, identity.ip.as_ref())];
        let mut any = Vec::new();
        for key in &identity.keys {
            any.extend(self.exact_queries(KindSet::all(), IDENTITY, key, points::IDENTITY)?);
        }
        for (field, value) in fields {
            if let Some(value) = value {
                any.extend(self.exact_queries(kinds_with_field(field), field.name(), value, points::IDENTITY)?);
            }
        }
        Ok((!any.is_empty()).then(|| best_of(any)))
    }

    /// The machines, people and customers whose name or address begins with the query.
    fn name_start_query(&self, identity: &Identity) -> tantivy::Result<Option<Box<dyn Query>>> {
        if self.name_starts == NameStarts::Ignored {
            return Ok(None);
        }
        let mut starts: Vec<(&str, &str)> = Vec::new();
        for (name, chars_min) in [(NAME, NAME_START_CHARS_MIN), (CODE, CODE_START_CHARS_MIN)] {
            let keys = identity.keys.iter().filter(|key| key.chars().count() >= chars_min);
            starts.extend(keys.map(|key| (name, key.as_str())));
        }
        starts.extend(identity.mac.as_ref().map(|mac| (QueryField::Mac.name(), mac.as_str())));
        starts.extend(identity.ip_start.as_ref().map(|ip| (QueryField::Ip.name(), ip.as_str())));
        let owners: Vec<&TermOwner> = self.owners_of(NAMED_KINDS.iter().copied().collect()).collect();
        let names_max = if self.name_starts == NameStarts::First { u32::MAX } else { NAMED_MAX };
        let found =
            NameStartQuery::find(self.searcher, self.fields.exact, &owners, &starts, names_max, points::NAME_START)?;
        Ok(found.map(|query| -> Box<dyn Query> { Box::new(query) }))
    }

    fn must_query(&self, texts: &[&Clause], at: usize) -> tantivy::Result<Box<dyn Query>> {
        match texts.get(at) {
            Some(Clause::Words(words)) => {
                let mut any = self.spelling_queries(words, texts.len(), at);
                any.extend(self.meaning_queries(words)?);
                let pairs = [at.checked_sub(1).map(|before| (before, at)), Some((at, at + 1))];
                any.extend(pairs.into_iter().flatten().filter_map(|pair| self.joined_query(texts, pair)));
                Ok(best_of(any))
            }
            Some(clause) => self.strict_query(clause, &[]),
            None => Ok(Box::new(EmptyQuery)),
        }
    }

    /// The words in a row, as they may be written: with umlauts or transcribed, apart or together, in full.
    fn spelling_queries(&self, words: &Words, texts: usize, at: usize) -> Vec<Box<dyn Query>> {
        let folded = words.tokens.folded.as_slice();
        if self.breadth == Breadth::Narrow && texts > 1 && find_short_word(words).is_some() {
            return words.tokens.spellings().map(|spelling| self.whole_phrase_query(spelling)).collect();
        }
        let mut any: Vec<Box<dyn Query>> = Vec::new();
        for spelling in words.tokens.spellings() {
            any.push(match spelling {
                // A typo in the transcription is a typo in the word.
                [word] if spelling == folded => {
                    let query = self.new_word_query(word, find_mode(word, at));
                    let may_split = self.breadth == Breadth::Wide && at < SPLITS_OF_FIRST;
                    Box::new(if may_split { query.or_split() } else { query })
                }
                [word] => self.word_query(word, MatchMode::Prefix),
                several => self.phrase_query(several, PhraseEnd::Prefix),
            });
            any.extend(join_spelling(spelling).map(|joined| -> Box<dyn Query> {
                Box::new(self.new_word_query(&joined, MatchMode::Prefix).for_words(spelling.len()))
            }));
        }
        if let [word] = folded {
            any.extend(spell_out(word).iter().map(|tokens| -> Box<dyn Query> {
                let phrase =
                    PhraseQuery::new(self.fields, &self.owners, tokens, PhraseEnd::Prefix, &self.budget).for_word();
                Box::new(phrase)
            }));
        }
        any
    }

    /// What the words may mean without being in a text: a number, an address, the end of a serial number.
    fn meaning_queries(&self, words: &Words) -> tantivy::Result<Vec<Box<dyn Query>>> {
        let tokens = words.tokens.folded.as_slice();
        let exact = exact_points(tokens.len());
        let devices = KindSet::from_iter([DocumentKind::Device]);
        let mut any: Vec<Box<dyn Query>> = Vec::new();
        if let Some(number) = words.number {
            any.push(self.number_query(number)?);
        }
        if let Some(mac) = &words.mac {
            any.extend(self.mac_queries(mac, tokens.len())?);
        }
        if let Some(ip) = &words.ip {
            any.extend(self.exact_queries(devices, QueryField::Ip.name(), ip, exact)?);
        }
        let names = [Some(tokens.join(" ")).filter(|_| tokens.len() > 1), words.host.clone(), words.uuid.clone()];
        for key in names.iter().flatten().flat_map(|name| name_keys(name)) {
            any.extend(self.exact_queries(devices, IDENTITY, &key, exact)?);
        }
        let serial = tokens.concat();
        if serial.is_ascii() && serial.len() >= SERIAL_END_CHARS_MIN {
            let end: String = serial.chars().rev().collect();
            any.push(self.exact_start_query(SERIAL_END, &end, points::SERIAL_END, 1));
        }
        Ok(any)
    }

    /// Two words of the query that stand together in the text.
    fn joined_query(&self, texts: &[&Clause], (first, second): (usize, usize)) -> Option<Box<dyn Query>> {
        let find_word = |at: usize| match texts.get(at)? {
            Clause::Words(words) => match words.tokens.folded.as_slice() {
                [word] => Some(word.as_str()),
                _ => None,
            },
            _ => None,
        };
        let joined = join_words(&[find_word(first)?, find_word(second)?])?;
        Some(Box::new(self.new_word_query(&joined, MatchMode::Prefix)))
    }

    /// A clause that matches as it is written. Exclusions match whole words only: excluding `lap` does not exclude laptops.
    fn strict_query(&self, clause: &Clause, ids: &[String]) -> tantivy::Result<Box<dyn Query>> {
        match clause {
            Clause::Words(words) => {
                let mut any: Vec<Box<dyn Query>> = Vec::new();
                for spelling in words.tokens.spellings() {
                    any.push(self.whole_phrase_query(spelling));
                    any.extend(join_spelling(spelling).map(|joined| self.word_query(&joined, MatchMode::Exact)));
                }
                let mac = words.mac.as_ref().filter(|mac| mac.len() == MAC_DIGITS);
                for (field, value) in [(QueryField::Mac, mac), (QueryField::Ip, words.ip.as_ref())] {
                    if let Some(value) = value {
                        any.extend(self.exact_queries(kinds_with_field(field), field.name(), value, 0)?);
                    }
                }
                Ok(best_of(any))
            }
            Clause::Phrase(tokens) => {
                Ok(best_of(tokens.spellings().map(|spelling| self.whole_phrase_query(spelling)).collect()))
            }
            Clause::Number(number) => self.number_query(*number),
            Clause::Field { field, value } => self.field_query(*field, value, ids),
        }
    }

    /// Whole words in a row, in names or bodies.
    fn whole_phrase_query(&self, tokens: &[String]) -> Box<dyn Query> {
        match tokens {
            [word] => self.word_query(word, MatchMode::Exact),
            several => self.phrase_query(several, PhraseEnd::Whole),
        }
    }

    fn word_query(&self, word: &str, mode: MatchMode) -> Box<dyn Query> {
        Box::new(self.new_word_query(word, mode))
    }

    fn new_word_query(&self, word: &str, mode: MatchMode) -> WordQuery {
        WordQuery::new(self.fields, &self.owners, word, mode, &self.budget)
    }

    fn phrase_query(&self, tokens: &[String], last: PhraseEnd) -> Box<dyn Query> {
        Box::new(PhraseQuery::new(self.fields, &self.owners, tokens, last, &self.budget))
    }

    /// A ticket with this number ranks before documents that merely contain it.
    fn number_query(&self, number: i64) -> tantivy::Result<Box<dyn Query>> {
        let (field, points) = (QueryField::Number, 2 * u32::from(points::EXACT_NAME));
        Ok(best_of(self.exact_queries(kinds_with_field(field), field.name(), &number.to_string(), points)?))
    }

    /// A hardware address is worth as much as all its parts in a row, and its beginning as much as that of a name.
    fn mac_queries(&self, mac: &str, parts: usize) -> tantivy::Result<Vec<Box<dyn Query>>> {
        let field = QueryField::Mac;
        if mac.len() == MAC_DIGITS {
            return self.exact_queries(kinds_with_field(field), field.name(), mac, exact_points(parts));
        }
        Ok(vec![self.exact_start_query(field.name(), mac, points::PREFIX_NAME, parts)])
    }

    fn field_query(&self, field: QueryField, value: &str, ids: &[String]) -> tantivy::Result<Box<dyn Query>> {
        let (name, values) = match field {
            QueryField::Org => (ORGANIZATION_ID, ids.to_vec()),
            QueryField::Assignee => (QueryField::Assignee.name(), ids.to_vec()),
            _ => (field.name(), vec![value.to_owned()]),
        };
        let mut any = Vec::new();
        for value in values {
            any.extend(self.exact_queries(kinds_with_field(field), name, &value, 0)?);
        }
        Ok(best_of(any))
    }

    fn owners_of(&self, kinds: KindSet) -> impl Iterator<Item = &TermOwner> {
        self.owners.iter().filter(move |owner| owner.is_any_of(kinds))
    }

    /// Documents of these kinds with an exact value, one query for each kind that has any.
    fn exact_queries(
        &self,
        kinds: KindSet,
        name: &str,
        value: &str,
        points: u32,
    ) -> tantivy::Result<Vec<Box<dyn Query>>> {
        let queries = self.owners_of(kinds).map(|owner| self.owner_exact_query(owner, name, value, points));
        queries.filter_map(Result::transpose).collect()
    }

    /// Devices with an exact value that begins in this way.
    fn exact_start_query(&self, name: &str, start: &str, points: u8, words: usize) -> Box<dyn Query> {
        let keys = self.owners_of(KindSet::from_iter([DocumentKind::Device])).map(|owner| owner.exact_key(name, start));
        let words = u8::try_from(words).unwrap_or(u8::MAX).min(points::WORDS_MAX);
        let (exact, budget) = (self.fields.exact, self.budget.clone());
        Box::new(ExactStartQuery { exact, keys: keys.collect(), points, words, budget })
    }

    /// Tantivy reads the posting list during iteration without counting, so all of it is counted here.
    fn owner_exact_query(
        &self,
        owner: &TermOwner,
        name: &str,
        value: &str,
        points: u32,
    ) -> tantivy::Result<Option<Box<dyn Query>>> {
        let term = owner.exact_term(self.fields, name, value);
        if !self.budget.take_terms(self.searcher.segment_readers().len() as u64) {
            return Ok(None);
        }
        let documents = self.searcher.doc_freq(&term)?;
        if documents == 0 || !self.budget.take_documents(documents) {
            return Ok(None);
        }
        let query = TermQuery::new(term, IndexRecordOption::Basic);
        #[expect(clippy::cast_precision_loss, reason = "points are small whole numbers")]
        Ok(Some(Box::new(ConstScoreQuery::new(Box::new(query), points as f32))))
    }
}

/// How a single word may match: with typos as far as its place in the query and its letters allow.
fn find_mode(word: &str, at: usize) -> MatchMode {
    let typos_max = if at >= TYPOS_OF_FIRST { 1 } else { u8::MAX };
    match allowed_typos(word).min(typos_max) {
        0 => MatchMode::Prefix,
        edits => MatchMode::Typo(edits),
    }
}

fn join_spelling(spelling: &[String]) -> Option<String> {
    join_words(&spelling.iter().map(String::as_str).collect::<Vec<_>>())
}

/// The points of as many words that match a name exactly.
fn exact_points(words: usize) -> u32 {
    let words = u8::try_from(words).unwrap_or(u8::MAX).min(points::WORDS_MAX);
    u32::from(points::EXACT_NAME) * u32::from(words)
}

fn best_of(mut any: Vec<Box<dyn Query>>) -> Box<dyn Query> {
    match any.len() {
        0 => Box::new(EmptyQuery),
        1 => any.remove(0),
        _ => Box::new(DisjunctionMaxQuery::new(any)),
    }
}
