//! `/api/admin/organizations`

use feature_kit::{Q_CHARS_MAX, parse_q};
use kernel::auth::Scope;
use kernel::base::{Code, Result};
use kernel::http::{
    Access, Api, Created, FromParams, Idempotency, IdempotentReply, IfMatch, Json, ListPage, NoContent, OneOrPage,
    PageRequest, Params, QueryParam, QueryString, RatePolicy, RecordQuery, Rules, Versioned,
};
use kernel::operations;
use kernel::rules;

use super::find::{self, Filter};
use super::input::{OrganizationInput, parse_external_id, parse_slug};
use super::{Organization, OrganizationId, store};

/// The operations of this feature, and the schemas that their answers refer to.
pub fn mount(api: Api) -> Api {
    api.add_tenant_routes(operations!(
        list_organizations,
        create_organization,
        replace_organization,
        delete_organization
    ))
    .add_refusals("create_organization", &[Code::Conflict, Code::LimitReached])
    .add_refusals("replace_organization", &[Code::Conflict])
    .add_refusals("delete_organization", &[Code::Conflict])
    .add_schema::<ListPage<super::Organization>>()
    .add_schema::<super::UpdatedOrganization>()
}

const PATH: &str = "/api/admin/organizations";

rules! {
    Reading = Rules::new(RatePolicy::Read, &[Scope::OrganizationsRead]);
    Writing = Rules::new(RatePolicy::Write, &[Scope::OrganizationsWrite]);
}

pub struct ListQuery {
    id: Option<OrganizationId>,
    filter: Filter,
    page: PageRequest,
}

impl FromParams for ListQuery {
    fn from_params(params: &mut Params) -> Result<Self> {
        let id = params.take_optional_id("One organization. Cannot be combined with other parameters than `limit`.")?;
        Ok(ListQuery { id, filter: parse_filter(params)?, page: PageRequest::take_page(params)? })
    }
}

fn parse_filter(params: &mut Params) -> Result<Filter> {
    let slug = QueryParam::new("slug", "The one with this slug.").with_length(1, 63);
    let external_id = QueryParam::new("external_id", "The one with this id of another system.").with_length(1, 200);
    let archived = "`true`: only those that are archived; `false`: only the others, as when omitted. With `updated_since`, both \
                    come\nwhen it is omitted.";
    let q = "At most 10 words, each the beginning of a word of the name, the slug, the external id or a domain,\nhowever it is written.";
    let updated = "Changed at this moment or later, in the order of the changes, archived ones too. A reader that goes on by \
                   cursor,\nor from the last `updated_at` it has seen, misses nothing but what is deleted, which the event\n\
                   `organization.deleted` tells.";
    Ok(Filter {
        slug: params.take_parsed(slug, parse_slug)?,
        external_id: params.take_parsed(external_id, parse_external_id)?,
        archived: params.take_bool(QueryParam::new("archived", archived))?,
        words: params.take_parsed(QueryParam::new("q", q).with_length(1, Q_CHARS_MAX), parse_q)?.unwrap_or_default(),
        updated_since: params.take_time(QueryParam::new("updated_since", updated))?,
    })
}

/// List organizations, or read one
///
/// Newest first, without archived ones. All filters apply together; a page may hold fewer than `limit`, and even none, when
/// matches are rare: go by `has_more`. With `updated_since` it is a list of changes, to keep a copy up to date.
#[utoipa::path(
    get, path = PATH, tag = "Control plane", operation_id = "list_organizations", params(QueryString<ListQuery>)
)]
pub async fn list_organizations(
    caller: Access<Reading>,
    query: QueryString<ListQuery>,
) -> Result<OneOrPage<Organization>> {
    let db = caller.db();
    let ListQuery { id, filter, page } = query.parse()?;
    if let Some(id) = id {
        return store::get_organization(&db, id).await.map(OneOrPage::One);
    }
    let after = page.cursor_key(&caller, PATH)?;
    let (found, next) = find::store::list_organizations(&db, &filter, after, page.limit).await?;
    page.build_cut_page(&caller, PATH, found, next).map(OneOrPage::Page)
}

/// Create an organization
///
/// Only `name` is needed. A `slug` or `external_id` that is taken is 409 `conflict`; a slug that is made from the name gets a
/// number instead.
#[utoipa::path(
    post, path = PATH, tag = "Control plane", operation_id = "create_organization", request_body = OrganizationInput
)]
pub async fn create_organization(
    caller: Access<Writing>,
    idempotency: Idempotency,
    query: QueryString<()>,
    body: Json<OrganizationInput>,
) -> Result<IdempotentReply<Created<Organization>>> {
    let db = caller.db();
    query.parse()?;
    let body = body.read().await?;
    let (grant, input) = (caller.grant(), body.value);
    idempotency
        .run_once(&caller, &db, body.digest, async move |tx| {
            grant.confirm(tx).await?;
            let created = store::insert_organization(tx, input).await?;
            Ok(Created::in_collection(PATH, created.id, created))
        })
        .await
}

/// Replace an organization
///
/// An omitted optional field returns to its default, but for `slug`, which stays. What refers to an organization that becomes
/// archived stays as it is.
#[utoipa::path(
    put, path = PATH, tag = "Control plane", operation_id = "replace_organization", params(QueryString<RecordQuery<OrganizationId>>),
    request_body = OrganizationInput
)]
pub async fn replace_organization(
    caller: Access<Writing>,
    if_match: IfMatch,
    idempotency: Idempotency,
    query: QueryString<RecordQuery<OrganizationId>>,
    body: Json<OrganizationInput>,
) -> Result<Versioned<Organization>> {
    let db = caller.db();
    let id = query.parse()?.id;
    let input = body.read().await?.value;
    idempotency.check_key()?;
    let grant = caller.grant();
    db.write(async move |tx| {
        grant.confirm(tx).await?;
        store::replace_organization(tx, id, &if_match, input).await.map(Versioned)
    })
    .await
}

/// Delete an organization
///
/// For good. While tickets, devices, live ingest keys or workflows refer to it, that is 409 `conflict`, which names them; it can
/// be archived instead.
#[utoipa::path(
    delete, path = PATH, tag = "Control plane", operation_id = "delete_organization", params(QueryString<RecordQuery<OrganizationId>>)
)]
pub async fn delete_organization(
    caller: Access<Writing>,
    if_match: IfMatch,
    idempotency: Idempotency,
    query: QueryString<RecordQuery<OrganizationId>>,
) -> Result<NoContent> {
    let db = caller.db();
    let id = query.parse()?.id;
    idempotency.check_key()?;
    let grant = caller.grant();
    db.write(async move |tx| {
        grant.confirm(tx).await?;
        store::delete_if_unreferenced(tx, id, &if_match).await
    })
    .await?;
    Ok(NoContent)
}
