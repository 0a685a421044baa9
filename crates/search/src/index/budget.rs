//! The budget of one search, over all its words and all segments.
//!
//! It counts work instead of time: a busy machine must not refuse what an idle one answers. Everything is counted before it
//! is read. Each bound alone is some tens of milliseconds of one processor.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Terms of the dictionary. Finding one and opening its posting list takes about a microsecond.
pub const TERMS_MAX: u64 = 50_000;
/// Documents that are read from a posting list or examined, about ten nanoseconds each. A tenant with a hundred thousand
/// documents is far from it.
pub const DOCUMENTS_MAX: u64 = 5_000_000;
/// Positions of words within documents, a few nanoseconds and four bytes each. A text that repeats a word thousands of times
/// has thousands of them.
pub const POSITIONS_MAX: u64 = 5_000_000;
/// Steps of the typo automaton through the dictionary, about ten nanoseconds each.
const STEPS_MAX: u64 = 3_000_000;

/// The number of documents in a block of a posting list, and the cost of unpacking a block, in examined documents.
const BLOCK_LEN: u64 = 128;
const BLOCK_COST: u64 = 16;
/// The cost of reading a stored document, in examined documents.
const STORED_COST: u64 = 1_000;

/// The work that a search may still do.
pub struct SearchBudget {
    terms: AtomicU64,
    documents: AtomicU64,
    positions: AtomicU64,
    steps: AtomicU64,
    exhausted: AtomicBool,
}

impl SearchBudget {
    pub fn new() -> Arc<Self> {
        Self::with_part(1)
    }

    /// A tenth of the budget, for work that only improves the order.
    pub fn for_order() -> Arc<Self> {
        Self::with_part(10)
    }

    fn with_part(divisor: u64) -> Arc<Self> {
        Arc::new(SearchBudget {
            terms: (TERMS_MAX / divisor).into(),
            documents: (DOCUMENTS_MAX / divisor).into(),
            positions: (POSITIONS_MAX / divisor).into(),
            steps: (STEPS_MAX / divisor).into(),
            exhausted: false.into(),
        })
    }

    /// Takes terms that are looked up or iterated.
    pub fn take_terms(&self, count: u64) -> bool {
        self.take_amount(&self.terms, count)
    }

    /// Takes a term and all documents of its posting list.
    pub fn take_term(&self, documents: u64) -> bool {
        self.take_terms(1) && self.take_documents(documents)
    }

    /// Takes documents that are read or examined in order.
    pub fn take_documents(&self, count: u64) -> bool {
        self.take_amount(&self.documents, count)
    }

    /// Takes `count` ascending seeks in a posting list of `documents`.
    pub fn take_seeks(&self, count: u64, documents: u32) -> bool {
        let blocks = u64::from(documents).div_ceil(BLOCK_LEN).min(count);
        self.take_documents(count.saturating_add(blocks.saturating_mul(BLOCK_COST)))
    }

    /// Takes documents whose stored part is read.
    pub fn take_stored(&self, count: u64) -> bool {
        self.take_documents(count.saturating_mul(STORED_COST))
    }

    /// Takes positions of a word in a document.
    pub fn take_positions(&self, count: u32) -> bool {
        self.take_amount(&self.positions, count.into())
    }

    pub fn take_step(&self) -> bool {
        self.take_amount(&self.steps, 1)
    }

    /// False once any part of the budget was exceeded.
    fn take_amount(&self, from: &AtomicU64, amount: u64) -> bool {
        // One thread runs a query. With several threads the bound would be slightly exceeded.
        match from.load(Ordering::Relaxed).checked_sub(amount) {
            Some(left) => from.store(left, Ordering::Relaxed),
            None => self.mark_exhausted(),
        }
        !self.is_exhausted()
    }

    pub fn mark_exhausted(&self) {
        self.exhausted.store(true, Ordering::Relaxed);
    }

    /// Whether the budget was exceeded, so that the results are incomplete.
    pub fn is_exhausted(&self) -> bool {
        self.exhausted.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_it_may_be_taken_and_not_one_more() {
        let budget = SearchBudget::new();
        assert!(budget.take_documents(DOCUMENTS_MAX - 1) && budget.take_documents(1) && budget.take_documents(0));
        assert!(!budget.is_exhausted());
        assert!(!budget.take_documents(1) && budget.is_exhausted());
    }

    #[test]
    fn each_has_a_bound_of_its_own() {
        let all: [fn(&SearchBudget) -> bool; 4] = [
            |budget| budget.take_terms(TERMS_MAX),
            |budget| budget.take_documents(DOCUMENTS_MAX),
            |budget| (0..POSITIONS_MAX / 1_000).all(|_| budget.take_positions(1_000)),
            |budget| (0..STEPS_MAX).all(|_| budget.take_step()),
        ];
        let budget = SearchBudget::new();
        assert!(all.iter().all(|take| take(&budget)));
        let more: [fn(&SearchBudget) -> bool; 4] = [
            |budget| budget.take_terms(1),
            |budget| budget.take_documents(1),
            |budget| budget.take_positions(1),
            |budget| budget.take_step(),
        ];
        for (take_all, take_one) in all.iter().zip(more) {
            let budget = SearchBudget::new();
            assert!(take_all(&budget) && !take_one(&budget));
        }
    }

    #[test]
    fn nothing_can_be_taken_once_there_was_too_little() {
        let budget = SearchBudget::new();
        assert!(!budget.take_term(DOCUMENTS_MAX + 1));
        assert!(!budget.take_terms(1) && !budget.take_documents(0) && !budget.take_positions(1) && !budget.take_step());
    }

    #[test]
    fn a_list_is_unpacked_no_more_often_than_it_is_looked_into() {
        for (count, documents, cost) in [
            (0, 1_000_000, 0),
            (10, 1, 10 + BLOCK_COST),
            (10, 128, 10 + BLOCK_COST),
            (10, 129, 10 + 2 * BLOCK_COST),
            (10, 1_000_000, 10 + 10 * BLOCK_COST),
            (1_000_000, 1_280, 1_000_000 + 10 * BLOCK_COST),
        ] {
            let budget = SearchBudget::new();
            assert!(budget.take_seeks(count, documents));
            assert_eq!(budget.documents.load(Ordering::Relaxed), DOCUMENTS_MAX - cost, "{count} of {documents}");
        }
    }

    #[test]
    fn what_is_stored_costs_more_than_what_is_listed() {
        let budget = SearchBudget::new();
        assert!(budget.take_stored(DOCUMENTS_MAX / STORED_COST));
        assert!(!budget.take_stored(1));
        assert!(!SearchBudget::new().take_stored(u64::MAX));
    }
}
