//! Collects the best results after a position and the counts of each kind, in one pass over all segments.
//!
//! Tantivy's collectors are not used: they cannot stop when the budget is exhausted.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use kernel::store::{CursorKey, Value};
use tantivy::columnar::ColumnValues;
use tantivy::index::SegmentId;
use tantivy::query::{EnableScoring, Query, Scorer};
use tantivy::{DocAddress, DocSet, Score, Searcher, SegmentReader, TERMINATED};

use super::super::documents::{DocumentKind, KIND_COUNT, KindSet, NAMED_KINDS};
use super::budget::SearchBudget;
use super::schema::{FORMAT, split_rank};

/// The position of a result in the ranking, and of the end of a page. The score has the points of the words in its upper
/// 20 bits, and below them whether the document is live, whether its kind has names, and how new it is. The tie decides
/// between equals, smaller first. All of it comes from the document and the plan, so an unchanged document has the same
/// position in every commit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ResultPosition {
    pub score: u64,
    pub tie: Reverse<(u64, u64)>,
    pub plan: RankingPlan,
}

/// How the first page was searched. The next pages follow it, whatever has been written meanwhile.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct RankingPlan {
    /// Whether the query was too expensive for every way that its words may be written: see [`Breadth`](super::query::Breadth).
    pub is_narrow: bool,
    /// Whether names that begin with the query come first.
    pub has_name_starts: bool,
}

impl RankingPlan {
    /// With the version of the index, because another one gives other points.
    fn to_number(self) -> i64 {
        i64::from(FORMAT) << 2 | i64::from(self.is_narrow) << 1 | i64::from(self.has_name_starts)
    }

    fn from_number(number: i64) -> Option<Self> {
        let plan = RankingPlan { is_narrow: number & 2 != 0, has_name_starts: number & 1 != 0 };
        (number >> 2 == i64::from(FORMAT)).then_some(plan)
    }
}

impl ResultPosition {
    /// The points for how well the words match.
    pub fn points(self) -> u64 {
        self.score >> RANK_BITS
    }
}

impl CursorKey for ResultPosition {
    fn to_position(self) -> Vec<Value> {
        let Reverse((high, low)) = self.tie;
        let numbers = [self.score, high, low].map(u64::cast_signed);
        numbers.into_iter().chain([self.plan.to_number()]).map(Value::Int).collect()
    }

    fn from_position(position: &[Value]) -> Option<Self> {
        let [Value::Int(score), Value::Int(high), Value::Int(low), Value::Int(plan)] = position else { return None };
        let tie = Reverse((high.cast_unsigned(), low.cast_unsigned()));
        Some(ResultPosition { score: score.cast_unsigned(), tie, plan: RankingPlan::from_number(*plan)? })
    }
}

/// The bits of the score below the points.
const RANK_BITS: u32 = 44;
/// More points do not fit into the score.
const POINTS_MAX: u64 = 0xf_ffff;
/// The bits of the time of the last change, in milliseconds: more than a century.
const TIME_BITS: u32 = 42;

/// The score of a document: see [`ResultPosition`].
fn compose_score(points: u64, kind: DocumentKind, rank: u64) -> u64 {
    let (is_live, at) = split_rank(rank);
    let rank = u64::from(is_live) << 1 | u64::from(NAMED_KINDS.contains(&kind));
    points.min(POINTS_MAX) << RANK_BITS | rank << TIME_BITS | at.min((1 << TIME_BITS) - 1)
}

#[derive(Clone, Debug)]
pub struct RankedDocument {
    pub position: ResultPosition,
    pub address: DocAddress,
}

#[derive(Debug)]
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
        plan: RankingPlan,
        budget: &SearchBudget,
    ) -> tantivy::Result<RankedPage> {
        let weight = query.weight(EnableScoring::enabled_from_searcher(&self.searcher))?;
        let mut collector =
            PageCollector { kinds, limit, after, plan, best: BinaryHeap::new(), counts: [0; KIND_COUNT] };
        for (segment, (reader, columns)) in (0..).zip(self.searcher.segment_readers().iter().zip(&self.columns)) {
            // Results over budget are discarded by the caller.
            if budget.is_exhausted() {
                break;
            }
            let scorer = weight.scorer(reader, 1.0)?;
            collector.collect_segment(scorer, segment, reader, columns, budget);
        }
        Ok(collector.into_page())
    }
}

