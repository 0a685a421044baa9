//! `/api/search`

use axum::response::{IntoResponse, Response};
use feature_kit::QUERY_TOO_BROAD;
use kernel::auth::Scope;
use kernel::base::{Code, Error, Result};
use kernel::http::{
    Access, Api, FromParams, LIST_MAX, ListPage, Ok200, PageRequest, PageWith, Params, QueryParam, QueryString,
    RatePolicy, ResponseDocs, Rules,
};
use kernel::operations;
use kernel::rules;
use search_language::Q_CHARS_MAX;
use serde_json::json;
use utoipa::openapi::schema::{ObjectBuilder, Type as SchemaType};
use utoipa::openapi::{Ref, RefOr, Schema};
use utoipa::{IntoResponses, PartialSchema, ToSchema};

use super::answer::{SearchRequest, SearchTotals, answer_search, parse_query};
use super::{INVALID_QUERY, SearchCounts, SearchHit, SearchType};

/// The operations of this feature, and the schemas that their answers refer to.
pub fn mount(api: Api) -> Api {
    api.add_tenant_routes(operations!(search_records))
        .add_refusals("search", &[INVALID_QUERY, QUERY_TOO_BROAD])
        .add_schema::<SearchPage>()
        .add_schema::<super::Highlight>()
        .add_schema::<super::SearchType>()
}

pub(super) const PATH: &str = "/api/search";

rules! {
    Searching = Rules::new(RatePolicy::Search, &[Scope::SearchRead]);
}

pub struct SearchQuery {
    q: Option<String>,
    types: Option<Vec<SearchType>>,
    page: PageRequest,
}

impl FromParams for SearchQuery {
    fn from_params(params: &mut Params) -> Result<Self> {
        let q = "What to look for: words that must all match, exactly, as a prefix or with a typo (two from 8 \
                 letters); `\"words in a row\"`; `-word` to exclude; `field:value`, compared as a whole. Pasted text is \
                 searched as words.";
        let types = "Only these, as a comma list.";
        Ok(SearchQuery {
            q: params.take_parsed(QueryParam::new("q", q).with_length(1, Q_CHARS_MAX).required(), parse_q)?,
            types: params.take_enums(QueryParam::new("types", types).with_items_max(LIST_MAX))?,
            page: PageRequest::take_page(params)?,
        })
    }
}

pub(super) fn parse_q(text: &str) -> Result<String, String> {
    let is_right = !text.trim().is_empty() && text.chars().count() <= Q_CHARS_MAX;
    if is_right { Ok(text.to_owned()) } else { Err(format!("must have 1 to {Q_CHARS_MAX} characters")) }
}

/// A page of hits, with the totals over all results.
pub struct SearchPage(PageWith<SearchHit, SearchTotals>);

impl IntoResponse for SearchPage {
    fn into_response(self) -> Response {
        self.0.into_response()
    }
}

impl PartialSchema for SearchPage {
    fn schema() -> RefOr<Schema> {
        let RefOr::T(Schema::Object(mut page)) = <ListPage<SearchHit>>::schema() else {
            return <ListPage<SearchHit>>::schema();
        };
        let took = ObjectBuilder::new()
            .schema_type(SchemaType::Integer)
            .description(Some("How long it took, in milliseconds."));
        page.properties.insert("counts".to_owned(), Ref::from_schema_name(SearchCounts::name()).into());
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

impl ToSchema for SearchPage {
    fn name() -> std::borrow::Cow<'static, str> {
        <ListPage<SearchHit>>::name()
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        schemas.push((SearchCounts::name().into(), SearchCounts::schema()));
        <ListPage<SearchHit>>::schemas(schemas);
    }
}

impl IntoResponses for SearchPage {
    fn responses() -> ResponseDocs {
        Ok200::<SearchPage>::responses()
    }
}

/// Search
///
/// Finds devices, people, organizations, tickets, workflows and software, best first: what the query is the whole name, number
/// or address of; then devices, people and organizations that begin with it; then exact words before prefixes before typos,
/// names before other text, active records before finished ones. Words match written together or apart, with accents or
/// without, and umlauts also transcribed. Only what you may read is found and counted. Changes are found within a second.
#[utoipa::path(get, path = PATH, tag = "Search and reporting", operation_id = "search", params(QueryString<SearchQuery>))]
pub async fn search_records(caller: Access<Searching>, query: QueryString<SearchQuery>) -> Result<SearchPage> {
    let SearchQuery { q, types, page } = query.parse()?;
    let q = q.ok_or_else(|| Error::new(Code::MissingParameter, "Say what to look for with the query parameter q."))?;
    let query = parse_query(&q)?;
    let request = SearchRequest { query, types, limit: page.limit, after: page.cursor_key(&caller, PATH)? };
    let (hits, next, totals) =
        answer_search(caller.app(), &caller.db(), caller.tenant_id(), caller.scopes(), &request).await?;
    Ok(SearchPage(page.build_cut_page(&caller, PATH, hits, next)?.with_summary(totals)))
}
