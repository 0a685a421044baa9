//! `/api/admin/webhooks/events`

use std::collections::BTreeMap;

use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use feature_kit::registry;
use kernel::auth::Scope;
use kernel::base::{Code, Error, EventId, Result};
use kernel::events::EventKindDescription;
use kernel::http::{
    Access, FromParams, ListPage, Ok200, PageRequest, Params, QueryParam, QueryString, RatePolicy, Rules,
    document_response,
};
use kernel::rules;
use kernel::store::Value;
use serde_json::value::RawValue;
use utoipa::openapi::{OneOfBuilder, Ref, RefOr, Schema};
use utoipa::{IntoResponses, PartialSchema, ToSchema};

use super::document::{CataloguePage, FeedPage};
use super::feed::{FeedRequest, FeedResponse, read_feed};
use super::{Event, EventType, PATH, store};

rules! {
    Reading = Rules::new(RatePolicy::Read, &[Scope::WebhooksRead]);
}

pub struct ListQuery {
    id: Option<EventId>,
    is_feed: bool,
    feed: FeedRequest,
}

impl FromParams for ListQuery {
    fn from_params(params: &mut Params) -> Result<Self> {
        let one = "One event, as it was delivered. Cannot be combined with other parameters than `limit`.";
        let view = "`feed` for the tenant's own events, oldest first; without it, the catalogue.";
        let start = "`now` begins the feed at its end instead of the oldest event that is kept. Only without a cursor.";
        let types = "In the feed, only what an endpoint with these `events` would receive, as a comma list of kinds, \
                     `<family>.*` and `*`.";
        let word = "a kind of event such as ticket.created, a family such as ticket.*, or *";
        let query = ListQuery {
            id: params.take_optional_id(one)?,
            is_feed: params.take_flag(QueryParam::new("view", view), "feed")?,
            feed: FeedRequest {
                from_now: params.take_flag(QueryParam::new("start", start).unbound_from_cursor(), "now")?,
                types: params.take_list(QueryParam::new("types", types), word, |word| {
                    registry().can_subscribe(word).is_ok_and(|allowed| allowed).then(|| word.to_owned())
                })?,
                page: PageRequest::take_page(params)?,
            },
        };
        let refused = |detail| Err(Error::new(Code::InvalidParameter, detail));
        match (query.is_feed, &query.feed) {
            (false, FeedRequest { from_now: true, .. }) => refused("The query parameter start needs view=feed."),
            (false, FeedRequest { types: Some(_), .. }) => refused("The query parameter types needs view=feed."),
            (_, FeedRequest { from_now: true, page, .. }) if page.has_cursor() => {
                refused("The query parameter start cannot be combined with cursor.")
            }
            _ => Ok(query),
        }
    }
}

/// The response of GET: a page of the catalogue or of the feed, or one event.
pub enum EventListResponse {
    Catalogue(ListPage<EventType>),
    Feed(FeedResponse),
    One(Box<RawValue>),
}

impl IntoResponse for EventListResponse {
    fn into_response(self) -> Response {
        match self {
            EventListResponse::Catalogue(page) => page.into_response(),
            EventListResponse::One(event) => Ok200(event).into_response(),
            EventListResponse::Feed(feed) => {
                let link = HeaderValue::try_from(feed.next_link.as_str()).ok();
                let mut response = Ok200(feed).into_response();
                response.headers_mut().extend(link.map(|link| (header::LINK, link)));
                response
            }
        }
    }
}

impl IntoResponses for EventListResponse {
    fn responses() -> BTreeMap<String, RefOr<utoipa::openapi::Response>> {
        document_response::<Self>(
            "200",
            "The catalogue; with `view=feed`, events, and always a `next_cursor`; with `id`, one event.",
        )
    }
}

impl PartialSchema for EventListResponse {
    fn schema() -> RefOr<Schema> {
        let names = [CataloguePage::name(), FeedPage::name(), Event::name()];
        names.into_iter().fold(OneOfBuilder::new(), |one_of, name| one_of.item(Ref::from_schema_name(name))).into()
    }
}

/// Read the catalogue of events, or the events themselves
///
/// Without `view`: every kind of event, with the schema and an example of the whole body of a delivery. With
/// `view=feed`: the tenant's events, oldest first, of the kinds whose family the caller may read. Ask again with
/// `next_cursor`, which is always set; when there is nothing new, the answer waits up to 25 seconds. With `id`: one event,
/// as it was delivered.
#[utoipa::path(
    get, path = PATH, tag = "Control plane", operation_id = "list_events", params(QueryString<ListQuery>)
)]
pub async fn list_events(caller: Access<Reading>, query: QueryString<ListQuery>) -> Result<EventListResponse> {
    let db = caller.db();
    let query = query.parse()?;
    if let Some(id) = query.id {
        let families = registry().readable_families(caller.scopes());
        return store::get_event_body(&db, &families, id).await.map(EventListResponse::One);
    }
    if query.is_feed {
        return read_feed(&caller, &db, query.feed).await.map(EventListResponse::Feed);
    }
    let page = &query.feed.page;
    let after = match page.cursor_position(&caller, PATH)?.as_deref() {
        Some([Value::Text(name)]) => Some(name.clone()),
        _ => None,
    };
    let kinds = registry().event_kinds()?;
    let start = after.and_then(|name| kinds.iter().position(|kind| kind.name == name)).map_or(0, |at| at + 1);
    let rows: Vec<EventType> = kinds[start..].iter().take(page.fetch_limit()).map(to_event_type).collect();
    page.build_page(&caller, PATH, rows, |kind| vec![kind.r#type.as_str().into()]).map(EventListResponse::Catalogue)
}

fn to_event_type(kind: &EventKindDescription) -> EventType {
    EventType {
        r#type: kind.name.to_owned(),
        description: kind.description.to_owned(),
        schema: kind.schema.clone(),
        example: kind.example.clone(),
    }
}
