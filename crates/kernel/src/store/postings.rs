//! An inverted index: a table with a posting (`tenant_id`, `term`, `number`) for each value that a record can be found by.

use std::collections::HashSet;

use super::{Db, Select, SortDirection, Value};
use crate::args;
use crate::base::{Error, Result};

/// Terms that a prefix may expand to; a prefix with more is too short to read each of them.
const PREFIX_TERMS_MAX: usize = 100;
/// Terms that the prefixes of one set may expand to. Each is an arm of a statement, and SQLite takes 500 of them.
const SET_TERMS_MAX: usize = 200;
/// A query that may read more postings than this does not run on the threads that serve requests.
const INLINE_POSTINGS_MAX: usize = 2_000;

/// The statements of a table of postings.
///
/// ```
/// use kernel::store::{ArmSql, Postings};
///
/// const TERMS: ArmSql = ArmSql::new("number", "note_terms", &["number"]).where_equal(&["term"]);
/// kernel::statements! {
///     BY_TERM = kernel::arm!(TERMS);
///     BY_TERM_ASCENDING = kernel::arm!(TERMS.ascending());
///     EXPAND = kernel::expand_terms!("note_terms");
/// }
/// const POSTINGS: Postings = Postings { ascending: BY_TERM_ASCENDING, descending: BY_TERM, expand: EXPAND };
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Postings {
    /// The numbers of one term, lowest first.
    pub ascending: &'static str,
    /// The numbers of one term, highest first.
    pub descending: &'static str,
    /// The distinct terms with a prefix.
    pub expand: &'static str,
}

/// The numbers of one step of a walk, and how far it went.
#[derive(Clone, Debug, Default)]
pub struct PostingStep {
    pub numbers: Vec<i64>,
    pub last: Option<i64>,
    pub ended: bool,
    /// Postings read.
    pub postings: usize,
}

impl Postings {
    /// The terms with these prefixes; `None` if there are too many.
    pub async fn expand_prefixes(&self, db: &Db, prefixes: &[String]) -> Result<Option<Vec<String>>> {
        let mut terms = Vec::new();
        for prefix in prefixes {
            let most = i64::try_from(PREFIX_TERMS_MAX + 1).map_err(Error::internal)?;
            let found: Vec<String> = db.list(self.expand, args![prefix, prefix_end(prefix), most]).await?;
            if found.len() > PREFIX_TERMS_MAX {
                return Ok(None);
            }
            terms.extend(found);
        }
        terms.sort_unstable();
        terms.dedup();
        Ok(Some(terms).filter(|terms| terms.len() <= SET_TERMS_MAX))
    }

    /// At most `most` numbers above `above` with any of these terms, in any order and with duplicates.
    pub async fn list_numbers(&self, db: &Db, terms: &[String], above: i64, most: usize) -> Result<Vec<i64>> {
        if terms.is_empty() {
            return Ok(Vec::new());
        }
        let select = union_terms(self.ascending, terms, [above, i64::MAX], most).limit(most);
        db.select_or_scan(&select, most <= INLINE_POSTINGS_MAX).await
    }

    /// The next numbers with any of these terms: `rows` of each term are read.
    pub async fn walk_terms(
        &self,
        db: &Db,
        terms: &[String],
        direction: SortDirection,
        after: Option<i64>,
        above: i64,
        rows: usize,
    ) -> Result<PostingStep> {
        if terms.is_empty() {
            return Ok(PostingStep { ended: true, ..PostingStep::default() });
        }
        let (text, bounds) = match direction {
            SortDirection::Ascending => (self.ascending, [after.unwrap_or(above).max(above), i64::MAX]),
            SortDirection::Descending => (self.descending, [after.unwrap_or(i64::MAX), above + 1]),
        };
        let inline = terms.len().next_power_of_two() * rows <= INLINE_POSTINGS_MAX;
        let mut numbers: Vec<i64> = db.select_or_scan(&union_terms(text, terms, bounds, rows), inline).await?;
        let postings = numbers.len();
        numbers.sort_unstable();
        if direction == SortDirection::Descending {
            numbers.reverse();
        }
        numbers.dedup();
        numbers.truncate(rows);
        Ok(PostingStep { last: numbers.last().copied(), ended: numbers.len() < rows, numbers, postings })
    }
}

impl PostingStep {
    /// Intersects steps that start at one position. The step of the rarest terms leads: the one that ended with the fewest
    /// numbers, or else the one that went furthest. Numbers that another step has passed without finding them are removed.
    pub fn intersect_steps(mut steps: Vec<PostingStep>, direction: SortDirection) -> PostingStep {
        let is_after = |a: i64, b: i64| if direction == SortDirection::Ascending { a > b } else { a < b };
        let ended = (0..steps.len()).filter(|at| steps[*at].ended).min_by_key(|at| steps[*at].numbers.len());
        let placed = steps.iter().enumerate().filter_map(|(at, step)| Some((at, step.last?)));
        let furthest = placed.reduce(|far, other| if is_after(far.1, other.1) { far } else { other });
        let Some(lead) = ended.or(furthest.map(|(at, _)| at)) else {
            return PostingStep { ended: true, ..PostingStep::default() };
        };
        let mut lead = steps.swap_remove(lead);
        for other in steps {
            // A step that has ended has passed every number.
            let passed = other.last.filter(|_| !other.ended);
            let found: HashSet<i64> = other.numbers.into_iter().collect();
            lead.numbers.retain(|number| found.contains(number) || passed.is_some_and(|at| is_after(*number, at)));
            lead.postings += other.postings;
        }
        lead
    }
}

/// The first `rows` numbers of each term between the bounds of an arm.
fn union_terms(text: &str, terms: &[String], [start, end]: [i64; 2], rows: usize) -> Select {
    let arm = |term: &str| vec![term.into(), start.into(), end.into(), Value::Int(rows as i64)];
    Select::union_arms(text, terms.iter().map(|term| arm(term)).collect(), arm(""))
}

/// An exclusive upper bound of all texts with this prefix.
pub fn prefix_end(prefix: &str) -> String {
    format!("{prefix}{}", char::MAX)
}

/// The distinct terms of a table of postings with a prefix. Jumps from one term to the next without reading the postings of
/// each.
#[macro_export]
macro_rules! expand_terms {
    ($table:literal) => {
        $crate::sql![
            "WITH RECURSIVE found (term) AS (
            SELECT MIN(t.term) FROM ",
            $table,
            " t WHERE t.tenant_id = $1 AND t.term >= $2 AND t.term < $3
            UNION ALL
            SELECT (SELECT MIN(t.term) FROM ",
            $table,
            " t WHERE t.tenant_id = $1 AND t.term > found.term AND t.term < $3)
            FROM found WHERE found.term IS NOT NULL)
        SELECT term FROM found WHERE term IS NOT NULL LIMIT $4"
        ]
    };
}
