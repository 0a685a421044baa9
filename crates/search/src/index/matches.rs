//! The matching documents of a segment with their points: how they are collected, and the scorer that iterates over them.

use tantivy::postings::{BlockSegmentPostings, TermInfo};
use tantivy::query::{EmptyScorer, Scorer};
use tantivy::schema::IndexRecordOption;
use tantivy::{DocId, DocSet, InvertedIndexReader, Score, TERMINATED};

/// Documents with the best points of each: a list, which becomes a table at a sixteenth of the segment.
pub struct SegmentMatches {
    list: Vec<(DocId, u8)>,
    table: Option<Vec<u8>>,
    max_doc: u32,
}

const LIST_MIN: usize = 4_096;

impl SegmentMatches {
    pub fn new(max_doc: u32) -> Self {
        SegmentMatches { list: Vec::new(), table: None, max_doc }
    }

    pub fn max_doc(&self) -> u32 {
        self.max_doc
    }

    /// Adds all documents of a term. The reader is reused for the next term of the same column: it holds two blocks of 128
    /// numbers.
    pub fn add_term_documents(
        &mut self,
        index: &InvertedIndexReader,
        info: &TermInfo,
        points: u8,
        reader: &mut Option<BlockSegmentPostings>,
    ) -> tantivy::Result<()> {
        match reader {
            Some(postings) => index.reset_block_postings_from_terminfo(info, postings)?,
            None => *reader = Some(index.read_block_postings_from_terminfo(info, IndexRecordOption::Basic)?),
        }
        let Some(postings) = reader else { return Ok(()) };
        while !postings.docs().is_empty() {
            self.add_documents(postings.docs(), points);
            postings.advance();
        }
        Ok(())
    }

    pub fn add_documents(&mut self, docs: &[DocId], points: u8) {
        match &mut self.table {
            Some(table) => docs.iter().for_each(|&doc| raise_points(table, doc, points)),
            None => self.list.extend(docs.iter().map(|&doc| (doc, points))),
        }
        if self.list.len() > LIST_MIN && self.list.len() > self.max_doc as usize / 16 {
            let mut table = vec![0_u8; self.max_doc as usize];
            self.list.drain(..).for_each(|(doc, points)| raise_points(&mut table, doc, points));
            self.table = Some(table);
        }
    }

    /// Each document once, in ascending order.
    pub fn into_sorted(self) -> Vec<(DocId, u8)> {
        if let Some(table) = self.table {
            return (0..).zip(table).filter(|&(_, points)| points > 0).collect();
        }
        let mut list = self.list;
        list.sort_unstable_by_key(|&(doc, points)| (doc, u8::MAX - points));
        list.dedup_by_key(|&mut (doc, _)| doc);
        list
    }

    /// A scorer over the documents, with their points multiplied by `times`.
    pub fn into_scorer(self, times: impl Into<Score>) -> Box<dyn Scorer> {
        let matches = self.into_sorted();
        if matches.is_empty() {
            return Box::new(EmptyScorer);
        }
        Box::new(MatchScorer { matches, at: 0, times: times.into() })
    }
}

fn raise_points(table: &mut [u8], doc: DocId, points: u8) {
    if let Some(best) = table.get_mut(doc as usize) {
        *best = points.max(*best);
    }
}

/// The first index from `at` on for which `is_before` is false. The steps double (galloping search), because it is mostly
/// near.
pub fn gallop_from(at: usize, is_before: impl Fn(usize) -> bool) -> usize {
    let mut step = 1;
    while is_before(at + step) {
        step *= 2;
    }
    let (mut from, mut to) = (at + step / 2, at + step);
    while from < to {
        let middle = usize::midpoint(from, to);
        if is_before(middle) {
            from = middle + 1;
        } else {
            to = middle;
        }
    }
    from
}

struct MatchScorer {
    matches: Vec<(DocId, u8)>,
    at: usize,
    times: Score,
}

impl DocSet for MatchScorer {
    fn advance(&mut self) -> DocId {
        self.at = (self.at + 1).min(self.matches.len());
        self.doc()
    }

    fn seek(&mut self, target: DocId) -> DocId {
        self.at = gallop_from(self.at, |at| self.matches.get(at).is_some_and(|&(doc, _)| doc < target));
        self.doc()
    }

    fn doc(&self) -> DocId {
        self.matches.get(self.at).map_or(TERMINATED, |&(doc, _)| doc)
    }

    fn size_hint(&self) -> u32 {
        u32::try_from(self.matches.len()).unwrap_or(u32::MAX)
    }
}

impl Scorer for MatchScorer {
    fn score(&mut self) -> Score {
        self.matches.get(self.at).map_or(0.0, |&(_, points)| Score::from(points) * self.times)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_there_once_with_its_best_points() {
        let mut few = SegmentMatches::new(100);
        few.add_documents(&[9, 3], 16);
        few.add_documents(&[3, 7], 80);
        few.add_documents(&[3, 9], 24);
        assert_eq!(few.into_sorted(), [(3, 80), (7, 80), (9, 24)]);
    }

    #[test]
    fn a_table_has_what_a_list_has() {
        let mut many = SegmentMatches::new(10_000);
        let (even, all): (Vec<DocId>, Vec<DocId>) = ((0..10_000).step_by(2).collect(), (0..10_000).collect());
        many.add_documents(&even, 50);
        assert!(many.table.is_some() && many.list.is_empty());
        many.add_documents(&all, 12);
        let expected: Vec<(DocId, u8)> =
            all.iter().map(|&doc| (doc, if doc.is_multiple_of(2) { 50 } else { 12 })).collect();
        assert_eq!(many.into_sorted(), expected);
    }

    #[test]
    fn the_first_place_is_found_from_anywhere() {
        let numbers: Vec<usize> = (0..100).map(|n| n * 3).collect();
        for at in 0..=numbers.len() {
            for target in 0..310 {
                let is_before = |at: usize| numbers.get(at).is_some_and(|&number| number < target);
                let expected = numbers.partition_point(|&number| number < target).max(at);
                assert_eq!(gallop_from(at, is_before), expected, "{target} from {at}");
            }
        }
    }

    #[test]
    fn a_walk_goes_to_the_end_and_stays_there() {
        let mut matches = SegmentMatches::new(100);
        matches.add_documents(&[2, 5, 50], 60);
        let mut scorer = matches.into_scorer(3_u8);
        assert_eq!((scorer.doc(), scorer.score().to_bits()), (2, 180_f32.to_bits()));
        assert_eq!((scorer.seek(2), scorer.seek(3), scorer.advance(), scorer.advance()), (2, 5, 50, TERMINATED));
        assert_eq!((scorer.advance(), scorer.seek(TERMINATED), scorer.doc()), (TERMINATED, TERMINATED, TERMINATED));
        assert_eq!(SegmentMatches::new(100).into_scorer(1_u8).doc(), TERMINATED);
    }
}
