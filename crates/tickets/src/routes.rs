//! `/api/psa/tickets`

use axum::response::{IntoResponse, Response};
use feature_kit::{INVALID_TRANSITION, IdOrNone, Q_CHARS_MAX, QUERY_TOO_BROAD, parse_stored_q, registry};
use kernel::auth::Scope;
use kernel::base::{Code, Error, Label, Result};
use kernel::http::{
    Access, Api, Caller, Created, FromParams, Idempotency, IdempotentReply, IfMatch, Json, LIST_MAX, ListPage,
    PageRequest, Params, QueryParam, QueryString, RatePolicy, RecordQuery, ResponseDocs, Rules, Versioned,
    document_response,
};
use kernel::operations;
use kernel::rules;
use kernel::store::Db;
use utoipa::openapi::schema::AnyOfBuilder;
use utoipa::openapi::{Ref, RefOr, Schema};
use utoipa::{IntoResponses, PartialSchema, ToSchema};

use super::find::{self, Filter, TicketOrder};
use super::input::{NewTicket, TicketPatch};
use super::{Ticket, TicketChange, TicketComment, TicketDetail, TicketId, TicketView, store};

/// The operations of this feature, and the schemas that their answers refer to.
pub fn mount(api: Api) -> Api {
    api.add_tenant_routes(operations!(list_tickets, create_ticket, change_ticket))
        .add_refusals("list_tickets", &[QUERY_TOO_BROAD])
        .add_refusals("create_ticket", &[Code::Conflict])
        .add_refusals("change_ticket", &[Code::Conflict, INVALID_TRANSITION])
        .add_schema::<ListPage<Ticket>>()
        .add_schema::<TicketDetail>()
        .add_schema::<TicketView>()
        .add_schema::<ListPage<TicketComment>>()
        .add_schema::<ListPage<TicketChange>>()
        .add_schema::<super::UpdatedTicket>()
        .add_schema::<super::CommentedTicket>()
}

const PATH: &str = "/api/psa/tickets";

rules! {
    Reading = Rules::new(RatePolicy::Read, &[Scope::TicketsRead]);
    Writing = Rules::new(RatePolicy::Write, &[Scope::TicketsWrite]);
}

pub struct ListQuery {
    id: Option<TicketId>,
    view: Option<TicketView>,
    filter: Filter,
    sort: Option<TicketOrder>,
    page: PageRequest,
}

impl FromParams for ListQuery {
    fn from_params(params: &mut Params) -> Result<Self> {
        // A view is paged; a single ticket is not.
        let beside: &[&str] = if params.has_param("view") { &["view", "limit", "cursor"] } else { &[] };
        let one = "One ticket, with its comments and history. Cannot be combined with other parameters than `view` and `limit`.";
        let view =
            "With `id`: all comments of the ticket, or all changes, as a list of their own with `limit` and `cursor`.";
        let sort = "`created_at`, `updated_at`, `priority` or `due_at`; with `-` before it descending. \
                    Missing dates come last.";
        let sort = QueryParam::new("sort", sort).with_pattern("^-?(created_at|updated_at|priority|due_at)$");
        let query = ListQuery {
            id: params.take_optional_id_beside(one, beside)?,
            view: params.take_enum(QueryParam::new("view", view))?,
            filter: parse_filter(params)?,
            sort: params.take_parsed(sort, TicketOrder::parse)?,
            page: PageRequest::take_page(params)?,
        };
        if query.view.is_some() && query.id.is_none() {
            let detail = "The query parameter view needs the id of a ticket.";
            return Err(Error::new(Code::InvalidParameter, detail));
        }
        Ok(query)
    }
}

