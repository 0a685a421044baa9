//! `/api/psa/tickets`

use axum::response::{IntoResponse, Response};
use kernel::auth::Scope;
use kernel::base::{Code, Error, Label, Result};
use kernel::http::{
    Access, Api, Caller, Created, Documented, FromParams, Idempotency, IfMatch, Json, LIST_MAX, Once, One, Page,
    PageRequest, Param, Params, Policy, Query, Rules, Versioned, documented,
};
use kernel::operations;
use kernel::rules;
use kernel::store::Db;
use utoipa::openapi::schema::AnyOfBuilder;
use utoipa::openapi::{Ref, RefOr, Schema};
use utoipa::{IntoResponses, PartialSchema, ToSchema};

use super::find::{self, Filter, Order};
use super::input::{NewTicket, TicketPatch};
use super::{Change, Comment, Ticket, TicketDetail, TicketId, View, store};
use feature_kit::{IdOrNone, Q_CHARS_MAX, Q_WORDS_MAX, registry, word_set};

/// The operations of this feature, and the schemas that their answers refer to.
pub fn mount(api: Api) -> Api {
    api.tenant(operations!(list, create, change))
        .schema::<Page<Ticket>>()
        .schema::<TicketDetail>()
        .schema::<View>()
        .schema::<Page<Comment>>()
        .schema::<Page<Change>>()
        .schema::<super::UpdatedTicket>()
        .schema::<super::CommentedTicket>()
}

const PATH: &str = "/api/psa/tickets";

rules! {
    Reading = Rules::new(Policy::Read, &[Scope::TicketsRead]);
    Writing = Rules::new(Policy::Write, &[Scope::TicketsWrite]);
}

pub struct ListQuery {
    id: Option<TicketId>,
    view: Option<View>,
    filter: Filter,
    sort: Option<Order>,
    page: PageRequest,
}

impl FromParams for ListQuery {
    fn from_params(params: &mut Params) -> Result<Self> {
        // A view is paged; a single ticket is not.
        let beside: &[&str] = if params.has("view") { &["view", "limit", "cursor"] } else { &[] };
        let one = "One ticket, with its comments and history. Cannot be combined with other parameters than `view`.";
        let view =
            "With `id`: all comments of the ticket, or all changes, as a list of their own with `limit` and `cursor`.";
        let sort = "`created_at`, `updated_at`, `priority` or `due_at`; with `-` before it descending. \
                    Missing dates come last.";
        let sort = Param::new("sort", sort).pattern("^-?(created_at|updated_at|priority|due_at)$");
        let query = ListQuery {
            id: params.take_optional_id_beside(one, beside)?,
            view: params.take_word(Param::new("view", view))?,
            filter: filter(params)?,
            sort: params.take_parsed(sort, Order::parse)?,
            page: PageRequest::take(params)?,
        };
        if query.view.is_some() && query.id.is_none() {
            let detail = "The query parameter view needs id: whose comments or history.";
            return Err(Error::new(Code::InvalidParameter, detail));
        }
        Ok(query)
    }
}

fn filter(params: &mut Params) -> Result<Filter> {
    let any = |name, about| Param::new(name, about).items_max(LIST_MAX);
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
    let q = Param::new("q", "At most 10 words, each the beginning of a word of the subject.").length(1, Q_CHARS_MAX);
    Ok(Filter {
        status: params.take_words(any("status", "Any of these, as a comma list."))?,
        priority: params.take_words(any("priority", "Any of these, as a comma list."))?,
        r#type: params.take_words(any("type", "Any of these, as a comma list."))?,
        assignee_id: params.take_list(assignees, "the id of a user or none", IdOrNone::parse)?,
        organization_id: params.take_list(organizations, "the id of an organization or none", IdOrNone::parse)?,
        device_id: params.take_ids(devices, "a device")?,
        tag: params.take_list(tags, "a tag", text)?,
        external_id: params.take_list(external, "an external id", text)?,
        number: params.take_numbers(numbers)?,
        created_since: params.take_time(Param::new("created_since", "Created at this moment or later."))?,
        updated_since: params.take_time(Param::new("updated_since", updated))?,
        words: params.take_parsed(q, parse_q)?.unwrap_or_default(),
    })
}

