//! Compares phrase queries with a scan of every document.

#![expect(clippy::unwrap_used, reason = "tests")]

use kernel::base::{RecordId, TenantId};
use tantivy::merge_policy::NoMergePolicy;
use tantivy::{Index, IndexWriter, Searcher, TERMINATED, TantivyDocument};

use super::super::super::documents::DocumentKind;
use super::super::budget::{DOCUMENTS_MAX, POSITIONS_MAX, TERMS_MAX};
use super::super::schema;
use super::*;

const WORDS: [&str; 3] = ["a", "ab", "b"];
/// Another owner, which has as many letters as any.
const OTHER: &str = "zzzzzzzzzzzzzzzzzzzzzzzzzzz";
/// The number of documents in a block of a posting list, which can be skipped together.
const BLOCK_LEN: u32 = 128;
/// Above this many documents, matches are collected in a table.
const LIST_MIN: usize = 4_096;

type SampleText = Vec<&'static str>;

/// A name and a body.
type Pair = (&'static [&'static str], &'static [&'static str]);

/// The two columns of one document.
struct SampleDocument {
    name: SampleText,
    body: SampleText,
    is_deleted: bool,
}

/// All texts of this many words.
fn all_texts(words: usize) -> Vec<SampleText> {
    (0..words).fold(vec![Vec::new()], |shorter, _| {
        let longer = |text: &SampleText| WORDS.map(|word| [text.as_slice(), &[word]].concat());
        shorter.iter().flat_map(longer).collect()
    })
}

/// Every text of up to four words as a name and as a body, in varying pairs. One in seven is deleted.
fn sample_documents() -> Vec<SampleDocument> {
    let all: Vec<SampleText> = (0..=4).flat_map(all_texts).collect();
    let text = |number: usize| all[number % all.len()].clone();
    let said =
        |number: usize| SampleDocument { name: text(number), body: text(37 * number + 5), is_deleted: number % 7 == 3 };
    (0..320).map(said).collect()
}

/// An index whose documents are identified by their numbers.
struct SampleIndex {
    owner: TermOwner,
    fields: IndexFields,
    searcher: Searcher,
}

impl SampleIndex {
    /// Builds a segment for each group, numbered throughout. Deleted documents stay in the posting lists of a segment. Other
    /// owners have the same documents, interleaved.
    fn with_segments(segments: &[&[SampleDocument]], others: &[&str]) -> Self {
        let owner = TermOwner::for_kind(TenantId::NONE, DocumentKind::Ticket);
        let (schema, fields) = schema::build_schema();
        let index = Index::create_in_ram(schema);
        schema::register_tokenizer(&index);
        let mut writer: IndexWriter = index.writer_with_num_threads(1, 15_000_000).unwrap();
        writer.set_merge_policy(Box::new(NoMergePolicy));
        let own = std::str::from_utf8(owner.as_bytes()).unwrap();
        let (mut numbers, mut deleted) = (0_u64.., Vec::new());
        for group in segments {
            for (said, number) in group.iter().zip(&mut numbers) {
                for prefix in [own].iter().chain(others) {
                    writer.add_document(sample_entry(&fields, prefix, number, said)).unwrap();
                }
                deleted.extend(Some(number).filter(|_| said.is_deleted));
            }
            writer.commit().unwrap();
        }
        for number in deleted {
            writer.delete_term(owner.key_term(&fields, &number.to_string()));
        }
        writer.commit().unwrap();
        let searcher = index.reader().unwrap().searcher();
        assert_eq!(searcher.segment_readers().len(), segments.len());
        SampleIndex { owner, fields, searcher }
    }

    /// How many documents of each segment have the word in their name.
    fn list_lengths(&self, word: &str) -> Vec<u32> {
        let key = self.owner.token_key(word);
        let list = |reader: &SegmentReader| {
            let index = reader.inverted_index(self.fields.name).unwrap();
            let info = index.terms().get(&key).unwrap();
            info.map_or(0, |info| info.doc_freq)
        };
        self.searcher.segment_readers().iter().map(list).collect()
    }

