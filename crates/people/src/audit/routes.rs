//! `/api/admin/audit`

use kernel::auth::Scope;
use kernel::base::{Result, is_dotted, is_record_id};
use kernel::http::{
    Access, Api, FromParams, ListPage, PageRequest, Params, QueryParam, QueryString, RatePolicy, Rules,
};
use kernel::operations;
use kernel::rules;

use super::AuditEntry;
use super::store::{self, Filter};

/// The operations of this feature, and the schemas that their answers refer to.
pub fn mount(api: Api) -> Api {
    api.add_tenant_routes(operations!(list_audit_entries)).add_schema::<ListPage<super::AuditEntry>>()
}

const PATH: &str = "/api/admin/audit";

rules! {
    Reading = Rules::new(RatePolicy::Read, &[Scope::AuditRead]);
}

pub struct ListQuery {
    filter: Filter,
    page: PageRequest,
}

impl FromParams for ListQuery {
    fn from_params(params: &mut Params) -> Result<Self> {
        let id = |text: &str| is_record_id(text).then(|| text.to_owned());
        let action = |text: &str| is_dotted(text).then(|| text.to_owned());
        let actors = QueryParam::new("actor_id", "Who did it: ids of users or keys, as a comma list.");
        let actions = QueryParam::new("action", "What was done, such as `api_key.create`, as a comma list.");
        let targets = QueryParam::new("target_id", "To which record, as a comma list of ids.");
        let filter = Filter {
            actor_id: params.take_list(actors, "the id of a user or key", id)?,
            action: params.take_list(actions, "an action such as api_key.create", action)?,
            target_id: params.take_list(targets, "the id of a record", id)?,
            since: params.take_time(QueryParam::new("since", "Not before this moment."))?,
            until: params.take_time(QueryParam::new("until", "Before this moment."))?,
        };
        Ok(ListQuery { filter, page: PageRequest::take_page(params)? })
    }
}

/// Read the audit trail
///
/// Newest first, kept for 400 days unless the operator sets another span. All filters apply together. A request checks
/// about 3,000 entries at most: when matches are rare, a page may hold fewer entries than its `limit`, even none, while
/// `has_more` is true; `next_cursor` continues from there, and nothing is left out.
#[utoipa::path(
    get, path = PATH, tag = "Control plane", operation_id = "list_audit_entries", params(QueryString<ListQuery>)
)]
pub async fn list_audit_entries(
    caller: Access<Reading>,
    query: QueryString<ListQuery>,
) -> Result<ListPage<AuditEntry>> {
    let db = caller.db();
    let ListQuery { filter, page } = query.parse()?;
    let after = page.cursor_key(&caller, PATH)?;
    let (entries, next) = store::list_entries(&db, &filter, after, page.limit).await?;
    page.build_cut_page(&caller, PATH, entries, next)
}
