//! The index: the documents of all tenants in one folder of this node, and the only way to search them.
//!
//! Architecture invariant: nothing outside this folder uses tantivy, and [`ServingIndex::search`], which takes the tenant,
//! is the only place that runs queries.

mod budget;
mod collect;
mod files;
mod highlighter;
mod matches;
#[cfg(test)]
mod model_tests;
mod names;
mod phrases;
mod points;
mod query;
mod schema;
mod words;
pub mod writer;

use std::sync::{Arc, PoisonError, RwLock};

use kernel::base::{Error, Result, StringEnum as _, TenantId};
use search_language::{Clause, ParsedQuery, QueryField};
use tantivy::schema::Value as _;
use tantivy::{DocAddress, TantivyDocument};

use super::Highlight;
use super::documents::{DocumentKind, KIND_COUNT, KindSet};
use budget::SearchBudget;
use collect::{IndexSnapshot, RankingPlan};
use highlighter::Highlighter;
use query::{Breadth, NameStarts, QueryBuilder, has_several_texts};
use schema::{StoredDocument, TermOwner};
use writer::OpenIndex;

pub use collect::ResultPosition;

/// An opened index, with the snapshot that searches use.
pub struct ServingIndex {
    open_index: OpenIndex,
    snapshot: RwLock<Arc<IndexSnapshot>>,
}

/// A search of one tenant.
#[derive(Clone, Debug)]
pub struct IndexQuery {
    pub tenant: TenantId,
    /// The kinds that the caller requested and may see.
    pub kinds: KindSet,
    pub query: ParsedQuery,
    pub limit: usize,
    pub after: Option<ResultPosition>,
}

impl IndexQuery {
    /// The owners of the terms to look up. Kinds that `type:` leaves out cost nothing.
    fn term_owners(&self) -> Arc<[TermOwner]> {
        let is_requested = |kind: DocumentKind| {
            self.query.must.iter().all(|clause| match clause {
                Clause::Field { field: QueryField::Type, value } => value == kind.as_str(),
                _ => true,
            })
        };
        let kinds = DocumentKind::ALL.iter().copied().filter(|&kind| self.kinds.has_kind(kind) && is_requested(kind));
        kinds.map(|kind| TermOwner::for_kind(self.tenant, kind)).collect()
    }
}

/// The results of a search.
#[derive(Debug)]
pub struct SearchResults {
    pub hits: Vec<IndexHit>,
    pub counts: [u64; KIND_COUNT],
    pub has_more: bool,
}

/// A document that matches, with highlights.
#[derive(Debug)]
pub struct IndexHit {
    pub position: ResultPosition,
    pub kind: DocumentKind,
    pub id: String,
    pub organization_id: Option<String>,
    pub title: String,
    pub subtitle: String,
    pub url: String,
    pub highlights: Vec<Highlight>,
}

impl IndexHit {
    fn from_stored(position: ResultPosition, stored: StoredDocument, highlighter: &mut Highlighter) -> Result<Self> {
        let kind = DocumentKind::from_number(stored.kind);
        Ok(IndexHit {
            position,
            kind: kind.ok_or_else(|| Error::internal("the search index has shown an unknown kind"))?,
            highlights: highlighter.highlight_texts(&stored.texts),
            id: stored.id,
            organization_id: stored.organization_id,
            title: stored.title,
            subtitle: stored.subtitle,
            url: stored.url,
        })
    }
}

/// The most organizations or users of one name. If there were more, using only some of them would be a wrong answer.
const NAMESAKES_MAX: usize = 100;

impl ServingIndex {
    pub fn new(opened: OpenIndex) -> Result<Self> {
        let snapshot = IndexSnapshot::new(opened.reader.searcher(), None).map_err(Error::internal)?;
        Ok(ServingIndex { open_index: opened, snapshot: RwLock::new(Arc::new(snapshot)) })
    }

    pub fn open_index(&self) -> &OpenIndex {
        &self.open_index
    }

    /// Makes the last commit visible to searches.
    pub fn refresh_snapshot(&self) -> Result<()> {
        let before = self.current_snapshot();
        let next = IndexSnapshot::new(self.open_index.reader.searcher(), Some(&before)).map_err(Error::internal)?;
        *self.snapshot.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(next);
        Ok(())
    }

