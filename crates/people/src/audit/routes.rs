//! `/api/admin/audit`

use kernel::auth::Scope;
use kernel::base::{Result, is_dotted, is_record_id};
use kernel::http::{Access, Api, FromParams, Page, PageRequest, Param, Params, Policy, Query, Rules};
use kernel::operations;
use kernel::rules;

use super::AuditEntry;
use super::store::{self, Filter};

/// The operations of this feature, and the schemas that their answers refer to.
pub fn mount(api: Api) -> Api {
    api.tenant(operations!(list)).schema::<Page<super::AuditEntry>>()
}

const PATH: &str = "/api/admin/audit";

rules! {
    Reading = Rules::new(Policy::Read, &[Scope::AuditRead]);
}

pub struct ListQuery {
    filter: Filter,
    page: PageRequest,
}

impl FromParams for ListQuery {
    fn from_params(params: &mut Params) -> Result<Self> {
        let id = |text: &str| is_record_id(text).then(|| text.to_owned());
        let action = |text: &str| is_dotted(text).then(|| text.to_owned());
        let actors = Param::new("actor_id", "Who did it: ids of users or keys, as a comma list.");
        let actions = Param::new("action", "What was done, such as `api_key.create`, as a comma list.");
        let targets = Param::new("target_id", "To which record, as a comma list of ids.");
        let filter = Filter {
            actor_id: params.take_list(actors, "the id of a user or key", id)?,
            action: params.take_list(actions, "an action such as api_key.create", action)?,
            target_id: params.take_list(targets, "the id of a record", id)?,
            since: params.take_time(Param::new("since", "Not before this moment."))?,
            until: params.take_time(Param::new("until", "Before this moment."))?,
        };
        Ok(ListQuery { filter, page: PageRequest::take(params)? })
    }
}

/// Read the audit trail
///
/// Newest first, kept for 400 days unless the operator sets another span. Filters narrow each other down. A request looks at
/// about 3,000 entries at most: where a combination of filters is rare, a page may hold fewer entries than its `limit`, even
/// none, while `has_more` is true; `next_cursor` goes on from there, and nothing is left out.
#[utoipa::path(
    get, path = PATH, tag = "Control plane", operation_id = "list_audit_entries", params(Query<ListQuery>)
)]
pub async fn list(caller: Access<Reading>, query: Query<ListQuery>) -> Result<Page<AuditEntry>> {
    let db = caller.db();
    let ListQuery { filter, page } = query.parse()?;
    let after = page.after(&caller, PATH)?;
    let (entries, next) = store::list(&db, &filter, after, page.limit).await?;
    page.page_before(&caller, PATH, entries, next)
}
