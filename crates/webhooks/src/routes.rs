//! `/api/admin/webhooks`

use std::collections::BTreeMap;

use axum::response::{IntoResponse, Response};
use kernel::auth::Scope;
use kernel::base::{Code, Error, Result};
use kernel::http::{
    Access, Api, Caller, Created, FromParams, Idempotency, IdempotentReply, IfMatch, Json, ListPage, NoContent,
    OneOrPage, PageRequest, Params, QueryString, RatePolicy, RecordQuery, Rules, Versioned,
};
use kernel::operations;
use kernel::outbound::Target;
use kernel::rules;
use utoipa::openapi::schema::AnyOfBuilder;
use utoipa::openapi::{OneOfBuilder, Ref, RefOr, Schema};
use utoipa::{IntoResponses, PartialSchema, ToSchema};

use super::input::{WebhookChange, WebhookInput, WebhookRotation};
use super::{NewWebhook, Webhook, WebhookId, store};
use super::{deliveries, events};

/// The operations of the contract beside those of the specification: the log of deliveries, and the catalogue and feed of
/// events.
pub fn mount_more(api: Api) -> Api {
    api.add_tenant_routes(operations!(deliveries::routes::list_deliveries, deliveries::routes::send_deliveries))
        .add_tenant_routes(operations!(events::routes::list_events))
        .add_refusals("send_deliveries", &[Code::NotFound, Code::Conflict])
        .add_schema::<ListPage<deliveries::Delivery>>()
        .add_schema::<events::document::CataloguePage>()
        .add_schema::<events::document::FeedPage>()
}

/// The operations of this feature, and the schemas that their answers refer to.
pub fn mount(api: Api) -> Api {
    api.add_tenant_routes(operations!(list_webhooks, create_webhook, replace_webhook, delete_webhook))
        .add_refusals("create_webhook", &[Code::LimitReached, Code::TargetNotAllowed])
        .add_refusals("replace_webhook", &[Code::TargetNotAllowed])
        .add_schema::<ListPage<super::Webhook>>()
        .add_schema::<super::NewWebhook>()
}

const PATH: &str = "/api/admin/webhooks";

rules! {
    Reading = Rules::new(RatePolicy::Read, &[Scope::WebhooksRead]);
    Writing = Rules::new(RatePolicy::Write, &[Scope::WebhooksWrite]);
}

pub struct ListQuery {
    id: Option<WebhookId>,
    page: PageRequest,
}

impl FromParams for ListQuery {
    fn from_params(params: &mut Params) -> Result<Self> {
        let id = params.take_optional_id("One endpoint. Cannot be combined with other parameters than `limit`.")?;
        Ok(ListQuery { id, page: PageRequest::take_page(params)? })
    }
}

/// List webhook endpoints, or read one
///
/// Newest first. Never shows a secret or the value of a header.
#[utoipa::path(
    get, path = PATH, tag = "Control plane", operation_id = "list_webhooks", params(QueryString<ListQuery>)
)]
pub async fn list_webhooks(caller: Access<Reading>, query: QueryString<ListQuery>) -> Result<OneOrPage<Webhook>> {
    let db = caller.db();
    let query = query.parse()?;
    if let Some(id) = query.id {
        return store::get_webhook(&db, id).await.map(OneOrPage::One);
    }
    let after = query.page.cursor_position(&caller, PATH)?;
    let rows = store::list_webhooks(&db, after, query.page.fetch_limit()).await?;
    let position = |webhook: &Webhook| vec![webhook.created_at.into(), webhook.id.into()];
    query.page.build_page(&caller, PATH, rows, position).map(OneOrPage::Page)
}

/// Create a webhook endpoint
///
/// The answer is the only one that ever shows the `secret`: keep it, and verify every delivery with it as Standard
/// Webhooks says.
#[utoipa::path(
    post, path = PATH, tag = "Control plane", operation_id = "create_webhook", request_body = WebhookInput
)]
pub async fn create_webhook(
    caller: Access<Writing>,
    idempotency: Idempotency,
    query: QueryString<()>,
    body: Json<WebhookInput>,
) -> Result<IdempotentReply<Created<NewWebhook>>> {
    let db = caller.db();
    query.parse()?;
    let body = body.read().await?;
    // The name is resolved before the transaction and the request refused inside it: a repeated idempotency key gets
    // its first answer even if the name resolves differently by now.
    let checked = check_target(&caller, &body.value.url).await;
    let (grant, secrets, input) = (caller.grant(), caller.app().secrets.clone(), body.value);
    idempotency
        .run_once(&caller, &db, body.digest, async move |tx| {
            checked?;
            let rights = grant.confirm(tx).await?;
            let created = store::create_webhook(tx, &rights, input, &secrets).await?;
            Ok(Created::in_collection(PATH, created.record.id, created))
        })
        .await
}

