//! `/api/cloud/providers`

use std::collections::BTreeMap;

use axum::response::{IntoResponse, Response};
use clouds::CatalogKind;
use kernel::auth::Scope;
use kernel::base::{Code, Result};
use kernel::http::{
    Accepted, Access, Api, Created, FromParams, Idempotency, IdempotentReply, IfMatch, Json, ListPage, NoContent,
    Ok200, PageRequest, Params, QueryParam, QueryString, RatePolicy, RecordQuery, RenderedReply, Reply, Rules,
    Versioned, document_response,
};
use kernel::operations;
use kernel::rules;
use utoipa::openapi::schema::AnyOfBuilder;
use utoipa::openapi::{OneOfBuilder, Ref, RefOr, Schema};
use utoipa::{IntoResponses, PartialSchema, ToSchema};

use super::catalog;
use super::catalog_cache::CatalogEntry;
use super::input::{ProviderAction, ProviderActionInput, ProviderInput, ProviderReplacement, parse_region};
use super::verify::store::{ask_for_caller, save_for_caller, verify_every_ms};
use super::{CloudProvider, PROVIDER_UNSUPPORTED, ProviderId, VerificationReport, store};
use crate::settings::CloudSettings;
use crate::vms::forget::store::{forget_provider, forget_regions};

/// The operations of this feature, and the schemas that their answers refer to.
pub fn mount(api: Api) -> Api {
    api.add_tenant_routes(operations!(list_providers, create_provider, replace_provider, delete_provider))
        .add_refusals("list_cloud_providers", &[Code::MissingParameter, Code::Conflict])
        .add_refusals(
            "create_cloud_provider",
            &[Code::NotFound, Code::Conflict, Code::LimitReached, PROVIDER_UNSUPPORTED],
        )
        .add_refusals("replace_cloud_provider", &[PROVIDER_UNSUPPORTED])
        .add_refusals("delete_cloud_provider", &[Code::Conflict])
        .add_schema::<ListPage<CloudProvider>>()
        .add_schema::<ListPage<CatalogEntry>>()
        .add_schema::<VerificationReport>()
        .add_schema::<CatalogKind>()
}

const PATH: &str = "/api/cloud/providers";

rules! {
    Reading = Rules::new(RatePolicy::Read, &[Scope::CloudRead]);
    Writing = Rules::new(RatePolicy::Write, &[Scope::CloudWrite]);
}

pub struct ListQuery {
    id: Option<ProviderId>,
    catalog: Option<CatalogKind>,
    region: Option<String>,
    page: PageRequest,
}

impl FromParams for ListQuery {
    fn from_params(params: &mut Params) -> Result<Self> {
        let about =
            "One provider. Cannot be combined with other parameters than `catalog`, `region`, `limit` and `cursor`.";
        let beside = if params.has_param("catalog") { &["catalog", "region", "cursor"][..] } else { &[] };
        let id = params.take_optional_id_beside(about, beside)?;
        let catalog = "With `id`: what the cloud offers, asked of it with this provider's credentials, by id.";
        let region = "With `catalog`: of this region; when omitted, of the provider's first.";
        let catalog = params.take_enum(QueryParam::new("catalog", catalog))?;
        let region = params.take_parsed(QueryParam::new("region", region).with_length(1, 32), parse_region)?;
        Ok(ListQuery { id, catalog, region, page: PageRequest::take_page(params)? })
    }
}

/// The response of GET.
pub enum ProviderListResponse {
    One(Box<CloudProvider>),
    Page(ListPage<CloudProvider>),
    Catalog(ListPage<CatalogEntry>),
}

impl IntoResponse for ProviderListResponse {
    fn into_response(self) -> Response {
        match self {
            ProviderListResponse::One(provider) => Versioned(*provider).into_response(),
            ProviderListResponse::Page(page) => page.into_response(),
            ProviderListResponse::Catalog(page) => page.into_response(),
        }
    }
}

impl IntoResponses for ProviderListResponse {
    fn responses() -> BTreeMap<String, RefOr<utoipa::openapi::Response>> {
        document_response::<Self>(
            "200",
            "A page of the list; with `id`, the one provider; with `catalog`, what its cloud offers.",
        )
    }
}

impl PartialSchema for ProviderListResponse {
    fn schema() -> RefOr<Schema> {
        // `anyOf`: an empty page fits both lists.
        let names = [<ListPage<CloudProvider>>::name(), CloudProvider::name(), <ListPage<CatalogEntry>>::name()];
        names.into_iter().fold(AnyOfBuilder::new(), |any_of, name| any_of.item(Ref::from_schema_name(name))).into()
    }
}

