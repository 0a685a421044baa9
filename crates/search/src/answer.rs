//! Runs a search for a request or for a step of a workflow.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use feature_kit::QUERY_TOO_BROAD;
use figures::Dimension;
use figures::cells::{SEARCH_LATENCY_US, SEARCHES, SEARCHES_WITHOUT_RESULT};
use kernel::auth::Scopes;
use kernel::base::{Error, Result, TenantId};
use kernel::http::App;
use kernel::store::Db;
use search_language::ParsedQuery;
use serde::Serialize;

use super::documents::DocumentKind;
use super::index::{IndexHit, IndexQuery, ResultPosition};
use super::service::SearchService;
use super::{INVALID_QUERY, SearchCounts, SearchHit, SearchType, requested_kinds, store, visible_kinds};

/// A parsed search.
#[derive(Clone, Debug)]
pub struct SearchRequest {
    pub query: ParsedQuery,
    /// All types if there are none.
    pub types: Option<Vec<SearchType>>,
    pub limit: usize,
    /// Where the previous page ended.
    pub after: Option<ResultPosition>,
}

/// Totals over all results, beside the hits of the page.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct SearchTotals {
    pub counts: SearchCounts,
    pub took_ms: u64,
}

/// Parses the text of a query.
pub fn parse_query(q: &str) -> Result<ParsedQuery> {
    search_language::parse(q).map_err(|error| Error::new(INVALID_QUERY, error.to_string()))
}

/// The best hits of the tenant that these scopes may see, the position where the page ends if another follows, and the
/// totals.
pub async fn answer_search(
    app: &App,
    db: &Db,
    tenant: TenantId,
    scopes: &Scopes,
    request: &SearchRequest,
) -> Result<(Vec<SearchHit>, Option<ResultPosition>, SearchTotals)> {
    let began = Instant::now();
    let index_query = IndexQuery {
        tenant,
        kinds: visible_kinds(scopes).intersect_with(requested_kinds(request.types.as_deref())),
        query: request.query.clone(),
        limit: request.limit,
        after: request.after,
    };
    let served: SearchService = app.settings.feature_settings();
    let results = served.search(db, index_query).await?.ok_or_else(query_too_broad)?;
    let next = results.hits.last().filter(|_| results.has_more).map(|hit| hit.position);
    let software = results.hits.iter().filter(|hit| hit.kind == DocumentKind::Software);
    let software: Vec<&str> = software.map(|hit| hit.id.as_str()).collect();
    let installed = store::count_installations(db, &software).await?;
    let base_url = app.settings.base_url.as_str();
    let hits = results.hits.into_iter().map(|hit| to_search_hit(base_url, hit, &installed)).collect();
    let took = began.elapsed();
    if request.after.is_none() {
        meter_search(app, tenant, took, results.counts.iter().sum());
    }
    let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    Ok((hits, next, SearchTotals { counts: SearchCounts::from_array(results.counts), took_ms }))
}

/// Counts a search once, not each of its pages.
fn meter_search(app: &App, tenant: TenantId, took: Duration, found: u64) {
    app.usage.add_usage(tenant, app.env.now(), |usage| {
        let figures = usage.group_mut(Dimension::NONE, "");
        figures.add_count(SEARCHES, 1);
        figures.add_count(SEARCHES_WITHOUT_RESULT, i64::from(found == 0));
        figures.add_sample(SEARCH_LATENCY_US, i64::try_from(took.as_micros()).unwrap_or(i64::MAX));
    });
}

fn query_too_broad() -> Error {
    Error::new(QUERY_TOO_BROAD, "A part of this search matches too much. Use longer or rarer words.")
}

/// The hit as clients see it: software with the number of devices it is installed on.
fn to_search_hit(base_url: &str, hit: IndexHit, installed: &HashMap<String, i64>) -> SearchHit {
    let subtitle = match (hit.kind, installed.get(&hit.id)) {
        (DocumentKind::Software, Some(1)) => "on 1 device".to_owned(),
        (DocumentKind::Software, devices) => format!("on {} devices", devices.copied().unwrap_or_default()),
        _ => hit.subtitle,
    };
    SearchHit {
        r#type: hit.kind,
        id: hit.id,
        title: hit.title,
        subtitle,
        organization_id: hit.organization_id,
        score: hit.position.points(),
        highlights: hit.highlights,
        url: format!("{base_url}{}", hit.url),
    }
}
