//! `/api/admin/webhooks/events`

use std::collections::BTreeMap;
use std::time::Duration;

use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use kernel::auth::Scope;
use kernel::base::{Code, Error, EventId, Result, TenantId, Timestamp};
use kernel::events::Described;
use kernel::http::{
    Access, Caller, FromParams, Ok200, Page, PageBytes, PageRequest, Param, Params, Policy, Query, Rules, documented,
};
use kernel::jobs::lanes::POLL_MS;
use kernel::rules;
use kernel::store::{Db, Value};
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;
use utoipa::openapi::{OneOfBuilder, Ref, RefOr, Schema};
use utoipa::{IntoResponses, PartialSchema, ToSchema};

use super::document::{CataloguePage, FeedPage};
use super::{Event, EventType, Wanted, store};
use crate::catalogue;

const PATH: &str = "/api/admin/webhooks/events";

rules! {
    Reading = Rules::new(Policy::Read, &[Scope::WebhooksRead]);
}

/// Numbers of a tenant's writes looked at in one step: most are not events that the reader may see.
const WINDOW: i64 = 2_000;
/// Steps of one request; a reader that is so far behind gets a cursor further on and asks again.
const STEPS_MAX: usize = 50;

pub struct ListQuery {
    id: Option<EventId>,
    feed: bool,
    from_now: bool,
    types: Option<Vec<String>>,
    page: PageRequest,
}

impl FromParams for ListQuery {
    fn from_params(params: &mut Params) -> Result<Self> {
        let one = "One event, as it was delivered. Cannot be combined with the other parameters.";
        let view = "`feed` for the tenant's own events, oldest first; without it, the catalogue.";
        let start = "`now` begins the feed at its end instead of the oldest event that is kept. Only without a cursor.";
        let types = "Of the feed, what an endpoint with these `events` would be told, as a comma list of kinds, \
                     `<family>.*` and `*`.";
        let word = "a kind of event such as ticket.created, a family such as ticket.*, or *";
        let query = ListQuery {
            id: params.take_optional_id(one)?,
            feed: params.take_flag(Param::new("view", view).pattern("^feed$"), "feed")?,
            from_now: params.take_flag(Param::new("start", start).pattern("^now$").unbound(), "now")?,
            types: params.take_list(Param::new("types", types), word, |word| {
                catalogue::can_subscribe(word).is_ok_and(|known| known).then(|| word.to_owned())
            })?,
            page: PageRequest::take(params)?,
        };
        let refused = |detail| Err(Error::new(Code::InvalidParameter, detail));
        match &query {
            ListQuery { feed: false, from_now: true, .. } => refused("The query parameter start needs view=feed."),
            ListQuery { feed: false, types: Some(_), .. } => refused("The query parameter types needs view=feed."),
            ListQuery { from_now: true, page, .. } if page.has_cursor() => {
                refused("The query parameter start cannot be combined with cursor.")
            }
            _ => Ok(query),
        }
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
    get, path = PATH, tag = "Control plane", operation_id = "list_events", params(Query<ListQuery>)
)]
pub async fn list(caller: Access<Reading>, query: Query<ListQuery>) -> Result<Listed> {
    let db = caller.db();
    let query = query.parse()?;
    if let Some(id) = query.id {
        let families = catalogue::readable_families(caller.scopes());
        return store::get(&db, &families, id).await.map(Listed::One);
    }
    if query.feed {
        return feed(&caller, &db, query).await.map(Listed::Feed);
    }
    let after = match query.page.position(&caller, PATH)?.as_deref() {
        Some([Value::Text(name)]) => Some(name.clone()),
        _ => None,
    };
    let kinds = catalogue::kinds()?;
    let start = after.and_then(|name| kinds.iter().position(|kind| kind.name == name)).map_or(0, |at| at + 1);
    let rows: Vec<EventType> = kinds[start..].iter().take(query.page.fetch()).map(event_type).collect();
    query.page.page(&caller, PATH, rows, |kind| vec![kind.r#type.as_str().into()]).map(Listed::Catalogue)
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
    let ListQuery { from_now, types, page, .. } = query;
    let wanted = types.map_or(Ok(Wanted::All), |types| Wanted::of(&types))?;
    let beginning = if from_now { store::head(db).await? } else { 0 };
    let mut position = match page.position(caller, PATH)?.as_deref() {
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
            let (next_cursor, next_link) = page.next(caller, PATH, &next)?;
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