/// The number of documents between two checks of the budget.
const CHECK_EVERY: u32 = 1_024;

struct PageCollector {
    kinds: KindSet,
    limit: usize,
    /// Only results after this position are collected; the counts include all.
    after: Option<ResultPosition>,
    plan: RankingPlan,
    /// The page and one more result. The worst is on top.
    best: BinaryHeap<Reverse<(ResultPosition, DocAddress)>>,
    counts: [u64; KIND_COUNT],
}

impl PageCollector {
    fn collect_segment(
        &mut self,
        mut scorer: Box<dyn Scorer>,
        segment: u32,
        reader: &SegmentReader,
        columns: &SegmentColumns,
        budget: &SearchBudget,
    ) {
        let alive = reader.alive_bitset();
        let (mut doc, mut examined) = (scorer.doc(), 0_u32);
        while doc != TERMINATED && !budget.is_exhausted() {
            if alive.is_none_or(|alive| alive.is_alive(doc)) {
                self.offer_document(columns, DocAddress::new(segment, doc), scorer.score());
            }
            doc = scorer.advance();
            examined += 1;
            if examined.is_multiple_of(CHECK_EVERY) {
                budget.take_documents(CHECK_EVERY.into());
            }
        }
    }

    fn offer_document(&mut self, columns: &SegmentColumns, address: DocAddress, points: Score) {
        let doc = address.doc_id;
        let Some(kind) = DocumentKind::from_number(columns.kind.get_val(doc)) else { return };
        if !self.kinds.has_kind(kind) {
            return;
        }
        if let Some(count) = self.counts.get_mut(kind.index()) {
            *count += 1;
        }
        #[expect(clippy::cast_possible_truncation, reason = "points are small whole numbers")]
        let score = compose_score(points as u64, kind, columns.rank.get_val(doc));
        if self.after.is_some_and(|after| score > after.score) {
            return;
        }
        let is_full = self.best.len() > self.limit;
        // The tie is read only where the score does not decide.
        if is_full && self.best.peek().is_some_and(|Reverse((worst, _))| score < worst.score) {
            return;
        }
        let tie = Reverse((columns.tie_high.get_val(doc), columns.tie_low.get_val(doc)));
        let position = ResultPosition { score, tie, plan: self.plan };
        if self.after.is_some_and(|after| position >= after) {
            return;
        }
        if is_full {
            if self.best.peek().is_some_and(|Reverse((worst, _))| position < *worst) {
                return;
            }
            self.best.pop();
        }
        self.best.push(Reverse((position, address)));
    }

    fn into_page(self) -> RankedPage {
        let has_more = self.best.len() > self.limit;
        let ranked = self.best.into_sorted_vec().into_iter().take(self.limit);
        let hits = ranked.map(|Reverse((position, address))| RankedDocument { position, address }).collect();
        RankedPage { hits, counts: self.counts, has_more }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_decide_first_then_what_is_live_then_names_then_time() {
        let live = 1 << 47;
        let ascending = [
            compose_score(1, DocumentKind::Ticket, 7),
            compose_score(1, DocumentKind::Ticket, (1 << 47) - 1),
            compose_score(1, DocumentKind::Device, 7),
            compose_score(1, DocumentKind::Software, live),
            compose_score(1, DocumentKind::Ticket, live | 7),
            compose_score(1, DocumentKind::User, live | 5),
            compose_score(1, DocumentKind::User, live | 6),
            compose_score(2, DocumentKind::Ticket, 0),
            compose_score(POINTS_MAX, DocumentKind::Ticket, 0),
        ];
        assert!(ascending.is_sorted_by(|one, next| one < next), "{ascending:?}");
        let score = compose_score(80, DocumentKind::User, live);
        for (is_narrow, has_name_starts) in [(false, false), (false, true), (true, false), (true, true)] {
            let plan = RankingPlan { is_narrow, has_name_starts };
            let position = ResultPosition { score, tie: Reverse((u64::MAX, 7)), plan };
            assert_eq!(position.points(), 80);
            assert_eq!(ResultPosition::from_position(&position.to_position()), Some(position));
            assert_eq!(ResultPosition::from_position(&position.to_position()[..3]), None);
        }
        assert_eq!(RankingPlan::from_number(RankingPlan::default().to_number() - 4), None, "of another version");
    }
}
