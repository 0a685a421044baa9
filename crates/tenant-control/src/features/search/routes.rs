//! `/api/search`

use std::time::Instant;

use axum::response::{IntoResponse, Response};
use kernel::auth::Scope;
use kernel::base::{Code, Error, Result};
use kernel::http::{
    Access, Documented, FromParams, LIST_MAX, Ok200, Page, PageRequest, PageWith, Param, Params, Policy, Query, Rules,
};
use kernel::rules;
use serde::Serialize;
use serde_json::json;
use utoipa::openapi::schema::{ObjectBuilder, Type as SchemaType};
use utoipa::openapi::{Ref, RefOr, Schema};
use utoipa::{IntoResponses, PartialSchema, ToSchema};

use super::documents::Kind;
use super::index::{Asked, Place};
use super::keeper::Served;
use super::shown::{Marks, hit};
use super::{Counts, Hit, INVALID_QUERY, Q_CHARS_MAX, Type, language, seen_by, store, wanted};
use crate::features::tickets::QUERY_TOO_BROAD;

const PATH: &str = "/api/search";

rules! {
    Searching = Rules::new(Policy::Search, &[Scope::SearchRead]);
}

pub struct SearchQuery {
    q: Option<String>,
    types: Option<Vec<Type>>,
    page: PageRequest,
}

impl FromParams for SearchQuery {
    fn from_params(params: &mut Params) -> Result<Self> {
        let q = "What to look for: words, all of which must be there, each the beginning of a word or one with a typo (two from 8 \
                 letters); `\"words in a row\"`; `-word` that must not be there; `field:value`, compared as a whole.";
        let types = "Only these, as a comma list.";
        Ok(SearchQuery {
            q: params.take_parsed(Param::new("q", q).length(1, Q_CHARS_MAX).required(), parse_q)?,
            types: params.take_words(Param::new("types", types).items_max(LIST_MAX))?,
            page: PageRequest::take(params)?,
        })
    }
}

fn parse_q(text: &str) -> Result<String, String> {
    let is_right = (1..=Q_CHARS_MAX).contains(&text.trim().chars().count());
    if is_right { Ok(text.to_owned()) } else { Err(format!("must have 1 to {Q_CHARS_MAX} characters")) }
}

/// What is told of all results beside those of the page.
#[derive(Serialize)]
pub struct Whole {
    counts: Counts,
    took_ms: u64,
}

/// A page of what was found.
pub struct Found(PageWith<Hit, Whole>);

impl IntoResponse for Found {
    fn into_response(self) -> Response {
        self.0.into_response()
    }
}

impl PartialSchema for Found {
    fn schema() -> RefOr<Schema> {
        let RefOr::T(Schema::Object(mut page)) = <Page<Hit>>::schema() else { return <Page<Hit>>::schema() };
        let took = ObjectBuilder::new()
            .schema_type(SchemaType::Integer)
            .description(Some("How long it took, in milliseconds."));
        page.properties.insert("counts".to_owned(), Ref::from_schema_name(Counts::name()).into());
        page.properties.insert("took_ms".to_owned(), took.into());
        page.required.extend(["counts".to_owned(), "took_ms".to_owned()]);
        for example in &mut page.examples {
            example["counts"] =
                json!({"device": 0, "user": 0, "organization": 0, "ticket": 1, "vm": 0, "workflow": 0, "software": 0});
            example["took_ms"] = json!(1);
        }
        RefOr::T(Schema::Object(page))
    }
}

impl ToSchema for Found {
    fn name() -> std::borrow::Cow<'static, str> {
        <Page<Hit>>::name()
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        schemas.push((Counts::name().into(), Counts::schema()));
        <Page<Hit>>::schemas(schemas);
    }
}

impl IntoResponses for Found {
    fn responses() -> Documented {
        Ok200::<Found>::responses()
    }
}

/// Search
///
/// Devices, people, organizations, tickets, workflows and software, the best first: words as they are before words that begin so
/// before those with a typo; what something is called before what is said of it; what is live before what is done. Only what the
/// caller may read is found, and counted. What was written is found within a second.
#[utoipa::path(get, path = PATH, tag = "Search and reporting", operation_id = "search", params(Query<SearchQuery>))]
pub async fn search(caller: Access<Searching>, query: Query<SearchQuery>) -> Result<Found> {
    let began = Instant::now();
    let SearchQuery { q, types, page } = query.parse()?;
    let q = q.ok_or_else(|| Error::new(Code::MissingParameter, "Say what to look for with the query parameter q."))?;
    let query = language::parse(&q).map_err(|error| Error::new(INVALID_QUERY, error.to_string()))?;
    let behind: Option<Place> = page.after(&caller, PATH)?;
    let marks = Marks::of(&query);
    let asked = Asked {
        tenant: caller.tenant_id(),
        kinds: seen_by(caller.scopes()).and(wanted(types.as_deref())),
        query,
        limit: page.limit,
        behind,
    };
    let served: Served = caller.app().settings.of_feature();
    let found = served.search(asked).await?.ok_or_else(too_broad)?;
    let next = found.hits.last().filter(|_| found.has_more).map(|hit| hit.place);
    let software = found.hits.iter().filter(|hit| hit.kind == Kind::Software);
    let software: Vec<&str> = software.map(|hit| hit.shown.id.as_str()).collect();
    let installed = store::installed_on(&caller.db(), &software).await?;
    let base_url = caller.app().settings.base_url.as_str();
    let hits = found.hits.into_iter().map(|found| hit(base_url, &marks, found, &installed)).collect();
    let page = page.page_before(&caller, PATH, hits, next)?;
    let took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    Ok(Found(page.with(Whole { counts: Counts::of(found.counts), took_ms })))
}

fn too_broad() -> Error {
    Error::new(
        QUERY_TOO_BROAD,
        "Too much begins like this. Write more of a word, or add another or a field such as type:device.",
    )
}
