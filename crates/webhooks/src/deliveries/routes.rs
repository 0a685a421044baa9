//! `/api/admin/webhooks/deliveries`

use std::collections::BTreeMap;

use axum::response::{IntoResponse, Response};
use kernel::auth::Scope;
use kernel::base::{Result, is_dotted};
use kernel::http::{
    Accepted, Access, FromParams, Idempotency, Json, Ok200, Once, OneOrPage, Page, PageRequest, Param, Params, Policy,
    Query, Rendered, Reply, Rules, documented,
};
use kernel::rules;
use utoipa::openapi::schema::AnyOfBuilder;
use utoipa::openapi::{OneOfBuilder, Ref, RefOr, Schema};
use utoipa::{IntoResponses, PartialSchema, ToSchema};

use super::super::Recovery;
use super::log::store::{self as log, Filter};
use super::store;
use super::{Action, Delivery, DeliveryId, Recover, Resend, Test};

const PATH: &str = "/api/admin/webhooks/deliveries";

rules! {
    Reading = Rules::new(Policy::Read, &[Scope::WebhooksRead]);
    Writing = Rules::new(Policy::Write, &[Scope::WebhooksWrite]);
}

pub struct ListQuery {
    id: Option<DeliveryId>,
    filter: Filter,
    page: PageRequest,
}

impl FromParams for ListQuery {
    fn from_params(params: &mut Params) -> Result<Self> {
        let id = params.take_optional_id("One delivery. Cannot be combined with the other parameters.")?;
        let kind = |text: &str| is_dotted(text).then(|| text.to_owned());
        let webhooks = Param::new("webhook_id", "Of these endpoints, as a comma list.");
        let events = Param::new("event_id", "Of these events, as a comma list.");
        let kinds = Param::new("event_type", "Of these kinds of events, as a comma list.");
        let filter = Filter {
            webhook_id: params.take_ids(webhooks, "an endpoint")?,
            event_id: params.take_ids(events, "an event")?,
            event_type: params.take_list(kinds, "a kind of event such as ticket.created", kind)?,
            status: params.take_words(Param::new("status", "Any of these, as a comma list."))?,
            since: params.take_time(Param::new("since", "Of events at this moment or later."))?,
            until: params.take_time(Param::new("until", "Of events before this moment."))?,
        };
        Ok(ListQuery { id, filter, page: PageRequest::take(params)? })
    }
}

/// The response of GET. A delivery has no version, so a single one has no `ETag`.
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
    get, path = PATH, tag = "Control plane", operation_id = "list_deliveries", params(Query<ListQuery>)
)]
pub async fn list(caller: Access<Reading>, query: Query<ListQuery>) -> Result<Found> {
    let db = caller.db();
    let ListQuery { id, filter, page } = query.parse()?;
    if let Some(id) = id {
        return store::get(&db, id).await.map(|delivery| Found::One(Box::new(delivery)));
    }
    let after = page.after(&caller, PATH)?;
    let (deliveries, next) = log::list(&db, &filter, after, page.limit).await?;
    page.page_before(&caller, PATH, deliveries, next).map(Found::Page)
}

/// The response of POST.
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
        // Added by hand: the record is named in the body, not in the query.
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

/// The schema of the POST body in the OpenAPI document.
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
    post, path = PATH, tag = "Control plane", operation_id = "send_deliveries", request_body = Action
)]
pub async fn act(
    caller: Access<Writing>,
    idempotency: Idempotency,
    query: Query<()>,
    body: Json<Action>,
) -> Result<Once<Taken>> {
    let db = caller.db();
    query.parse()?;
    let body = body.read().await?;
    let (grant, action) = (caller.grant(), body.value);
    idempotency
        .once(&caller, &db, body.digest, async move |tx| {
            let rights = grant.confirm(tx).await?;
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