/// List cloud providers, read one, or what its cloud offers
///
/// Newest first. Never shows credentials. With `id` and `catalog`, the regions, sizes or images that the cloud offers, by id.
#[utoipa::path(
    get, path = PATH, tag = "Cloud", operation_id = "list_cloud_providers", params(QueryString<ListQuery>)
)]
pub async fn list_providers(caller: Access<Reading>, query: QueryString<ListQuery>) -> Result<ProviderListResponse> {
    let db = caller.db();
    let ListQuery { id, catalog, region, page } = query.parse()?;
    match (id, catalog) {
        (Some(id), None) => Ok(ProviderListResponse::One(Box::new(store::get_provider(&db, id).await?))),
        (Some(id), Some(kind)) => {
            let after = match page.cursor_position(&caller, PATH)?.and_then(|mut position| position.pop()) {
                Some(kernel::store::Value::Text(after)) => Some(after),
                _ => None,
            };
            let entries = catalog::list_catalog(caller.app(), &db, id, kind, region.as_deref()).await?;
            let is_after = |entry: &CatalogEntry| after.as_ref().is_none_or(|after| entry.id > *after);
            let rows = entries.iter().filter(|entry| is_after(entry)).take(page.fetch_limit()).cloned().collect();
            let position = |entry: &CatalogEntry| vec![entry.id.as_str().into()];
            page.build_page(&caller, PATH, rows, position).map(ProviderListResponse::Catalog)
        }
        (None, catalog) => {
            if catalog.is_some() || region.is_some() {
                let detail = "catalog and region need the id of a provider.";
                return Err(kernel::base::Error::new(Code::MissingParameter, detail));
            }
            let after = page.cursor_position(&caller, PATH)?;
            let rows = store::list_providers(&db, after, page.fetch_limit()).await?;
            let position = |provider: &CloudProvider| vec![provider.created_at.into(), provider.id.into()];
            page.build_page(&caller, PATH, rows, position).map(ProviderListResponse::Page)
        }
    }
}

/// The response of POST.
pub enum ProviderActionResponse {
    Created(Box<Created<CloudProvider>>),
    Synced(Box<CloudProvider>),
    Verified(Box<VerificationReport>),
}

impl Reply for ProviderActionResponse {
    fn render_reply(&self) -> Result<RenderedReply> {
        match self {
            ProviderActionResponse::Created(created) => created.render_reply(),
            ProviderActionResponse::Synced(provider) => Accepted(provider).render_reply(),
            ProviderActionResponse::Verified(report) => Ok200(report).render_reply(),
        }
    }
}

struct SchemaNamed<T>(std::marker::PhantomData<T>);

impl<T: ToSchema> PartialSchema for SchemaNamed<T> {
    fn schema() -> RefOr<Schema> {
        Ref::from_schema_name(T::name()).into()
    }
}

impl IntoResponses for ProviderActionResponse {
    fn responses() -> BTreeMap<String, RefOr<utoipa::openapi::Response>> {
        let mut responses =
            document_response::<SchemaNamed<VerificationReport>>("200", "What the credentials may do (`verify`).");
        responses.extend(document_response::<SchemaNamed<CloudProvider>>("201", "The new provider."));
        responses
            .extend(document_response::<SchemaNamed<CloudProvider>>("202", "Its machines are read soon (`sync`)."));
        responses
    }
}

impl PartialSchema for ProviderAction {
    fn schema() -> RefOr<Schema> {
        let names = [ProviderInput::name(), ProviderActionInput::name()];
        names.into_iter().fold(OneOfBuilder::new(), |one_of, name| one_of.item(Ref::from_schema_name(name))).into()
    }
}

impl ToSchema for ProviderAction {
    fn name() -> std::borrow::Cow<'static, str> {
        "CloudProviderRequest".into()
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        schemas.push((ProviderInput::name().into(), ProviderInput::schema()));
        schemas.push((ProviderActionInput::name().into(), ProviderActionInput::schema()));
        ProviderInput::schemas(schemas);
    }
}

