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

use super::budget::SearchBudget;
use super::matches::{SegmentMatches, gallop_from};
use super::points;
use super::schema::{IndexFields, TermOwner, prefix_end};

/// Whether the last word of a phrase is whole or a prefix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PhraseEnd {
    Whole,
    Prefix,
}

/// A query for two or more words in a row. Each word counts points.
#[derive(Clone)]
pub struct PhraseQuery {
    /// Each column with the points of a phrase whose last word is whole, and of one whose last word is a prefix.
    columns: [(Field, u8, u8); 2],
    owners: Arc<[TermOwner]>,
    tokens: Arc<[String]>,
    last: PhraseEnd,
    /// How many words of the query the phrase stands for.
    words: u8,
    budget: Arc<SearchBudget>,
}

impl std::fmt::Debug for PhraseQuery {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "{:?} {:?}", self.tokens, self.last)
    }
}

impl Query for PhraseQuery {
    fn weight(&self, _: EnableScoring<'_>) -> tantivy::Result<Box<dyn Weight>> {
        Ok(Box::new(self.clone()))
    }
}

impl Weight for PhraseQuery {
    fn scorer(&self, reader: &SegmentReader, _: Score) -> tantivy::Result<Box<dyn Scorer>> {
        let mut matches = SegmentMatches::new(reader.max_doc());
        for (field, whole, start) in self.columns {
            let index = reader.inverted_index(field)?;
            for owner in self.owners.iter() {
                self.add_matches(&index, owner, [whole, start], reader.max_doc(), &mut matches)?;
            }
        }
        Ok(matches.into_scorer(self.words))
    }

    fn explain(&self, _: &SegmentReader, _: DocId) -> tantivy::Result<Explanation> {
        Err(TantivyError::InvalidArgument("not explained".into()))
    }
}

/// Documents that have all words but the last in a row, in ascending order.
#[derive(Default)]
struct PhraseCandidates {
    all: Vec<PhraseCandidate>,
    /// The positions that the last word must have, document by document.
    end_positions: Vec<u32>,
}

struct PhraseCandidate {
    doc: DocId,
    /// The range of this document in [`PhraseCandidates::end_positions`].
    end_positions: Range<usize>,
    /// How the phrase ends, once an ending has matched.
    end: Option<PhraseEnd>,
}

/// A term that the last word matches.
struct EndingTerm {
    info: TermInfo,
    last: PhraseEnd,
}

/// A word before the last one, and its distance to the last one.
struct LeadingTerm {
    postings: SegmentPostings,
    distance: u32,
}

impl PhraseQuery {
    pub fn new(
        fields: &IndexFields,
        owners: &Arc<[TermOwner]>,
        tokens: &[String],
        last: PhraseEnd,
        budget: &Arc<SearchBudget>,
    ) -> Self {
        PhraseQuery {
            columns: [
                (fields.name, points::EXACT_NAME, points::PREFIX_NAME),
                (fields.body, points::EXACT_BODY, points::PREFIX_BODY),
            ],
            owners: owners.clone(),
            words: u8::try_from(tokens.len()).unwrap_or(u8::MAX).min(points::WORDS_MAX),
            tokens: tokens.into(),
            last,
            budget: budget.clone(),
        }
    }

    /// What one word of the query stands for.
    pub fn for_word(self) -> Self {
        PhraseQuery { words: 1, ..self }
    }

    /// Extra points for words that match anyway and are adjacent as they were typed.
    pub fn for_adjacency(
        fields: &IndexFields,
        owners: &Arc<[TermOwner]>,
        tokens: &[String],
        budget: &Arc<SearchBudget>,
    ) -> Self {
        let (name, body) = (points::BESIDE_NAME, points::BESIDE_BODY);
        let columns = [(fields.name, name, name), (fields.body, body, body)];
        PhraseQuery { columns, ..PhraseQuery::new(fields, owners, tokens, PhraseEnd::Prefix, budget) }
    }

