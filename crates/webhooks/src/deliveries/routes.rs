//! `/api/admin/webhooks/deliveries`

use std::collections::BTreeMap;

use axum::response::{IntoResponse, Response};
use kernel::auth::Scope;
use kernel::base::{Result, is_dotted};
use kernel::http::{
    Accepted, Access, FromParams, Idempotency, IdempotentReply, Json, ListPage, Ok200, OneOrPage, PageRequest, Params,
    QueryParam, QueryString, RatePolicy, RenderedReply, Reply, Rules, document_response,
};
use kernel::rules;
use utoipa::openapi::schema::AnyOfBuilder;
use utoipa::openapi::{OneOfBuilder, Ref, RefOr, Schema};
use utoipa::{IntoResponses, PartialSchema, ToSchema};

use super::super::WebhookRecovery;
use super::log::store::{self as log, Filter};
use super::store;
use super::{Delivery, DeliveryAction, DeliveryId, RecoverAction, ResendAction, TestAction};

const PATH: &str = "/api/admin/webhooks/deliveries";

rules! {
    Reading = Rules::new(RatePolicy::Read, &[Scope::WebhooksRead]);
    Writing = Rules::new(RatePolicy::Write, &[Scope::WebhooksWrite]);
}

pub struct ListQuery {
    id: Option<DeliveryId>,
    filter: Filter,
    page: PageRequest,
}

impl FromParams for ListQuery {
    fn from_params(params: &mut Params) -> Result<Self> {
        let id = params.take_optional_id("One delivery. Cannot be combined with other parameters than `limit`.")?;
        let kind = |text: &str| is_dotted(text).then(|| text.to_owned());
        let webhooks = QueryParam::new("webhook_id", "Of these endpoints, as a comma list.");
        let events = QueryParam::new("event_id", "Of these events, as a comma list.");
        let kinds = QueryParam::new("event_type", "Of these kinds of events, as a comma list.");
        let filter = Filter {
            webhook_id: params.take_ids(webhooks, "an endpoint")?,
            event_id: params.take_ids(events, "an event")?,
            event_type: params.take_list(kinds, "a kind of event such as ticket.created", kind)?,
            status: params.take_enums(QueryParam::new("status", "Any of these, as a comma list."))?,
            since: params.take_time(QueryParam::new("since", "Of events at this moment or later."))?,
            until: params.take_time(QueryParam::new("until", "Of events before this moment."))?,
        };
        Ok(ListQuery { id, filter, page: PageRequest::take_page(params)? })
    }
}

/// The response of GET. A delivery has no version, so a single one has no `ETag`.
pub enum DeliveryOrPage {
    One(Box<Delivery>),
    Page(ListPage<Delivery>),
}

impl IntoResponse for DeliveryOrPage {
    fn into_response(self) -> Response {
        match self {
            DeliveryOrPage::One(delivery) => Ok200(delivery).into_response(),
            DeliveryOrPage::Page(page) => page.into_response(),
        }
    }
}

impl IntoResponses for DeliveryOrPage {
    fn responses() -> BTreeMap<String, RefOr<utoipa::openapi::Response>> {
        <OneOrPage<Delivery>>::responses()
    }
}

/// List deliveries, or read one
///
/// Newest first. One delivery for every event and endpoint, with its attempts and why it was not delivered (yet). All
/// filters apply together. A request checks about 3,000 deliveries at most: when matches are rare, a page may hold fewer
/// than its `limit`, even none, while `has_more` is true; `next_cursor` continues from there, and nothing is left out.
#[utoipa::path(
    get, path = PATH, tag = "Control plane", operation_id = "list_deliveries", params(QueryString<ListQuery>)
)]
pub async fn list_deliveries(caller: Access<Reading>, query: QueryString<ListQuery>) -> Result<DeliveryOrPage> {
    let db = caller.db();
    let ListQuery { id, filter, page } = query.parse()?;
    if let Some(id) = id {
        return store::get_delivery(&db, id).await.map(|delivery| DeliveryOrPage::One(Box::new(delivery)));
    }
    let after = page.cursor_key(&caller, PATH)?;
    let (deliveries, next) = log::list_deliveries(&db, &filter, after, page.limit).await?;
    page.build_cut_page(&caller, PATH, deliveries, next).map(DeliveryOrPage::Page)
}