    fn current_snapshot(&self) -> Arc<IndexSnapshot> {
        self.snapshot.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn count_documents(&self) -> u64 {
        self.current_snapshot().searcher.num_docs()
    }

    /// The best hits of a tenant. `None` if the query exceeds its budget. Before that, several words are searched in fewer
    /// ways: a pasted text has many of them, and those that match as they are written say what is meant.
    pub fn search(&self, request: &IndexQuery) -> Result<Option<SearchResults>> {
        let snapshot = self.current_snapshot();
        if let Some(plan) = request.after.map(|after| after.plan) {
            let breadth = if plan.is_narrow { Breadth::Narrow } else { Breadth::Wide };
            let name_starts = if plan.has_name_starts { NameStarts::First } else { NameStarts::Ignored };
            return self.search_snapshot(&snapshot, request, breadth, name_starts);
        }
        match self.search_snapshot(&snapshot, request, Breadth::Wide, NameStarts::FirstIfFew)? {
            None if has_several_texts(&request.query) => {
                self.search_snapshot(&snapshot, request, Breadth::Narrow, NameStarts::FirstIfFew)
            }
            results => Ok(results),
        }
    }

    fn search_snapshot(
        &self,
        snapshot: &IndexSnapshot,
        request: &IndexQuery,
        breadth: Breadth,
        name_starts: NameStarts,
    ) -> Result<Option<SearchResults>> {
        let builder = QueryBuilder {
            fields: &self.open_index.fields,
            searcher: &snapshot.searcher,
            owners: request.term_owners(),
            breadth,
            name_starts,
            budget: SearchBudget::new(),
        };
        let resolve_names = |clause: &Clause| self.resolve_names(snapshot, &builder, request.tenant, clause);
        let (query, has_name_starts) = builder.build_query(&request.query, resolve_names)?;
        if builder.budget.is_exhausted() {
            return Ok(None);
        }
        let plan = RankingPlan { is_narrow: breadth == Breadth::Narrow, has_name_starts };
        let (kinds, limit, after) = (request.kinds, request.limit, request.after);
        let page = snapshot.collect_page(query.as_ref(), kinds, limit, after, plan, &builder.budget);
        let page = page.map_err(Error::internal)?;
        if builder.budget.is_exhausted() {
            return Ok(None);
        }
        let mut highlighter = Highlighter::for_query(&request.query);
        let mut hits = Vec::with_capacity(page.hits.len());
        for ranked in &page.hits {
            let stored = self.load_stored(snapshot, request.tenant, ranked.address)?;
            hits.push(IndexHit::from_stored(ranked.position, stored, &mut highlighter)?);
        }
        Ok(Some(SearchResults { hits, counts: page.counts, has_more: page.has_more }))
    }

    /// The ids of the records that a name in `org:` and `assignee:` stands for. If there are too many, the query is too
    /// broad.
    fn resolve_names(
        &self,
        snapshot: &IndexSnapshot,
        builder: &QueryBuilder<'_>,
        tenant: TenantId,
        clause: &Clause,
    ) -> Result<Vec<String>> {
        let (field, value, kind) = match clause {
            Clause::Field { field: QueryField::Org, value } => (QueryField::Org, value, DocumentKind::Organization),
            Clause::Field { field: QueryField::Assignee, value } => (QueryField::Assignee, value, DocumentKind::User),
            _ => return Ok(Vec::new()),
        };
        let query = builder.name_query(&TermOwner::for_kind(tenant, kind), field, value).map_err(Error::internal)?;
        let kinds = KindSet::from_iter([kind]);
        let page =
            snapshot.collect_page(query.as_ref(), kinds, NAMESAKES_MAX, None, RankingPlan::default(), &builder.budget);
        let page = page.map_err(Error::internal)?;
        if page.has_more {
            builder.budget.mark_exhausted();
        }
        if !builder.budget.take_stored(page.hits.len() as u64) {
            return Ok(Vec::new());
        }
        let stored = page.hits.iter().map(|ranked| self.load_stored(snapshot, tenant, ranked.address));
        stored.map(|stored| stored.map(|stored| stored.id)).collect()
    }

    /// Loads the stored part of a document. Another tenant's document is an error, whatever the index says.
    fn load_stored(&self, snapshot: &IndexSnapshot, tenant: TenantId, address: DocAddress) -> Result<StoredDocument> {
        let document: TantivyDocument = snapshot.searcher.doc(address).map_err(Error::internal)?;
        let json =
            document.get_first(self.open_index.fields.stored).and_then(|value| value.as_str()).unwrap_or_default();
        let stored: StoredDocument = serde_json::from_str(json).map_err(Error::internal)?;
        if stored.tenant != tenant.to_string() {
            return Err(Error::internal("the search index has shown another tenant's document"));
        }
        Ok(stored)
    }
}
