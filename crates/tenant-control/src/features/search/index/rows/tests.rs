//! Rows against looking at every document.

#![expect(clippy::unwrap_used, reason = "tests")]

use kernel::base::{RecordId, TenantId};
use tantivy::{Index, IndexWriter, Searcher, TERMINATED, TantivyDocument};

use super::super::budget::{DOCUMENTS_MAX, POSITIONS_MAX, TERMS_MAX};
use super::super::schema;
use super::*;

const WORDS: [&str; 3] = ["a", "ab", "b"];
/// Of as many letters as that of a tenant.
const OTHER: &str = "zzzzzzzzzzzzzzzzzzzzzzzzzz";

/// All texts of so many words.
fn texts(words: usize) -> Vec<Vec<String>> {
    (0..words).fold(vec![Vec::new()], |shorter, _| {
        let longer = |text: &Vec<String>| WORDS.map(|word| [text.as_slice(), &[word.to_owned()]].concat());
        shorter.iter().flat_map(longer).collect()
    })
}

/// An index of one segment, in which the text of each number is the name of an even document, and said of an odd one. Another
/// tenant has what follows.
fn index(tenant: &Tenant, texts: &[Vec<String>]) -> (Searcher, Fields) {
    let (schema, fields) = schema::schema();
    let index = Index::create_in_ram(schema);
    schema::register(&index);
    let mut writer: IndexWriter = index.writer_with_num_threads(1, 15_000_000).unwrap();
    let own = std::str::from_utf8(tenant.as_bytes()).unwrap();
    for prefix in [own, OTHER] {
        for (number, text) in texts.iter().enumerate() {
            let spelt = text.iter().fold(prefix.to_owned(), |spelt, word| spelt + "\x1f" + word);
            let mut document = TantivyDocument::default();
            document.add_text(if number.is_multiple_of(2) { fields.name } else { fields.body }, spelt);
            writer.add_document(document).unwrap();
        }
    }
    writer.commit().unwrap();
    let searcher = index.reader().unwrap().searcher();
    assert_eq!(searcher.segment_readers().len(), 1);
    (searcher, fields)
}

fn found(query: &RowQuery, searcher: &Searcher) -> Vec<(DocId, u32)> {
    let mut scorer = query.scorer(searcher.segment_reader(0), 1.0).unwrap();
    let mut found = Vec::new();
    while scorer.doc() != TERMINATED {
        // A whole number, and small.
        found.push((scorer.doc(), scorer.score().to_string().parse().unwrap()));
        scorer.advance();
    }
    found
}

fn has(text: &[String], row: &[String], last: Last) -> bool {
    let (end, leading) = row.split_last().unwrap();
    text.windows(row.len()).any(|words| {
        let (word, before) = words.split_last().unwrap();
        before == leading && (word == end || last == Last::Start && word.starts_with(end.as_str()))
    })
}

#[test]
fn a_row_is_found_where_its_words_stand_side_by_side() {
    let tenant = Tenant::of(TenantId::NONE);
    let all: Vec<Vec<String>> = (1..=4).flat_map(texts).collect();
    let (searcher, fields) = index(&tenant, &all);
    for row in (2..=4).flat_map(texts) {
        for last in [Last::Whole, Last::Start] {
            let budget = Budget::new();
            let query = RowQuery::new(&fields, &tenant, &row, last, &budget);
            let words = u32::try_from(row.len()).unwrap();
            let points = |number: usize| words * if number.is_multiple_of(2) { 80 } else { 60 };
            let expected: Vec<(DocId, u32)> = all
                .iter()
                .enumerate()
                .filter(|(_, text)| has(text, &row, last))
                .map(|(number, _)| (DocId::try_from(number).unwrap(), points(number)))
                .collect();
            assert_eq!(found(&query, &searcher), expected, "{row:?} {last:?}");
            assert!(!budget.is_exhausted());
        }
    }
}

#[test]
fn a_row_costs_what_is_read_for_it() {
    let tenant = Tenant::of(TenantId::NONE);
    let (searcher, fields) = index(&tenant, &texts(4));
    let all_but_a_few: [fn(&Budget) -> bool; 3] = [
        |budget| budget.take_terms(TERMS_MAX - 2),
        |budget| budget.take_documents(DOCUMENTS_MAX - 10),
        |budget| budget.take_positions(u32::try_from(POSITIONS_MAX).unwrap() - 10),
    ];
    for (number, take) in all_but_a_few.iter().enumerate() {
        for last in [Last::Whole, Last::Start] {
            let budget = Budget::new();
            assert!(take(&budget));
            found(&RowQuery::new(&fields, &tenant, &["a".to_owned(), "a".to_owned()], last, &budget), &searcher);
            assert!(budget.is_exhausted(), "{number} {last:?}");
        }
        // What stands nowhere is looked for in the dictionary alone.
        let budget = Budget::new();
        assert!(take(&budget));
        let missing = ["nowhere".to_owned(), "a".to_owned()];
        assert!(found(&RowQuery::new(&fields, &tenant, &missing, Last::Start, &budget), &searcher).is_empty());
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
        let mut kept = left.clone();
        keep_common(&mut kept, &right);
        assert_eq!(kept, both, "{left:?} {right:?}");
    }
}
