//! Builds tantivy queries from parsed ones. Every query is built here, for one tenant and the kinds that its caller may see.

use std::sync::Arc;

use kernel::base::{Error, Result};
use tantivy::Searcher;
use tantivy::query::{BooleanQuery, ConstScoreQuery, DisjunctionMaxQuery, EmptyQuery, Occur, Query, TermQuery};
use tantivy::schema::IndexRecordOption;

use super::super::documents::kinds_with;
use super::budget::Budget;
use super::rows::{Last, RowQuery};
use super::schema::{Fields, HOST_WORDS, ORGANIZATION_ID, Owner, in_words};
use super::words::{Reach, WordQuery, points};
use search_language::typos::typos_of;
use search_language::{Clause, Field};

/// How many words of a query may have two typos: the first words of a pasted sentence say what is meant.
const TYPOS_OF_FIRST: usize = 3;

/// Builds queries. Every term begins with one of these owners, and all reads are counted in the budget.
pub struct Asking<'a> {
    pub fields: &'a Fields,
    pub searcher: &'a Searcher,
    /// The tenant with each of the kinds that are searched.
    pub owners: Arc<[Owner]>,
    pub budget: Arc<Budget>,
}

impl Asking<'_> {
    /// `meant` resolves the name in a clause to ids.
    pub fn query(
        &self,
        query: &search_language::Query,
        meant: impl Fn(&Clause) -> Result<Vec<String>>,
    ) -> Result<Box<dyn Query>> {
        let mut clauses: Vec<(Occur, Box<dyn Query>)> = Vec::new();
        for (place, clause) in query.must.iter().enumerate() {
            let (ids, is_late) = (meant(clause)?, place >= TYPOS_OF_FIRST);
            clauses.push((Occur::Must, self.wanted(clause, &ids, is_late).map_err(Error::internal)?));
        }
        clauses.extend(self.beside(&query.must).map(|beside| (Occur::Should, beside)));
        for clause in &query.must_not {
            let ids = meant(clause)?;
            clauses.push((Occur::MustNot, self.excluded(clause, &ids).map_err(Error::internal)?));
        }
        Ok(Box::new(BooleanQuery::new(clauses)))
    }

    /// An owner's documents with an exact value, to resolve names.
    pub fn called(&self, owner: &Owner, field: Field, value: &str) -> tantivy::Result<Box<dyn Query>> {
        self.exact_of(owner, field.name(), value, 0)
    }

    /// Words that were typed in a row get extra points where a document has them in a row.
    fn beside(&self, clauses: &[Clause]) -> Option<Box<dyn Query>> {
        let words = clauses.iter().filter_map(|clause| match clause {
            Clause::Words { tokens, .. } => Some(tokens),
            _ => None,
        });
        let tokens: Vec<String> = words.flatten().cloned().collect();
        // The order has a budget of its own, so that it cannot make the search too expensive.
        let beside = || RowQuery::beside(self.fields, &self.owners, &tokens, &Budget::for_order());
        (clauses.len() > 1 && tokens.len() > 1).then(|| -> Box<dyn Query> { Box::new(beside()) })
    }

    fn wanted(&self, clause: &Clause, ids: &[String], is_late: bool) -> tantivy::Result<Box<dyn Query>> {
        match clause {
            Clause::Words { tokens, number, mac } => {
                let mut any = vec![self.words(tokens, is_late)];
                if let Some(number) = number {
                    any.push(self.number(*number)?);
                }
                if tokens.len() > 1 {
                    let words = in_words(tokens.iter().cloned());
                    any.push(self.exact(Field::Host, HOST_WORDS, &words, points_of(tokens.len()))?);
                }
                if let Some(mac) = mac {
                    any.push(self.mac(mac, tokens.len())?);
                }
                Ok(best_of(any))
            }
            Clause::Phrase(tokens) => Ok(self.in_a_row(tokens)),
            Clause::Number(number) => self.number(*number),
            Clause::Field { field, value } => self.field(*field, value, ids),
        }
    }

    /// Exclusions match whole words only: excluding `lap` does not exclude laptops. A hardware address matches in every
    /// notation.
    fn excluded(&self, clause: &Clause, ids: &[String]) -> tantivy::Result<Box<dyn Query>> {
        match clause {
            Clause::Words { tokens, mac: Some(mac), .. } => Ok(best_of(vec![self.in_a_row(tokens), self.mac(mac, 1)?])),
            Clause::Words { tokens, .. } | Clause::Phrase(tokens) => Ok(self.in_a_row(tokens)),
            Clause::Number(number) => self.number(*number),
            Clause::Field { field, value } => self.field(*field, value, ids),
        }
    }

    /// One word as a prefix or with typos, or several in a row with the last one as a prefix.
    fn words(&self, tokens: &[String], is_late: bool) -> Box<dyn Query> {
        let typos_max = if is_late { 1 } else { u8::MAX };
        match tokens {
            [word] => match typos_of(word).min(typos_max) {
                0 => self.word(word, Reach::Prefix),
                edits => self.word(word, Reach::Typo(edits)),
            },
            several => self.row(several, Last::Start),
        }
    }

    /// Whole words in a row, in names or bodies.
    fn in_a_row(&self, tokens: &[String]) -> Box<dyn Query> {
        match tokens {
            [word] => self.word(word, Reach::Exact),
            several => self.row(several, Last::Whole),
        }
    }

    fn word(&self, word: &str, reach: Reach) -> Box<dyn Query> {
        Box::new(WordQuery::new(self.fields, &self.owners, word, reach, &self.budget))
    }

    fn row(&self, tokens: &[String], last: Last) -> Box<dyn Query> {
        Box::new(RowQuery::new(self.fields, &self.owners, tokens, last, &self.budget))
    }

    /// A ticket with this number ranks before documents that merely contain it.
    fn number(&self, number: i64) -> tantivy::Result<Box<dyn Query>> {
        self.exact(Field::Number, Field::Number.name(), &number.to_string(), 2 * u16::from(points::EXACT_NAME))
    }

    /// A hardware address is worth as much as all its parts in a row.
    fn mac(&self, mac: &str, parts: usize) -> tantivy::Result<Box<dyn Query>> {
        self.exact(Field::Mac, Field::Mac.name(), mac, points_of(parts))
    }

    fn field(&self, field: Field, value: &str, ids: &[String]) -> tantivy::Result<Box<dyn Query>> {
        let name = match field {
            Field::Org => ORGANIZATION_ID,
            Field::Assignee => Field::Assignee.name(),
            _ => return self.exact(field, field.name(), value, 0),
        };
        Ok(best_of(ids.iter().map(|id| self.exact(field, name, id, 0)).collect::<tantivy::Result<_>>()?))
    }

    /// Documents with an exact value, of the kinds that can have the field.
    fn exact(&self, field: Field, name: &str, value: &str, points: u16) -> tantivy::Result<Box<dyn Query>> {
        let kinds = kinds_with(field);
        let owners = self.owners.iter().filter(|owner| owner.is_any_of(kinds));
        let of_each = owners.map(|owner| self.exact_of(owner, name, value, points));
        Ok(best_of(of_each.collect::<tantivy::Result<_>>()?))
    }

    /// Tantivy reads the posting list during iteration without counting, so all of it is counted here.
    fn exact_of(&self, owner: &Owner, name: &str, value: &str, points: u16) -> tantivy::Result<Box<dyn Query>> {
        let term = owner.exact(self.fields, name, value);
        let is_within = self.budget.take_terms(self.searcher.segment_readers().len() as u64)
            && self.budget.take_documents(self.searcher.doc_freq(&term)?);
        if !is_within {
            return Ok(Box::new(EmptyQuery));
        }
        let query = TermQuery::new(term, IndexRecordOption::Basic);
        Ok(Box::new(ConstScoreQuery::new(Box::new(query), points.into())))
    }
}

/// The points of as many words that match a name exactly.
fn points_of(words: usize) -> u16 {
    let words = u8::try_from(words).unwrap_or(u8::MAX).min(points::WORDS_MAX);
    u16::from(points::EXACT_NAME) * u16::from(words)
}

fn best_of(mut any: Vec<Box<dyn Query>>) -> Box<dyn Query> {
    match any.len() {
        0 => Box::new(EmptyQuery),
        1 => any.remove(0),
        _ => Box::new(DisjunctionMaxQuery::new(any)),
    }
}
