//! The index: documents of all tenants in one folder of this node, and the one way to ask it.
//!
//! Architecture invariant: nobody outside this folder knows tantivy, and no query is made but by [`Serving::search`], which takes
//! the tenant.

mod collect;
mod files;
mod query;
mod schema;
mod words;
pub mod writer;

use std::sync::{Arc, PoisonError, RwLock};

use kernel::base::{Error, Result, TenantId};
use tantivy::TantivyDocument;
use tantivy::schema::Value as _;

use super::documents::{KINDS, Kind, Kinds};
use super::language::{Clause, Field, Query};
use collect::Snapshot;
use query::{Asking, Meant};
use schema::Tenant;
use words::Budget;
use writer::Opened;

pub use collect::Place;
pub use schema::Shown;
pub use words::{fewest_edits, typos};

/// An index as searches see it.
pub struct Serving {
    opened: Opened,
    snapshot: RwLock<Arc<Snapshot>>,
}

/// What is asked.
#[derive(Clone, Debug)]
pub struct Asked {
    pub tenant: TenantId,
    /// Those that whoever asks may see and wants.
    pub kinds: Kinds,
    pub query: Query,
    pub limit: usize,
    pub behind: Option<Place>,
}

/// What was found.
#[derive(Debug)]
pub struct Found {
    pub hits: Vec<Hit>,
    pub counts: [u64; KINDS],
    pub has_more: bool,
}

#[derive(Debug)]
pub struct Hit {
    pub place: Place,
    pub kind: Kind,
    pub shown: Shown,
}

/// Organizations or people of one name that a query may mean.
const NAMESAKES_MAX: usize = 100;

impl Serving {
    pub fn new(opened: Opened) -> Result<Self> {
        let snapshot = Snapshot::new(opened.reader.searcher(), None).map_err(Error::internal)?;
        Ok(Serving { opened, snapshot: RwLock::new(Arc::new(snapshot)) })
    }

    pub fn opened(&self) -> &Opened {
        &self.opened
    }

    /// Shows what was committed.
    pub fn refresh(&self) -> Result<()> {
        let before = self.snapshot();
        let next = Snapshot::new(self.opened.reader.searcher(), Some(&before)).map_err(Error::internal)?;
        *self.snapshot.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(next);
        Ok(())
    }

    fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How many documents it has.
    pub fn documents(&self) -> u64 {
        self.snapshot().searcher.num_docs()
    }

    /// The best of what a tenant has. None if it would cost more than a query may.
    pub fn search(&self, asked: &Asked) -> Result<Option<Found>> {
        let snapshot = self.snapshot();
        let asking = Asking {
            fields: &self.opened.fields,
            searcher: &snapshot.searcher,
            tenant: Tenant::of(asked.tenant),
            budget: Budget::new(),
        };
        let meant = |clause: &Clause| self.meant(&snapshot, &asking, asked.tenant, clause);
        let query = asking.query(&asked.query, meant).map_err(Error::internal)?;
        let page = snapshot.page(query.as_ref(), asked.kinds, asked.limit, asked.behind, &asking.budget);
        let page = page.map_err(Error::internal)?;
        if asking.budget.is_exhausted() {
            return Ok(None);
        }
        let hits = page.hits.iter().map(|hit| self.hit(&snapshot, asked.tenant, hit)).collect::<Result<_>>()?;
        Ok(Some(Found { hits, counts: page.counts, has_more: page.has_more }))
    }

    /// What a name stands for in `org:` and `assignee:`.
    fn meant(&self, snapshot: &Snapshot, asking: &Asking<'_>, tenant: TenantId, clause: &Clause) -> Meant {
        let ids = |field: Field, kind: Kind, value: &str| -> Vec<String> {
            let (query, kinds) = (asking.called(field, value), Kinds::from_iter([kind]));
            let page = snapshot.page(query.as_ref(), kinds, NAMESAKES_MAX, None, &asking.budget);
            let hits = page.map(|page| page.hits).unwrap_or_default();
            hits.iter().filter_map(|hit| self.hit(snapshot, tenant, hit).ok()).map(|hit| hit.shown.id).collect()
        };
        let mut meant = Meant { organizations: Vec::new(), people: Vec::new() };
        match clause {
            Clause::Field { field: Field::Org, value } => {
                meant.organizations = ids(Field::Org, Kind::Organization, value);
            }
            Clause::Field { field: Field::Assignee, value } => {
                meant.people = ids(Field::Assignee, Kind::User, value);
            }
            _ => {}
        }
        meant
    }

    /// What is kept of a hit. A document of another tenant is never shown, whatever the index says.
    fn hit(&self, snapshot: &Snapshot, tenant: TenantId, hit: &collect::Hit) -> Result<Hit> {
        let document: TantivyDocument = snapshot.searcher.doc(hit.address).map_err(Error::internal)?;
        let bytes = document.get_first(self.opened.fields.shown).and_then(|value| value.as_bytes()).unwrap_or_default();
        let shown: Shown = serde_json::from_slice(bytes).map_err(Error::internal)?;
        if shown.tenant != tenant.to_string() {
            return Err(Error::internal("the search index has shown another tenant's document"));
        }
        let kind =
            Kind::numbered(shown.kind).ok_or_else(|| Error::internal("the search index has shown an unknown kind"))?;
        Ok(Hit { place: hit.place, kind, shown })
    }
}
