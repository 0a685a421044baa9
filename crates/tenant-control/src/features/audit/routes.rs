//! `/api/admin/audit`

use kernel::auth::{Access, Scope};
use kernel::base::{Code, Error, Result, Timestamp, is_record_id};
use kernel::http::{FromParams, List, Page, PageRequest, Params, Policy, Query, Rules};
use kernel::rules;
use utoipa::IntoParams;

use super::AuditEntry;
use super::store::{self, Filter};

const PATH: &str = "/api/admin/audit";

rules! {
    Reading = Rules::new(Policy::Read, &[Scope::AuditRead]);
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ListQuery {
    /// Who did it: ids of users or keys, as a comma list.
    #[param(value_type = Option<Vec<String>>, style = Form, explode = false)]
    actor_id: Option<Vec<String>>,
    /// What was done, such as `api_key.create`, as a comma list.
    #[param(value_type = Option<Vec<String>>, style = Form, explode = false)]
    action: Option<Vec<String>>,
    /// To which record, as a comma list of ids.
    #[param(value_type = Option<Vec<String>>, style = Form, explode = false)]
    target_id: Option<Vec<String>>,
    /// Not before this moment.
    #[param(value_type = Option<String>, format = DateTime)]
    since: Option<Timestamp>,
    /// Before this moment.
    #[param(value_type = Option<String>, format = DateTime)]
    until: Option<Timestamp>,
    #[param(ignore)]
    page: PageRequest,
}

impl FromParams for ListQuery {
    const NAMES: &'static [&'static str] = &["actor_id", "action", "target_id", "since", "until", "limit", "cursor"];

    fn from_params(params: &mut Params) -> Result<Self> {
        let id = |text: &str| is_record_id(text).then(|| text.to_owned());
        let action = |text: &str| is_action(text).then(|| text.to_owned());
        Ok(ListQuery {
            actor_id: params.take_list("actor_id", "the id of a user or key", id)?,
            action: params.take_list("action", "an action such as api_key.create", action)?,
            target_id: params.take_list("target_id", "the id of a record", id)?,
            since: params.take_time("since")?,
            until: params.take_time("until")?,
            page: PageRequest::take(params)?,
        })
    }
}

fn is_action(text: &str) -> bool {
    (1..=100).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_' || byte == b'.')
}

/// Read the audit trail
///
/// Newest first, kept for 400 days unless the operator sets another span. Filters narrow each other down. A request looks at
/// about 3,000 entries at most: where a combination of filters is rare, a page may hold fewer entries than its `limit`, even
/// none, while `has_more` is true; `next_cursor` goes on from there, and nothing is left out.
#[utoipa::path(
    get, path = PATH, tag = "Control plane", operation_id = "list_audit_entries", params(ListQuery, PageRequest)
)]
pub async fn list(caller: Access<Reading>, query: Query<ListQuery>) -> Result<Page<AuditEntry>> {
    let db = caller.db();
    let ListQuery { actor_id, action, target_id, since, until, page } = query.parse()?;
    let text = |any: &Option<Vec<String>>| any.as_ref().map(|any| any.join(","));
    let time = |at: Option<Timestamp>| at.map(|at| at.to_string());
    let filters = [
        ("actor_id", text(&actor_id)),
        ("action", text(&action)),
        ("target_id", text(&target_id)),
        ("since", time(since)),
        ("until", time(until)),
    ];
    let filters = filters.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
    let list = List { path: PATH, filters };
    let refused = || Error::new(Code::InvalidCursor, "The cursor was not made for this list.");
    let after =
        page.position(&caller, &list)?.map(|position| store::place(&position).ok_or_else(refused)).transpose()?;
    let filter = Filter { actor_id, action, target_id, since, until };
    let (entries, next) = store::list(&db, &filter, after, page.limit).await?;
    page.page_before(&caller, &list, entries, next.map(store::position))
}
