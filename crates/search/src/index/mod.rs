//! The index: the documents of all tenants in one folder of this node, and the only way to search them.
//!
//! Architecture invariant: nothing outside this folder uses tantivy, and [`ServingIndex::search`], which takes the tenant,
//! is the only place that runs queries.

mod budget;
mod collect;
mod files;
mod marks;
mod matches;
mod query;
mod rows;
mod schema;
mod words;
pub mod writer;

use std::sync::{Arc, PoisonError, RwLock};

use kernel::base::{Error, Result, TenantId, Word as _};
use tantivy::schema::Value as _;
use tantivy::{DocAddress, TantivyDocument};

use super::Highlight;
use super::documents::{KINDS, Kind, Kinds};
use budget::Budget;
use collect::Snapshot;
use marks::Marks;
use query::Asking;
use schema::{Owner, Shown};
use search_language::{Clause, Field, Query};
use writer::Opened;

pub use collect::Place;

/// An opened index, with the snapshot that searches use.
pub struct Serving {
    opened: Opened,
    snapshot: RwLock<Arc<Snapshot>>,
}

/// A search of one tenant.
#[derive(Clone, Debug)]
pub struct Asked {
    pub tenant: TenantId,
    /// The kinds that the caller requested and may see.
    pub kinds: Kinds,
    pub query: Query,
    pub limit: usize,
    pub behind: Option<Place>,
}

impl Asked {
    /// The owners of the terms to look up. Kinds that `type:` leaves out cost nothing.
    fn owners(&self) -> Arc<[Owner]> {
        let is_asked = |kind: Kind| {
            self.query.must.iter().all(|clause| match clause {
                Clause::Field { field: Field::Type, value } => value == kind.as_str(),
                _ => true,
            })
        };
        let kinds = Kind::ALL.iter().copied().filter(|&kind| self.kinds.has(kind) && is_asked(kind));
        kinds.map(|kind| Owner::of(self.tenant, kind)).collect()
    }
}

/// The results of a search.
#[derive(Debug)]
pub struct Found {
    pub hits: Vec<Hit>,
    pub counts: [u64; KINDS],
    pub has_more: bool,
}

/// A document that matches, with highlights.
#[derive(Debug)]
pub struct Hit {
    pub place: Place,
    pub kind: Kind,
    pub id: String,
    pub organization_id: Option<String>,
    pub title: String,
    pub subtitle: String,
    pub url: String,
    pub highlights: Vec<Highlight>,
}

impl Hit {
    fn of(place: Place, shown: Shown, marks: &mut Marks) -> Result<Self> {
        let kind = Kind::numbered(shown.kind);
        Ok(Hit {
            place,
            kind: kind.ok_or_else(|| Error::internal("the search index has shown an unknown kind"))?,
            highlights: marks.highlights(&shown.texts),
            id: shown.id,
            organization_id: shown.organization_id,
            title: shown.title,
            subtitle: shown.subtitle,
            url: shown.url,
        })
    }
}

/// The most organizations or users of one name. If there were more, using only some of them would be a wrong answer.
const NAMESAKES_MAX: usize = 100;

impl Serving {
    pub fn new(opened: Opened) -> Result<Self> {
        let snapshot = Snapshot::new(opened.reader.searcher(), None).map_err(Error::internal)?;
        Ok(Serving { opened, snapshot: RwLock::new(Arc::new(snapshot)) })
    }

    pub fn opened(&self) -> &Opened {
        &self.opened
    }

    /// Makes the last commit visible to searches.
    pub fn refresh(&self) -> Result<()> {
        let before = self.snapshot();
        let next = Snapshot::new(self.opened.reader.searcher(), Some(&before)).map_err(Error::internal)?;
        *self.snapshot.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(next);
        Ok(())
    }

    fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn documents(&self) -> u64 {
        self.snapshot().searcher.num_docs()
    }

    /// The best hits of a tenant. `None` if the query exceeds its budget.
    pub fn search(&self, asked: &Asked) -> Result<Option<Found>> {
        let snapshot = self.snapshot();
        let asking = Asking {
            fields: &self.opened.fields,
            searcher: &snapshot.searcher,
            owners: asked.owners(),
            budget: Budget::new(),
        };
        let meant = |clause: &Clause| self.meant(&snapshot, &asking, asked.tenant, clause);
        let query = asking.query(&asked.query, meant)?;
        if asking.budget.is_exhausted() {
            return Ok(None);
        }
        let page = snapshot.page(query.as_ref(), asked.kinds, asked.limit, asked.behind, &asking.budget);
        let page = page.map_err(Error::internal)?;
        if asking.budget.is_exhausted() {
            return Ok(None);
        }
        let mut marks = Marks::of(&asked.query);
        let mut hits = Vec::with_capacity(page.hits.len());
        for found in &page.hits {
            let shown = self.shown(&snapshot, asked.tenant, found.address)?;
            hits.push(Hit::of(found.place, shown, &mut marks)?);
        }
        Ok(Some(Found { hits, counts: page.counts, has_more: page.has_more }))
    }

    /// The ids of the records that a name in `org:` and `assignee:` stands for. If there are too many, the query is too
    /// broad.
    fn meant(
        &self,
        snapshot: &Snapshot,
        asking: &Asking<'_>,
        tenant: TenantId,
        clause: &Clause,
    ) -> Result<Vec<String>> {
        let (field, value, kind) = match clause {
            Clause::Field { field: Field::Org, value } => (Field::Org, value, Kind::Organization),
            Clause::Field { field: Field::Assignee, value } => (Field::Assignee, value, Kind::User),
            _ => return Ok(Vec::new()),
        };
        let query = asking.called(&Owner::of(tenant, kind), field, value).map_err(Error::internal)?;
        let kinds = Kinds::from_iter([kind]);
        let page = snapshot.page(query.as_ref(), kinds, NAMESAKES_MAX, None, &asking.budget);
        let page = page.map_err(Error::internal)?;
        if page.has_more {
            asking.budget.exhaust();
        }
        if !asking.budget.take_stored(page.hits.len() as u64) {
            return Ok(Vec::new());
        }
        let shown = page.hits.iter().map(|found| self.shown(snapshot, tenant, found.address));
        shown.map(|shown| shown.map(|shown| shown.id)).collect()
    }

    /// Loads the stored part of a document. Another tenant's document is an error, whatever the index says.
    fn shown(&self, snapshot: &Snapshot, tenant: TenantId, address: DocAddress) -> Result<Shown> {
        let document: TantivyDocument = snapshot.searcher.doc(address).map_err(Error::internal)?;
        let kept = document.get_first(self.opened.fields.shown).and_then(|value| value.as_str()).unwrap_or_default();
        let shown: Shown = serde_json::from_str(kept).map_err(Error::internal)?;
        if shown.tenant != tenant.to_string() {
            return Err(Error::internal("the search index has shown another tenant's document"));
        }
        Ok(shown)
    }
}
