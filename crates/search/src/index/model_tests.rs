//! Compares searches of random documents with a plain scan of every document: what is found, and with how many points.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

use kernel::base::{RecordId, StringEnum as _, TenantId, Timestamp};
use search_language::fold::fold_value;
use search_language::spellings::{join_words, name_keys, placed_words, spell_out, split_word};
use search_language::typos::{allowed_typos, starts_may_have_typos};
use search_language::{Clause, ParsedQuery, Words, parse};
use tantivy::merge_policy::NoMergePolicy;
use tantivy::{Index, IndexWriter};

use super::super::documents::{DocumentKind, IdentitySort, KindSet, NAMED_KINDS, SearchDocument};
use super::budget::SearchBudget;
use super::collect::{IndexSnapshot, RankingPlan};
use super::points;
use super::query::{Breadth, NameStarts, QueryBuilder};
use super::schema::{self, IndexFields, TermOwner};

const DOCUMENTS: usize = 200;
const QUERIES: usize = 400;
/// Documents of one segment.
const SEGMENT: usize = 80;

/// What texts are made of.
const WORDS: [&str; 32] = [
    "web",
    "WEB-01",
    "web01",
    "01",
    "web-02.acme.test",
    "blue",
    "screen",
    "bluescreen",
    "Blue-Screen",
    "München",
    "muenchen",
    "munchen",
    "Müller-Ost",
    "office",
    "365",
    "Office365",
    "Wi-Fi",
    "wifi",
    "fi",
    "printer",
    "pirnter",
    "print",
    "er",
    "windows",
    "11",
    "10.0.0.5",
    "PF3ABC9Z",
    "東京",
    "a",
    "1",
    "O'Neill",
    "screens",
];

/// What queries are made of.
const TYPED: [&str; 36] = [
    "web",
    "we",
    "web-0",
    "web01",
    "WEB-01",
    "web 01",
    "wbe01",
    "blue",
    "blue screen",
    "bluescreen",
    "bluescr",
    "screen",
    "münchen",
    "muenchen",
    "munchen",
    "mueller",
    "office365",
    "office 365",
    "wi fi",
    "wifi",
    "wi-fi",
    "printer",
    "pirnter",
    "printr",
    "win11",
    "11",
    "10.0.0",
    "10.0.0.5",
    "bc9z",
    "東京",
    "a",
    "oneill",
    "\"blue screen\"",
    "\"münchen\"",
    "-web",
    "-blue-screen",
];

struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % end
    }

    fn text(&mut self, pieces: &[&'static str], most: usize) -> String {
        let count = 1 + self.below(most);
        (0..count).map(|_| pieces[self.below(pieces.len())]).collect::<Vec<_>>().join(" ")
    }

    fn document(&mut self, number: usize) -> SearchDocument {
        let kinds = [DocumentKind::Device, DocumentKind::User, DocumentKind::Ticket];
        let kind = kinds[self.below(kinds.len())];
        let names: Vec<(&'static str, String)> = (0..=self.below(2)).map(|_| ("name", self.text(&WORDS, 3))).collect();
        let bodies = (0..self.below(3)).map(|_| ("body", self.text(&WORDS, 6))).collect();
        let is_named = NAMED_KINDS.contains(&kind);
        let keys = names.iter().flat_map(|(_, name)| name_keys(name)).map(|key| (IdentitySort::Name, key));
        let identities = if is_named { keys.collect() } else { Vec::new() };
        let serial = ["7xk2p13", "pf3abc9z", "1234bc9z"][self.below(3)];
        SearchDocument {
            tenant: TenantId::NONE,
            kind,
            id: number.to_string(),
            organization_id: None,
            title: String::new(),
            subtitle: String::new(),
            names,
            bodies,
            exact: Vec::new(),
            identities,
            serial: (kind == DocumentKind::Device).then(|| serial.to_owned()),
            is_live: true,
            changed_at: Timestamp::from_millis(i64::try_from(number).unwrap()),
            url: String::new(),
        }
    }
}

struct ModelIndex {
    fields: IndexFields,
    snapshot: IndexSnapshot,
}

impl ModelIndex {
    fn new(documents: &[SearchDocument]) -> Self {
        let (schema, fields) = schema::build_schema();
        let index = Index::create_in_ram(schema);
        schema::register_tokenizer(&index);
        let mut writer: IndexWriter = index.writer_with_num_threads(1, 15_000_000).unwrap();
        writer.set_merge_policy(Box::new(NoMergePolicy));
        for segment in documents.chunks(SEGMENT) {
            for document in segment {
                writer.add_document(schema::build_entry(&fields, document)).unwrap();
            }
            writer.commit().unwrap();
        }
        let snapshot = IndexSnapshot::new(index.reader().unwrap().searcher(), None).unwrap();
        ModelIndex { fields, snapshot }
    }

    /// The number and the points of each document that is found.
    fn search(&self, query: &ParsedQuery) -> Vec<(u64, u64)> {
        let owners = DocumentKind::ALL.iter().map(|kind| TermOwner::for_kind(TenantId::NONE, *kind));
        let builder = QueryBuilder {
            fields: &self.fields,
            searcher: &self.snapshot.searcher,
            owners: owners.collect(),
            breadth: Breadth::Wide,
            name_starts: NameStarts::FirstIfFew,
            budget: SearchBudget::new(),
        };
        let (built, _) = builder.build_query(query, |_| Ok(Vec::new())).unwrap();
        let (kinds, plan) = (KindSet::all(), RankingPlan::default());
        let page = self.snapshot.collect_page(built.as_ref(), kinds, DOCUMENTS, None, plan, &builder.budget).unwrap();
        assert!(!builder.budget.is_exhausted());
        // The time of a document is its number.
        let mut found: Vec<(u64, u64)> =
            page.hits.iter().map(|hit| (hit.position.score & 0xffff, hit.position.points())).collect();
        found.sort_unstable();
        found
    }
}

/// How a text has a word, from best to worst, as the number of its points in names and in bodies.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fit {
    Exact,
    Prefix,
    Typo(u8),
}

