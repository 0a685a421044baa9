//! `/api/admin/api-keys`

use axum::response::{IntoResponse, Response};
use kernel::auth::{PlainKey, Scope};
use kernel::base::{ApiKeyId, Code, Result};
use kernel::http::{
    Access, Api, App, Created, FromParams, Idempotency, IdempotentReply, IfMatch, Json, ListPage, NoContent, OneOrPage,
    PageRequest, Params, QueryParam, QueryString, RatePolicy, RecordQuery, Rules, Versioned,
};
use kernel::operations;
use kernel::rules;
use utoipa::openapi::schema::AnyOfBuilder;
use utoipa::openapi::{OneOfBuilder, Ref, RefOr, Schema};
use utoipa::{IntoResponses, PartialSchema, ToSchema};

use super::{ApiKey, ApiKeyChange, ApiKeyInput, ApiKeyRotation, ApiKeyStatus, NewKey, find, store};

/// The operations of this feature, and the schemas that their answers refer to.
pub fn mount(api: Api) -> Api {
    api.add_tenant_routes(operations!(list_api_keys, create_api_key, replace_api_key, revoke_api_key))
        .add_refusals("create_api_key", &[Code::LimitReached])
        .add_refusals("replace_api_key", &[Code::Conflict, Code::LimitReached])
        .add_refusals("revoke_api_key", &[Code::Conflict])
        .add_schema::<ListPage<super::ApiKey>>()
        .add_schema::<super::NewKey>()
}

const PATH: &str = "/api/admin/api-keys";

rules! {
    Reading = Rules::new(RatePolicy::Read, &[Scope::ApiKeysRead]);
    Writing = Rules::new(RatePolicy::Write, &[Scope::ApiKeysWrite]);
}

pub struct ListQuery {
    id: Option<ApiKeyId>,
    status: Option<Vec<ApiKeyStatus>>,
    page: PageRequest,
}

impl FromParams for ListQuery {
    fn from_params(params: &mut Params) -> Result<Self> {
        let one = "One key, revoked or not. Cannot be combined with other parameters than `limit`.";
        let status = "Any of these, as a comma list. Without it: active and expired.";
        Ok(ListQuery {
            id: params.take_optional_id(one)?,
            status: params.take_enums(QueryParam::new("status", status))?,
            page: PageRequest::take_page(params)?,
        })
    }
}

/// List API keys, or read one
///
/// Newest first. Never shows a key itself, only its `prefix` and `last_four`.
#[utoipa::path(
    get, path = PATH, tag = "Control plane", operation_id = "list_api_keys", params(QueryString<ListQuery>)
)]
pub async fn list_api_keys(caller: Access<Reading>, query: QueryString<ListQuery>) -> Result<OneOrPage<ApiKey>> {
    let db = caller.db();
    let query = query.parse()?;
    if let Some(id) = query.id {
        return find::store::get_api_key(&db, id).await.map(OneOrPage::One);
    }
    let after = query.page.cursor_position(&caller, PATH)?;
    let rows = find::store::list_api_keys(&db, query.status.as_deref(), after, query.page.fetch_limit()).await?;
    query.page.build_page(&caller, PATH, rows, |key| vec![key.created_at.into(), key.id.into()]).map(OneOrPage::Page)
}

/// Create an API key
///
/// The answer is the only one that ever shows the `key`: keep it.
#[utoipa::path(
    post, path = PATH, tag = "Control plane", operation_id = "create_api_key", request_body = ApiKeyInput
)]
pub async fn create_api_key(
    caller: Access<Writing>,
    idempotency: Idempotency,
    query: QueryString<()>,
    body: Json<ApiKeyInput>,
) -> Result<IdempotentReply<Created<NewKey>>> {
    let db = caller.db();
    query.parse()?;
    let body = body.read().await?;
    let (grant, app, input) = (caller.grant(), caller.app().clone(), body.value);
    idempotency
        .run_once(&caller, &db, body.digest, async move |tx| {
            let rights = grant.confirm(tx).await?;
            let created = store::create_api_key(tx, &rights, input, &app.secrets).await?;
            remember_key(&app, &created);
            Ok(Created::in_collection(PATH, created.record.id, created))
        })
        .await
}

/// Marks the new key as known, so that its owner can use it at once even if others at the same address use up the address's
/// budget for unknown credentials.
fn remember_key(app: &App, created: &NewKey) {
    if let Some(plain) = PlainKey::parse(&created.key) {
        app.credentials.remember_credential(plain.hash(&app.secrets));
    }
}

/// The response of PUT: the record, and after a rotation also the new key.
pub enum ApiKeyChangeResponse {
    Replaced(ApiKey),
    Rotated(NewKey),
}

impl IntoResponse for ApiKeyChangeResponse {
    fn into_response(self) -> Response {
        match self {
            ApiKeyChangeResponse::Replaced(record) => Versioned(record).into_response(),
            ApiKeyChangeResponse::Rotated(record) => Versioned(record).into_response(),
        }
    }
}