fn parse_filter(params: &mut Params) -> Result<Filter> {
    let any = |name, about| QueryParam::new(name, about).with_items_max(LIST_MAX);
    // A tag or an external id. Commas were consumed by splitting the list.
    let text = |text: &str| Label::parse(text).ok().map(Label::into_string);
    let assignees = any("assignee_id", "Assigned to any of these users, as a comma list; `none` is nobody.");
    let organizations = any("organization_id", "Of any of these organizations, as a comma list; `none` is of none.");
    let devices = any("device_id", "About any of these devices, as a comma list.");
    let tags = any("tag", "With any of these tags, as a comma list.");
    let external = any("external_id", "With any of these ids of another system, as a comma list.");
    let numbers = any("number", "With any of these numbers, as a comma list.");
    let updated = "Changed at this moment or later; then in the order of their changes unless `sort` says otherwise. A \
                   reader that\ngoes on by cursor, or from the last `updated_at` it has seen, misses nothing.";
    let q =
        QueryParam::new("q", "At most 10 words, each the beginning of a word of the subject, however it is written.")
            .with_length(1, Q_CHARS_MAX);
    Ok(Filter {
        status: params.take_enums(any("status", "Any of these, as a comma list."))?,
        priority: params.take_enums(any("priority", "Any of these, as a comma list."))?,
        r#type: params.take_enums(any("type", "Any of these, as a comma list."))?,
        assignee_id: params.take_list(assignees, "the id of a user or none", IdOrNone::parse)?,
        organization_id: params.take_list(organizations, "the id of an organization or none", IdOrNone::parse)?,
        device_id: params.take_ids(devices, "a device")?,
        tag: params.take_list(tags, "a tag", text)?,
        external_id: params.take_list(external, "an external id", text)?,
        number: params.take_numbers(numbers)?,
        created_since: params.take_time(QueryParam::new("created_since", "Created at this moment or later."))?,
        updated_since: params.take_time(QueryParam::new("updated_since", updated))?,
        words: params.take_parsed(q, parse_stored_q)?.unwrap_or_default(),
    })
}

/// The answer to GET: one ticket, or a page of tickets, comments or changes.
pub enum TicketsResponse {
    One(Box<TicketDetail>),
    Tickets(ListPage<Ticket>),
    Comments(ListPage<TicketComment>),
    History(ListPage<TicketChange>),
}

impl IntoResponse for TicketsResponse {
    fn into_response(self) -> Response {
        match self {
            TicketsResponse::One(ticket) => Versioned(*ticket).into_response(),
            TicketsResponse::Tickets(page) => page.into_response(),
            TicketsResponse::Comments(page) => page.into_response(),
            TicketsResponse::History(page) => page.into_response(),
        }
    }
}

impl PartialSchema for TicketsResponse {
    fn schema() -> RefOr<Schema> {
        // `anyOf`, because an empty page matches every page schema.
        let names = [
            <ListPage<Ticket>>::name(),
            TicketDetail::name(),
            <ListPage<TicketComment>>::name(),
            <ListPage<TicketChange>>::name(),
        ];
        names.into_iter().fold(AnyOfBuilder::new(), |any_of, name| any_of.item(Ref::from_schema_name(name))).into()
    }
}

impl IntoResponses for TicketsResponse {
    fn responses() -> ResponseDocs {
        let text =
            "A page of the list; with `id`, the one ticket; with `id` and `view`, a page of its comments or changes.";
        document_response::<Self>("200", text)
    }
}

