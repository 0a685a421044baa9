//! Words in a row: the documents that have them side by side, the last one whole or as the beginning of a word.
//!
//! Tantivy's own queries for phrases are left out: they count nothing of what they read, and that for a beginning asks every ending
//! at every document, and leaves out without a word those beyond a number.

use std::ops::Range;
use std::sync::Arc;

use tantivy::postings::{Postings, SegmentPostings, TermInfo};
use tantivy::query::{EnableScoring, Explanation, Query, Scorer, Weight};
use tantivy::schema::{Field, IndexRecordOption};
use tantivy::{DocId, DocSet, InvertedIndexReader, Score, SegmentReader, TantivyError};

use super::budget::Budget;
use super::matches::{Matches, first_from};
use super::schema::{Fields, Owner};
use super::words::{behind, points};

/// How the last word of a row is meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Last {
    Whole,
    Start,
}

/// Two words or more that stand in a row. Each of them has points.
#[derive(Clone)]
pub struct RowQuery {
    /// Each with the points of a row whose last word is whole, and of one that goes on.
    columns: [(Field, u8, u8); 2],
    owners: Arc<[Owner]>,
    tokens: Arc<[String]>,
    last: Last,
    budget: Arc<Budget>,
}

impl std::fmt::Debug for RowQuery {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "{:?} {:?}", self.tokens, self.last)
    }
}

impl Query for RowQuery {
    fn weight(&self, _: EnableScoring<'_>) -> tantivy::Result<Box<dyn Weight>> {
        Ok(Box::new(self.clone()))
    }
}

impl Weight for RowQuery {
    fn scorer(&self, reader: &SegmentReader, _: Score) -> tantivy::Result<Box<dyn Scorer>> {
        let mut matches = Matches::new(reader.max_doc());
        for (field, whole, start) in self.columns {
            let index = reader.inverted_index(field)?;
            for owner in self.owners.iter() {
                let rows = self.find(&index, owner, reader.max_doc())?;
                for (end, points) in [(Last::Whole, whole), (Last::Start, start)] {
                    let ended = rows.all.iter().filter(|row| row.end == Some(end));
                    matches.add(&ended.map(|row| row.doc).collect::<Vec<_>>(), points);
                }
            }
        }
        let words = u8::try_from(self.tokens.len()).unwrap_or(u8::MAX);
        Ok(matches.into_scorer(words.min(points::WORDS_MAX)))
    }

    fn explain(&self, _: &SegmentReader, _: DocId) -> tantivy::Result<Explanation> {
        Err(TantivyError::InvalidArgument("not explained".into()))
    }
}

/// Documents in which all words but the last stand in a row, in their order.
#[derive(Default)]
struct Rows {
    all: Vec<Row>,
    /// Where the last word must stand, of one document after another.
    places: Vec<u32>,
}

struct Row {
    doc: DocId,
    /// Which of the places are of this document.
    places: Range<usize>,
    /// How it ends, once that was found.
    end: Option<Last>,
}

/// What the last word may be.
struct Ending {
    info: TermInfo,
    last: Last,
}

/// A word before the last one, and how far it is from it.
struct Leading {
    postings: SegmentPostings,
    distance: u32,
}

impl RowQuery {
    pub fn new(fields: &Fields, owners: &Arc<[Owner]>, tokens: &[String], last: Last, budget: &Arc<Budget>) -> Self {
        RowQuery {
            columns: [
                (fields.name, points::EXACT_NAME, points::PREFIX_NAME),
                (fields.body, points::EXACT_BODY, points::PREFIX_BODY),
            ],
            owners: owners.clone(),
            tokens: tokens.into(),
            last,
            budget: budget.clone(),
        }
    }

    /// Words that are found anyway, and stand side by side as they were typed.
    pub fn beside(fields: &Fields, owners: &Arc<[Owner]>, tokens: &[String], budget: &Arc<Budget>) -> Self {
        let (name, body) = (points::BESIDE_NAME, points::BESIDE_BODY);
        let columns = [(fields.name, name, name), (fields.body, body, body)];
        RowQuery { columns, ..RowQuery::new(fields, owners, tokens, Last::Start, budget) }
    }

    /// The rows of one column and owner in a segment, each with how it ends, if it does.
    fn find(&self, index: &InvertedIndexReader, owner: &Owner, max_doc: u32) -> tantivy::Result<Rows> {
        let Some((last, leading)) = self.tokens.split_last() else { return Ok(Rows::default()) };
        let Some(leading) = self.leading(index, owner, leading)? else { return Ok(Rows::default()) };
        let endings = self.endings(index, owner, last)?;
        let candidates = self.candidates(index, &leading, &endings, max_doc)?;
        let mut rows = self.rows(index, &leading, &candidates)?;
        if rows.all.is_empty() {
            return Ok(rows);
        }
        // The whole word comes first: what it ends stays ended by it.
        for ending in &endings {
            if !self.end(index, ending, &mut rows)? {
                break;
            }
        }
        Ok(rows)
    }

    /// The words before the last one. None if one of them is nowhere.
    fn leading(
        &self,
        index: &InvertedIndexReader,
        owner: &Owner,
        tokens: &[String],
    ) -> tantivy::Result<Option<Vec<TermInfo>>> {
        let mut found = Vec::with_capacity(tokens.len());
        for token in tokens {
            if !self.budget.take_terms(1) {
                return Ok(None);
            }
            let Some(info) = index.terms().get(owner.token(token))? else { return Ok(None) };
            found.push(info);
        }
        Ok(Some(found))
    }