    /// The numbers and points of the live documents that a phrase finds.
    fn find_points(&self, row: &[&str], last: PhraseEnd, budget: &Arc<SearchBudget>) -> Vec<(u64, u32)> {
        let tokens: Vec<String> = row.iter().map(|&word| word.to_owned()).collect();
        let query = PhraseQuery::new(&self.fields, &[self.owner.clone()].into(), &tokens, last, budget);
        let mut found: Vec<(u64, u32)> = Vec::new();
        for reader in self.searcher.segment_readers() {
            let numbers = reader.fast_fields().column_first_or_default::<u64>("rank").unwrap();
            let mut scorer = query.scorer(reader, 1.0).unwrap();
            let mut before = None;
            while scorer.doc() != TERMINATED {
                let doc = scorer.doc();
                assert!(before < Some(doc), "{row:?} {last:?}: each once, in their order");
                before = Some(doc);
                if !reader.is_deleted(doc) {
                    // The score is a small whole number.
                    found.push((numbers.get_val(doc), scorer.score().to_string().parse().unwrap()));
                }
                scorer.advance();
            }
        }
        found.sort_unstable();
        found
    }

    /// Compares what a phrase finds with the expected documents, and returns their number.
    #[track_caller]
    fn check_phrase(&self, all: &[SampleDocument], row: &[&str], last: PhraseEnd) -> usize {
        let budget = SearchBudget::new();
        let expected = expected_points(all, row, last);
        assert_eq!(self.find_points(row, last, &budget), expected, "{row:?} {last:?}");
        assert!(!budget.is_exhausted(), "{row:?} {last:?}");
        expected.len()
    }
}

fn sample_entry(fields: &IndexFields, owner: &str, number: u64, said: &SampleDocument) -> TantivyDocument {
    let spelt = |text: &SampleText| text.iter().fold(owner.to_owned(), |spelt, word| spelt + "\x1f" + word);
    let mut document = TantivyDocument::default();
    document.add_text(fields.key, format!("{owner}\x1f{number}"));
    document.add_text(fields.name, spelt(&said.name));
    document.add_text(fields.body, spelt(&said.body));
    document.add_u64(fields.rank, number);
    document
}

/// The number of each live document that has the phrase, with the points of the better column.
fn expected_points(all: &[SampleDocument], row: &[&str], last: PhraseEnd) -> Vec<(u64, u32)> {
    let best =
        |said: &SampleDocument| points_of(&said.name, row, last, 80, 50).max(points_of(&said.body, row, last, 60, 36));
    let there = (0..).zip(all).filter(|(_, said)| !said.is_deleted);
    there.map(|(number, said)| (number, best(said))).filter(|(_, points)| *points > 0).collect()
}

/// The points of the best match in a text: per word `whole` if the phrase ends with a whole word, and `start` for a prefix.
fn points_of(text: &[&str], row: &[&str], last: PhraseEnd, whole: u32, start: u32) -> u32 {
    let (end, leading) = row.split_last().unwrap();
    let words = u32::try_from(row.len()).unwrap();
    let at = |window: &[&str]| match window.split_last() {
        Some((word, others)) if others == leading && word == end => words * whole,
        Some((word, others)) if others == leading && last == PhraseEnd::Prefix && word.starts_with(end) => {
            words * start
        }
        _ => 0,
    };
    text.windows(row.len()).map(at).max().unwrap_or_default()
}

/// Covers posting lists of several blocks, two segments with deletions in both, and phrases in both columns of a document.
#[test]
fn a_row_is_found_where_its_words_stand_side_by_side() {
    let all = sample_documents();
    let (first, second) = all.split_at(220);
    let sample = SampleIndex::with_segments(&[first, second], &[OTHER]);
    assert!(sample.list_lengths("a").iter().any(|documents| *documents > BLOCK_LEN), "{:?}", sample.list_lengths("a"));
    assert!(sample.searcher.segment_readers().iter().all(SegmentReader::has_deletes));
    // All phrases of two and three words, and some of four.
    let rows = all_texts(2).into_iter().chain(all_texts(3)).chain(all_texts(4).into_iter().step_by(5));
    for row in rows {
        let [whole, start] = [PhraseEnd::Whole, PhraseEnd::Prefix].map(|last| sample.check_phrase(&all, &row, last));
        assert!(0 < whole && whole <= start, "{row:?}: {whole} {start}");
    }
}

