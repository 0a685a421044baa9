//! `/api/psa/tickets`

use axum::response::{IntoResponse, Response};
use kernel::auth::{Caller, Scope};
use kernel::base::{Code, Error, FieldError, Label, Result, Timestamp, UserId, Word};
use kernel::http::{
    Created, Documented, FromParams, Idempotency, IfMatch, Json, List, Once, Page, PageRequest, Params, Query,
    Reference, Versioned, documented,
};
use kernel::store::{Db, Value};
use utoipa::openapi::schema::AnyOfBuilder;
use utoipa::openapi::{Ref, RefOr, Schema};
use utoipa::{IntoParams, IntoResponses, PartialSchema, ToSchema};

use super::find::{self, Filter, IdOrNone, Key, Order, Q_CHARS_MAX, WORDS_MAX, words};
use super::input::{NewTicket, TicketPatch};
use super::{Change, Comment, DeviceId, Priority, Status, Ticket, TicketDetail, TicketId, Type, View, store};
use crate::features::organizations::OrganizationId;

const PATH: &str = "/api/psa/tickets";
/// Under which keys of PATCH are kept, apart from those of POST.
const CHANGE: &str = "PATCH /api/psa/tickets";

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ListQuery {
    /// One ticket, with its comments and history. Cannot be combined with other parameters than `view`.
    #[param(value_type = Option<String>)]
    id: Option<TicketId>,
    /// With `id`: all comments of the ticket, or all changes, as a list of their own with `limit` and `cursor`.
    #[param(value_type = Option<View>)]
    view: Option<View>,
    /// Any of these, as a comma list.
    #[param(value_type = Option<Vec<Status>>, style = Form, explode = false, max_items = 100)]
    status: Option<Vec<Status>>,
    /// Any of these, as a comma list.
    #[param(value_type = Option<Vec<Priority>>, style = Form, explode = false, max_items = 100)]
    priority: Option<Vec<Priority>>,
    /// Any of these, as a comma list.
    #[param(value_type = Option<Vec<Type>>, style = Form, explode = false, max_items = 100)]
    r#type: Option<Vec<Type>>,
    /// Assigned to any of these users, as a comma list; `none` is nobody.
    #[param(value_type = Option<Vec<String>>, style = Form, explode = false, max_items = 100)]
    assignee_id: Option<Vec<IdOrNone<UserId>>>,
    /// Of any of these organizations, as a comma list; `none` is of none.
    #[param(value_type = Option<Vec<String>>, style = Form, explode = false, max_items = 100)]
    organization_id: Option<Vec<IdOrNone<OrganizationId>>>,
    /// About any of these devices, as a comma list.
    #[param(value_type = Option<Vec<String>>, style = Form, explode = false, max_items = 100)]
    device_id: Option<Vec<DeviceId>>,
    /// With any of these tags, as a comma list.
    #[param(value_type = Option<Vec<String>>, style = Form, explode = false, max_items = 100)]
    tag: Option<Vec<String>>,
    /// With any of these ids of another system, as a comma list.
    #[param(value_type = Option<Vec<String>>, style = Form, explode = false, max_items = 100)]
    external_id: Option<Vec<String>>,
    /// With any of these numbers, as a comma list.
    #[param(value_type = Option<Vec<i64>>, style = Form, explode = false, max_items = 100, minimum = 1)]
    number: Option<Vec<i64>>,
    /// Created at this moment or later.
    #[param(value_type = Option<String>, format = DateTime)]
    created_since: Option<Timestamp>,
    /// Changed at this moment or later; then in the order of their changes unless `sort` says otherwise. A reader that
    /// goes on by cursor, or from the last `updated_at` it has seen, misses nothing.
    #[param(value_type = Option<String>, format = DateTime)]
    updated_since: Option<Timestamp>,
    /// At most 10 words, each the beginning of a word of the subject.
    #[param(min_length = 1, max_length = 200)]
    q: Option<String>,
    /// `created_at`, `updated_at`, `priority` or `due_at`; with `-` before it descending. Missing dates come last.
    #[param(value_type = Option<String>, pattern = "^-?(created_at|updated_at|priority|due_at)$")]
    sort: Option<Order>,
    #[param(ignore)]
    page: PageRequest,
    /// The filters in the spelling of the query, which a cursor is bound to.
    #[param(ignore)]
    spelt: Vec<(&'static str, String)>,
}

impl FromParams for ListQuery {
    const NAMES: &'static [&'static str] = &[
        "id",
        "view",
        "status",
        "priority",
        "type",
        "assignee_id",
        "organization_id",
        "device_id",
        "tag",
        "external_id",
        "number",
        "created_since",
        "updated_since",
        "q",
        "sort",
        "limit",
        "cursor",
    ];

    fn from_params(params: &mut Params) -> Result<Self> {
        // What a tag or an external id can be; a comma cannot come this far.
        let text = |text: &str| Label::parse(text).ok().map(Label::into_string);
        let number = |text: &str| text.parse().ok().filter(|number: &i64| *number > 0);
        let view = params
            .take_parsed("view", |text| View::parse(text).ok_or_else(|| format!("must be {}", View::expected())))?;
        // A list of its own has pages, which a ticket has not.
        let page = if view.is_some() { Some(PageRequest::take(params)?) } else { None };
        let id = params.take_optional_id()?;
        if view.is_some() && id.is_none() {
            let detail = "The query parameter view needs id: whose comments or history.";
            return Err(Error::new(Code::InvalidParameter, detail));
        }
        let mut query = ListQuery {
            id,
            view,
            status: params.take_words("status")?,
            priority: params.take_words("priority")?,
            r#type: params.take_words("type")?,
            assignee_id: params.take_list("assignee_id", "the id of a user or none", IdOrNone::parse)?,
            organization_id: params.take_list(
                "organization_id",
                "the id of an organization or none",
                IdOrNone::parse,
            )?,
            device_id: params.take_ids("device_id", "a device")?,
            tag: params.take_list("tag", "a tag", text)?,
            external_id: params.take_list("external_id", "an external id", text)?,
            number: params.take_list("number", "a whole number from 1", number)?,
            created_since: params.take_time("created_since")?,
            updated_since: params.take_time("updated_since")?,
            q: params.take_parsed("q", parse_q)?,
            sort: params.take_parsed("sort", Order::parse)?,
            page: page.map_or_else(|| PageRequest::take(params), Ok)?,
            spelt: Vec::new(),
        };
        query.spelt = query.spell();
        Ok(query)
    }
}

