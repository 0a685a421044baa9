//! `/api/admin/api-keys`

use axum::response::{IntoResponse, Response};
use kernel::auth::{PlainKey, Scope};
use kernel::base::{ApiKeyId, Result};
use kernel::http::{
    Access, Api, App, Created, FromParams, Idempotency, IfMatch, Json, NoContent, Once, One, OneOrPage, Page,
    PageRequest, Param, Params, Policy, Query, Rules, Versioned,
};
use kernel::operations;
use kernel::rules;
use utoipa::openapi::schema::AnyOfBuilder;
use utoipa::openapi::{OneOfBuilder, Ref, RefOr, Schema};
use utoipa::{IntoResponses, PartialSchema, ToSchema};

use super::{ApiKey, Change, Input, NewKey, Rotation, Status, store};

/// The operations of this feature, and the schemas that their answers refer to.
pub fn mount(api: Api) -> Api {
    api.tenant(operations!(list, create, replace, revoke)).schema::<Page<super::ApiKey>>().schema::<super::NewKey>()
}

const PATH: &str = "/api/admin/api-keys";

rules! {
    Reading = Rules::new(Policy::Read, &[Scope::ApiKeysRead]);
    Writing = Rules::new(Policy::Write, &[Scope::ApiKeysWrite]);
}

pub struct ListQuery {
    id: Option<ApiKeyId>,
    status: Option<Vec<Status>>,
    page: PageRequest,
}

impl FromParams for ListQuery {
    fn from_params(params: &mut Params) -> Result<Self> {
        let one = "One key, revoked or not. Cannot be combined with the other parameters.";
        let status = "Any of these, as a comma list. Without it: active and expired.";
        Ok(ListQuery {
            id: params.take_optional_id(one)?,
            status: params.take_words(Param::new("status", status))?,
            page: PageRequest::take(params)?,
        })
    }
}

/// List API keys, or read one
///
/// Newest first. Never shows a key itself, only its `prefix` and `last_four`.
#[utoipa::path(
    get, path = PATH, tag = "Control plane", operation_id = "list_api_keys", params(Query<ListQuery>)
)]
pub async fn list(caller: Access<Reading>, query: Query<ListQuery>) -> Result<OneOrPage<ApiKey>> {
    let db = caller.db();
    let query = query.parse()?;
    if let Some(id) = query.id {
        return store::get(&db, id).await.map(OneOrPage::One);
    }
    let after = query.page.position(&caller, PATH)?;
    let rows = store::list(&db, query.status.as_deref(), after, query.page.fetch()).await?;
    query.page.page(&caller, PATH, rows, |key| vec![key.created_at.into(), key.id.into()]).map(OneOrPage::Page)
}

/// Create an API key
///
/// The answer is the only one that ever shows the `key`: keep it.
#[utoipa::path(
    post, path = PATH, tag = "Control plane", operation_id = "create_api_key", request_body = Input
)]
pub async fn create(
    caller: Access<Writing>,
    idempotency: Idempotency,
    query: Query<()>,
    body: Json<Input>,
) -> Result<Once<Created<NewKey>>> {
    let db = caller.db();
    query.parse()?;
    let body = body.read().await?;
    let (grant, app, input) = (caller.grant(), caller.app().clone(), body.value);
    idempotency
        .once(&caller, &db, body.digest, async move |tx| {
            let rights = grant.confirm(tx).await?;
            let made = store::create(tx, &rights, input, &app.secrets).await?;
            remember(&app, &made);
            Ok(Created::at(PATH, made.record.id, made))
        })
        .await
}

/// Marks the new key as known, so that its owner can use it at once even if others at the same address use up the address's
/// budget for unknown credentials.
fn remember(app: &App, made: &NewKey) {
    if let Some(plain) = PlainKey::parse(&made.key) {
        app.credentials.remember(plain.hash(&app.secrets));
    }
}

/// The response of PUT: the record, and after a rotation also the new key.
pub enum Changed {
    Replaced(ApiKey),
    Rotated(NewKey),
}

impl IntoResponse for Changed {
    fn into_response(self) -> Response {
        match self {
            Changed::Replaced(record) => Versioned(record).into_response(),
            Changed::Rotated(record) => Versioned(record).into_response(),
        }
    }
}

