//! Builds tantivy queries from parsed ones. Every query is built here, for one tenant and the kinds that its caller may see.

use std::sync::Arc;

use kernel::base::{Error, Result};
use search_language::typos::allowed_typos;
use search_language::{Clause, QueryField};
use tantivy::Searcher;
use tantivy::query::{BooleanQuery, ConstScoreQuery, DisjunctionMaxQuery, EmptyQuery, Occur, Query, TermQuery};
use tantivy::schema::IndexRecordOption;

use super::super::documents::kinds_with_field;
use super::budget::SearchBudget;
use super::phrases::{PhraseEnd, PhraseQuery};
use super::schema::{HOST_WORDS, IndexFields, ORGANIZATION_ID, TermOwner, join_words};
use super::words::{MatchMode, WordQuery, points};

/// How many words of a query may have two typos: the first words of a pasted sentence say what is meant.
const TYPOS_OF_FIRST: usize = 3;

/// Builds queries. Every term begins with one of these owners, and all reads are counted in the budget.
pub struct QueryBuilder<'a> {
    pub fields: &'a IndexFields,
    pub searcher: &'a Searcher,
    /// The tenant with each of the kinds that are searched.
    pub owners: Arc<[TermOwner]>,
    pub budget: Arc<SearchBudget>,
}

