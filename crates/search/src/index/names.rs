//! Exact values by their beginning: hardware addresses, the ends of serial numbers, and names that a query begins.

use std::collections::HashMap;
use std::sync::Arc;

use tantivy::index::SegmentId;
use tantivy::postings::TermInfo;
use tantivy::query::{EmptyScorer, EnableScoring, Explanation, Query, Scorer, Weight};
use tantivy::schema::Field;
use tantivy::{DocId, InvertedIndexReader, Score, Searcher, SegmentReader, TantivyError};

use super::budget::SearchBudget;
use super::matches::SegmentMatches;
use super::schema::{TermOwner, prefix_end};

/// The most records with a name that begins with a query that rank before other matches. A query that begins the names of
/// more is a word as any other, and not half a name.
pub const NAMED_MAX: u32 = 1_000;

/// A query for documents with an exact value that begins in a certain way.
#[derive(Clone)]
pub struct ExactStartQuery {
    pub exact: Field,
    /// The keys that all values with the beginning have in common, one for each owner.
    pub keys: Vec<Vec<u8>>,
    pub points: u8,
    /// How many words of the query it stands for.
    pub words: u8,
    pub budget: Arc<SearchBudget>,
}

impl std::fmt::Debug for ExactStartQuery {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "{} keys", self.keys.len())
    }
}

impl Query for ExactStartQuery {
    fn weight(&self, _: EnableScoring<'_>) -> tantivy::Result<Box<dyn Weight>> {
        Ok(Box::new(self.clone()))
    }
}

impl Weight for ExactStartQuery {
    fn scorer(&self, reader: &SegmentReader, _: Score) -> tantivy::Result<Box<dyn Scorer>> {
        let (mut matches, mut postings) = (SegmentMatches::new(reader.max_doc()), None);
        let index = reader.inverted_index(self.exact)?;
        for key in &self.keys {
            for_each_start(&index, key, |info| {
                let is_within = self.budget.take_term(info.doc_freq.into());
                if is_within {
                    matches.add_term_documents(&index, info, self.points, &mut postings)?;
                }
                Ok(is_within)
            })?;
        }
        Ok(matches.into_scorer(self.words))
    }

    fn explain(&self, _: &SegmentReader, _: DocId) -> tantivy::Result<Explanation> {
        Err(TantivyError::InvalidArgument("not explained".into()))
    }
}

/// Calls `each` with the terms that begin with a key, until it returns false.
fn for_each_start(
    index: &InvertedIndexReader,
    key: &[u8],
    mut each: impl FnMut(&TermInfo) -> tantivy::Result<bool>,
) -> tantivy::Result<()> {
    let mut stream = index.terms().range().ge(key).lt(prefix_end(key)).into_stream()?;
    while let Some((_, info)) = stream.next() {
        if !each(info)? {
            break;
        }
    }
    Ok(())
}

/// A query for the documents with a name that begins with the query. It only improves the order, so its terms are looked up
/// before: if there are too many, there is no such query.
#[derive(Clone)]
pub struct NameStartQuery {
    exact: Field,
    terms: Arc<HashMap<SegmentId, Vec<TermInfo>>>,
    points: u32,
}

impl std::fmt::Debug for NameStartQuery {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "{} segments", self.terms.len())
    }
}

impl NameStartQuery {
    /// `starts` are names of exact terms and what their values begin with. `None` if no name begins so, or more
    /// than `names_max` do.
    pub fn find(
        searcher: &Searcher,
        exact: Field,
        owners: &[&TermOwner],
        starts: &[(&str, &str)],
        names_max: u32,
        points: u32,
    ) -> tantivy::Result<Option<Self>> {
        let keys: Vec<Vec<u8>> =
            owners.iter().flat_map(|owner| starts.iter().map(|(name, start)| owner.exact_key(name, start))).collect();
        let (mut terms, mut count) = (HashMap::new(), 0);
        for reader in searcher.segment_readers() {
            let index = reader.inverted_index(exact)?;
            let mut found: Vec<TermInfo> = Vec::new();
            for key in &keys {
                for_each_start(&index, key, |info| {
                    found.push(info.clone());
                    count += info.doc_freq;
                    Ok(count <= names_max)
                })?;
            }
            if count > names_max {
                return Ok(None);
            }
            if !found.is_empty() {
                terms.insert(reader.segment_id(), found);
            }
        }
        Ok((count > 0).then(|| NameStartQuery { exact, terms: Arc::new(terms), points }))
    }
}

impl Query for NameStartQuery {
    fn weight(&self, _: EnableScoring<'_>) -> tantivy::Result<Box<dyn Weight>> {
        Ok(Box::new(self.clone()))
    }
}

impl Weight for NameStartQuery {
    fn scorer(&self, reader: &SegmentReader, _: Score) -> tantivy::Result<Box<dyn Scorer>> {
        let Some(terms) = self.terms.get(&reader.segment_id()) else { return Ok(Box::new(EmptyScorer)) };
        let (mut matches, mut postings) = (SegmentMatches::new(reader.max_doc()), None);
        let index = reader.inverted_index(self.exact)?;
        for info in terms {
            matches.add_term_documents(&index, info, 1, &mut postings)?;
        }
        #[expect(clippy::cast_precision_loss, reason = "points are small whole numbers")]
        Ok(matches.into_scorer(self.points as Score))
    }

    fn explain(&self, _: &SegmentReader, _: DocId) -> tantivy::Result<Explanation> {
        Err(TantivyError::InvalidArgument("not explained".into()))
    }
}