impl IntoResponses for Changed {
    fn responses() -> std::collections::BTreeMap<String, RefOr<utoipa::openapi::Response>> {
        kernel::http::documented::<Self>(
            "200",
            "The key as it is now; after a rotation with the new `key`, shown this once.",
        )
    }
}

impl PartialSchema for Changed {
    fn schema() -> RefOr<Schema> {
        // `anyOf`, not `oneOf`: a key with its plain text also validates as a key.
        let any_of =
            AnyOfBuilder::new().item(Ref::from_schema_name(ApiKey::name())).item(Ref::from_schema_name(NewKey::name()));
        any_of.into()
    }
}

/// The schema of the PUT body in the OpenAPI document.
impl PartialSchema for Change {
    fn schema() -> RefOr<Schema> {
        one_of([Input::name(), Rotation::name()])
    }
}

impl ToSchema for Change {
    fn name() -> std::borrow::Cow<'static, str> {
        "ApiKeyChange".into()
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        for (name, schema) in [
            (Input::name(), Input::schema()),
            (Rotation::name(), Rotation::schema()),
            (ApiKey::name(), ApiKey::schema()),
        ] {
            schemas.push((name.into(), schema));
        }
        Rotation::schemas(schemas);
        ApiKey::schemas(schemas);
    }
}

fn one_of(names: [std::borrow::Cow<'static, str>; 2]) -> RefOr<Schema> {
    names.into_iter().fold(OneOfBuilder::new(), |one_of, name| one_of.item(Ref::from_schema_name(name))).into()
}

/// Replace or rotate an API key
///
/// With `name` and `scopes`, replaces them; `allowed_cidrs` stay without it (`[]` opens), and so does the expiry without
/// `expires_days`, which counts from now. With `rotate` alone, answers with a new `key` under the same id and expiry, while
/// the old one works for the overlap; a second rotation ends the first one's overlap.
///
/// Scopes, networks and time that are taken from a key are taken from the keys it has made, too; one that nothing is left of
/// is revoked. A key can rotate itself, and change or rotate only keys that it has made, directly or through others. After a
/// leak revoke the key instead: a rotation leaves the keys that it has made.
#[utoipa::path(
    put, path = PATH, tag = "Control plane", operation_id = "replace_api_key", params(Query<One<ApiKeyId>>), request_body = Change
)]
pub async fn replace(
    caller: Access<Writing>,
    if_match: IfMatch,
    idempotency: Idempotency,
    query: Query<One<ApiKeyId>>,
    body: Json<Change>,
) -> Result<Changed> {
    let db = caller.db();
    let id = query.parse()?.id;
    let change = body.read().await?.value;
    idempotency.check()?;
    let (grant, app) = (caller.grant(), caller.app().clone());
    let changed = db
        .write(async move |tx| {
            let rights = grant.confirm(tx).await?;
            match change {
                Change::Replace(input) => {
                    store::replace(tx, &rights, id, &if_match, input).await.map(Changed::Replaced)
                }
                Change::Rotate { overlap_hours } => {
                    let made = store::rotate(tx, &rights, id, &if_match, overlap_hours, &app.secrets).await?;
                    remember(&app, &made);
                    Ok(Changed::Rotated(made))
                }
            }
        })
        .await?;
    caller.app().credentials.forget(caller.tenant_id());
    Ok(changed)
}

/// Revoke an API key
///
/// At once on this node and within a second on every other, together with the keys it has made. The record stays
/// readable as revoked.
#[utoipa::path(
    delete, path = PATH, tag = "Control plane", operation_id = "revoke_api_key", params(Query<One<ApiKeyId>>)
)]
pub async fn revoke(
    caller: Access<Writing>,
    if_match: IfMatch,
    idempotency: Idempotency,
    query: Query<One<ApiKeyId>>,
) -> Result<NoContent> {
    let db = caller.db();
    let id = query.parse()?.id;
    idempotency.check()?;
    let grant = caller.grant();
    db.write(async move |tx| {
        grant.confirm(tx).await?;
        store::revoke(tx, id, &if_match).await
    })
    .await?;
    caller.app().credentials.forget(caller.tenant_id());
    Ok(NoContent)
}