fn parse_q(text: &str) -> Result<String, String> {
    let found = words(text);
    if text.chars().count() > Q_CHARS_MAX || found.is_empty() || found.len() > WORDS_MAX {
        return Err(format!("must be 1 to {WORDS_MAX} words in at most {Q_CHARS_MAX} characters"));
    }
    Ok(text.to_owned())
}

impl ListQuery {
    fn spell(&self) -> Vec<(&'static str, String)> {
        fn joined<T: ToString>(any: Option<&Vec<T>>) -> Option<String> {
            any.map(|any| any.iter().map(ToString::to_string).collect::<Vec<_>>().join(","))
        }
        fn spelt<W: Word>(any: Option<&Vec<W>>) -> Option<String> {
            any.map(|any| any.iter().map(|word| word.as_str()).collect::<Vec<_>>().join(","))
        }
        let given = [
            ("status", spelt(self.status.as_ref())),
            ("priority", spelt(self.priority.as_ref())),
            ("type", spelt(self.r#type.as_ref())),
            ("assignee_id", joined(self.assignee_id.as_ref())),
            ("organization_id", joined(self.organization_id.as_ref())),
            ("device_id", joined(self.device_id.as_ref())),
            ("tag", joined(self.tag.as_ref())),
            ("external_id", joined(self.external_id.as_ref())),
            ("number", joined(self.number.as_ref())),
            ("created_since", self.created_since.map(|at| at.to_string())),
            ("updated_since", self.updated_since.map(|at| at.to_string())),
            ("q", self.q.clone()),
            ("sort", self.sort.map(|order| order.to_string())),
        ];
        given.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }

    fn filter(self) -> Filter {
        Filter {
            status: self.status,
            priority: self.priority,
            r#type: self.r#type,
            assignee_id: self.assignee_id,
            organization_id: self.organization_id,
            device_id: self.device_id,
            tag: self.tag,
            external_id: self.external_id,
            number: self.number,
            created_since: self.created_since,
            updated_since: self.updated_since,
            words: self.q.map(|q| words(&q).into_iter().collect()).unwrap_or_default(),
        }
    }
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub struct OneQuery {
    /// The ticket to change.
    #[param(value_type = String)]
    id: TicketId,
}

impl FromParams for OneQuery {
    const NAMES: &'static [&'static str] = &["id"];

    fn from_params(params: &mut Params) -> Result<Self> {
        Ok(OneQuery { id: params.take_id()? })
    }
}

/// What GET answers.
pub enum Found {
    One(Box<TicketDetail>),
    Tickets(Page<Ticket>),
    Comments(Page<Comment>),
    History(Page<Change>),
}

impl IntoResponse for Found {
    fn into_response(self) -> Response {
        match self {
            Found::One(ticket) => Versioned(*ticket).into_response(),
            Found::Tickets(page) => page.into_response(),
            Found::Comments(page) => page.into_response(),
            Found::History(page) => page.into_response(),
        }
    }
}

impl PartialSchema for Found {
    fn schema() -> RefOr<Schema> {
        // Not one of: an empty page is a page of anything.
        let names = [<Page<Ticket>>::name(), TicketDetail::name(), <Page<Comment>>::name(), <Page<Change>>::name()];
        names.into_iter().fold(AnyOfBuilder::new(), |any_of, name| any_of.item(Ref::from_schema_name(name))).into()
    }
}

impl IntoResponses for Found {
    fn responses() -> Documented {
        let text =
            "A page of the list; with `id`, the one ticket; with `id` and `view`, a page of its comments or changes.";
        documented::<Self>("200", text)
    }
}

/// List tickets, or read one
///
/// Newest first. Filters narrow each other down; a combination that no index can answer is 400 `query_too_broad` and
/// names a filter to add: never the tickets of customers or technicians by `created_at` or `updated_at`. One ticket comes
/// with its `comments` and `history`, of which `view` shows all, newest first.
#[utoipa::path(
    get, path = PATH, tag = "Service workflows", operation_id = "list_tickets", params(ListQuery, PageRequest),
    security(("api_key" = ["tickets:read"]))
)]
pub async fn list(caller: Caller, query: Query<ListQuery>) -> Result<Found> {
    let db = caller.require(Scope::TicketsRead)?;
    let mut query = query.parse()?;
    match (query.id, query.view) {
        (Some(id), Some(view)) => return part(&caller, &db, id, view, &query.page).await,
        (Some(id), None) => return store::get(&db, id).await.map(|ticket| Found::One(Box::new(ticket))),
        (None, _) => {}
    }
    let list = List { path: PATH, filters: std::mem::take(&mut query.spelt) };
    let after = match query.page.position(&caller, &list)? {
        None => None,
        Some(position) => {
            let refused = || Error::new(Code::InvalidCursor, "The cursor was not made for this list.");
            Some(Key::from_position(&position).ok_or_else(refused)?)
        }
    };
    let (sort, limit) = (query.sort, query.page.limit);
    let page = PageRequest::clone(&query.page);
    let filter = query.filter();
    let order = sort.unwrap_or_else(|| Order::default_of(&filter));
    let found = find::search::find(&db, &filter, order, after, limit).await?;
    page.page_before(&caller, &list, found.tickets, found.next.map(Key::to_position)).map(Found::Tickets)
}

