//! The workflow action `search.query`. Its input and output are those of the route, and it finds what the principal who
//! saved the workflow may read when the step runs.

use feature_kit::STEP_BYTES_MAX;
use feature_kit::{Action, ActionEffect, Lookup};
use futures_util::future::BoxFuture;
use kernel::auth::{Rights, Scope};
use kernel::base::{Error, Result, StringEnum};
use kernel::http::{
    App, BodyField, BodyFields, CursorSigner, FromBody, LIMIT_DEFAULT, LIMIT_MAX, LIST_MAX, read_object,
};
use kernel::store::{CursorKey, Db};
use search_language::ParsedQuery;
use serde_json::{Map, Value, json};

use super::answer::{SearchRequest, answer_search, parse_query};
use super::routes::{PATH, parse_q};
use super::service::SearchService;
use super::{INVALID_QUERY, SearchType};

pub const ACTIONS: &[Action] = &[Action {
    name: "search.query",
    about: "Searches, as the route does: finds only what the user or key that saved the workflow may read. A page ends \
            before its `limit` if it would be too large for a step.",
    needs: &[Scope::SearchRead],
    example: || json!({"q": "${{ event.data.hostname }} -status:closed", "types": ["ticket"], "limit": 10}),
    check: |with| read_object::<SearchStepInput>(with).without_value(),
    effect: ActionEffect::Lookup(Lookup { is_available: is_index_available, find: run_search_step, preview: None }),
}];

/// The input of a step: the parameters of the route, as fields.
struct SearchStepInput {
    /// The query as written, which a cursor is bound to.
    q: String,
    query: ParsedQuery,
    types: Option<Vec<SearchType>>,
    limit: usize,
    cursor: Option<String>,
}

impl FromBody for SearchStepInput {
    fn from_fields(fields: &mut BodyFields) -> Option<Self> {
        let q = fields.read_required("q", |field| {
            let q = field.read_parsed("invalid_text", parse_q)?;
            match parse_query(&q) {
                Ok(query) => Some((q, query)),
                Err(error) => field.report_error(INVALID_QUERY.name(), error.detail()),
            }
        });
        // Expressions may evaluate to null, such as the `next_cursor` of a last page; null counts as absent.
        let types = fields.read_optional("types", |field| field.read_or_null(parse_types));
        let limit = fields.read_optional("limit", |field| field.read_or_null(parse_limit));
        let cursor = fields.read_optional("cursor", |field| field.read_or_null(|field| field.read_string()));
        let (q, query) = q?;
        let limit = limit?.flatten().unwrap_or(LIMIT_DEFAULT);
        Some(SearchStepInput { q, query, types: types?.flatten(), limit, cursor: cursor?.flatten() })
    }
}

/// Parses a list, or a comma list as the route takes it. Types are sorted and distinct, so that a cursor stays valid in any
/// order of types.
fn parse_types(field: &mut BodyField<'_>) -> Option<Vec<SearchType>> {
    let mut types: Vec<SearchType> = if field.is_list() {
        field.read_list(LIST_MAX, |field| field.read_enum())?
    } else {
        field.read_parsed("invalid_value", |text| {
            if text.split(',').count() > LIST_MAX {
                return Err(format!("takes at most {LIST_MAX} values"));
            }
            let types: Option<Vec<SearchType>> = text.split(',').map(SearchType::parse).collect();
            types.ok_or_else(|| format!("must be {}, or a list of them", SearchType::expected_names()))
        })?
    };
    if types.is_empty() {
        return field.report_error("required", "must name at least one type");
    }
    types.sort_unstable_by_key(|one| one.as_str());
    types.dedup();
    Some(types)
}

fn parse_limit(field: &mut BodyField<'_>) -> Option<usize> {
    field.read_integer(1..=LIMIT_MAX as i64).and_then(|limit| usize::try_from(limit).ok())
}

impl SearchStepInput {
    /// The filters that a cursor is bound to. They are those of the route, so cursors of steps and of requests are
    /// interchangeable.
    fn cursor_filters(&self) -> Vec<(&'static str, String)> {
        let words = |types: &[SearchType]| types.iter().map(|one| one.as_str()).collect::<Vec<_>>().join(",");
        let types = self.types.as_deref().map(|types| ("types", words(types)));
        [("q", self.q.clone())].into_iter().chain(types).collect()
    }
}

fn is_index_available(app: &App) -> bool {
    let served: SearchService = app.settings.feature_settings();
    served.get().is_ok()
}

fn run_search_step<'t>(
    app: &'t App,
    db: &'t Db,
    rights: &'t Rights,
    with: Map<String, Value>,
) -> BoxFuture<'t, Result<Value>> {
    Box::pin(async move {
        let (search, _) = read_object::<SearchStepInput>(with).into_result()?;
        let tenant = db.tenant_id().ok_or_else(|| Error::internal("a search is one tenant's"))?;
        let filters = search.cursor_filters();
        let cursors = CursorSigner { app, tenant, path: PATH, filters: &filters };
        let after = search.cursor.as_deref().map(|cursor| cursors.open_as(cursor)).transpose()?;
        let (query, types) = (search.query.clone(), search.types.clone());
        let mut request = SearchRequest { query, types, limit: search.limit, after };
        loop {
            let (hits, next, totals) = answer_search(app, db, tenant, &rights.scopes, &request).await?;
            let next_cursor = next.map(|position| cursors.sign_position(&position.to_position())).transpose()?;
            let output = json!({
                "data": hits, "has_more": next_cursor.is_some(), "next_cursor": next_cursor,
                "counts": totals.counts, "took_ms": totals.took_ms,
            });
            // The hits left out here are on the next page.
            if request.limit == 1 || output.to_string().len() <= STEP_BYTES_MAX {
                return Ok(output);
            }
            request.limit /= 2;
        }
    })
}
