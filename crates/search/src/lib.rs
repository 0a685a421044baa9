//! Full-text search over a tenant's records.
//!
//! The crate `search-language` parses queries, `documents` turns records into documents, `index` finds them, and
//! `synchronizer` keeps the index in sync with the store. The index is a copy: no fault in it can touch the records.

pub mod action;
mod answer;
mod builder;
pub mod documents;
pub mod feature;
pub mod health;
pub mod index;
mod index_folder;
pub mod routes;
pub mod service;
pub mod store;
pub mod synchronizer;
mod updater;
mod writer_thread;

use kernel::auth::{Scope, Scopes};
use kernel::base::{Code, StringEnum};
use serde::Serialize;
use utoipa::ToSchema;

use documents::{DocumentKind, KIND_COUNT, KindSet};

pub const INVALID_QUERY: Code = Code::new(
    400,
    "invalid_query",
    "The search cannot be understood",
    "A field is not known or cannot have the value, or there is nothing to look for. The detail says where.",
    "At character 1: There is no field `colour`.",
);

kernel::string_enum! {
    /// What a search can find.
    #[schema(as = SearchType)]
    pub enum SearchType {
        Device "device", User "user", Organization "organization", Ticket "ticket", Vm "vm", Workflow "workflow",
        Software "software",
    }
}

/// Part of a text with a match.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Highlight {
    pub field: String,
    /// Safe to put into HTML: what was found stands in `<em>`, and everything else is escaped.
    pub snippet: String,
}

/// One search result.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = SearchHit, example = json!({
    "type": "ticket", "id": "tkt_01jd8z6v2mfkpb7h3q9xw5t4ra", "title": "Printer on floor 3 is jammed",
    "subtitle": "#42 · open · high", "organization_id": null, "score": 80,
    "highlights": [{"field": "subject", "snippet": "<em>Printer</em> on floor 3 is jammed"}],
    "url": "http://localhost:8080/api/psa/tickets?id=tkt_01jd8z6v2mfkpb7h3q9xw5t4ra"
}))]
pub struct SearchHit {
    #[schema(value_type = SearchType)]
    pub r#type: DocumentKind,
    /// The id of the record; of software its name in small letters.
    pub id: String,
    pub title: String,
    pub subtitle: String,
    #[schema(required)]
    pub organization_id: Option<String>,
    /// How well the query matches: more is better. Among equals what is live comes first, then devices, people and
    /// organizations, then what is newer.
    pub score: u64,
    /// Where the words were found, at most three; none for what was asked by `field:value`.
    pub highlights: Vec<Highlight>,
    /// Where the record can be read.
    pub url: String,
}

/// How many of each type there are in all.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
#[schema(as = SearchCounts)]
pub struct SearchCounts {
    pub device: u64,
    pub user: u64,
    pub organization: u64,
    pub ticket: u64,
    pub vm: u64,
    pub workflow: u64,
    pub software: u64,
}

impl SearchCounts {
    fn from_array(counts: [u64; KIND_COUNT]) -> Self {
        let of = |kind: DocumentKind| counts.get(kind.index()).copied().unwrap_or_default();
        SearchCounts {
            device: of(DocumentKind::Device),
            user: of(DocumentKind::User),
            organization: of(DocumentKind::Organization),
            ticket: of(DocumentKind::Ticket),
            vm: of(DocumentKind::Vm),
            workflow: of(DocumentKind::Workflow),
            software: of(DocumentKind::Software),
        }
    }
}

/// The kinds of records that these scopes may find: organizations and users with the right to search alone, all others with
/// the right to read them.
pub fn visible_kinds(scopes: &Scopes) -> KindSet {
    let may_see = |kind: &DocumentKind| match kind {
        DocumentKind::User | DocumentKind::Organization => true,
        DocumentKind::Device | DocumentKind::Software => scopes.has_scope(Scope::InventoryRead),
        DocumentKind::Ticket => scopes.has_scope(Scope::TicketsRead),
        DocumentKind::Workflow => scopes.has_scope(Scope::WorkflowsRead),
        DocumentKind::Vm => scopes.has_scope(Scope::CloudRead),
    };
    DocumentKind::ALL.iter().copied().filter(may_see).collect()
}

/// The kinds of the requested types; all kinds without any types.
pub fn requested_kinds(types: Option<&[SearchType]>) -> KindSet {
    let is_requested =
        |kind: &DocumentKind| types.is_none_or(|types| types.iter().any(|one| one.as_str() == kind.as_str()));
    DocumentKind::ALL.iter().copied().filter(is_requested).collect()
}
