//! `/api/admin/webhooks/events`

use std::collections::BTreeMap;
use std::time::Duration;

use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use kernel::auth::{Access, Caller, Scope};
use kernel::base::{Code, Error, EventId, Result, TenantId, Timestamp};
use kernel::events::Described;
use kernel::http::{FromParams, List, Ok200, Page, PageBytes, PageRequest, Params, Policy, Query, Rules, documented};
use kernel::jobs::lanes::POLL_MS;
use kernel::rules;
use kernel::store::{Db, Value};
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;
use utoipa::openapi::{OneOfBuilder, Ref, RefOr, Schema};
use utoipa::{IntoParams, IntoResponses, PartialSchema, ToSchema};

use super::document::{CataloguePage, FeedPage};
use super::{Event, EventType, Wanted, store};
use crate::catalogue;

const PATH: &str = "/api/admin/webhooks/events";

rules! {
    Reading = Rules::new(Policy::Read, &[Scope::WebhooksRead]);
}
const FEED: &str = "feed";

/// Numbers of a tenant's writes looked at in one step: most are not events that the reader may see.
const WINDOW: i64 = 2_000;
/// Steps of one request; a reader that is so far behind gets a cursor further on and asks again.
const STEPS_MAX: usize = 50;

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ListQuery {
    /// One event, as it was delivered. Cannot be combined with the other parameters.
    #[param(value_type = Option<String>)]
    id: Option<EventId>,
    /// `feed` for the tenant's own events, oldest first; without it, the catalogue.
    #[param(value_type = Option<String>, pattern = "^feed$")]
    view: Option<()>,
    /// `now` begins the feed at its end instead of the oldest event that is kept. Only without a cursor.
    #[param(value_type = Option<String>, pattern = "^now$")]
    start: Option<()>,
    /// Of the feed, what an endpoint with these `events` would be told, as a comma list of kinds, `<family>.*` and `*`.
    #[param(value_type = Option<Vec<String>>, style = Form, explode = false)]
    types: Option<Vec<String>>,
    #[param(ignore)]
    page: PageRequest,
}

impl FromParams for ListQuery {
    const NAMES: &'static [&'static str] = &["id", "view", "start", "types", "limit", "cursor"];

    fn from_params(params: &mut Params) -> Result<Self> {
        let id = params.take_optional_id()?;
        let view = take_word(params, "view", FEED)?;
        let start = take_word(params, "start", "now")?;
        let known = |word: &str| catalogue::can_subscribe(word).is_ok_and(|known| known).then(|| word.to_owned());
        let types = params.take_list(
            "types",
            "a kind of event such as ticket.created, a family such as ticket.*, or *",
            known,
        )?;
        let page = PageRequest::take(params)?;
        let refused = |detail| Err(Error::new(Code::InvalidParameter, detail));
        match (view, start, &types) {
            (None, Some(()), _) => refused("The query parameter start needs view=feed."),
            (None, _, Some(_)) => refused("The query parameter types needs view=feed."),
            (_, Some(()), _) if page.has_cursor() => {
                refused("The query parameter start cannot be combined with cursor.")
            }
            _ => Ok(ListQuery { id, view, start, types, page }),
        }
    }
}

fn take_word(params: &mut Params, name: &str, word: &str) -> Result<Option<()>> {
    match params.take(name) {
        Some(text) if text != word => {
            let detail = format!("The query parameter {name} must be {word}, or left out.");
            Err(Error::new(Code::InvalidParameter, detail))
        }
        given => Ok(given.map(drop)),
    }
}

/// A page of the catalogue or of the feed, or one event.
pub enum Listed {
    Catalogue(Page<EventType>),
    Feed(Feed),
    One(Box<RawValue>),
}

/// A piece of the feed; `next_cursor` is always there.
#[derive(Serialize)]
pub struct Feed {
    data: Vec<Box<RawValue>>,
    has_more: bool,
    next_cursor: String,
    #[serde(skip)]
    next_link: String,
}

impl IntoResponse for Listed {
    fn into_response(self) -> Response {
        match self {
            Listed::Catalogue(page) => page.into_response(),
            Listed::One(event) => Ok200(event).into_response(),
            Listed::Feed(feed) => {
                let link = HeaderValue::try_from(feed.next_link.as_str()).ok();
                let mut response = Ok200(feed).into_response();
                response.headers_mut().extend(link.map(|link| (header::LINK, link)));
                response
            }
        }
    }
}

impl IntoResponses for Listed {
    fn responses() -> BTreeMap<String, RefOr<utoipa::openapi::Response>> {
        let mut answers = documented::<Self>(
            "200",
            "The catalogue; with `view=feed`, events, and always a `next_cursor`; with `id`, one event.",
        );
        answers.insert("404".to_owned(), RefOr::Ref(Ref::from_response_name("NotFound")));
        answers
    }
}

