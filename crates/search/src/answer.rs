//! Runs a search for a request or for a step of a workflow.

use std::time::Instant;

use kernel::auth::Scopes;
use kernel::base::{Error, Result, TenantId};
use kernel::http::App;
use kernel::store::Db;
use serde::Serialize;

use super::documents::Kind;
use super::index::{Asked, Place};
use super::served::Served;
use super::shown::hit;
use super::{Counts, Hit, INVALID_QUERY, Type, seen_by, store, wanted};
use feature_kit::QUERY_TOO_BROAD;
use search_language::Query;

/// A parsed search.
#[derive(Clone, Debug)]
pub struct Ask {
    pub query: Query,
    /// All types if there are none.
    pub types: Option<Vec<Type>>,
    pub limit: usize,
    /// Where the previous page ended.
    pub behind: Option<Place>,
}

/// Totals over all results, beside the hits of the page.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Whole {
    pub counts: Counts,
    pub took_ms: u64,
}

/// Parses the text of a query.
pub fn read(q: &str) -> Result<Query> {
    search_language::parse(q).map_err(|error| Error::new(INVALID_QUERY, error.to_string()))
}

/// The best hits of the tenant that these scopes may see, the position where the page ends if another follows, and the
/// totals.
pub async fn answer(
    app: &App,
    db: &Db,
    tenant: TenantId,
    scopes: &Scopes,
    ask: &Ask,
) -> Result<(Vec<Hit>, Option<Place>, Whole)> {
    let began = Instant::now();
    let asked = Asked {
        tenant,
        kinds: seen_by(scopes).and(wanted(ask.types.as_deref())),
        query: ask.query.clone(),
        limit: ask.limit,
        behind: ask.behind,
    };
    let served: Served = app.settings.of_feature();
    let found = served.search(db, asked).await?.ok_or_else(too_broad)?;
    let next = found.hits.last().filter(|_| found.has_more).map(|hit| hit.place);
    let software = found.hits.iter().filter(|hit| hit.kind == Kind::Software);
    let software: Vec<&str> = software.map(|hit| hit.id.as_str()).collect();
    let installed = store::installed_on(db, &software).await?;
    let base_url = app.settings.base_url.as_str();
    let hits = found.hits.into_iter().map(|found| hit(base_url, found, &installed)).collect();
    let took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    Ok((hits, next, Whole { counts: Counts::of(found.counts), took_ms }))
}

fn too_broad() -> Error {
    Error::new(
        QUERY_TOO_BROAD,
        "A part of this search stands for too much. Write more of its words, or words that are rarer.",
    )
}
