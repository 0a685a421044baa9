//! Phrases: the documents that have all words in a row, the last one whole or as a prefix.
//!
//! Tantivy's own phrase queries are not used: they do not count what they read, and the one for prefixes tests every ending
//! at every document, and silently ignores endings beyond a limit.

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

/// Whether the last word of a phrase is whole or a prefix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Last {
    Whole,
    Start,
}

/// A query for two or more words in a row. Each word counts points.
#[derive(Clone)]
pub struct RowQuery {
    /// Each column with the points of a phrase whose last word is whole, and of one whose last word is a prefix.
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

/// Documents that have all words but the last in a row, in ascending order.
#[derive(Default)]
struct Rows {
    all: Vec<Row>,
    /// The positions that the last word must have, document by document.
    places: Vec<u32>,
}

struct Row {
    doc: DocId,
    /// The range of this document in [`PhraseCandidates::end_positions`].
    places: Range<usize>,
    /// How the phrase ends, once an ending has matched.
    end: Option<Last>,
}

/// A term that the last word matches.
struct Ending {
    info: TermInfo,
    last: Last,
}

/// A word before the last one, and its distance to the last one.
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

    /// Extra points for words that match anyway and are adjacent as they were typed.
    pub fn beside(fields: &Fields, owners: &Arc<[Owner]>, tokens: &[String], budget: &Arc<Budget>) -> Self {
        let (name, body) = (points::BESIDE_NAME, points::BESIDE_BODY);
        let columns = [(fields.name, name, name), (fields.body, body, body)];
        RowQuery { columns, ..RowQuery::new(fields, owners, tokens, Last::Start, budget) }
    }

    /// The candidates of one column and owner in a segment, with the end of those that match.
    fn find(&self, index: &InvertedIndexReader, owner: &Owner, max_doc: u32) -> tantivy::Result<Rows> {
        let Some((last, leading)) = self.tokens.split_last() else { return Ok(Rows::default()) };
        let Some(leading) = self.leading(index, owner, leading)? else { return Ok(Rows::default()) };
        let endings = self.endings(index, owner, last)?;
        let candidates = self.candidates(index, &leading, &endings, max_doc)?;
        let mut rows = self.rows(index, &leading, &candidates)?;
        if rows.all.is_empty() {
            return Ok(rows);
        }
        // The whole word comes first in the dictionary, so it takes precedence over prefixes.
        for ending in &endings {
            if !self.end(index, ending, &mut rows)? {
                break;
            }
        }
        Ok(rows)
    }

    /// The terms of the words before the last one. `None` if one of them does not exist.
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

    /// All terms that the last word matches.
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

    /// The documents of the rarest part: one of the words before the last one, or all endings together. In an address or a
    /// host name the last word is the most specific.
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

    /// The candidates that have the words before the last one in a row.
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

    /// Finds the positions that the last word must have in the current document. False if that exceeds the budget.
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

    /// Marks the candidates that continue with this ending. False if that exceeds the budget.
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

/// Seeks a document in a posting list and says whether it is there. The list only moves forward, so documents must ascend.
fn is_in(postings: &mut SegmentPostings, doc: DocId) -> bool {
    let at = postings.doc();
    at == doc || at < doc && postings.seek(doc) == doc
}

/// Keeps the positions that are also among the others. Both are sorted.
fn keep_common(places: &mut Vec<u32>, others: &[u32]) {
    let mut others = others.iter().peekable();
    places.retain(|place| {
        while others.next_if(|other| *other < place).is_some() {}
        others.peek() == Some(&place)
    });
}

#[cfg(test)]
mod tests;