impl PartialSchema for Listed {
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
    get, path = PATH, tag = "Control plane", operation_id = "list_events", params(ListQuery, PageRequest)
)]
pub async fn list(caller: Access<Reading>, query: Query<ListQuery>) -> Result<Listed> {
    let db = caller.db();
    let query = query.parse()?;
    if let Some(id) = query.id {
        let families = catalogue::readable_families(caller.scopes());
        return store::get(&db, &families, id).await.map(Listed::One);
    }
    if query.view.is_some() {
        return feed(&caller, &db, query).await.map(Listed::Feed);
    }
    let list = List { path: PATH, filters: Vec::new() };
    let after = match query.page.position(&caller, &list)?.as_deref() {
        Some([Value::Text(name)]) => Some(name.clone()),
        _ => None,
    };
    let kinds = catalogue::kinds()?;
    let start = after.and_then(|name| kinds.iter().position(|kind| kind.name == name)).map_or(0, |at| at + 1);
    let rows: Vec<EventType> = kinds[start..].iter().take(query.page.fetch()).map(event_type).collect();
    query.page.page(&caller, &list, rows, |kind| vec![kind.r#type.as_str().into()]).map(Listed::Catalogue)
}

fn event_type(kind: &Described) -> EventType {
    EventType {
        r#type: kind.name.to_owned(),
        description: kind.description.to_owned(),
        schema: kind.schema.clone(),
        example: kind.example.clone(),
    }
}

/// Where a reader of the feed is: behind which number, and the moment since which it needs what is kept. That is the
/// moment of the next event, of whichever kind, while there is one; else when the reader was told that there is none.
#[derive(Clone, Copy)]
struct Position {
    sequence: i64,
    at: Timestamp,
}

impl Position {
    /// Right before an event.
    fn before((sequence, at): (i64, Timestamp)) -> Self {
        Position { sequence: sequence - 1, at }
    }
}

async fn feed(caller: &Access<Reading>, db: &Db, query: ListQuery) -> Result<Feed> {
    let ListQuery { start, types, page, .. } = query;
    let mut list = List { path: PATH, filters: vec![("view", FEED.to_owned())] };
    let wanted = match types {
        None => Wanted::All,
        Some(mut types) => {
            // In whichever order, they are the same.
            types.sort_unstable();
            types.dedup();
            list.filters.push(("types", types.join(",")));
            Wanted::of(&types)?
        }
    };
    let beginning = if start.is_some() { store::head(db).await? } else { 0 };
    let mut position = match page.position(caller, &list)?.as_deref() {
        Some([Value::Int(sequence), Value::Int(at)]) => {
            Position { sequence: *sequence, at: Timestamp::from_millis(*at) }
        }
        _ => Position { sequence: beginning, at: caller.app().world.now() },
    };
    let mut given = page.has_cursor().then_some(position);
    let families = catalogue::readable_families(caller.scopes());
    let mut until = Instant::now() + caller.app().settings.news_wait_max;
    // Listening before looking: what is written in between is heard.
    let mut news = caller.app().news();
    loop {
        let read_at = caller.app().world.now();
        let (data, has_more) = read(db, &families, &wanted, &mut position, page.limit).await?;
        // After the reading: what is there now was there then.
        if let Some(given) = given.take() {
            check_kept(caller, db, given).await?;
        }
        if !has_more {
            position.at = read_at;
        }
        if !data.is_empty() || has_more || Instant::now() >= until {
            let next = [Value::Int(position.sequence), Value::Int(position.at.as_millis())];
            let next_cursor = list.cursor(caller, &next)?;
            let next_link = list.link(caller, page.limit, &next_cursor);
            return Ok(Feed { data, has_more, next_cursor, next_link });
        }
        let poll = (Instant::now() + Duration::from_millis(POLL_MS.unsigned_abs())).min(until);
        caller.wait(hear(&mut news, caller.tenant_id(), poll)).await?;
        caller.still_holds().await?;
        if *caller.app().stopping.borrow() {
            until = Instant::now();
        }
    }
}

/// Refuses a cursor behind which events were removed: going on from it would leave them out without a word.
async fn check_kept(caller: &Caller, db: &Db, given: Position) -> Result<()> {
    let kept_since = caller.app().world.now().plus(-caller.app().settings.event_retention_ms);
    if given.at >= kept_since || store::is_kept(db, given.sequence).await? || store::head(db).await? == given.sequence {
        return Ok(());
    }
    let detail = "Events after this cursor are no longer kept. Start again without a cursor.";
    Err(Error::new(Code::InvalidCursor, detail))
}

/// Waits for news of this tenant, until `poll` at most: another node may have written.
async fn hear(news: &mut Receiver<TenantId>, tenant: TenantId, poll: Instant) {
    loop {
        match tokio::time::timeout_at(poll, news.recv()).await {
            Ok(Ok(told)) if told != tenant => {}
            Ok(Err(RecvError::Closed)) => return tokio::time::sleep_until(poll).await,
            _ => return,
        }
    }
}

/// Goes on from `position` and moves it, as far as a page or a few steps reach.
async fn read(
    db: &Db,
    families: &[&'static str],
    wanted: &Wanted,
    position: &mut Position,
    limit: usize,
) -> Result<(Vec<Box<RawValue>>, bool)> {
    let head = store::head(db).await?;
    for _ in 0..STEPS_MAX {
        if position.sequence >= head {
            return Ok((Vec::new(), false));
        }
        let through = head.min(position.sequence + WINDOW);
        let mut found = store::window(db, families, wanted, (position.sequence, through), limit + 1).await?;
        let mut bytes = PageBytes::default();
        let fit = found.iter().take(limit).take_while(|told| bytes.fits(told.bytes)).count();
        // Behind a window that is read to its end, numbers without an event are passed over in one leap.
        let next = match found.get(fit) {
            Some(left) => Some((left.sequence, left.at)),
            None if through < head => store::find_next(db, through).await?,
            None => None,
        };
        found.truncate(fit);
        let data = store::bodies(db, found).await?;
        position.sequence = head;
        if let Some(next) = next {
            *position = Position::before(next);
        }
        if !data.is_empty() || next.is_none() {
            return Ok((data, next.is_some()));
        }
    }
    Ok((Vec::new(), true))
}
