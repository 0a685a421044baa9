//! `/api/admin/webhooks/deliveries`

use std::collections::BTreeMap;

use axum::response::{IntoResponse, Response};
use kernel::auth::{Caller, Scope};
use kernel::base::{Code, Error, EventId, Result, Timestamp, Word};
use kernel::http::{
    Accepted, FromParams, Idempotency, Json, List, Ok200, Once, OneOrPage, Page, PageRequest, Params, Query, Rendered,
    Reply, documented,
};
use utoipa::openapi::schema::AnyOfBuilder;
use utoipa::openapi::{OneOfBuilder, Ref, RefOr, Schema};
use utoipa::{IntoParams, IntoResponses, PartialSchema, ToSchema};

use super::super::{Recovery, WebhookId};
use super::log::store::{self as log, Filter};
use super::store;
use super::{Action, Delivery, DeliveryId, Recover, Resend, Status, Test};

const PATH: &str = "/api/admin/webhooks/deliveries";

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ListQuery {
    /// One delivery. Cannot be combined with the other parameters.
    #[param(value_type = Option<String>)]
    id: Option<DeliveryId>,
    /// Of these endpoints, as a comma list.
    #[param(value_type = Option<Vec<String>>, style = Form, explode = false)]
    webhook_id: Option<Vec<WebhookId>>,
    /// Of these events, as a comma list.
    #[param(value_type = Option<Vec<String>>, style = Form, explode = false)]
    event_id: Option<Vec<EventId>>,
    /// Of these kinds of events, as a comma list.
    #[param(value_type = Option<Vec<String>>, style = Form, explode = false)]
    event_type: Option<Vec<String>>,
    /// Any of these, as a comma list.
    #[param(value_type = Option<Vec<Status>>, style = Form, explode = false)]
    status: Option<Vec<Status>>,
    /// Of events at this moment or later.
    #[param(value_type = Option<String>, format = DateTime)]
    since: Option<Timestamp>,
    /// Of events before this moment.
    #[param(value_type = Option<String>, format = DateTime)]
    until: Option<Timestamp>,
    #[param(ignore)]
    page: PageRequest,
}

impl FromParams for ListQuery {
    const NAMES: &'static [&'static str] =
        &["id", "webhook_id", "event_id", "event_type", "status", "since", "until", "limit", "cursor"];

    fn from_params(params: &mut Params) -> Result<Self> {
        let kind = |text: &str| is_event_type(text).then(|| text.to_owned());
        Ok(ListQuery {
            id: params.take_optional_id()?,
            webhook_id: params.take_ids("webhook_id", "an endpoint")?,
            event_id: params.take_ids("event_id", "an event")?,
            event_type: params.take_list("event_type", "a kind of event such as ticket.created", kind)?,
            status: params.take_words("status")?,
            since: params.take_time("since")?,
            until: params.take_time("until")?,
            page: PageRequest::take(params)?,
        })
    }
}

fn is_event_type(text: &str) -> bool {
    (1..=100).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_.".contains(&byte))
}

/// A delivery has no version, so it is shown without an `ETag`.
pub enum Found {
    One(Box<Delivery>),
    Page(Page<Delivery>),
}

impl IntoResponse for Found {
    fn into_response(self) -> Response {
        match self {
            Found::One(delivery) => Ok200(delivery).into_response(),
            Found::Page(page) => page.into_response(),
        }
    }
}

impl IntoResponses for Found {
    fn responses() -> BTreeMap<String, RefOr<utoipa::openapi::Response>> {
        <OneOrPage<Delivery>>::responses()
    }
}