fn fit_points(fit: Fit, is_name: bool) -> u32 {
    let (name, body) = match fit {
        Fit::Exact => (points::EXACT_NAME, points::EXACT_BODY),
        Fit::Prefix => (points::PREFIX_NAME, points::PREFIX_BODY),
        Fit::Typo(1) => (points::TYPO_NAME[0], points::TYPO_BODY[0]),
        Fit::Typo(_) => (points::TYPO_NAME[1], points::TYPO_BODY[1]),
    };
    u32::from(if is_name { name } else { body })
}

/// One text of a document: the words at each position.
struct PlainText {
    places: Vec<Vec<String>>,
    is_name: bool,
}

impl PlainText {
    fn all_of(document: &SearchDocument) -> Vec<PlainText> {
        let texts =
            document.names.iter().map(|text| (text, true)).chain(document.bodies.iter().map(|text| (text, false)));
        let read = |((_, text), is_name): (&(&str, String), bool)| {
            let mut places: Vec<Vec<String>> = Vec::new();
            for word in placed_words(text) {
                places.resize(places.len().max(word.position + 1), Vec::new());
                places[word.position].push(word.text);
            }
            PlainText { places, is_name }
        };
        texts.map(read).collect()
    }

    fn word_points(&self, word: &str, fits: impl Fn(&str, &str) -> Option<Fit>) -> u32 {
        let best = self.places.iter().flatten().filter_map(|token| fits(word, token));
        best.map(|fit| fit_points(fit, self.is_name)).max().unwrap_or(0)
    }

    /// The points of words in a row, by how the last one fits.
    fn row_points(&self, row: &[&str], is_prefix: bool, [whole, prefix]: [Fit; 2]) -> u32 {
        let (last, before) = row.split_last().unwrap();
        let mut best = 0;
        for places in self.places.windows(row.len()) {
            if !before.iter().zip(places).all(|(word, place)| place.iter().any(|token| token == word)) {
                continue;
            }
            let end = &places[before.len()];
            let fit = if end.iter().any(|token| token == last) {
                Some(whole)
            } else {
                Some(prefix).filter(|_| is_prefix && end.iter().any(|token| token.starts_with(last)))
            };
            best = best.max(fit.map_or(0, |fit| fit_points(fit, self.is_name)));
        }
        best
    }
}

fn fits_exactly(word: &str, token: &str) -> Option<Fit> {
    (token == word).then_some(Fit::Exact)
}

fn fits_as_prefix(word: &str, token: &str) -> Option<Fit> {
    fits_exactly(word, token).or_else(|| token.starts_with(word).then_some(Fit::Prefix))
}

/// The edits between two words, where two letters that changed places are one.
fn count_edits(one: &[char], other: &[char]) -> usize {
    let mut table = vec![vec![0; other.len() + 1]; one.len() + 1];
    for at in 0..=one.len() {
        for to in 0..=other.len() {
            if at == 0 || to == 0 {
                table[at][to] = at.max(to);
                continue;
            }
            let cost = usize::from(one[at - 1] != other[to - 1]);
            let mut least = (table[at - 1][to] + 1).min(table[at][to - 1] + 1).min(table[at - 1][to - 1] + cost);
            if at > 1 && to > 1 && one[at - 1] == other[to - 2] && one[at - 2] == other[to - 1] {
                least = least.min(table[at - 2][to - 2] + 1);
            }
            table[at][to] = least;
        }
    }
    table[one.len()][other.len()]
}

