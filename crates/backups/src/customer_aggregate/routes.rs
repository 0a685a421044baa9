//! `/api/backup/customer-aggregate`

use axum::response::{IntoResponse, Response};
use kernel::auth::Scope;
use kernel::base::{Code, RecordId, Result};
use kernel::http::{
    Access, Api, FromParams, ListPage, Ok200, PageRequest, PageWith, Params, QueryParam, QueryString, RatePolicy,
    ResponseDocs, Rules,
};
use kernel::operations;
use kernel::rules;
use people::organizations::OrganizationId;
use serde_json::json;
use utoipa::openapi::{Ref, RefOr, Schema};
use utoipa::{IntoResponses, PartialSchema, ToSchema};

use super::store::{self, Filter};
use super::{BackupTotals, WithTotals};
use crate::posture::pending::store::apply_before_read;
use crate::posture::shown::CustomerPosture;

/// The operations of this feature, and the schemas that their answers refer to.
pub fn mount(api: Api) -> Api {
    api.add_tenant_routes(operations!(list_customers))
        .add_refusals("list_backup_postures", &[Code::NotFound])
        .add_schema::<PosturePage>()
}

const PATH: &str = "/api/backup/customer-aggregate";

rules! {
    Reading = Rules::new(RatePolicy::Read, &[Scope::BackupRead]);
}

pub struct ListQuery {
    filter: Filter,
    page: PageRequest,
}

impl FromParams for ListQuery {
    fn from_params(params: &mut Params) -> Result<Self> {
        let organization = QueryParam::new("organization_id", "Any of these organizations, as a comma list.");
        let health = QueryParam::new("health", "With any of these grades as a whole, as a comma list.");
        let filter = Filter {
            organization_ids: params
                .take_list(organization, "the id of an organization", |text| Some(parse_organization(text)))?,
            healths: params.take_enums(health)?,
        };
        Ok(ListQuery { filter, page: PageRequest::take_page(params)? })
    }
}

/// A malformed id is one that no organization has.
fn parse_organization(text: &str) -> OrganizationId {
    text.parse().unwrap_or(OrganizationId::NONE)
}

/// A page of customers, with the totals of all.
pub struct PosturePage(PageWith<CustomerPosture, WithTotals>);

impl IntoResponse for PosturePage {
    fn into_response(self) -> Response {
        self.0.into_response()
    }
}

impl PartialSchema for PosturePage {
    fn schema() -> RefOr<Schema> {
        let RefOr::T(Schema::Object(mut page)) = <ListPage<CustomerPosture>>::schema() else {
            return <ListPage<CustomerPosture>>::schema();
        };
        page.properties.insert("totals".to_owned(), Ref::from_schema_name(BackupTotals::name()).into());
        page.required.push("totals".to_owned());
        for example in &mut page.examples {
            let posture = &example["data"][0];
            example["totals"] = json!({
                "organizations": {"total": 1, "ok": 0, "unknown": 0, "warning": 1, "critical": 0},
                "devices": posture["devices"], "coverage_percent": posture["coverage_percent"], "rpo": posture["rpo"],
                "jobs_24h": posture["jobs_24h"], "storage_bytes": posture["storage_bytes"]
            });
        }
        RefOr::T(Schema::Object(page))
    }
}

impl ToSchema for PosturePage {
    fn name() -> std::borrow::Cow<'static, str> {
        <ListPage<CustomerPosture>>::name()
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        schemas.push((BackupTotals::name().into(), BackupTotals::schema()));
        BackupTotals::schemas(schemas);
        <ListPage<CustomerPosture>>::schemas(schemas);
    }
}

impl IntoResponses for PosturePage {
    fn responses() -> ResponseDocs {
        Ok200::<PosturePage>::responses()
    }
}

/// List how the backups of each customer stand
///
/// A row for each organization, the newest first, and at the end one with null for the devices that belong to none, if there
/// are any. Every grade names its reasons. `totals` are of all customers, whatever the filters.
#[utoipa::path(
    get, path = PATH, tag = "Recovery", operation_id = "list_backup_postures", params(QueryString<ListQuery>)
)]
pub async fn list_customers(caller: Access<Reading>, query: QueryString<ListQuery>) -> Result<PosturePage> {
    let db = caller.db();
    let ListQuery { filter, page } = query.parse()?;
    let after = page.cursor_key(&caller, PATH)?;
    apply_before_read(&db).await;
    let (found, next) = store::list_customers(&db, &filter, after, page.limit).await?;
    let totals = store::read_totals(&db).await?;
    Ok(PosturePage(page.build_cut_page(&caller, PATH, found, next)?.with_summary(WithTotals { totals })))
}