/// Covers more matches than a list holds, and few matches for which most blocks of long posting lists are skipped.
#[test]
fn a_row_of_most_documents_is_found_and_one_of_few() {
    const MOST: [Pair; 5] = [
        (&["a", "a"], &[]),
        (&["a", "ab"], &[]),
        (&["a", "ab"], &["a", "a"]),
        (&["b", "a", "a"], &["b"]),
        (&["ab", "a", "ab"], &[]),
    ];
    const SOME: Pair = (&[], &["a", "ab", "b"]);
    const FEW: Pair = (&["c", "a", "b"], &[]);
    let document = |number: usize| {
        let (name, body) = match (number % 400, number % 40) {
            (7, _) => FEW,
            (_, 9) => SOME,
            _ => MOST[number % MOST.len()],
        };
        SampleDocument { name: name.to_vec(), body: body.to_vec(), is_deleted: false }
    };
    let all: Vec<SampleDocument> = (0..4_400).map(document).collect();
    let sample = SampleIndex::with_segments(&[all.as_slice()], &[]);
    // The matches of one column are collected first, and then those of both.
    assert!(
        sample.list_lengths("a").iter().all(|documents| *documents as usize > LIST_MIN),
        "{:?}",
        sample.list_lengths("a")
    );
    assert!(sample.check_phrase(&all, &["a", "a"], PhraseEnd::Prefix) > LIST_MIN);
    assert!(sample.check_phrase(&all, &["a", "a"], PhraseEnd::Whole) > 0);
    assert!(sample.check_phrase(&all, &["b", "a", "a"], PhraseEnd::Prefix) > 0);
    assert!(sample.check_phrase(&all, &["ab", "b"], PhraseEnd::Whole) > 0);
    for last in [PhraseEnd::Whole, PhraseEnd::Prefix] {
        assert_eq!(sample.check_phrase(&all, &["c", "a"], last), 11, "{last:?}");
    }
}

#[test]
fn a_row_costs_what_is_read_for_it() {
    let all = sample_documents();
    let (first, second) = all.split_at(220);
    let sample = SampleIndex::with_segments(&[first, second], &[OTHER]);
    let all_but_a_few: [fn(&SearchBudget) -> bool; 3] = [
        // One term for each column of each segment.
        |budget| budget.take_terms(TERMS_MAX - 4),
        |budget| budget.take_documents(DOCUMENTS_MAX - 10),
        |budget| budget.take_positions(u32::try_from(POSITIONS_MAX).unwrap() - 10),
    ];
    for (number, take) in all_but_a_few.iter().enumerate() {
        for last in [PhraseEnd::Whole, PhraseEnd::Prefix] {
            let budget = SearchBudget::new();
            assert!(take(&budget));
            sample.find_points(&["a", "a"], last, &budget);
            assert!(budget.is_exhausted(), "{number} {last:?}");
        }
        // A word that does not exist costs only its lookup in the dictionary.
        let budget = SearchBudget::new();
        assert!(take(&budget));
        assert!(sample.find_points(&["nowhere", "a"], PhraseEnd::Prefix, &budget).is_empty());
        assert!(!budget.is_exhausted(), "{number}");
    }
}

#[test]
fn places_in_both_are_kept() {
    for (left, right, both) in [
        (vec![], vec![1], vec![]),
        (vec![1, 2], vec![], vec![]),
        (vec![1, 4, 7, 9], vec![2, 4, 5, 9, 11], vec![4, 9]),
        (vec![5], vec![1, 2, 3, 4, 5], vec![5]),
    ] {
        let mut common = left.clone();
        retain_common(&mut common, &right);
        assert_eq!(common, both, "{left:?} {right:?}");
    }
}