/// Add a cloud provider, verify or sync one
///
/// A new provider is verified in the background, and synced after the first success. `{"action":"verify","id":…}` verifies now
/// and answers what the credentials may do; `{"action":"sync","id":…}` reads its machines soon. A kind that is not offered is
/// 422 `provider_unsupported`.
#[utoipa::path(
    post, path = PATH, tag = "Cloud", operation_id = "create_cloud_provider", request_body = ProviderAction
)]
pub async fn create_provider(
    caller: Access<Writing>,
    idempotency: Idempotency,
    query: QueryString<()>,
    body: Json<ProviderAction>,
) -> Result<IdempotentReply<ProviderActionResponse>> {
    let db = caller.db();
    query.parse()?;
    let body = body.read().await?;
    // The cloud is asked before the transaction, which could not wait for it.
    let asked = match &body.value {
        ProviderAction::Verify(id) if !idempotency.has_answer(&caller, &db).await? => {
            Some(ask_for_caller(caller.app(), &db, *id).await)
        }
        _ => None,
    };
    let times = (caller.app().env.now(), verify_every_ms(caller.app()));
    let endpoints = caller.app().settings.feature_settings::<CloudSettings>().endpoints;
    let (grant, secrets, action) = (caller.grant(), caller.app().secrets.clone(), body.value);
    idempotency
        .run_once(&caller, &db, body.digest, async move |tx| {
            grant.confirm(tx).await?;
            match (action, asked) {
                (ProviderAction::Create(body), _) => {
                    let created = store::create_provider(tx, body.into_input(&endpoints)?, &secrets).await?;
                    let created = Created::in_collection(PATH, created.id, created);
                    Ok(ProviderActionResponse::Created(Box::new(created)))
                }
                (ProviderAction::Sync(id), _) => {
                    store::request_sync(tx, id).await.map(|provider| ProviderActionResponse::Synced(Box::new(provider)))
                }
                (ProviderAction::Verify(id), Some(outcome)) => {
                    let report = save_for_caller(tx, id, outcome?, times).await?;
                    Ok(ProviderActionResponse::Verified(Box::new(report)))
                }
                (ProviderAction::Verify(_), None) => Err(kernel::base::Error::internal("nothing was verified")),
            }
        })
        .await
}

/// Replace a cloud provider
///
/// Omitted credentials stay; new ones are verified at once. `kind` cannot be changed.
#[utoipa::path(
    put, path = PATH, tag = "Cloud", operation_id = "replace_cloud_provider", params(QueryString<RecordQuery<ProviderId>>),
    request_body = ProviderInput
)]
pub async fn replace_provider(
    caller: Access<Writing>,
    if_match: IfMatch,
    idempotency: Idempotency,
    query: QueryString<RecordQuery<ProviderId>>,
    body: Json<ProviderReplacement>,
) -> Result<Versioned<CloudProvider>> {
    let db = caller.db();
    let id = query.parse()?.id;
    let endpoints = caller.app().settings.feature_settings::<CloudSettings>().endpoints;
    let input = body.read().await?.value.0.into_input(&endpoints)?;
    idempotency.check_key()?;
    let (grant, secrets) = (caller.grant(), caller.app().secrets.clone());
    let replaced = db
        .write(async move |tx| {
            grant.confirm(tx).await?;
            store::replace_provider(tx, id, &if_match, input, &secrets).await
        })
        .await?;
    forget_regions(&db, id, replaced.removed_regions).await;
    Ok(Versioned(replaced.record))
}

pub struct DeleteQuery {
    id: ProviderId,
    force: bool,
}

impl FromParams for DeleteQuery {
    fn from_params(params: &mut Params) -> Result<Self> {
        let about = "`true`: also while machines that it has made live. They leave the list, and go on in the cloud.";
        let force = params.take_bool(QueryParam::new("force", about))?.unwrap_or(false);
        Ok(DeleteQuery { id: params.take_id("The provider to delete.")?, force })
    }
}

/// Delete a cloud provider
///
/// Its machines leave the list; nothing in the cloud is touched. While machines that it has made live, that is 409 `conflict`,
/// which names them, unless `force=true`.
#[utoipa::path(
    delete, path = PATH, tag = "Cloud", operation_id = "delete_cloud_provider", params(QueryString<DeleteQuery>)
)]
pub async fn delete_provider(
    caller: Access<Writing>,
    if_match: IfMatch,
    idempotency: Idempotency,
    query: QueryString<DeleteQuery>,
) -> Result<NoContent> {
    let db = caller.db();
    let DeleteQuery { id, force } = query.parse()?;
    idempotency.check_key()?;
    let grant = caller.grant();
    db.write(async move |tx| {
        grant.confirm(tx).await?;
        store::delete_provider(tx, id, &if_match, force).await
    })
    .await?;
    forget_provider(&db, id).await;
    Ok(NoContent)
}