fn fits_with_typos(word: &str, token: &str, typos_max: u8) -> Option<Fit> {
    let edits_max = usize::from(allowed_typos(word).min(typos_max));
    if let Some(fit) = fits_as_prefix(word, token) {
        return Some(fit);
    }
    let (letters, token): (Vec<char>, Vec<char>) = (word.chars().collect(), token.chars().collect());
    // Other lengths are too many edits away.
    let lengths = letters.len().saturating_sub(edits_max)..=letters.len() + edits_max;
    let ends = if starts_may_have_typos(word) { 0..=token.len() } else { token.len()..=token.len() };
    let edits = ends.filter(|end| lengths.contains(end)).map(|end| count_edits(&letters, &token[..end])).min()?;
    (1..=edits_max).contains(&edits).then(|| Fit::Typo(u8::try_from(edits).unwrap()))
}

/// The points of a document, or `None` if it does not match.
fn scan_document(document: &SearchDocument, query: &ParsedQuery) -> Option<u64> {
    let texts = PlainText::all_of(document);
    if query.must_not.iter().any(|clause| has_clause(&texts, clause)) {
        return None;
    }
    let clauses: Vec<&Clause> = query.must.iter().collect();
    let of_each: Vec<u32> = (0..clauses.len()).map(|at| clause_points(document, &texts, &clauses, at)).collect();
    let has_phrase = clauses.iter().any(|clause| matches!(clause, Clause::Phrase(_)));
    let keys = query.identity().keys;
    let is_named = is_called(document, &keys);
    let begins =
        |key: &String| key.chars().count() > 1 && document.identities.iter().any(|(_, own)| own.starts_with(key));
    let mut total = None;
    if of_each.iter().all(|points| *points > 0) {
        let start = if keys.iter().any(begins) { points::NAME_START } else { 0 };
        total = Some(of_each.iter().sum::<u32>() + adjacency_points(&texts, &clauses) + start);
    }
    let total = match total {
        Some(total) if has_phrase && is_named => Some(total + points::IDENTITY),
        None if has_phrase => None,
        total if is_named => total.max(Some(points::IDENTITY)),
        total => total,
    };
    total.map(u64::from)
}

fn clause_points(document: &SearchDocument, texts: &[PlainText], clauses: &[&Clause], at: usize) -> u32 {
    match clauses[at] {
        Clause::Words(words) => {
            let neighbours = [at.checked_sub(1).map(|before| (before, at)), Some((at, at + 1))];
            let joined = neighbours.into_iter().flatten().filter_map(|pair| joined_points(texts, clauses, pair));
            let best = texts.iter().map(|text| spelling_points(text, words, at)).chain(joined).max();
            best.unwrap_or(0).max(serial_points(document, words)).max(name_points(document, words))
        }
        Clause::Phrase(tokens) => {
            let each = tokens.spellings().flat_map(|spelling| {
                let row: Vec<&str> = spelling.iter().map(String::as_str).collect();
                let words = u32::try_from(row.len()).unwrap();
                texts.iter().map(move |text| text.row_points(&row, false, [Fit::Exact, Fit::Exact]) * words)
            });
            each.max().unwrap_or(0)
        }
        Clause::Number(_) | Clause::Field { .. } => 0,
    }
}

fn spelling_points(text: &PlainText, words: &Words, at: usize) -> u32 {
    let typos_max = if at >= 3 { 1 } else { 2 };
    let mut best = 0;
    for (index, spelling) in words.tokens.spellings().enumerate() {
        let row: Vec<&str> = spelling.iter().map(String::as_str).collect();
        let count = u32::try_from(row.len()).unwrap();
        match row.as_slice() {
            [word] => {
                let fits = |word: &str, token: &str| match index {
                    0 => fits_with_typos(word, token, typos_max),
                    _ => fits_as_prefix(word, token),
                };
                best = best.max(text.word_points(word, fits));
                for split in split_word(word) {
                    let fits = if split.is_at_number { [Fit::Exact, Fit::Prefix] } else { [Fit::Prefix, Fit::Typo(1)] };
                    best = best.max(text.row_points(&[split.first, split.second], split.is_prefix, fits));
                }
                for full in spell_out(word).iter().filter(|_| index == 0) {
                    let row: Vec<&str> = full.iter().map(String::as_str).collect();
                    best = best.max(text.row_points(&row, true, [Fit::Exact, Fit::Prefix]));
                }
            }
            several => best = best.max(text.row_points(several, true, [Fit::Exact, Fit::Prefix]) * count),
        }
        if let Some(joined) = join_words(&row) {
            best = best.max(text.word_points(&joined, fits_as_prefix) * count);
        }
    }
    best
}