fn parse_q(text: &str) -> Result<Vec<String>, String> {
    let found = word_set(text);
    if text.chars().count() > Q_CHARS_MAX || found.is_empty() || found.len() > Q_WORDS_MAX {
        return Err(format!("must be 1 to {Q_WORDS_MAX} words in at most {Q_CHARS_MAX} characters"));
    }
    Ok(found.into_iter().collect())
}

/// The answer to GET: one ticket, or a page of tickets, comments or changes.
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
        // `anyOf`, because an empty page matches every page schema.
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
    get, path = PATH, tag = "Service workflows", operation_id = "list_tickets", params(Query<ListQuery>)
)]
pub async fn list(caller: Access<Reading>, query: Query<ListQuery>) -> Result<Found> {
    let db = caller.db();
    let ListQuery { id, view, filter, sort, page } = query.parse()?;
    match (id, view) {
        (Some(id), Some(view)) => return part(&caller, &db, id, view, &page).await,
        (Some(id), None) => return store::get(&db, id).await.map(|ticket| Found::One(Box::new(ticket))),
        (None, _) => {}
    }
    let after = page.after(&caller, PATH)?;
    let order = sort.unwrap_or_else(|| Order::default_of(&filter));
    let found = find::search::find(&db, &filter, order, after, page.limit).await?;
    page.page_before(&caller, PATH, found.tickets, found.next).map(Found::Tickets)
}

/// A page of the comments or of the history of one ticket.
async fn part(caller: &Caller, db: &Db, id: TicketId, view: View, page: &PageRequest) -> Result<Found> {
    let after = page.after(caller, PATH)?;
    match view {
        View::Comments => {
            let (comments, next) = store::comments(db, id, after, page.limit).await?;
            page.page_before(caller, PATH, comments, next).map(Found::Comments)
        }
        View::History => {
            let (changes, next) = store::history(db, id, after, page.limit).await?;
            page.page_before(caller, PATH, changes, next).map(Found::History)
        }
    }
}

/// Create a ticket
///
/// It starts as `new`. Send an `Idempotency-Key`, and a retry never makes a second one.
#[utoipa::path(
    post, path = PATH, tag = "Service workflows", operation_id = "create_ticket", request_body = NewTicket
)]
pub async fn create(
    caller: Access<Writing>,
    idempotency: Idempotency,
    query: Query<()>,
    body: Json<NewTicket>,
) -> Result<Once<Created<Ticket>>> {
    let db = caller.db();
    query.parse()?;
    let body = body.read_referring(&db, &registry().referable).await?;
    let (grant, new, references) = (caller.grant(), body.value, body.references);
    idempotency
        .once(&caller, &db, body.digest, async move |tx| {
            let asked = grant.ask(tx).await?;
            let creation = store::prepare(tx, new, &references).await?;
            let rights = asked.confirm(tx).await?;
            let ticket = store::create(tx, &rights, creation).await?;
            Ok(Created::at(PATH, ticket.id, ticket))
        })
        .await
}

/// Change a ticket
///
/// A JSON merge patch: what is left out stays, `null` clears. The status can only go where it may; anything else is 409
/// `invalid_transition`, and nothing of the request is applied. `comment` is appended. Send an `Idempotency-Key`, and a retry
/// never adds a comment twice.
#[utoipa::path(
    patch, path = PATH, tag = "Service workflows", operation_id = "change_ticket", params(Query<One<TicketId>>),
    request_body = TicketPatch
)]
pub async fn change(
    caller: Access<Writing>,
    if_match: IfMatch,
    idempotency: Idempotency,
    query: Query<One<TicketId>>,
    body: Json<TicketPatch>,
) -> Result<Once<Versioned<Ticket>>> {
    let db = caller.db();
    let id = query.parse()?.id;
    let body = body.read_referring(&db, &registry().referable).await?;
    let (grant, patch, references) = (caller.grant(), body.value, body.references);
    idempotency
        .once(&caller, &db, body.digest, async move |tx| {
            let asked = grant.ask(tx).await?;
            let known = store::look_up(tx, id, &references).await?;
            let rights = asked.confirm(tx).await?;
            store::change(tx, &rights, known, &if_match, patch).await.map(Versioned)
        })
        .await
}