    /// All that the last word may be.
    fn endings(&self, index: &InvertedIndexReader, owner: &Owner, last: &str) -> tantivy::Result<Vec<Ending>> {
        let start = owner.token(last);
        let mut found = Vec::new();
        if self.last == Last::Whole {
            if self.budget.take_terms(1) {
                found.extend(index.terms().get(&start)?.map(|info| Ending { info, last: Last::Whole }));
            }
            return Ok(found);
        }
        let mut stream = index.terms().range().ge(&start).lt(behind(&start)).into_stream()?;
        while let Some((key, info)) = stream.next() {
            if !self.budget.take_terms(1) {
                break;
            }
            let last = if key.len() == start.len() { Last::Whole } else { Last::Start };
            found.push(Ending { info: info.clone(), last });
        }
        Ok(found)
    }

    /// The documents of what is rarest: one of the words before the last one, or all that the last one may be. In an address or
    /// the name of a host the last one says the most.
    fn candidates(
        &self,
        index: &InvertedIndexReader,
        leading: &[TermInfo],
        endings: &[Ending],
        max_doc: u32,
    ) -> tantivy::Result<Vec<(DocId, u8)>> {
        let ends: u64 = endings.iter().map(|ending| u64::from(ending.info.doc_freq)).sum();
        let rarest = leading.iter().min_by_key(|info| info.doc_freq);
        let read: Vec<&TermInfo> = match rarest {
            Some(info) if u64::from(info.doc_freq) < ends => vec![info],
            _ => endings.iter().map(|ending| &ending.info).collect(),
        };
        let (mut matches, mut postings) = (Matches::new(max_doc), None);
        for info in read {
            if !self.budget.take_documents(info.doc_freq.into()) {
                return Ok(Vec::new());
            }
            matches.read(index, info, 1, &mut postings)?;
        }
        Ok(matches.finish())
    }

    /// Those of the candidates in which the words before the last one stand in a row.
    fn rows(
        &self,
        index: &InvertedIndexReader,
        leading: &[TermInfo],
        candidates: &[(DocId, u8)],
    ) -> tantivy::Result<Rows> {
        let mut rows = Rows::default();
        let mut words = Vec::with_capacity(leading.len());
        for (distance, info) in (1..).zip(leading.iter().rev()) {
            if candidates.is_empty() || !self.budget.take_seeks(candidates.len() as u64, info.doc_freq) {
                return Ok(rows);
            }
            let postings = index.read_postings_from_terminfo(info, IndexRecordOption::WithFreqsAndPositions)?;
            words.push(Leading { postings, distance });
        }
        words.sort_by_key(|word| word.postings.doc_freq());
        let (mut places, mut other) = (Vec::new(), Vec::new());
        for &(doc, _) in candidates {
            if !words.iter_mut().all(|word| is_in(&mut word.postings, doc)) {
                continue;
            }
            if !self.meet(&mut words, &mut places, &mut other) {
                break;
            }
            if !places.is_empty() {
                let start = rows.places.len();
                rows.places.extend_from_slice(&places);
                rows.all.push(Row { doc, places: start..rows.places.len(), end: None });
            }
        }
        Ok(rows)
    }

    /// Where the last word must stand in the document that all words are at. False if that would cost too much.
    fn meet(&self, words: &mut [Leading], places: &mut Vec<u32>, other: &mut Vec<u32>) -> bool {
        places.clear();
        let mut is_first = true;
        for Leading { postings, distance } in words {
            if !self.budget.take_positions(postings.term_freq()) {
                return false;
            }
            if is_first {
                postings.positions_with_offset(*distance, places);
            } else {
                postings.positions_with_offset(*distance, other);
                keep_common(places, other);
            }
            if places.is_empty() {
                break;
            }
            is_first = false;
        }
        true
    }

    /// Finds the rows that go on with this word. False if that would cost too much.
    fn end(&self, index: &InvertedIndexReader, ending: &Ending, rows: &mut Rows) -> tantivy::Result<bool> {
        let Ending { info, last } = ending;
        let looks = u64::from(info.doc_freq).min(rows.all.len() as u64);
        if !self.budget.take_seeks(looks, info.doc_freq) {
            return Ok(false);
        }
        let mut postings = index.read_postings_from_terminfo(info, IndexRecordOption::WithFreqsAndPositions)?;
        let (mut at, mut places) = (0, Vec::new());
        while let Some(row) = rows.all.get_mut(at) {
            if !is_in(&mut postings, row.doc) {
                let next = postings.doc();
                at = first_from(at, |at| rows.all.get(at).is_some_and(|row| row.doc < next));
                continue;
            }
            if row.end.is_none() {
                if !self.budget.take_positions(postings.term_freq()) {
                    return Ok(false);
                }
                postings.positions_with_offset(0, &mut places);
                let expected = rows.places.get(row.places.clone()).unwrap_or_default();
                let is_found = places.iter().any(|place| expected.binary_search(place).is_ok());
                row.end = is_found.then_some(*last);
            }
            at += 1;
        }
        Ok(true)
    }
}

/// Whether a list has a document. It goes forward alone, and is asked for one document after another.
fn is_in(postings: &mut SegmentPostings, doc: DocId) -> bool {
    let at = postings.doc();
    at == doc || at < doc && postings.seek(doc) == doc
}

/// Leaves of the places those that are among the others, too. Both are in order.
fn keep_common(places: &mut Vec<u32>, others: &[u32]) {
    let mut others = others.iter().peekable();
    places.retain(|place| {
        while others.next_if(|other| *other < place).is_some() {}
        others.peek() == Some(&place)
    });
}

#[cfg(test)]
mod tests;