/// List tickets, or read one
///
/// Newest first. All filters apply together; a combination that no index can answer is 400 `query_too_broad` and names
/// a filter to add, which never happens for tickets of customers or technicians by `created_at` or `updated_at`. One ticket
/// comes with its `comments` and `history`; `view` lists all of them, newest first.
#[utoipa::path(
    get, path = PATH, tag = "Service workflows", operation_id = "list_tickets", params(QueryString<ListQuery>)
)]
pub async fn list_tickets(caller: Access<Reading>, query: QueryString<ListQuery>) -> Result<TicketsResponse> {
    let db = caller.db();
    let ListQuery { id, view, filter, sort, page } = query.parse()?;
    match (id, view) {
        (Some(id), Some(view)) => return list_ticket_view(&caller, &db, id, view, &page).await,
        (Some(id), None) => {
            return store::get_ticket(&db, id).await.map(|ticket| TicketsResponse::One(Box::new(ticket)));
        }
        (None, _) => {}
    }
    let after = page.cursor_key(&caller, PATH)?;
    let order = sort.unwrap_or_else(|| TicketOrder::default_for(&filter));
    let found = find::search::search_tickets(&db, &filter, order, after, page.limit).await?;
    page.build_cut_page(&caller, PATH, found.tickets, found.next).map(TicketsResponse::Tickets)
}

/// A page of the comments or of the history of one ticket.
async fn list_ticket_view(
    caller: &Caller,
    db: &Db,
    id: TicketId,
    view: TicketView,
    page: &PageRequest,
) -> Result<TicketsResponse> {
    let after = page.cursor_key(caller, PATH)?;
    match view {
        TicketView::Comments => {
            let (comments, next) = store::list_comments(db, id, after, page.limit).await?;
            page.build_cut_page(caller, PATH, comments, next).map(TicketsResponse::Comments)
        }
        TicketView::History => {
            let (changes, next) = store::list_history(db, id, after, page.limit).await?;
            page.build_cut_page(caller, PATH, changes, next).map(TicketsResponse::History)
        }
    }
}

/// Create a ticket
///
/// It starts as `new`. Send an `Idempotency-Key`, and a retry never makes a second one.
#[utoipa::path(
    post, path = PATH, tag = "Service workflows", operation_id = "create_ticket", request_body = NewTicket
)]
pub async fn create_ticket(
    caller: Access<Writing>,
    idempotency: Idempotency,
    query: QueryString<()>,
    body: Json<NewTicket>,
) -> Result<IdempotentReply<Created<Ticket>>> {
    let db = caller.db();
    query.parse()?;
    let body = body.read_referring(&db, &registry().referable).await?;
    let (grant, new, references) = (caller.grant(), body.value, body.references);
    idempotency
        .run_once(&caller, &db, body.digest, async move |tx| {
            let pending_rights = grant.start_confirm(tx).await?;
            let creation = store::prepare_creation(tx, new, &references).await?;
            let rights = pending_rights.finish_confirm(tx).await?;
            let ticket = store::create_ticket(tx, &rights, creation).await?;
            Ok(Created::in_collection(PATH, ticket.id, ticket))
        })
        .await
}

/// Change a ticket
///
/// A JSON merge patch: what is left out stays, `null` clears. Only allowed status changes are made; any other is 409
/// `invalid_transition`, and nothing of the request is applied. `comment` is appended. Send an `Idempotency-Key`, and a retry
/// never adds a comment twice.
#[utoipa::path(
    patch, path = PATH, tag = "Service workflows", operation_id = "change_ticket", params(QueryString<RecordQuery<TicketId>>),
    request_body = TicketPatch
)]
pub async fn change_ticket(
    caller: Access<Writing>,
    if_match: IfMatch,
    idempotency: Idempotency,
    query: QueryString<RecordQuery<TicketId>>,
    body: Json<TicketPatch>,
) -> Result<IdempotentReply<Versioned<Ticket>>> {
    let db = caller.db();
    let id = query.parse()?.id;
    let body = body.read_referring(&db, &registry().referable).await?;
    let (grant, patch, references) = (caller.grant(), body.value, body.references);
    idempotency
        .run_once(&caller, &db, body.digest, async move |tx| {
            let pending_rights = grant.start_confirm(tx).await?;
            let pending_change = store::prepare_change(tx, id, &references).await?;
            let rights = pending_rights.finish_confirm(tx).await?;
            store::change_ticket(tx, &rights, pending_change, &if_match, patch).await.map(Versioned)
        })
        .await
}