impl IntoResponses for ApiKeyChangeResponse {
    fn responses() -> std::collections::BTreeMap<String, RefOr<utoipa::openapi::Response>> {
        kernel::http::document_response::<Self>(
            "200",
            "The key as it is now; after a rotation with the new `key`, shown this once.",
        )
    }
}

impl PartialSchema for ApiKeyChangeResponse {
    fn schema() -> RefOr<Schema> {
        // `anyOf`, not `oneOf`: a key with its plain text also validates as a key. It comes first, because generated clients
        // take the first that fits.
        let any_of =
            AnyOfBuilder::new().item(Ref::from_schema_name(NewKey::name())).item(Ref::from_schema_name(ApiKey::name()));
        any_of.into()
    }
}

/// The schema of the PUT body in the OpenAPI document.
impl PartialSchema for ApiKeyChange {
    fn schema() -> RefOr<Schema> {
        one_of([ApiKeyInput::name(), ApiKeyRotation::name()])
    }
}

impl ToSchema for ApiKeyChange {
    fn name() -> std::borrow::Cow<'static, str> {
        "ApiKeyChange".into()
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        for (name, schema) in [
            (ApiKeyInput::name(), ApiKeyInput::schema()),
            (ApiKeyRotation::name(), ApiKeyRotation::schema()),
            (ApiKey::name(), ApiKey::schema()),
        ] {
            schemas.push((name.into(), schema));
        }
        ApiKeyRotation::schemas(schemas);
        ApiKey::schemas(schemas);
    }
}

fn one_of(names: [std::borrow::Cow<'static, str>; 2]) -> RefOr<Schema> {
    names.into_iter().fold(OneOfBuilder::new(), |one_of, name| one_of.item(Ref::from_schema_name(name))).into()
}

/// Replace or rotate an API key
///
/// With `name` and `scopes`, replaces them. Without `allowed_cidrs` the networks stay (`[]` allows all), and without
/// `expires_days`, which counts from now, the expiry stays. With `rotate` alone, answers with a new `key` under the
/// same id and expiry, while the old one works for the overlap; a second rotation ends the first one's overlap.
///
/// Scopes, networks and time that are taken from a key are taken from the keys it has made, too; one that nothing is left of
/// is revoked. A key can rotate itself, and change or rotate only keys that it has made, directly or through others. After a
/// leak revoke the key instead: a rotation leaves the keys that it has made.
#[utoipa::path(
    put, path = PATH, tag = "Control plane", operation_id = "replace_api_key", params(QueryString<RecordQuery<ApiKeyId>>), request_body = ApiKeyChange
)]
pub async fn replace_api_key(
    caller: Access<Writing>,
    if_match: IfMatch,
    idempotency: Idempotency,
    query: QueryString<RecordQuery<ApiKeyId>>,
    body: Json<ApiKeyChange>,
) -> Result<ApiKeyChangeResponse> {
    let db = caller.db();
    let id = query.parse()?.id;
    let change = body.read().await?.value;
    idempotency.check_key()?;
    let (grant, app) = (caller.grant(), caller.app().clone());
    let changed = db
        .write(async move |tx| {
            let rights = grant.confirm(tx).await?;
            match change {
                ApiKeyChange::Replace(input) => {
                    store::replace_api_key(tx, &rights, id, &if_match, input).await.map(ApiKeyChangeResponse::Replaced)
                }
                ApiKeyChange::Rotate { overlap_hours } => {
                    let rotated =
                        store::rotate_api_key(tx, &rights, id, &if_match, overlap_hours, &app.secrets).await?;
                    remember_key(&app, &rotated);
                    Ok(ApiKeyChangeResponse::Rotated(rotated))
                }
            }
        })
        .await?;
    caller.app().credentials.invalidate_tenant(caller.tenant_id());
    Ok(changed)
}

/// Revoke an API key
///
/// At once on this node and within a second on every other, together with the keys it has made. The record stays
/// readable as revoked.
#[utoipa::path(
    delete, path = PATH, tag = "Control plane", operation_id = "revoke_api_key", params(QueryString<RecordQuery<ApiKeyId>>)
)]
pub async fn revoke_api_key(
    caller: Access<Writing>,
    if_match: IfMatch,
    idempotency: Idempotency,
    query: QueryString<RecordQuery<ApiKeyId>>,
) -> Result<NoContent> {
    let db = caller.db();
    let id = query.parse()?.id;
    idempotency.check_key()?;
    let grant = caller.grant();
    db.write(async move |tx| {
        grant.confirm(tx).await?;
        store::revoke_api_key(tx, id, &if_match).await
    })
    .await?;
    caller.app().credentials.invalidate_tenant(caller.tenant_id());
    Ok(NoContent)
}