impl QueryBuilder<'_> {
    /// `resolve_names` resolves the name in a clause to ids.
    pub fn build_query(
        &self,
        query: &search_language::ParsedQuery,
        resolve_names: impl Fn(&Clause) -> Result<Vec<String>>,
    ) -> Result<Box<dyn Query>> {
        let mut clauses: Vec<(Occur, Box<dyn Query>)> = Vec::new();
        for (index, clause) in query.must.iter().enumerate() {
            let (ids, is_late) = (resolve_names(clause)?, index >= TYPOS_OF_FIRST);
            clauses.push((Occur::Must, self.must_query(clause, &ids, is_late).map_err(Error::internal)?));
        }
        clauses.extend(self.adjacency_query(&query.must).map(|adjacency| (Occur::Should, adjacency)));
        for clause in &query.must_not {
            let ids = resolve_names(clause)?;
            clauses.push((Occur::MustNot, self.must_not_query(clause, &ids).map_err(Error::internal)?));
        }
        Ok(Box::new(BooleanQuery::new(clauses)))
    }

    /// An owner's documents with an exact value, to resolve names.
    pub fn name_query(&self, owner: &TermOwner, field: QueryField, value: &str) -> tantivy::Result<Box<dyn Query>> {
        self.owner_exact_query(owner, field.name(), value, 0)
    }

    /// Words that were typed in a row get extra points where a document has them in a row.
    fn adjacency_query(&self, clauses: &[Clause]) -> Option<Box<dyn Query>> {
        let words = clauses.iter().filter_map(|clause| match clause {
            Clause::Words { tokens, .. } => Some(tokens),
            _ => None,
        });
        let tokens: Vec<String> = words.flatten().cloned().collect();
        // The order has a budget of its own, so that it cannot make the search too expensive.
        let adjacency = || PhraseQuery::for_adjacency(self.fields, &self.owners, &tokens, &SearchBudget::for_order());
        (clauses.len() > 1 && tokens.len() > 1).then(|| -> Box<dyn Query> { Box::new(adjacency()) })
    }

    fn must_query(&self, clause: &Clause, ids: &[String], is_late: bool) -> tantivy::Result<Box<dyn Query>> {
        match clause {
            Clause::Words { tokens, number, mac } => {
                let mut any = vec![self.words_query(tokens, is_late)];
                if let Some(number) = number {
                    any.push(self.number_query(*number)?);
                }
                if tokens.len() > 1 {
                    let words = join_words(tokens.iter().cloned());
                    any.push(self.exact_query(QueryField::Host, HOST_WORDS, &words, exact_points(tokens.len()))?);
                }
                if let Some(mac) = mac {
                    any.push(self.mac_query(mac, tokens.len())?);
                }
                Ok(best_of(any))
            }
            Clause::Phrase(tokens) => Ok(self.whole_phrase_query(tokens)),
            Clause::Number(number) => self.number_query(*number),
            Clause::Field { field, value } => self.field_query(*field, value, ids),
        }
    }

    /// Exclusions match whole words only: excluding `lap` does not exclude laptops. A hardware address matches in every
    /// notation.
    fn must_not_query(&self, clause: &Clause, ids: &[String]) -> tantivy::Result<Box<dyn Query>> {
        match clause {
            Clause::Words { tokens, mac: Some(mac), .. } => {
                Ok(best_of(vec![self.whole_phrase_query(tokens), self.mac_query(mac, 1)?]))
            }
            Clause::Words { tokens, .. } | Clause::Phrase(tokens) => Ok(self.whole_phrase_query(tokens)),
            Clause::Number(number) => self.number_query(*number),
            Clause::Field { field, value } => self.field_query(*field, value, ids),
        }
    }

    /// One word as a prefix or with typos, or several in a row with the last one as a prefix.
    fn words_query(&self, tokens: &[String], is_late: bool) -> Box<dyn Query> {
        let typos_max = if is_late { 1 } else { u8::MAX };
        match tokens {
            [word] => match allowed_typos(word).min(typos_max) {
                0 => self.word_query(word, MatchMode::Prefix),
                edits => self.word_query(word, MatchMode::Typo(edits)),
            },
            several => self.phrase_query(several, PhraseEnd::Prefix),
        }
    }

    /// Whole words in a row, in names or bodies.
    fn whole_phrase_query(&self, tokens: &[String]) -> Box<dyn Query> {
        match tokens {
            [word] => self.word_query(word, MatchMode::Exact),
            several => self.phrase_query(several, PhraseEnd::Whole),
        }
    }

    fn word_query(&self, word: &str, mode: MatchMode) -> Box<dyn Query> {
        Box::new(WordQuery::new(self.fields, &self.owners, word, mode, &self.budget))
    }

    fn phrase_query(&self, tokens: &[String], last: PhraseEnd) -> Box<dyn Query> {
        Box::new(PhraseQuery::new(self.fields, &self.owners, tokens, last, &self.budget))
    }

    /// A ticket with this number ranks before documents that merely contain it.
    fn number_query(&self, number: i64) -> tantivy::Result<Box<dyn Query>> {
        self.exact_query(
            QueryField::Number,
            QueryField::Number.name(),
            &number.to_string(),
            2 * u16::from(points::EXACT_NAME),
        )
    }

    /// A hardware address is worth as much as all its parts in a row.
    fn mac_query(&self, mac: &str, parts: usize) -> tantivy::Result<Box<dyn Query>> {
        self.exact_query(QueryField::Mac, QueryField::Mac.name(), mac, exact_points(parts))
    }

    fn field_query(&self, field: QueryField, value: &str, ids: &[String]) -> tantivy::Result<Box<dyn Query>> {
        let name = match field {
            QueryField::Org => ORGANIZATION_ID,
            QueryField::Assignee => QueryField::Assignee.name(),
            _ => return self.exact_query(field, field.name(), value, 0),
        };
        Ok(best_of(ids.iter().map(|id| self.exact_query(field, name, id, 0)).collect::<tantivy::Result<_>>()?))
    }

    /// Documents with an exact value, of the kinds that can have the field.
    fn exact_query(&self, field: QueryField, name: &str, value: &str, points: u16) -> tantivy::Result<Box<dyn Query>> {
        let kinds = kinds_with_field(field);
        let owners = self.owners.iter().filter(|owner| owner.is_any_of(kinds));
        let of_each = owners.map(|owner| self.owner_exact_query(owner, name, value, points));
        Ok(best_of(of_each.collect::<tantivy::Result<_>>()?))
    }

    /// Tantivy reads the posting list during iteration without counting, so all of it is counted here.
    fn owner_exact_query(
        &self,
        owner: &TermOwner,
        name: &str,
        value: &str,
        points: u16,
    ) -> tantivy::Result<Box<dyn Query>> {
        let term = owner.exact_term(self.fields, name, value);
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
fn exact_points(words: usize) -> u16 {
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