/// List deliveries, or read one
///
/// Newest first. For every event and endpoint one delivery, with its attempts and why it was not delivered (yet). Filters
/// narrow each other down. A request looks at about 3,000 deliveries at most: where a combination of filters is rare, a page
/// may hold fewer than its `limit`, even none, while `has_more` is true; `next_cursor` goes on from there, and nothing is left
/// out.
#[utoipa::path(
    get, path = PATH, tag = "Control plane", operation_id = "list_deliveries", params(ListQuery, PageRequest),
    security(("api_key" = ["webhooks:read"]))
)]
pub async fn list(caller: Caller, query: Query<ListQuery>) -> Result<Found> {
    let db = caller.require(Scope::WebhooksRead)?;
    let ListQuery { id, webhook_id, event_id, event_type, status, since, until, page } = query.parse()?;
    if let Some(id) = id {
        return store::get(&db, id).await.map(|delivery| Found::One(Box::new(delivery)));
    }
    let filters = [
        ("webhook_id", webhook_id.as_deref().map(joined)),
        ("event_id", event_id.as_deref().map(joined)),
        ("event_type", event_type.as_deref().map(joined)),
        ("status", status.as_ref().map(|any| joined(&any.iter().map(|one| one.as_str()).collect::<Vec<_>>()))),
        ("since", since.map(|at| at.to_string())),
        ("until", until.map(|at| at.to_string())),
    ];
    let filters = filters.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
    let list = List { path: PATH, filters };
    let refused = || Error::new(Code::InvalidCursor, "The cursor was not made for this list.");
    let after = page.position(&caller, &list)?.map(|position| log::place(&position).ok_or_else(refused)).transpose()?;
    let filter = Filter { webhook_id, event_id, event_type, status, since, until };
    let (deliveries, next) = log::list(&db, &filter, after, page.limit).await?;
    page.page_before(&caller, &list, deliveries, next.map(|id| vec![id.into()])).map(Found::Page)
}

fn joined<T: ToString>(any: &[T]) -> String {
    any.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// What POST answers.
pub enum Taken {
    Delivery(Box<Delivery>),
    Recovery(Recovery),
}

impl Reply for Taken {
    fn render(&self) -> Result<Rendered> {
        match self {
            Taken::Delivery(delivery) => Accepted(delivery).render(),
            Taken::Recovery(recovery) => Accepted(recovery).render(),
        }
    }
}

impl IntoResponses for Taken {
    fn responses() -> BTreeMap<String, RefOr<utoipa::openapi::Response>> {
        let mut answers =
            documented::<Self>("202", "Taken on: the delivery that is sent, or the recovery that has begun.");
        // The record is named in the body.
        answers.insert("404".to_owned(), RefOr::Ref(Ref::from_response_name("NotFound")));
        answers
    }
}

impl PartialSchema for Taken {
    fn schema() -> RefOr<Schema> {
        let any_of = AnyOfBuilder::new()
            .item(Ref::from_schema_name(Delivery::name()))
            .item(Ref::from_schema_name(Recovery::name()));
        any_of.into()
    }
}

/// The body of POST, for the document.
impl PartialSchema for Action {
    fn schema() -> RefOr<Schema> {
        let names = [Resend::name(), Recover::name(), Test::name()];
        names.into_iter().fold(OneOfBuilder::new(), |one_of, name| one_of.item(Ref::from_schema_name(name))).into()
    }
}

impl ToSchema for Action {
    fn name() -> std::borrow::Cow<'static, str> {
        "DeliveryAction".into()
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        let parts = [
            (Resend::name(), Resend::schema()),
            (Recover::name(), Recover::schema()),
            (Test::name(), Test::schema()),
            (Recovery::name(), Recovery::schema()),
        ];
        schemas.extend(parts.map(|(name, schema)| (name.into(), schema)));
        Recovery::schemas(schemas);
    }
}

/// Resend, recover or test
///
/// `resend` sends one delivery again; `recover` sends every matching event of a window that has had no success, a few
/// at a time (the endpoint's record shows how far it has come); `test` sends a `webhook.test` event to that
/// endpoint alone. All retry like any other delivery. A disabled endpoint is 409, and so is the resend of a delivery that
/// is `delivering`; a resend that was accepted is sent after it was, also when an attempt had just begun.
#[utoipa::path(
    post, path = PATH, tag = "Control plane", operation_id = "send_deliveries", request_body = Action,
    security(("api_key" = ["webhooks:write"]))
)]
pub async fn act(
    caller: Caller,
    idempotency: Idempotency,
    query: Query<()>,
    body: Json<Action>,
) -> Result<Once<Taken>> {
    let db = caller.require(Scope::WebhooksWrite)?;
    query.parse()?;
    let body = body.read().await?;
    let (standing, action) = (caller.standing(), body.value);
    idempotency
        .once(&caller, &db, PATH, body.digest, async move |tx| {
            let rights = standing.confirm(tx, Scope::WebhooksWrite).await?;
            match action {
                Action::Resend(id) => store::resend(tx, &rights, id).await.map(|sent| Taken::Delivery(Box::new(sent))),
                Action::Recover { webhook, since, until } => {
                    store::recover(tx, webhook, since, until).await.map(Taken::Recovery)
                }
                Action::Test(id) => store::test(tx, id).await.map(|sent| Taken::Delivery(Box::new(sent))),
            }
        })
        .await
}
