//! Collects the best results after a position and the counts of each kind, in one pass.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use kernel::store::{CursorKey, Value};
use tantivy::collector::{Collector, SegmentCollector};
use tantivy::columnar::ColumnValues;
use tantivy::index::SegmentId;
use tantivy::query::{Query, Weight};
use tantivy::{DocAddress, DocId, DocSet, Score, Searcher, SegmentReader, TERMINATED};

use super::super::documents::{DocumentKind, KIND_COUNT, KindSet};
use super::budget::SearchBudget;

/// The position of a result in the ranking, and of the end of a page. The score has the points of the words in its upper
/// 16 bits, and below them whether the document is live and how new it is. The tie decides between equals, smaller first.
/// All of it comes from the document, so an unchanged document has the same position in every commit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ResultPosition {
    pub score: u64,
    pub tie: Reverse<(u64, u64)>,
}

impl ResultPosition {
    /// The points for how well the words match.
    pub fn points(self) -> u64 {
        self.score >> 48
    }
}

impl CursorKey for ResultPosition {
    fn to_position(self) -> Vec<Value> {
        let Reverse((high, low)) = self.tie;
        [self.score, high, low].map(|number| Value::Int(number.cast_signed())).to_vec()
    }

    fn from_position(position: &[Value]) -> Option<Self> {
        let [Value::Int(score), Value::Int(high), Value::Int(low)] = position else { return None };
        Some(ResultPosition { score: score.cast_unsigned(), tie: Reverse((high.cast_unsigned(), low.cast_unsigned())) })
    }
}

/// More points do not fit into the score.
const POINTS_MAX: u64 = 0xffff;

#[derive(Clone, Debug)]
pub struct RankedDocument {
    pub position: ResultPosition,
    pub address: DocAddress,
}

#[derive(Debug, Default)]
pub struct RankedPage {
    pub hits: Vec<RankedDocument>,
    pub counts: [u64; KIND_COUNT],
    /// There are more results after the last one.
    pub has_more: bool,
}

/// The columns of one segment. Opening them costs a tenth of a millisecond for a million documents, so they are kept as long
/// as the segment.
#[derive(Clone)]
struct SegmentColumns {
    segment: SegmentId,
    kind: Arc<dyn ColumnValues<u64>>,
    rank: Arc<dyn ColumnValues<u64>>,
    tie_high: Arc<dyn ColumnValues<u64>>,
    tie_low: Arc<dyn ColumnValues<u64>>,
}

/// The state of the index at one commit.
pub struct IndexSnapshot {
    pub searcher: Searcher,
    columns: Vec<SegmentColumns>,
}

impl IndexSnapshot {
    /// Made after every commit. Columns of unchanged segments are taken over from the previous snapshot.
    pub fn new(searcher: Searcher, before: Option<&IndexSnapshot>) -> tantivy::Result<Self> {
        let open = |reader: &SegmentReader| {
            let segment = reader.segment_id();
            let cached = before.and_then(|before| before.columns.iter().find(|columns| columns.segment == segment));
            if let Some(cached) = cached {
                return Ok(cached.clone());
            }
            let column = |name| reader.fast_fields().column_first_or_default::<u64>(name);
            let (kind, rank) = (column("kind")?, column("rank")?);
            Ok(SegmentColumns { segment, kind, rank, tie_high: column("tie_high")?, tie_low: column("tie_low")? })
        };
        let columns = searcher.segment_readers().iter().map(open).collect::<tantivy::Result<_>>()?;
        Ok(IndexSnapshot { searcher, columns })
    }

    /// The best results of these kinds after a position. Other kinds are not counted.
    pub fn collect_page(
        &self,
        query: &dyn Query,
        kinds: KindSet,
        limit: usize,
        after: Option<ResultPosition>,
        budget: &SearchBudget,
    ) -> tantivy::Result<RankedPage> {
        self.searcher.search(query, &PageCollector { columns: &self.columns, kinds, limit, after, budget })
    }
}

struct PageCollector<'a> {
    columns: &'a [SegmentColumns],
    kinds: KindSet,
    limit: usize,
    /// Only results after this position are collected; the counts include all.
    after: Option<ResultPosition>,
    budget: &'a SearchBudget,
}

struct SegmentPageCollector {
    segment: u32,
    kinds: KindSet,
    limit: usize,
    after: Option<ResultPosition>,
    columns: SegmentColumns,
    /// The worst result is on top.
    best: BinaryHeap<Reverse<(ResultPosition, DocId)>>,
    counts: [u64; KIND_COUNT],
}

