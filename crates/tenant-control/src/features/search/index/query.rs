//! From what was asked to what the index is asked: the one place where queries are made, each of one tenant.

use std::sync::Arc;

use tantivy::query::{
    BooleanQuery, ConstScoreQuery, DisjunctionMaxQuery, EmptyQuery, Occur, PhrasePrefixQuery, PhraseQuery, Query,
    TermQuery,
};
use tantivy::schema::{Field as Column, IndexRecordOption};
use tantivy::{Searcher, Term};

use super::super::language::typos::typos_of;
use super::super::language::{self, Clause, Field};
use super::schema::{Fields, ORGANIZATION_ID, Tenant};
use super::words::{Budget, Reach, WordQuery, behind, points};

/// Tokens that the last word of a row of words may become, in each segment.
const ENDINGS_MAX: u32 = 1_000;

/// Makes the queries of one tenant. Every term that it makes begins with the tenant.
pub struct Asking<'a> {
    pub fields: &'a Fields,
    pub searcher: &'a Searcher,
    pub tenant: Tenant,
    pub budget: Arc<Budget>,
}

/// The ids that a name in a query stands for, which are asked for before.
pub struct Meant {
    pub organizations: Vec<String>,
    pub people: Vec<String>,
}

impl Asking<'_> {
    pub fn query(&self, query: &language::Query, meant: impl Fn(&Clause) -> Meant) -> tantivy::Result<Box<dyn Query>> {
        let mut clauses: Vec<(Occur, Box<dyn Query>)> = Vec::new();
        for clause in &query.must {
            clauses.push((Occur::Must, self.wanted(clause, &meant(clause))?));
        }
        for clause in &query.must_not {
            clauses.push((Occur::MustNot, self.excluded(clause, &meant(clause))));
        }
        Ok(Box::new(BooleanQuery::new(clauses)))
    }

    /// Documents with an exact value, for whoever looks names up.
    pub fn called(&self, field: Field, value: &str) -> Box<dyn Query> {
        self.exact(field.name(), value, 0)
    }

    fn wanted(&self, clause: &Clause, meant: &Meant) -> tantivy::Result<Box<dyn Query>> {
        match clause {
            Clause::Words { tokens, number, mac } => {
                let mut any = vec![self.words(tokens)?];
                any.extend(number.map(|number| self.number(number)));
                any.extend(mac.as_ref().map(|mac| self.exact(Field::Mac.name(), mac, points::EXACT_NAME)));
                Ok(best_of(any))
            }
            Clause::Phrase(tokens) => Ok(self.in_a_row(tokens)),
            Clause::Number(number) => Ok(self.number(*number)),
            Clause::Field { field, value } => Ok(self.field(*field, value, meant)),
        }
    }

    /// What is not to be found has the word as it is written: whoever excludes `lap` does not mean laptops.
    fn excluded(&self, clause: &Clause, meant: &Meant) -> Box<dyn Query> {
        match clause {
            Clause::Words { tokens, .. } | Clause::Phrase(tokens) => self.in_a_row(tokens),
            Clause::Number(number) => self.number(*number),
            Clause::Field { field, value } => self.field(*field, value, meant),
        }
    }

    fn words(&self, tokens: &[String]) -> tantivy::Result<Box<dyn Query>> {
        match tokens {
            [] => Ok(Box::new(EmptyQuery)),
            [word] => {
                let reach = match typos_of(word) {
                    0 => Reach::Prefix,
                    edits => Reach::Typo(edits),
                };
                Ok(Box::new(WordQuery::new(self.fields, &self.tenant, word, reach, &self.budget)))
            }
            several => {
                let columns = [(self.fields.name, points::EXACT_NAME), (self.fields.body, points::EXACT_BODY)];
                let mut any: Vec<Box<dyn Query>> = Vec::new();
                for (column, points) in columns {
                    self.count_endings(column, several)?;
                    let mut query = PhrasePrefixQuery::new(self.terms(column, several));
                    query.set_max_expansions(ENDINGS_MAX);
                    any.push(with_points(Box::new(query), points, several.len()));
                }
                Ok(best_of(any))
            }
        }
    }

    /// Whole words in a row, of what it is called or of what is said of it.
    fn in_a_row(&self, tokens: &[String]) -> Box<dyn Query> {
        let columns = [(self.fields.name, points::EXACT_NAME), (self.fields.body, points::EXACT_BODY)];
        let any = columns.map(|(column, points)| {
            let terms = self.terms(column, tokens);
            let query: Box<dyn Query> = match terms.as_slice() {
                [] => Box::new(EmptyQuery),
                [one] => Box::new(TermQuery::new(one.clone(), IndexRecordOption::Basic)),
                _ => Box::new(PhraseQuery::new(terms)),
            };
            with_points(query, points, tokens.len())
        });
        best_of(any.into())
    }

    fn terms(&self, column: Column, tokens: &[String]) -> Vec<Term> {
        tokens.iter().map(|token| self.tenant.word(column, token)).collect()
    }

    /// A row of words whose last has more endings than are followed would leave some out without a word.
    fn count_endings(&self, column: Column, tokens: &[String]) -> tantivy::Result<()> {
        let Some(last) = tokens.last() else { return Ok(()) };
        let start = [self.tenant.as_bytes(), last.as_bytes()].concat();
        for reader in self.searcher.segment_readers() {
            let index = reader.inverted_index(column)?;
            let mut stream = index.terms().range().ge(&start).lt(behind(&start)).into_stream()?;
            let mut count = 0;
            while stream.next().is_some() {
                count += 1;
                if count > ENDINGS_MAX {
                    self.budget.exhaust();
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn number(&self, number: i64) -> Box<dyn Query> {
        self.exact(Field::Number.name(), &number.to_string(), points::EXACT_NAME)
    }

    fn field(&self, field: Field, value: &str, meant: &Meant) -> Box<dyn Query> {
        let by_id = |name: &str, ids: &[String]| -> Vec<Box<dyn Query>> {
            ids.iter().map(|id| self.exact(name, id, 0)).collect()
        };
        match field {
            Field::Org => best_of(by_id(ORGANIZATION_ID, &meant.organizations)),
            Field::Assignee => best_of(by_id(Field::Assignee.name(), &meant.people)),
            _ => self.exact(field.name(), value, 0),
        }
    }

    fn exact(&self, name: &str, value: &str, points: u8) -> Box<dyn Query> {
        let term = self.tenant.exact(self.fields, name, value);
        with_points(Box::new(TermQuery::new(term, IndexRecordOption::Basic)), points, 1)
    }
}

fn with_points(query: Box<dyn Query>, points: u8, words: usize) -> Box<dyn Query> {
    let words = u8::try_from(words).unwrap_or(u8::MAX);
    Box::new(ConstScoreQuery::new(query, f32::from(points) * f32::from(words)))
}

fn best_of(mut any: Vec<Box<dyn Query>>) -> Box<dyn Query> {
    match any.len() {
        0 => Box::new(EmptyQuery),
        1 => any.remove(0),
        _ => Box::new(DisjunctionMaxQuery::new(any)),
    }
}