/// A page of what belongs to one ticket.
async fn part(caller: &Caller, db: &Db, id: TicketId, view: View, page: &PageRequest) -> Result<Found> {
    let list = List { path: PATH, filters: vec![("id", id.to_string()), ("view", view.as_str().to_owned())] };
    let after = match page.position(caller, &list)?.as_deref() {
        None => None,
        Some([Value::Int(place)]) => Some(*place),
        Some(_) => return Err(Error::new(Code::InvalidCursor, "The cursor was not made for this list.")),
    };
    let position = |place: i64| vec![Value::Int(place)];
    match view {
        View::Comments => {
            let (comments, next) = store::comments(db, id, after, page.limit).await?;
            page.page_before(caller, &list, comments, next.map(position)).map(Found::Comments)
        }
        View::History => {
            let (changes, next) = store::history(db, id, after, page.limit).await?;
            page.page_before(caller, &list, changes, next.map(position)).map(Found::History)
        }
    }
}

/// Create a ticket
///
/// It starts as `new`. Send an `Idempotency-Key`, and a retry never makes a second one.
#[utoipa::path(
    post, path = PATH, tag = "Service workflows", operation_id = "create_ticket", request_body = NewTicket,
    security(("api_key" = ["tickets:write"]))
)]
pub async fn create(
    caller: Caller,
    idempotency: Idempotency,
    query: Query<()>,
    body: Json<NewTicket>,
) -> Result<Once<Created<Ticket>>> {
    let db = caller.require(Scope::TicketsWrite)?;
    query.parse()?;
    let body = body.read_with(async |references| unknown(&db, references).await).await?;
    let (standing, new, references) = (caller.standing(), body.value, body.references);
    idempotency
        .once(&caller, &db, PATH, body.digest, async move |tx| {
            standing.confirm(tx, Scope::TicketsWrite).await?;
            let record = store::create(tx, new, &references).await?;
            let location = format!("{PATH}?id={}", record.id);
            Ok(Created { record, location })
        })
        .await
}

/// Change a ticket
///
/// A JSON merge patch: what is left out stays, `null` clears. The status can only go where it may; anything else is 409
/// `invalid_transition`, and nothing of the request is applied. `comment` is appended. Send an `Idempotency-Key`, and a retry
/// never adds a comment twice.
#[utoipa::path(
    patch, path = PATH, tag = "Service workflows", operation_id = "change_ticket", params(OneQuery),
    request_body = TicketPatch, security(("api_key" = ["tickets:write"]))
)]
pub async fn change(
    caller: Caller,
    if_match: IfMatch,
    idempotency: Idempotency,
    query: Query<OneQuery>,
    body: Json<TicketPatch>,
) -> Result<Once<Versioned<Ticket>>> {
    let db = caller.require(Scope::TicketsWrite)?;
    let id = query.parse()?.id;
    let body = body.read_with(async |references| unknown(&db, references).await).await?;
    // The same patch of another ticket is another request.
    let digest = body.digest_for(id);
    let (standing, patch, references) = (caller.standing(), body.value, body.references);
    idempotency
        .once(&caller, &db, CHANGE, digest, async move |tx| {
            standing.confirm(tx, Scope::TicketsWrite).await?;
            store::change(tx, id, &if_match, patch, &references).await.map(Versioned)
        })
        .await
}

/// Which of the records do not exist, for a body that is refused anyway.
async fn unknown(db: &Db, references: Vec<Reference>) -> Result<Vec<FieldError>> {
    db.write(async move |tx| store::unknown(tx, &references).await).await
}