impl SegmentPageCollector {
    fn offer_document(&mut self, doc: DocId, points: Score) {
        let Some(kind) = DocumentKind::from_number(self.columns.kind.get_val(doc)) else { return };
        if !self.kinds.has_kind(kind) {
            return;
        }
        if let Some(count) = self.counts.get_mut(kind.index()) {
            *count += 1;
        }
        #[expect(clippy::cast_possible_truncation, reason = "points are small whole numbers")]
        let points = (points as u64).min(POINTS_MAX);
        let score = points << 48 | self.columns.rank.get_val(doc);
        if self.after.is_some_and(|after| score > after.score) {
            return;
        }
        let is_full = self.best.len() > self.limit;
        // The tie is read only where the score does not decide.
        if is_full && self.best.peek().is_some_and(|Reverse((worst, _))| score < worst.score) {
            return;
        }
        let tie = Reverse((self.columns.tie_high.get_val(doc), self.columns.tie_low.get_val(doc)));
        let position = ResultPosition { score, tie };
        if self.after.is_some_and(|after| position >= after) {
            return;
        }
        if is_full {
            if self.best.peek().is_some_and(|Reverse((worst, _))| position < *worst) {
                return;
            }
            self.best.pop();
        }
        self.best.push(Reverse((position, doc)));
    }
}

impl SegmentCollector for SegmentPageCollector {
    type Fruit = RankedPage;

    fn collect(&mut self, doc: DocId, score: Score) {
        self.offer_document(doc, score);
    }

    fn harvest(self) -> RankedPage {
        let segment = self.segment;
        let hit = |Reverse((position, doc))| RankedDocument { position, address: DocAddress::new(segment, doc) };
        RankedPage { hits: self.best.into_iter().map(hit).collect(), counts: self.counts, has_more: false }
    }
}

/// The number of documents between two checks of the budget.
const CHECK_EVERY: u32 = 1_024;

impl Collector for PageCollector<'_> {
    type Fruit = RankedPage;
    type Child = SegmentPageCollector;

    fn for_segment(&self, segment: u32, _: &SegmentReader) -> tantivy::Result<SegmentPageCollector> {
        let columns = self.columns.get(segment as usize).cloned();
        let columns =
            columns.ok_or_else(|| tantivy::TantivyError::InternalError("a segment without columns".into()))?;
        let (kinds, limit, after) = (self.kinds, self.limit, self.after);
        Ok(SegmentPageCollector {
            segment,
            kinds,
            limit,
            after,
            columns,
            best: BinaryHeap::new(),
            counts: [0; KIND_COUNT],
        })
    }

    fn requires_scoring(&self) -> bool {
        true
    }

    /// Replaces the provided method, which cannot stop early.
    fn collect_segment(
        &self,
        weight: &dyn Weight,
        segment: u32,
        reader: &SegmentReader,
    ) -> tantivy::Result<RankedPage> {
        // Results over budget are discarded by the caller.
        if self.budget.is_exhausted() {
            return Ok(RankedPage::default());
        }
        let mut scorer = weight.scorer(reader, 1.0)?;
        if scorer.doc() == TERMINATED || self.budget.is_exhausted() {
            return Ok(RankedPage::default());
        }
        let mut child = self.for_segment(segment, reader)?;
        let alive = reader.alive_bitset();
        let (mut doc, mut examined) = (scorer.doc(), 0_u32);
        while doc != TERMINATED {
            if alive.is_none_or(|alive| alive.is_alive(doc)) {
                child.offer_document(doc, scorer.score());
            }
            doc = scorer.advance();
            examined += 1;
            if examined.is_multiple_of(CHECK_EVERY) && !self.budget.take_documents(CHECK_EVERY.into()) {
                break;
            }
        }
        Ok(child.harvest())
    }

    fn merge_fruits(&self, pages: Vec<RankedPage>) -> tantivy::Result<RankedPage> {
        let mut all = RankedPage::default();
        for page in pages {
            all.counts.iter_mut().zip(page.counts).for_each(|(sum, count)| *sum += count);
            all.hits.extend(page.hits);
        }
        all.hits.sort_unstable_by_key(|hit| Reverse(hit.position));
        all.has_more = all.hits.len() > self.limit;
        all.hits.truncate(self.limit);
        Ok(all)
    }
}