    /// Adds the documents of one column and owner in a segment, with the points of phrases that end with a whole word, and of
    /// those that end with a prefix.
    pub fn add_matches(
        &self,
        index: &InvertedIndexReader,
        owner: &TermOwner,
        [whole, start]: [u8; 2],
        max_doc: u32,
        into: &mut SegmentMatches,
    ) -> tantivy::Result<()> {
        let rows = self.match_phrases(index, owner, max_doc)?;
        for (end, points) in [(PhraseEnd::Whole, whole), (PhraseEnd::Prefix, start)] {
            let ended = rows.all.iter().filter(|row| row.end == Some(end));
            into.add_documents(&ended.map(|row| row.doc).collect::<Vec<_>>(), points);
        }
        Ok(())
    }

    /// The candidates of one column and owner in a segment, with the end of those that match.
    fn match_phrases(
        &self,
        index: &InvertedIndexReader,
        owner: &TermOwner,
        max_doc: u32,
    ) -> tantivy::Result<PhraseCandidates> {
        let Some((last, leading)) = self.tokens.split_last() else { return Ok(PhraseCandidates::default()) };
        let Some(leading) = self.leading_terms(index, owner, leading)? else { return Ok(PhraseCandidates::default()) };
        let endings = self.ending_terms(index, owner, last)?;
        let candidates = self.candidate_documents(index, &leading, &endings, max_doc)?;
        let mut rows = self.match_leading(index, &leading, &candidates)?;
        if rows.all.is_empty() {
            return Ok(rows);
        }
        // The whole word comes first in the dictionary, so it takes precedence over prefixes.
        for ending in &endings {
            if !self.match_ending(index, ending, &mut rows)? {
                break;
            }
        }
        Ok(rows)
    }

    /// The terms of the words before the last one. `None` if one of them does not exist.
    fn leading_terms(
        &self,
        index: &InvertedIndexReader,
        owner: &TermOwner,
        tokens: &[String],
    ) -> tantivy::Result<Option<Vec<TermInfo>>> {
        let mut terms = Vec::with_capacity(tokens.len());
        for token in tokens {
            if !self.budget.take_terms(1) {
                return Ok(None);
            }
            let Some(info) = index.terms().get(owner.token_key(token))? else { return Ok(None) };
            terms.push(info);
        }
        Ok(Some(terms))
    }

    /// All terms that the last word matches.
    fn ending_terms(
        &self,
        index: &InvertedIndexReader,
        owner: &TermOwner,
        last: &str,
    ) -> tantivy::Result<Vec<EndingTerm>> {
        let start = owner.token_key(last);
        let mut terms = Vec::new();
        if self.last == PhraseEnd::Whole {
            if self.budget.take_terms(1) {
                terms.extend(index.terms().get(&start)?.map(|info| EndingTerm { info, last: PhraseEnd::Whole }));
            }
            return Ok(terms);
        }
        let mut stream = index.terms().range().ge(&start).lt(prefix_end(&start)).into_stream()?;
        while let Some((key, info)) = stream.next() {
            if !self.budget.take_terms(1) {
                break;
            }
            let last = if key.len() == start.len() { PhraseEnd::Whole } else { PhraseEnd::Prefix };
            terms.push(EndingTerm { info: info.clone(), last });
        }
        Ok(terms)
    }

    /// The documents of the rarest part: one of the words before the last one, or all endings together. In an address or a
    /// host name the last word is the most specific.
    fn candidate_documents(
        &self,
        index: &InvertedIndexReader,
        leading: &[TermInfo],
        endings: &[EndingTerm],
        max_doc: u32,
    ) -> tantivy::Result<Vec<(DocId, u8)>> {
        let ends: u64 = endings.iter().map(|ending| u64::from(ending.info.doc_freq)).sum();
        let rarest = leading.iter().min_by_key(|info| info.doc_freq);
        let terms: Vec<&TermInfo> = match rarest {
            Some(info) if u64::from(info.doc_freq) < ends => vec![info],
            _ => endings.iter().map(|ending| &ending.info).collect(),
        };
        let (mut matches, mut postings) = (SegmentMatches::new(max_doc), None);
        for info in terms {
            if !self.budget.take_documents(info.doc_freq.into()) {
                return Ok(Vec::new());
            }
            matches.add_term_documents(index, info, 1, &mut postings)?;
        }
        Ok(matches.into_sorted())
    }