fn serial_points(document: &SearchDocument, words: &Words) -> u32 {
    let end = words.tokens.folded.concat();
    let is_end =
        end.is_ascii() && end.len() >= 4 && document.serial.as_ref().is_some_and(|serial| serial.ends_with(&end));
    if is_end { points::SERIAL_END.into() } else { 0 }
}

fn is_called(document: &SearchDocument, keys: &[String]) -> bool {
    document.identities.iter().any(|(_, own)| keys.contains(own))
}

/// Several words that are the whole name of a device.
fn name_points(document: &SearchDocument, words: &Words) -> u32 {
    let tokens = &words.tokens.folded;
    let keys = name_keys(&tokens.join(" "));
    let is_name = document.kind == DocumentKind::Device && is_called(document, &keys);
    let words = u32::try_from(tokens.len()).unwrap();
    if tokens.len() > 1 && is_name { words * u32::from(points::EXACT_NAME) } else { 0 }
}

fn joined_points(texts: &[PlainText], clauses: &[&Clause], (first, second): (usize, usize)) -> Option<u32> {
    let word = |at: usize| match clauses.get(at)? {
        Clause::Words(words) if words.tokens.folded.len() == 1 => words.tokens.folded.first(),
        _ => None,
    };
    let joined = join_words(&[word(first)?, word(second)?])?;
    texts.iter().map(|text| text.word_points(&joined, fits_as_prefix)).max()
}

fn adjacency_points(texts: &[PlainText], clauses: &[&Clause]) -> u32 {
    let words = clauses.iter().filter_map(|clause| match clause {
        Clause::Words(words) => Some(&words.tokens.folded),
        _ => None,
    });
    let row: Vec<&str> = words.flatten().map(String::as_str).collect();
    if clauses.len() < 2 || row.len() < 2 {
        return 0;
    }
    let beside = |text: &&PlainText| text.row_points(&row, true, [Fit::Exact, Fit::Exact]) > 0;
    let best =
        texts.iter().filter(beside).map(|text| if text.is_name { points::BESIDE_NAME } else { points::BESIDE_BODY });
    u32::from(best.max().unwrap_or(0)) * u32::try_from(row.len()).unwrap()
}

/// Whether a document has what is excluded, as it is written.
fn has_clause(texts: &[PlainText], clause: &Clause) -> bool {
    let (Clause::Words(Words { tokens, .. }) | Clause::Phrase(tokens)) = clause else { return false };
    let is_joined_too = matches!(clause, Clause::Words(_));
    tokens.spellings().any(|spelling| {
        let row: Vec<&str> = spelling.iter().map(String::as_str).collect();
        let joined = join_words(&row).filter(|_| is_joined_too);
        texts.iter().any(|text| {
            text.row_points(&row, false, [Fit::Exact, Fit::Exact]) > 0
                || joined.as_ref().is_some_and(|joined| text.word_points(joined, fits_exactly) > 0)
        })
    })
}

#[test]
fn a_search_finds_what_a_scan_of_every_document_finds() {
    let mut random = Random(20_261_118);
    let documents: Vec<SearchDocument> = (0..DOCUMENTS).map(|number| random.document(number)).collect();
    let index = ModelIndex::new(&documents);
    let mut found_any = 0;
    for _ in 0..QUERIES {
        let q = random.text(&TYPED, 3);
        let Ok(query) = parse(&q) else { continue };
        let scan = |(number, document): (usize, &SearchDocument)| {
            Some((u64::try_from(number).unwrap(), scan_document(document, &query)?))
        };
        let expected: Vec<(u64, u64)> = documents.iter().enumerate().filter_map(scan).collect();
        let found = index.search(&query);
        if found != expected {
            let differs = |one: &(u64, u64)| !found.contains(one) || !expected.contains(one);
            let number = found.iter().chain(&expected).find(|one| differs(one)).unwrap().0;
            let of = |all: &[(u64, u64)]| all.iter().find(|one| one.0 == number).map(|one| one.1);
            let document = &documents[usize::try_from(number).unwrap()];
            let (names, bodies) = (&document.names, &document.bodies);
            let (got, wanted) = (of(&found), of(&expected));
            let kind = document.kind.as_str();
            panic!(
                "{q:?} gives {got:?} points, and not {wanted:?}, to {kind} {names:?} {bodies:?} {:?}",
                fold_value(&q)
            );
        }
        found_any += usize::from(!found.is_empty());
    }
    assert!(found_any > QUERIES / 2, "{found_any} have found something");
}