/// A name that does not resolve yet is accepted: every attempt checks its target again.
async fn check_target(caller: &Caller, url: &Target) -> Result<()> {
    let checked = caller.app().outbound.check_target(url, Some(caller.tenant_id())).await;
    checked.map_err(|refusal| Error::target_not_allowed("/url", refusal.detail))
}

/// The response of PUT: the record, and after a rotation also the new secret.
pub enum WebhookChangeResponse {
    Replaced(Box<Webhook>),
    Rotated(Box<NewWebhook>),
}

impl IntoResponse for WebhookChangeResponse {
    fn into_response(self) -> Response {
        match self {
            WebhookChangeResponse::Replaced(record) => Versioned(*record).into_response(),
            WebhookChangeResponse::Rotated(record) => Versioned(*record).into_response(),
        }
    }
}

impl IntoResponses for WebhookChangeResponse {
    fn responses() -> BTreeMap<String, RefOr<utoipa::openapi::Response>> {
        kernel::http::document_response::<Self>(
            "200",
            "The endpoint as it is now; after a rotation with the new `secret`, shown this once.",
        )
    }
}

impl PartialSchema for WebhookChangeResponse {
    fn schema() -> RefOr<Schema> {
        // `anyOf`, not `oneOf`: an endpoint with its secret also validates as an endpoint. It comes first, because generated
        // clients take the first that fits.
        let any_of = AnyOfBuilder::new()
            .item(Ref::from_schema_name(NewWebhook::name()))
            .item(Ref::from_schema_name(Webhook::name()));
        any_of.into()
    }
}

/// The schema of the PUT body in the OpenAPI document.
impl PartialSchema for WebhookChange {
    fn schema() -> RefOr<Schema> {
        let names = [WebhookInput::name(), WebhookRotation::name()];
        names.into_iter().fold(OneOfBuilder::new(), |one_of, name| one_of.item(Ref::from_schema_name(name))).into()
    }
}

impl ToSchema for WebhookChange {
    fn name() -> std::borrow::Cow<'static, str> {
        "WebhookChange".into()
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        for (name, schema) in [
            (WebhookInput::name(), WebhookInput::schema()),
            (WebhookRotation::name(), WebhookRotation::schema()),
            (Webhook::name(), Webhook::schema()),
        ] {
            schemas.push((name.into(), schema));
        }
        WebhookRotation::schemas(schemas);
        Webhook::schemas(schemas);
    }
}

/// Replace a webhook endpoint, or rotate its secret
///
/// An omitted optional field returns to its default. Enabling sends nothing of what was skipped; a recovery does. With
/// `rotate_secret` alone, answers with a new `secret`, and both sign during the overlap; a second rotation ends the
/// first one's overlap.
#[utoipa::path(
    put, path = PATH, tag = "Control plane", operation_id = "replace_webhook", params(QueryString<RecordQuery<WebhookId>>), request_body = WebhookChange
)]
pub async fn replace_webhook(
    caller: Access<Writing>,
    if_match: IfMatch,
    idempotency: Idempotency,
    query: QueryString<RecordQuery<WebhookId>>,
    body: Json<WebhookChange>,
) -> Result<WebhookChangeResponse> {
    let db = caller.db();
    let id = query.parse()?.id;
    let change = body.read().await?.value;
    idempotency.check_key()?;
    if let WebhookChange::Replace(input) = &change {
        check_target(&caller, &input.url).await?;
    }
    let (grant, secrets) = (caller.grant(), caller.app().secrets.clone());
    db.write(async move |tx| {
        let rights = grant.confirm(tx).await?;
        match change {
            WebhookChange::Replace(input) => {
                let changed = store::replace_webhook(tx, &rights, id, &if_match, *input, &secrets).await?;
                Ok(WebhookChangeResponse::Replaced(Box::new(changed)))
            }
            WebhookChange::RotateSecret { overlap_hours } => {
                let rotated = store::rotate_secret(tx, &rights, id, &if_match, overlap_hours, &secrets).await?;
                Ok(WebhookChangeResponse::Rotated(Box::new(rotated)))
            }
        }
    })
    .await
}

/// Delete a webhook endpoint
///
/// Nothing more is sent to it. What was waiting stays in the log as skipped.
#[utoipa::path(
    delete, path = PATH, tag = "Control plane", operation_id = "delete_webhook", params(QueryString<RecordQuery<WebhookId>>)
)]
pub async fn delete_webhook(
    caller: Access<Writing>,
    if_match: IfMatch,
    idempotency: Idempotency,
    query: QueryString<RecordQuery<WebhookId>>,
) -> Result<NoContent> {
    let db = caller.db();
    let id = query.parse()?.id;
    idempotency.check_key()?;
    let grant = caller.grant();
    db.write(async move |tx| {
        grant.confirm(tx).await?;
        store::delete_webhook(tx, id, &if_match).await
    })
    .await?;
    Ok(NoContent)
}