    /// The candidates that have the words before the last one in a row.
    fn match_leading(
        &self,
        index: &InvertedIndexReader,
        leading: &[TermInfo],
        candidates: &[(DocId, u8)],
    ) -> tantivy::Result<PhraseCandidates> {
        let mut rows = PhraseCandidates::default();
        let mut words = Vec::with_capacity(leading.len());
        for (distance, info) in (1..).zip(leading.iter().rev()) {
            if candidates.is_empty() || !self.budget.take_seeks(candidates.len() as u64, info.doc_freq) {
                return Ok(rows);
            }
            let postings = index.read_postings_from_terminfo(info, IndexRecordOption::WithFreqsAndPositions)?;
            words.push(LeadingTerm { postings, distance });
        }
        words.sort_by_key(|word| word.postings.doc_freq());
        let (mut positions, mut other) = (Vec::new(), Vec::new());
        for &(doc, _) in candidates {
            if !words.iter_mut().all(|word| seek_to(&mut word.postings, doc)) {
                continue;
            }
            if !self.intersect_positions(&mut words, &mut positions, &mut other) {
                break;
            }
            if !positions.is_empty() {
                let start = rows.end_positions.len();
                rows.end_positions.extend_from_slice(&positions);
                rows.all.push(PhraseCandidate { doc, end_positions: start..rows.end_positions.len(), end: None });
            }
        }
        Ok(rows)
    }

    /// Finds the positions that the last word must have in the current document. False if that exceeds the budget.
    fn intersect_positions(&self, words: &mut [LeadingTerm], positions: &mut Vec<u32>, other: &mut Vec<u32>) -> bool {
        positions.clear();
        let mut is_first = true;
        for LeadingTerm { postings, distance } in words {
            if !self.budget.take_positions(postings.term_freq()) {
                return false;
            }
            if is_first {
                postings.positions_with_offset(*distance, positions);
            } else {
                postings.positions_with_offset(*distance, other);
                retain_common(positions, other);
            }
            if positions.is_empty() {
                break;
            }
            is_first = false;
        }
        true
    }

    /// Marks the candidates that continue with this ending. False if that exceeds the budget.
    fn match_ending(
        &self,
        index: &InvertedIndexReader,
        ending: &EndingTerm,
        rows: &mut PhraseCandidates,
    ) -> tantivy::Result<bool> {
        let EndingTerm { info, last } = ending;
        let seeks = u64::from(info.doc_freq).min(rows.all.len() as u64);
        if !self.budget.take_seeks(seeks, info.doc_freq) {
            return Ok(false);
        }
        let mut postings = index.read_postings_from_terminfo(info, IndexRecordOption::WithFreqsAndPositions)?;
        let (mut at, mut positions) = (0, Vec::new());
        while let Some(row) = rows.all.get_mut(at) {
            if !seek_to(&mut postings, row.doc) {
                let next = postings.doc();
                at = gallop_from(at, |at| rows.all.get(at).is_some_and(|row| row.doc < next));
                continue;
            }
            if row.end.is_none() {
                if !self.budget.take_positions(postings.term_freq()) {
                    return Ok(false);
                }
                postings.positions_with_offset(0, &mut positions);
                let expected = rows.end_positions.get(row.end_positions.clone()).unwrap_or_default();
                let is_found = positions.iter().any(|position| expected.binary_search(position).is_ok());
                row.end = is_found.then_some(*last);
            }
            at += 1;
        }
        Ok(true)
    }
}

/// Seeks a document in a posting list and says whether it is there. The list only moves forward, so documents must ascend.
fn seek_to(postings: &mut SegmentPostings, doc: DocId) -> bool {
    let at = postings.doc();
    at == doc || at < doc && postings.seek(doc) == doc
}

/// Keeps the positions that are also among the others. Both are sorted.
fn retain_common(positions: &mut Vec<u32>, others: &[u32]) {
    let mut others = others.iter().peekable();
    positions.retain(|position| {
        while others.next_if(|other| *other < position).is_some() {}
        others.peek() == Some(&position)
    });
}

#[cfg(test)]
mod tests;