/// The response of POST.
pub enum DeliveryActionResponse {
    Delivery(Box<Delivery>),
    Recovery(WebhookRecovery),
}

impl Reply for DeliveryActionResponse {
    fn render_reply(&self) -> Result<RenderedReply> {
        match self {
            DeliveryActionResponse::Delivery(delivery) => Accepted(delivery).render_reply(),
            DeliveryActionResponse::Recovery(recovery) => Accepted(recovery).render_reply(),
        }
    }
}

impl IntoResponses for DeliveryActionResponse {
    fn responses() -> BTreeMap<String, RefOr<utoipa::openapi::Response>> {
        document_response::<Self>("202", "Accepted: the delivery to be sent, or the recovery that has begun.")
    }
}

impl PartialSchema for DeliveryActionResponse {
    fn schema() -> RefOr<Schema> {
        let any_of = AnyOfBuilder::new()
            .item(Ref::from_schema_name(Delivery::name()))
            .item(Ref::from_schema_name(WebhookRecovery::name()));
        any_of.into()
    }
}

/// The schema of the POST body in the OpenAPI document.
impl PartialSchema for DeliveryAction {
    fn schema() -> RefOr<Schema> {
        let names = [ResendAction::name(), RecoverAction::name(), TestAction::name()];
        names.into_iter().fold(OneOfBuilder::new(), |one_of, name| one_of.item(Ref::from_schema_name(name))).into()
    }
}

impl ToSchema for DeliveryAction {
    fn name() -> std::borrow::Cow<'static, str> {
        "DeliveryAction".into()
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        let parts = [
            (ResendAction::name(), ResendAction::schema()),
            (RecoverAction::name(), RecoverAction::schema()),
            (TestAction::name(), TestAction::schema()),
            (WebhookRecovery::name(), WebhookRecovery::schema()),
        ];
        schemas.extend(parts.map(|(name, schema)| (name.into(), schema)));
        WebhookRecovery::schemas(schemas);
    }
}

/// Resend, recover or test
///
/// `resend` sends one delivery again; `recover` sends every matching event of a window that has had no success, a few
/// at a time (the endpoint's record shows how far it has come), and one that waits for its next attempt is sent now, unless
/// the endpoint itself asked to wait (`Retry-After`) or is held back after failures; `test` sends a `webhook.test` event to
/// that endpoint alone. All retry like any other delivery. A disabled endpoint is 409, and so is the resend of a delivery
/// that is `delivering`; an accepted resend is always sent afterwards, even if an attempt had just begun.
#[utoipa::path(
    post, path = PATH, tag = "Control plane", operation_id = "send_deliveries", request_body = DeliveryAction
)]
pub async fn send_deliveries(
    caller: Access<Writing>,
    idempotency: Idempotency,
    query: QueryString<()>,
    body: Json<DeliveryAction>,
) -> Result<IdempotentReply<DeliveryActionResponse>> {
    let db = caller.db();
    query.parse()?;
    let body = body.read().await?;
    let (grant, action) = (caller.grant(), body.value);
    idempotency
        .run_once(&caller, &db, body.digest, async move |tx| {
            let rights = grant.confirm(tx).await?;
            match action {
                DeliveryAction::Resend(id) => store::resend_delivery(tx, &rights, id)
                    .await
                    .map(|sent| DeliveryActionResponse::Delivery(Box::new(sent))),
                DeliveryAction::Recover { webhook, since, until } => {
                    store::start_recovery(tx, webhook, since, until).await.map(DeliveryActionResponse::Recovery)
                }
                DeliveryAction::Test(id) => {
                    store::send_test(tx, id).await.map(|sent| DeliveryActionResponse::Delivery(Box::new(sent)))
                }
            }
        })
        .await
}
