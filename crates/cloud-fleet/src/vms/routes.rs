//! `/api/cloud/vms`

use std::collections::BTreeMap;

use axum::response::{IntoResponse, Response};
use feature_kit::{Q_CHARS_MAX, parse_q};
use kernel::auth::Scope;
use kernel::base::{Code, Error, Result};
use kernel::http::{
    Accepted, Access, Api, FromParams, Idempotency, IdempotentReply, Json, ListPage, Ok200, PageRequest, Params,
    QueryParam, QueryString, RatePolicy, RenderedReply, Reply, Rules, Versioned, document_response,
};
use kernel::operations;
use kernel::rules;
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::openapi::schema::AnyOfBuilder;
use utoipa::openapi::{OneOfBuilder, Ref, RefOr, Schema};
use utoipa::{IntoResponses, PartialSchema, ToSchema};

use super::find::{self, Filter, TagFilter};
use super::input::{SettleInput, VmInput, VmRequest};
use super::provision::store::{Provisioned, provision};
use super::settle::store::settle_operation;
use super::summary::store::{VmSummary, summarize_vms};
use super::{ChangedVm, Vm, VmId, VmPreview, store};
use crate::providers::input::parse_region;

/// The operations of this feature, and the schemas that their answers refer to.
pub fn mount(api: Api) -> Api {
    api.add_tenant_routes(operations!(list_vms, provision_vms))
        .add_refusals("provision_vms", &[Code::NotFound, Code::Conflict, Code::LimitReached])
        .add_schema::<ListPage<Vm>>()
        .add_schema::<ChangedVm>()
        .add_schema::<VmSummary>()
        .add_schema::<VmSet>()
        .add_schema::<VmPreviewSet>()
}

const PATH: &str = "/api/cloud/vms";

rules! {
    Reading = Rules::new(RatePolicy::Read, &[Scope::CloudRead]);
    Writing = Rules::new(RatePolicy::Write, &[Scope::CloudWrite]);
}

pub struct ListQuery {
    id: Option<VmId>,
    filter: Filter,
    is_summary: bool,
    page: PageRequest,
}

impl FromParams for ListQuery {
    fn from_params(params: &mut Params) -> Result<Self> {
        let id = params.take_optional_id("One machine. Cannot be combined with other parameters than `limit`.")?;
        let tag = "With any of these tags, as a comma list: `key`, or `key:value`.";
        let q = "At most 10 words, each the beginning of a word of the name, however it is written.";
        let updated = "Changed at this moment or later, in the order of the changes, also those that have left the list. A reader \
                       that goes on by cursor,\nor from the last `updated_at` it has seen, misses nothing.";
        let region = |text: &str| parse_region(text).ok();
        let filter = Filter {
            provider_id: params
                .take_ids(QueryParam::new("provider_id", "Of these providers, as a comma list."), "a provider")?,
            region: params.take_list(
                QueryParam::new("region", "In these regions, as a comma list."),
                "a region",
                region,
            )?,
            state: params.take_enums(QueryParam::new("state", "Any of these, as a comma list."))?,
            tag: params.take_list(QueryParam::new("tag", tag), "a tag such as env or env:prod", TagFilter::parse)?,
            organization_id: params.take_ids(
                QueryParam::new("organization_id", "Of these organizations, as a comma list."),
                "an organization",
            )?,
            words: params
                .take_parsed(QueryParam::new("q", q).with_length(1, Q_CHARS_MAX), parse_q)?
                .unwrap_or_default(),
            updated_since: params.take_time(QueryParam::new("updated_since", updated))?,
        };
        let view = "`summary`: counts by state, provider, region, size and organization, of all machines.";
        let is_summary = params.take_flag(QueryParam::new("view", view), "summary")?;
        Ok(ListQuery { id, filter, is_summary, page: PageRequest::take_page(params)? })
    }
}

/// The response of GET.
pub enum VmListResponse {
    One(Box<Vm>),
    Page(ListPage<Vm>),
    Summary(VmSummary),
}

impl IntoResponse for VmListResponse {
    fn into_response(self) -> Response {
        match self {
            VmListResponse::One(vm) => Versioned(*vm).into_response(),
            VmListResponse::Page(page) => page.into_response(),
            VmListResponse::Summary(summary) => Ok200(summary).into_response(),
        }
    }
}

impl IntoResponses for VmListResponse {
    fn responses() -> BTreeMap<String, RefOr<utoipa::openapi::Response>> {
        document_response::<Self>("200", "A page of the list; with `id`, the one machine; with `view=summary`, counts.")
    }
}

impl PartialSchema for VmListResponse {
    fn schema() -> RefOr<Schema> {
        let names = [<ListPage<Vm>>::name(), Vm::name(), VmSummary::name()];
        names.into_iter().fold(OneOfBuilder::new(), |one_of, name| one_of.item(Ref::from_schema_name(name))).into()
    }
}

/// List machines, or read one
///
/// Newest first, those terminated in the last 30 days included. All filters apply together; a page may hold fewer than `limit`,
/// and even none, when matches are rare: go by `has_more`. With `updated_since` it is a list of changes, to keep a copy up to
/// date.
#[utoipa::path(get, path = PATH, tag = "Cloud", operation_id = "list_vms", params(QueryString<ListQuery>))]
pub async fn list_vms(caller: Access<Reading>, query: QueryString<ListQuery>) -> Result<VmListResponse> {
    let db = caller.db();
    let ListQuery { id, filter, is_summary, page } = query.parse()?;
    if let Some(id) = id {
        return store::get_vm(&db, id).await.map(|vm| VmListResponse::One(Box::new(vm)));
    }
    if is_summary {
        if page.has_filters_beside("view") {
            return Err(Error::new(Code::InvalidParameter, "view=summary counts all machines and takes no filter."));
        }
        return summarize_vms(&db).await.map(VmListResponse::Summary);
    }
    let after = page.cursor_key(&caller, PATH)?;
    let (found, next) = find::store::list_vms(&db, &filter, after, page.limit).await?;
    page.build_cut_page(&caller, PATH, found, next).map(VmListResponse::Page)
}

/// Machines that one order makes.
#[derive(Serialize, ToSchema)]
#[schema(example = json!({"data": []}))]
pub struct VmSet {
    pub data: Vec<Vm>,
}

/// Machines that an order would make.
#[derive(Serialize, ToSchema)]
#[schema(example = json!({"data": []}))]
pub struct VmPreviewSet {
    pub data: Vec<VmPreview>,
}

/// The JSON of the answer to an order.
pub fn to_json_answer(provisioned: &Provisioned) -> Result<Value> {
    let answer = match provisioned {
        Provisioned::One(vm) => serde_json::to_value(vm),
        Provisioned::Several(vms) => Ok(json!({ "data": vms })),
        Provisioned::Preview(vm) => serde_json::to_value(vm),
        Provisioned::Previews(vms) => Ok(json!({ "data": vms })),
    };
    answer.map_err(Error::internal)
}

/// The response of POST.
pub enum VmResponse {
    Ordered(Provisioned),
    Settled(Box<Vm>),
}

impl Reply for VmResponse {
    fn render_reply(&self) -> Result<RenderedReply> {
        match self {
            VmResponse::Ordered(made) => {
                let answer = to_json_answer(made)?;
                match made {
                    Provisioned::One(_) | Provisioned::Several(_) => Accepted(answer).render_reply(),
                    Provisioned::Preview(_) | Provisioned::Previews(_) => Ok200(answer).render_reply(),
                }
            }
            VmResponse::Settled(vm) => Accepted(vm).render_reply(),
        }
    }
}

/// The schema of an answer that is one of two.
struct EitherSchema<A, B>(std::marker::PhantomData<(A, B)>);

impl<A: ToSchema, B: ToSchema> PartialSchema for EitherSchema<A, B> {
    fn schema() -> RefOr<Schema> {
        let any_of = AnyOfBuilder::new().item(Ref::from_schema_name(A::name())).item(Ref::from_schema_name(B::name()));
        any_of.into()
    }
}

impl IntoResponses for VmResponse {
    fn responses() -> BTreeMap<String, RefOr<utoipa::openapi::Response>> {
        let mut responses = document_response::<EitherSchema<VmPreviewSet, VmPreview>>(
            "200",
            "What a dry run would make; nothing is stored.",
        );
        let accepted = "The machine with its operation, which goes on; with `count`, all of them.";
        responses.extend(document_response::<EitherSchema<VmSet, Vm>>("202", accepted));
        responses
    }
}

impl PartialSchema for VmRequest {
    fn schema() -> RefOr<Schema> {
        let names = [VmInput::name(), SettleInput::name()];
        names.into_iter().fold(OneOfBuilder::new(), |one_of, name| one_of.item(Ref::from_schema_name(name))).into()
    }
}

impl ToSchema for VmRequest {
    fn name() -> std::borrow::Cow<'static, str> {
        "VmRequest".into()
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        schemas.push((VmInput::name().into(), VmInput::schema()));
        schemas.push((SettleInput::name().into(), SettleInput::schema()));
        VmInput::schemas(schemas);
        SettleInput::schemas(schemas);
    }
}

/// Provision machines, or settle an operation
///
/// The order is stored before the cloud is asked, and answered with 202: `operation` tells how far it has come, and
/// `vm.provisioned` or `vm.failed` how it ends. A lost answer of the cloud never makes a second machine; where nobody can know
/// whether one was made, the operation is `needs_attention`, and
/// `{"action":"settle","id":…,"outcome":"retry"|"abandon"|"adopt"}` says what you have found in the cloud; `adopt` names the
/// machine by `external_id`. `abandon` also ends an order that is `accepted`. With `dry_run` nothing is stored.
#[utoipa::path(post, path = PATH, tag = "Cloud", operation_id = "provision_vms", request_body = VmRequest)]
pub async fn provision_vms(
    caller: Access<Writing>,
    idempotency: Idempotency,
    query: QueryString<()>,
    body: Json<VmRequest>,
) -> Result<IdempotentReply<VmResponse>> {
    let db = caller.db();
    query.parse()?;
    let body = body.read().await?;
    let (grant, secrets) = (caller.grant(), caller.app().secrets.clone());
    let (request, references) = (body.value, body.references);
    idempotency
        .run_once(&caller, &db, body.digest, async move |tx| {
            grant.confirm(tx).await?;
            match request {
                VmRequest::Provision(input) => {
                    provision(tx, *input, &references, &secrets).await.map(VmResponse::Ordered)
                }
                VmRequest::Settle(id, settlement) => {
                    settle_operation(tx, id, settlement).await.map(|vm| VmResponse::Settled(Box::new(vm)))
                }
            }
        })
        .await
}
